"""APIServices: the name is the group version, priorities have bounds, and local ones are available at once.

Source: upstream `staging/src/k8s.io/kube-aggregator/pkg/apis/apiregistration/validation/validation.go`,
`staging/src/k8s.io/kube-aggregator/pkg/registry/apiservice/strategy.go`.
"""

import base64

from apiserver_fake.registry.strategy import WriteContext, declare_strategy
from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Cause,
    Causes,
    invalid,
    label_1035,
    not_supported,
    path_segment,
    required,
    subdomain,
)
from services.api.kinds.apiservice import API_SERVICES, AVAILABLE
from services.api.meta import Document
from services.api.times import format_time

LOCAL = {"type": AVAILABLE, "status": "True", "reason": "Local", "message": "Local APIServices are always available"}
GROUP_MAX, VERSION_MAX = 20_000, 1_000
_STATUSES = ("True", "False", "Unknown")


def _spec(spec: Document, at: str, report: Report) -> Causes:
    group, version = spec.get("group") or "", spec.get("version") or ""
    if group:
        yield from subdomain(f"{at}group", group)
    elif version != "v1":
        yield required(f"{at}group", "only v1 may have an empty group and it better be legacy kube")
    yield from label_1035(f"{at}version", version)
    for name, most in (("groupPriorityMinimum", GROUP_MAX), ("versionPriority", VERSION_MAX)):
        value = spec.get(name) or 0
        if not 0 < value <= most:
            yield invalid(f"{at}{name}", value, f"must be positive and less than {most}")
    authority, is_insecure = spec.get("caBundle") or "", bool(spec.get("insecureSkipTLSVerify"))
    service = spec.get("service")
    if service is None:
        if authority:
            size = f"{len(base64.b64decode(authority))} bytes"
            yield invalid(f"{at}caBundle", size, "local APIServices may not have a caBundle")
        if is_insecure:
            why = "local APIServices may not have insecureSkipTLSVerify"
            yield invalid(f"{at}insecureSkipTLSVerify", is_insecure, why)
        return
    for name in ("namespace", "name"):
        if not service.get(name):
            yield required(f"{at}service.{name}")
    if is_insecure and authority:
        yield invalid(f"{at}insecureSkipTLSVerify", is_insecure, "may not be true if caBundle is present")


def _name(old: Document | None, new: Document, ctx: WriteContext) -> list[Cause]:
    spec, name = new.get("spec") or {}, new["metadata"].get("name") or ""
    wanted = f"{spec.get('version') or ''}.{spec.get('group') or ''}"
    if name and name != wanted:
        return [invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{wanted}"')]
    return []


def _local_at_once(new: Document, ctx: WriteContext) -> None:
    new["status"] = {}
    if (new.get("spec") or {}).get("service") is None:
        new["status"] = {"conditions": [{**LOCAL, "lastTransitionTime": format_time(ctx.wall_s)}]}


def _statuses(old: Document, new: Document, ctx: WriteContext) -> Causes:
    for index, each in enumerate((new.get("status") or {}).get("conditions") or ()):
        if each.get("status") not in _STATUSES:
            yield not_supported(f"status.conditions[{index}].status", each.get("status"), _STATUSES)


STRATEGIES = {
    API_SERVICES: declare_strategy(
        Struct(
            Field("spec", missing={}, struct=Struct(_spec, Field("service", struct=Struct(Field("port", default=443)))))
        ),
        name=path_segment,
        has_status=True,
        on_create=_local_at_once,
        rules=_name,
        status_rules=_statuses,
    )
}
