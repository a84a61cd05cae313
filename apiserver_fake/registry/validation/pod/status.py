"""Rules of a pod's status: allowed values, and allowed changes of the stored status.

Source: upstream `pkg/apis/core/validation/validation.go` (v1.36): `ValidatePodStatusUpdate`, `validatePodIPs`,
`validateHostIPs`, `ValidateContainerStateTransition`; upstream `pkg/api/v1/pod/util.go`,
`ContainerShouldRestart`.
"""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address

from apiserver_fake.registry.validation.fields import Field, Report, Struct
from apiserver_fake.registry.validation.formats import (
    Cause,
    Causes,
    address,
    forbidden,
    invalid,
    plain_text,
    qualified_name,
    too_many,
)
from apiserver_fake.registry.validation.formats import subdomain as node_name
from apiserver_fake.registry.validation.pod.claims import device_health, extended_resource_claim, made_claims
from apiserver_fake.registry.validation.pod.scope import as_internal
from services.api.meta import Document

_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_LISTS = (
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", ""),
)
ID_MAX = 2**31 - 1
_CONDITIONS_MAX = 64
_REMEMBERED_MAX = 1 << 10
"""Maximum length of a message with which a condition is remembered as valid."""


def _condition_type(condition: Document, at: str, report: Report) -> Causes:
    kind = condition.get("type") or ""
    return qualified_name(f"{at}Type", kind) if kind not in _SYSTEM_CONDITIONS else ()


@lru_cache(maxsize=1024)
def _is_valid_condition(kind: str | None, reason: str | None, message: str | None, generation: int | None) -> bool:
    """Whether a condition with these members has no error: nothing else of a condition is checked."""
    report = Report()
    members = {"type": kind, "reason": reason, "message": message, "observedGeneration": generation}
    _CONDITION.check(members, "", report)
    return not report.causes


def _conditions(conditions: list[Document], path: str, report: Report) -> Causes:
    """Check conditions; what was found valid once is not checked again."""
    if len(conditions) > _CONDITIONS_MAX:
        yield from too_many(path, len(conditions), _CONDITIONS_MAX)
    for index, condition in enumerate(conditions[:_CONDITIONS_MAX]):
        get = condition.get
        members = get("type"), get("reason"), get("message"), get("observedGeneration")
        if len(members[2] or "") > _REMEMBERED_MAX or not _is_valid_condition(*members):
            _CONDITION.check(condition, f"{path}[{index}].", report)


_GENERATION = Field("observedGeneration", minimum=0, text="must be a non-negative integer")
_CONDITION = Struct(_GENERATION, _condition_type, Field("reason", form=plain_text), Field("message", form=plain_text))
STATUS = Struct(
    Field("conditions", most=_CONDITIONS_MAX, items=_CONDITION, is_checked=False, rule=_conditions),
    Field("reason", form=plain_text),
    Field("message", form=plain_text),
    _GENERATION,
)


def check_status(old: Document, new: Document, report: Report) -> list[Cause]:
    """Return the errors in a new status, given the stored pod."""
    before, status, spec = old.get("status") or {}, new.get("status") or {}, old.get("spec") or {}
    STATUS.check(status, "status.", report)
    causes = report.causes
    nominated = status.get("nominatedNodeName") or ""
    if nominated and nominated != (before.get("nominatedNodeName") or ""):
        causes += node_name("status.nominatedNodeName", nominated)
    for name, kind in _LISTS:
        if (was := before.get(name)) and was != status.get(name):
            causes += _restarts(was, status.get(name) or (), spec, kind, f"status.{name}")
    if (claim_statuses := status.get("resourceClaimStatuses")) and claim_statuses != before.get(
        "resourceClaimStatuses"
    ):
        causes += made_claims(claim_statuses, spec, "status.resourceClaimStatuses")
    extended = status.get("extendedResourceClaimStatus")
    if extended is not None and extended != before.get("extendedResourceClaimStatus"):
        causes += extended_resource_claim(extended, spec, "status.extendedResourceClaimStatus")
    # The same addresses were right when they were stored.
    if status.get("podIP") != before.get("podIP") or status.get("podIPs") != before.get("podIPs"):
        causes += _pod_addresses(status, before)
    if status.get("hostIP") != before.get("hostIP") or status.get("hostIPs") != before.get("hostIPs"):
        causes += _host_addresses(status, before)
    is_windows = (spec.get("os") or {}).get("name") == "windows"
    for name, kind in _LISTS:
        has_health = False
        for index, container_status in enumerate(status.get(name) or ()):
            has_health = has_health or "allocatedResourcesStatus" in container_status
            path = f"status.{name}[{index}]"
            if user := (container_status.get("user") or {}).get("linux"):
                causes += _user(user, f"{path}.user.linux", is_windows=is_windows)
            if container_status.get("allocatedResourcesStatus") and not kind:
                text = "must not be specified in container status"
                causes.append(forbidden(f"{path}.allocatedResourcesStatus", text))
        if kind and has_health:
            causes += device_health(status[name], spec.get(kind) or (), f"status.{name}")
    return causes


def _restarts(before: list[Document], after: Iterable[Document], spec: Document, kind: str, path: str) -> Causes:
    """Yield which containers leave the state terminated though they are not restarted."""
    states = {each.get("name"): each.get("state") or {} for each in after}
    containers = {each.get("name"): each for each in spec.get(kind) or ()} if kind else {}
    for index, was in enumerate(before):
        ended, name = (was.get("state") or {}).get("terminated"), was.get("name")
        if ended is None or name not in states or states[name].get("terminated") is not None:
            continue
        container = containers.get(name)
        if container is None or not _is_restarted(container, spec, ended.get("exitCode") or 0):
            yield forbidden(f"{path}[{index}].state", "may not be transitioned to non-terminated state")


def _is_restarted(container: Document, spec: Document, code: int) -> bool:
    own = container.get("restartPolicy")
    if own is not None:
        for rule in container.get("restartPolicyRules") or ():
            codes = rule.get("exitCodes") or {}
            if (code in (codes.get("values") or ())) == (codes.get("operator") == "In"):
                return True
    policy = spec.get("restartPolicy", "Always") if own is None else own
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def _pod_addresses(status: Document, before: Document) -> Causes:
    """Check the addresses of a pod; where the list does not begin with the one, the one counts (conversion of v1)."""
    one, listed = status.get("podIP") or "", _listed_ips(status, "podIPs")
    if one and listed[:1] != [one]:
        listed = [one]
    yield from _families(listed, [*_listed_ips(before, "podIPs"), before.get("podIP") or ""], "status.podIPs")


def _host_addresses(status: Document, before: Document) -> Causes:
    listed = _listed_ips(status, "hostIPs")
    if listed and (status.get("hostIP") or "") != listed[0]:
        yield invalid("status.hostIPs[0].ip", listed[0], "must be equal to `hostIP`")
    yield from _families(listed, _listed_ips(before, "hostIPs"), "status.hostIPs")


def _listed_ips(status: Document, name: str) -> list[str]:
    return [each.get("ip") or "" for each in status.get(name) or ()]


def _families(listed: list[str], known: list[str], path: str) -> Causes:
    """Check addresses that are new, and that there is at most one of each family."""
    wrong = [cause for i, each in enumerate(listed) if each not in known for cause in address(f"{path}[{i}]", each)]
    yield from wrong
    if len(listed) > 1 and not wrong and (len(listed) > 2 or len({ip_address(each).version for each in listed}) < 2):
        shown = [as_internal((("IP", each),)) for each in listed]
        yield invalid(path, shown, "may specify no more than one IP for each IP family")


def _user(user: Document, path: str, *, is_windows: bool) -> Causes:
    if is_windows:
        yield forbidden(path, "cannot be set for a windows pod")
        return
    ids = [(f"{path}.{name}", user.get(name) or 0) for name in ("uid", "gid")]
    groups = [(f"{path}.supplementalGroups[{i}]", each) for i, each in enumerate(user.get("supplementalGroups") or ())]
    for here, value in (*ids, *groups):
        if not 0 <= value <= ID_MAX:
            yield invalid(here, value, f"must be between 0 and {ID_MAX}, inclusive")
