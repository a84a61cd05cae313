"""Rules and defaults of one container, and of the containers of a pod together.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36): `validateContainers`, `validateInitContainers`,
`validateEphemeralContainers` and what they call; KEP-753 for sidecars, KEP-5307 for a container's own restart policy
and rules by exit code (gate ContainerRestartRules), kep-1287 3 for `resizePolicy`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from apiserver_fake.registry.validation.fields import Check, Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Causes,
    duplicate,
    forbidden,
    invalid,
    label,
    not_supported,
    plain_text,
    port_name,
    required,
    too_many,
    unknown,
)
from apiserver_fake.registry.validation.pod.environment import VARIABLE, VARIABLES
from apiserver_fake.registry.validation.pod.images import PULL_POLICIES, pull_policy
from apiserver_fake.registry.validation.pod.mounts import mounts_and_devices
from apiserver_fake.registry.validation.pod.probes import LIFECYCLE, ONCE, READINESS
from apiserver_fake.registry.validation.pod.resources import check_resources
from apiserver_fake.registry.validation.pod.security import CONTAINER_CONTEXT
from services.api.meta import Document

CONTAINERS_MAX, RULES_MAX, CODES_MAX, CODE_MAX = 100, 20, 255, 255
RESTART_POLICIES = ("Always", "Never", "OnFailure")
RESIZABLE = ("cpu", "memory")
RESIZE_POLICIES = ("NotRequired", "RestartContainer")


def _port_name(port: Document, at: str, report: Report) -> Causes:
    name = port.get("name")
    if not name:
        return
    if wrong := [*port_name(f"{at}name", name)]:
        yield from wrong
    elif name in report.seen:
        yield duplicate(f"{at}name", name)
    else:
        report.seen.add(name)


def _host_port(port: int, path: str, report: Report) -> Causes:
    if port and not 1 <= port <= 65535:
        yield invalid(path, port, "must be between 1 and 65535, inclusive")


_PORT = Struct(
    _port_name,
    Field("containerPort", required=True, missing=0, minimum=1, maximum=65535),
    Field("hostPort", rule=_host_port),
    Field("protocol", default="TCP", is_blank_absent=True, enum=("SCTP", "TCP", "UDP")),
)


def _host_ports_once(containers: Iterable[tuple[str, Document]], report: Report) -> None:
    """Check that containers which run beside each other have each port of the host once."""
    taken: set[str] = set()
    for at, container in containers:
        for index, port in enumerate(container.get("ports") or ()):
            if not (host := port.get("hostPort")):
                continue
            key = f"{port.get('protocol') or ''}/{port.get('hostIP') or ''}/{host}"
            if key in taken:
                report.causes.append(duplicate(f"{at}.ports[{index}].hostPort", key))
            taken.add(key)


def without_own_policies(spec: Document) -> Document:
    """Return the spec as a server with the gate off stores it: without restart policies of containers, except
    sidecars.
    """
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


def _few_codes(codes: list[int], path: str, report: Report) -> Causes:
    return too_many(path, len(codes), CODES_MAX)


RESTART_ALL = "RestartAllContainers"


def _restart_action(action: str, path: str, report: Report) -> Causes:
    """Refuse what the gate RestartAllContainersOnContainerExits brings, unless the stored object has it already.

    Without the gate ContainerRestartRules no pod keeps a rule, whatever it says.
    """
    switches, stored = report.switches, report.update[0] if report.update is not None else None
    allows_all = switches.restart_all_containers or not switches.container_restart_rules
    allows_all = allows_all or (stored is not None and restarts_all(stored))
    known = ("Restart", RESTART_ALL) if allows_all else ("Restart",)
    if action not in known:
        yield not_supported(path, action, known)


def restarts_all(stored: Document) -> bool:
    """Whether a container of a stored pod, or of an object's pod template, restarts all other containers when
    it exits.
    """
    spec = stored.get("spec") or {}
    spec = (spec.get("jobTemplate") or {}).get("spec") or spec
    spec = (spec.get("template") or {}).get("spec") or spec
    return any(
        rule.get("action") == RESTART_ALL
        for kind in ("containers", "initContainers")
        for container in spec.get(kind) or ()
        for rule in container.get("restartPolicyRules") or ()
    )


_RESTART_RULE = Struct(
    Field("action", missing="", rule=_restart_action),
    Field(
        "exitCodes",
        required="must be specified",
        missing={},
        struct=Struct(
            Field("operator", missing="", enum=("In", "NotIn")),
            Field("values", rule=_few_codes),
            Field("values", items=Field(minimum=0, maximum=CODE_MAX)),
        ),
    ),
)
_OWN_POLICY = Struct(
    _rules_need_a_policy,
    Field("restartPolicy", enum=RESTART_POLICIES),
    Field("restartPolicyRules", most=RULES_MAX, items=_RESTART_RULE),
)


def _policy_of_init_container(container: Document, at: str, report: Report) -> None:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules")
    if policy is None:
        report.causes += _rules_need_a_policy(container, at, report)
    elif policy != "Always":
        _OWN_POLICY.check(container, at, report)
    elif rules:
        text = "restartPolicyRules are not allowed for init containers with restart policy Always"
        report.causes.append(forbidden(f"{at}restartPolicyRules", text))


def _resize_policies(policies: list[Document], path: str, report: Report) -> Causes:
    """Each resource once, cpu and memory alone; what is wrong inside is named by the list, as upstream does."""
    seen: set[str] = set()
    never = report.scope.spec.get("restartPolicy") == "Never"
    for index, policy in enumerate(policies):
        resource, restart = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if resource in seen:
            yield duplicate(f"{path}[{index}]", resource)
        seen.add(resource)
        for value, allowed in ((resource, RESIZABLE), (restart, RESIZE_POLICIES)):
            if not value:
                yield required(path)
            elif value not in allowed:
                yield not_supported(path, value, allowed)
        # A pod that never restarts its containers cannot ask for a restart either.
        if never and restart != "NotRequired":
            yield invalid(path, restart, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")


def _image(image: str, path: str, report: Report) -> Causes:
    return plain_text(path, image)


_COMMON: tuple[Field | Check, ...] = (
    Field("resources", default={}),
    Field("terminationMessagePath", default="/dev/termination-log", is_blank_absent=True),
    Field("name", required=True, form=label),
    Field("image", required=True, rule=_image),
    Field("terminationMessagePolicy", default="File", is_blank_absent=True, enum=("File", "FallbackToLogsOnError")),
    Field("ports", items=_PORT),
    Field("env", items=VARIABLE),
    Field("envFrom", items=VARIABLES),
    mounts_and_devices,
    Field(
        "imagePullPolicy",
        default=lambda container: pull_policy(container.get("image") or ""),
        is_blank_absent=True,
        enum=PULL_POLICIES,
    ),
    Field("resources", rule=check_resources),
    Field("resizePolicy", rule=_resize_policies),
    Field("securityContext", struct=CONTAINER_CONTEXT),
)
_RUNNING = Struct(
    Field("lifecycle", struct=LIFECYCLE),
    Field("livenessProbe", struct=ONCE),
    Field("readinessProbe", struct=READINESS),
    Field("startupProbe", struct=ONCE),
)
"""Hooks and probes, for containers that run concurrently."""
CONTAINER = Struct(*_COMMON, *(Field(each.name, struct=each.struct, is_checked=False) for each in _RUNNING.fields))
"""Field table of all containers, with the defaults of fields that only some containers may have."""
HOOKS = ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
_NO_HOOKS = "may not be set for init containers without restartPolicy=Always"


def check_containers(containers: list[Document], path: str, report: Report) -> Iterable[Any]:
    """Check the containers that run concurrently."""
    causes, names = report.causes, set()
    for index, container in enumerate(containers):
        at = f"{path}[{index}]."
        CONTAINER.check(container, at, report)
        name = container.get("name") or ""
        if name in names:
            causes.append(duplicate(f"{at}name", name))
        names.add(name)
        _RUNNING.check(container, at, report)
        if "restartPolicy" in container or "restartPolicyRules" in container:
            _OWN_POLICY.check(container, at, report)
    _host_ports_once(((f"{path}[{index}]", each) for index, each in enumerate(containers)), report)
    return ()


def check_init_containers(containers: list[Document], path: str, report: Report) -> Iterable[Any]:
    """Check the init containers, including sidecars."""
    causes = report.causes
    names = {each.get("name") or "" for each in report.scope.spec.get("containers") or ()}
    for index, container in enumerate(containers):
        at = f"{path}[{index}]."
        CONTAINER.check(container, at, report)
        _policy_of_init_container(container, at, report)
        name, is_sidecar = container.get("name") or "", container.get("restartPolicy") == "Always"
        if name in names:
            causes.append(duplicate(f"{at}name", name))
        elif name:
            names.add(name)
        # As upstream: each is looked at by itself, and named as the first.
        _host_ports_once([(f"{path}[0]", container)], report)
        if is_sidecar:
            _RUNNING.check(container, at, report)
            continue
        causes += [forbidden(f"{at}{each}", _NO_HOOKS) for each in HOOKS if container.get(each) is not None]
        for place, policy in enumerate(container.get("resizePolicy") or ()):
            if policy.get("restartPolicy") == "RestartContainer":
                text = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                causes.append(invalid(f"{at}resizePolicy[{place}].restartPolicy", "RestartContainer", text))
    return ()


NOT_EPHEMERAL = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)
"""Fields that an ephemeral container cannot have, because it is no part of the pod's service or its allocation."""
_NOT_EPHEMERAL_TEXT = "cannot be set for an Ephemeral Container"


def check_ephemeral_containers(containers: list[Document], path: str, report: Report) -> Iterable[Any]:
    """Check ephemeral containers, which debug a running pod (KEP-277)."""
    causes, spec = report.causes, report.scope.spec
    others = {each.get("name") or "" for kind in ("containers", "initContainers") for each in spec.get(kind) or ()}
    names = set(others)
    for index, container in enumerate(containers):
        at = f"{path}[{index}]."
        CONTAINER.check(container, at, report)
        _check_image(container, at, report)
        name, target = container.get("name") or "", container.get("targetContainerName") or ""
        if name in names:
            causes.append(duplicate(f"{at}name", name))
        names.add(name)
        if target and target not in others:
            causes.append(unknown(f"{at}targetContainerName", target))
        causes += [forbidden(f"{at}{each}", _NOT_EPHEMERAL_TEXT) for each in NOT_EPHEMERAL if container.get(each)]
        for place, mount in enumerate(container.get("volumeMounts") or ()):
            for field_name in ("subPath", "subPathExpr"):
                if mount.get(field_name):
                    causes.append(forbidden(f"{at}volumeMounts[{place}].{field_name}", _NOT_EPHEMERAL_TEXT))
    return ()


def _check_image(container: Mapping[str, Any], at: str, report: Report) -> None:
    image = container.get("image") or ""
    if image != image.strip():
        report.causes.append(invalid(f"{at}image", image, "must not have leading or trailing whitespace"))


def check_images(spec: Document, at: str, report: Report) -> None:
    """Check that the image names of a pod have no surrounding whitespace; templates may have it."""
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            _check_image(container, f"{at}{kind}[{index}].", report)
