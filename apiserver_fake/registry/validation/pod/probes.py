"""Rules of probes and lifecycle hooks: one handler each, and its timing.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36): `validateProbe`, `validateHandler`,
`validateLifecycle`, `validateStopSignal`; KEP-3960 for sleeping hooks, KEP-4960 for stop signals.
"""

from apiserver_fake.registry.validation.fields import Check, Field, Report, Struct
from apiserver_fake.registry.validation.formats import Causes, forbidden, header_name, invalid, port, required
from services.api.meta import Document

_SCHEMES = ("HTTP", "HTTPS")


def _headers(headers: list[Document], path: str, report: Report) -> Causes:
    for header in headers:
        yield from header_name(path, header.get("name") or "")


def _sleeps_within_grace(sleep: Document, at: str, report: Report) -> Causes:
    seconds, grace = sleep.get("seconds") or 0, report.scope.spec.get("terminationGracePeriodSeconds")
    if grace is not None and not 0 <= seconds <= grace:
        text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        yield invalid(at[:-1], seconds, text)


_PORT = Field("port", missing=0, form=port)
_HANDLERS = (
    Field("exec", struct=Struct(Field("command", required=True, missing=[]))),
    Field(
        "httpGet",
        struct=Struct(
            Field("path", default="/", is_blank_absent=True, required=True),
            _PORT,
            Field("scheme", default="HTTP", is_blank_absent=True, enum=_SCHEMES),
            Field("httpHeaders", rule=_headers),
        ),
    ),
    Field("tcpSocket", struct=Struct(_PORT)),
)
_GRPC = Field("grpc", struct=Struct(_PORT, Field("service", default="")))
_SLEEP = Field("sleep", struct=Struct(_sleeps_within_grace))


def _one_of(*handlers: Field) -> Check:
    """Return the rule of a handler: exactly one of these, whose own rules are checked."""
    rules = {field.name: field.compile_check() for field in handlers}

    def check(handler: Document, at: str, report: Report) -> Causes:
        is_first = True
        for name, rule in rules.items():
            value = handler.get(name)
            if value is None:
                continue
            if is_first:
                if rule is not None:
                    yield from rule(value, f"{at}{name}", report)
            else:
                yield forbidden(f"{at}{name}", "may not specify more than 1 handler type")
            is_first = False
        if is_first:
            yield required(at[:-1], "must specify a handler type")

    return check


def _once(count: int, path: str, report: Report) -> Causes:
    if count != 1:
        yield invalid(path, count, "must be 1")


def _not_for_readiness(seconds: int, path: str, report: Report) -> Causes:
    yield invalid(path, seconds, "must not be set for readinessProbes")


def _unchecked_field(field: Field) -> Field:
    return Field(field.name, struct=field.struct, is_checked=False)


def _probe(*last: Field) -> Struct:
    return Struct(
        _one_of(*_HANDLERS, _GRPC),
        Field("initialDelaySeconds", minimum=0),
        Field("timeoutSeconds", default=1, is_blank_absent=True, minimum=0),
        Field("periodSeconds", default=10, is_blank_absent=True, minimum=0),
        Field("successThreshold", default=1, is_blank_absent=True, minimum=0),
        Field("failureThreshold", default=3, is_blank_absent=True, minimum=0),
        Field("terminationGracePeriodSeconds", minimum=1, text="must be greater than 0"),
        *last,
        *map(_unchecked_field, (*_HANDLERS, _GRPC)),
    )


ONCE = _probe(Field("successThreshold", rule=_once))
"""Field table of a liveness or startup probe, whose success threshold is 1."""
READINESS = _probe(Field("terminationGracePeriodSeconds", rule=_not_for_readiness))


_HOOK = Struct(_one_of(*_HANDLERS, _SLEEP), *map(_unchecked_field, _HANDLERS))
LIFECYCLE = Struct(Field("postStart", struct=_HOOK), Field("preStop", struct=_HOOK))
