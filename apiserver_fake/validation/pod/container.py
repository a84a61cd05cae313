"""Rules and defaults of one container.

The texts are upstream's (`pkg/apis/core/validation`). Source: KEP-5307 for a container's own restart policy and rules
by exit code above it (gate ContainerRestartRules), kep-1287 3 for `resizePolicy`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from apiserver_fake.validation.fields import Check, Field, Report, Struct, unique
from apiserver_fake.validation.formats import (
    Cause,
    Causes,
    duplicate,
    forbidden,
    invalid,
    label,
    plain_text,
    qualified_name,
    quantity,
    required,
    unsupported,
)
from services.api.meta import Document
from services.api.numa import PREFIX, page_size
from services.api.quantity import amount

CONTAINER_LISTS = ("initContainers", "containers", "ephemeralContainers")
RULES_MAX, CODES_MAX, CODE_MAX = 20, 255, 255
RESTART_POLICIES = ("Always", "Never", "OnFailure")
RESIZABLE = ("cpu", "memory")
RESIZE_POLICIES = ("NotRequired", "RestartContainer")
STANDARD = frozenset(("cpu", "memory", "ephemeral-storage"))


@dataclass
class PodScope:
    """What the containers of one pod share: its restart policy, its volumes, and what is taken already.

    `causes_before`: how many rules were broken before this pod was looked at.
    """

    restart_policy: str
    volumes: Mapping[str, Any]
    causes_before: int
    names: set[str] = field(default_factory=set)
    host_ports: set[tuple[Any, ...]] = field(default_factory=set)


def _host_port(port: Document, at: str, report: Report) -> Causes:
    host = port.get("hostPort")
    if not host:
        return
    if not 1 <= host <= 65535:
        yield invalid(f"{at}hostPort", host, "must be between 1 and 65535, inclusive")
        return
    # Init containers run one after another, so each shares its ports with none; all others run beside each other.
    container = at.rpartition(".ports[")[0]
    among = container if container.rpartition("[")[0].endswith("initContainers") else ""
    used = (among, port.get("protocol", "TCP"), port.get("hostIP", ""), host)
    if used in report.scope.host_ports:
        yield duplicate(f"{at}hostPort", "/".join(map(str, used[1:])))
    report.scope.host_ports.add(used)


_PORT = Struct(
    Field("containerPort", required=True, missing=0, minimum=1, maximum=65535),
    _host_port,
    Field("protocol", default="TCP", enum=("SCTP", "TCP", "UDP")),
    unique("name", is_empty_a_key=False),
)


def _one_source(variable: Document, at: str, report: Report) -> Causes:
    if variable.get("name") and variable.get("value") and variable.get("valueFrom"):
        yield invalid(f"{at}valueFrom", "", "may not be specified when `value` is not empty")


_VARIABLE = Struct(Field("name", required=True), _one_source)


def _known_volume(name: str, path: str, report: Report) -> Causes:
    if name not in report.scope.volumes:
        yield Cause(path, "FieldValueNotFound", f'Not found: "{name}"')


_MOUNT = Struct(Field("name", required=True, rule=_known_volume), Field("mountPath", required=True))
_PROBE = Struct(
    Field("timeoutSeconds", default=1),
    Field("periodSeconds", default=10),
    Field("successThreshold", default=1),
    Field("failureThreshold", default=3),
    Field("httpGet", struct=Struct(Field("path", default="/"), Field("scheme", default="HTTP"))),
)


def _image(image: str, path: str, report: Report) -> Causes:
    if image != image.strip():
        yield invalid(path, image, "must not have leading or trailing whitespace")
    elif wrong := plain_text(path, image):
        yield from wrong


def _pull_policy(container: Mapping[str, Any]) -> str:
    image = container.get("image") or ""
    if "@" in image:
        return "IfNotPresent"
    return "Always" if image.rpartition("/")[2].partition(":")[2] in ("", "latest") else "IfNotPresent"


def check_resources(resources: Document, path: str, report: Report) -> Causes:
    """Yield what is wrong with limits and requests, each in itself and beside each other."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    causes: list[Cause] = []
    for part, values in (("limits", limits), ("requests", requests)):
        for name, text in values.items():
            causes += qualified_name(f"{path}.{part}", name)
            if "/" not in name and name not in STANDARD and not name.startswith(PREFIX):
                causes.append(invalid(f"{path}.{part}", name, "must be a standard resource type or fully qualified"))
            causes += quantity(f"{path}.{part}[{name}]", name, text)
    if causes:
        yield from causes
        return
    for name, text in requests.items():
        may_differ = name in STANDARD
        if name in limits:
            limit, request = amount(name, limits[name]), amount(name, text)
            if not may_differ and limit != request:
                yield invalid(f"{path}.requests", text, f"must be equal to {name} limit of {limits[name]}")
            elif request > limit:
                yield invalid(f"{path}.requests", text, f"must be less than or equal to {name} limit of {limits[name]}")
        elif not may_differ:
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    yield from _check_hugepages(limits, requests, path)


def _check_hugepages(limits: Document, requests: Document, path: str) -> Causes:
    """Huge pages come in whole pages, and never alone."""
    asked = [(name, text) for part in (limits, requests) for name, text in part.items() if name.startswith(PREFIX)]
    for name, text in asked:
        try:
            is_whole = amount(name, text) % page_size(name) == 0
        except ValueError:
            is_whole = False
        if not is_whole:
            yield invalid(path, text, f"{text} is not positive integer multiple of {name}")
    if asked and not {"cpu", "memory"} & {*limits, *requests}:
        yield forbidden(path, "HugePages require cpu or memory")


def without_own_policies(spec: Document) -> Document:
    """Return the spec as a server whose gate is off takes it: of all this only sidecars are left."""
    changed = dict(spec)
    for kind in ("initContainers", "containers"):
        if containers := spec.get(kind):
            changed[kind] = [_without(each, is_init=kind == "initContainers") for each in containers]
    return changed


def _without(container: Document, *, is_init: bool) -> Document:
    dropped = ["restartPolicyRules"]
    if not (is_init and container.get("restartPolicy") == "Always"):
        dropped.append("restartPolicy")
    return {name: value for name, value in container.items() if name not in dropped}


def _rules_need_a_policy(container: Document, at: str, report: Report) -> Causes:
    if container.get("restartPolicyRules") and container.get("restartPolicy") is None:
        yield required(f"{at}restartPolicy", "must specify restartPolicy when restart rules are used")


_RESTART_RULE = Struct(
    Field("action", missing="", enum=("Restart",)),
    Field(
        "exitCodes",
        required="must be specified",
        missing={},
        struct=Struct(
            Field("operator", missing="", enum=("In", "NotIn")),
            Field("values", required=True, missing=[], most=CODES_MAX, items=Field(minimum=0, maximum=CODE_MAX)),
        ),
    ),
)
_OWN_POLICY: tuple[Field | Check, ...] = (
    Field("restartPolicy", enum=RESTART_POLICIES),
    _rules_need_a_policy,
    Field("restartPolicyRules", most=RULES_MAX, items=_RESTART_RULE),
)


def _not_for_ephemeral(value: Any, path: str, report: Report) -> Causes:
    yield forbidden(path, "may not be set for ephemeral containers")


_NO_POLICY: tuple[Field | Check, ...] = (
    Field("restartPolicy", rule=_not_for_ephemeral),
    Field("restartPolicyRules", rule=_not_for_ephemeral),
)


def _resize_policies(policies: list[Document], path: str, report: Report) -> Causes:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        resource, restart = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if resource in seen:
            yield duplicate(f"{path}[{index}]", resource)
        seen.add(resource)
        for value, allowed in ((resource, RESIZABLE), (restart, RESIZE_POLICIES)):
            if not value:
                yield required(path)
            elif value not in allowed:
                yield unsupported(path, value, allowed)
        # A pod that never restarts its containers cannot ask for a restart either.
        if report.scope.restart_policy == "Never" and restart != "NotRequired":
            yield invalid(path, restart, "must be 'NotRequired' when `restartPolicy` is 'Never'")


def _unique_name(container: Document, at: str, report: Report) -> Causes:
    """No two containers of a pod have one name, whichever lists they are in."""
    if name := container.get("name"):
        if name in report.scope.names:
            yield duplicate(f"{at}name", name)
        report.scope.names.add(name)


def _container(*restarts: Field | Check) -> Struct:
    return Struct(
        Field("name", required=True, form=label),
        Field("image", required=True, rule=_image),
        Field("resources", default={}),
        Field("terminationMessagePath", default="/dev/termination-log"),
        Field("terminationMessagePolicy", default="File", enum=("FallbackToLogsOnError", "File")),
        Field("imagePullPolicy", default=_pull_policy, enum=("Always", "IfNotPresent", "Never")),
        *restarts,
        Field("env", items=_VARIABLE),
        Field("volumeMounts", items=_MOUNT),
        Field("ports", items=_PORT),
        Field("resources", rule=check_resources),
        Field("livenessProbe", struct=_PROBE),
        Field("readinessProbe", struct=_PROBE),
        Field("startupProbe", struct=_PROBE),
        Field("resizePolicy", rule=_resize_policies),
        _unique_name,
    )


CONTAINER, EPHEMERAL_CONTAINER = _container(*_OWN_POLICY), _container(*_NO_POLICY)
