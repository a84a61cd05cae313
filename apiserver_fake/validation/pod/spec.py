"""Rules of a pod's spec, wherever it stands: in a Pod or in a workload's template.

The texts are upstream's (`pkg/apis/core/validation`). Where a pod may go has rules of its own in
`pod_placement_rules`, what may change later in `pod_update_rules`.
"""

from __future__ import annotations

from typing import Any

from apiserver_fake.strategy import Cause
from apiserver_fake.validation.formats import (
    duplicate,
    forbidden,
    invalid,
    label,
    label_selector,
    labels,
    not_negative,
    plain_text,
    qualified_name,
    quantity,
    required,
    selects,
    subdomain,
    too_many,
    unsupported,
)
from apiserver_fake.validation.pod import pod_level
from apiserver_fake.validation.pod.claims import check_claims
from apiserver_fake.validation.pod.container_restarts import check_restarts
from apiserver_fake.validation.pod.defaults import CONTAINER_LISTS
from apiserver_fake.validation.pod.placement import check_affinity, check_spread, check_tolerations
from apiserver_fake.validation.pod.resize_policy import check_resize_policy
from services.api.hugepages import PREFIX, page_size
from services.api.meta import Document
from services.api.quantity import amount

CONTAINERS_MAX, GATES_MAX = 100, 32


def check(spec: Document, at: str, *, comparing: bool = False) -> list[Cause]:
    """Return what is wrong with a spec; `at` is its path (`spec`, `spec.template.spec`).

    `comparing`: tolerations may compare numbers (TaintTolerationComparisonOperators).
    """
    causes: list[Cause] = []
    volumes = _check_volumes(spec.get("volumes") or [], f"{at}.volumes", causes)
    names: set[str] = set()
    host_ports: set[tuple[Any, ...]] = set()
    if not spec.get("containers"):
        causes.append(required(f"{at}.containers"))
    for kind in CONTAINER_LISTS:
        containers = spec.get(kind) or []
        causes += too_many(f"{at}.{kind}", len(containers), CONTAINERS_MAX)
        for index, container in enumerate(containers[:CONTAINERS_MAX]):
            here = f"{at}.{kind}[{index}]"
            _check_container(container, here, kind, volumes, host_ports, causes)
            if policies := container.get("resizePolicy"):
                causes += check_resize_policy(policies, f"{here}.resizePolicy", spec.get("restartPolicy") or "")
            if name := container.get("name"):
                if name in names:
                    causes.append(duplicate(f"{here}.name", name))
                names.add(name)
    _check_one_of(spec, "restartPolicy", ("Always", "OnFailure", "Never"), at, causes)
    _check_one_of(spec, "dnsPolicy", ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"), at, causes)
    _check_one_of(spec, "preemptionPolicy", ("Never", "PreemptLowerPriority"), at, causes)
    causes += not_negative(f"{at}.terminationGracePeriodSeconds", spec.get("terminationGracePeriodSeconds"))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        causes.append(invalid(f"{at}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive"))
    causes += labels(f"{at}.nodeSelector", spec.get("nodeSelector") or {})
    for name in ("schedulerName", "nodeName", "priorityClassName", "serviceAccountName", "runtimeClassName"):
        if spec.get(name):
            causes += subdomain(f"{at}.{name}", spec[name])
    check_tolerations(spec.get("tolerations") or [], f"{at}.tolerations", causes, comparing=comparing)
    check_affinity(spec.get("affinity") or {}, f"{at}.affinity", causes)
    check_spread(spec.get("topologySpreadConstraints") or [], f"{at}.topologySpreadConstraints", causes)
    _check_gates(spec, at, causes)
    if (group := spec.get("schedulingGroup")) is not None:
        name, here = group.get("podGroupName") or "", f"{at}.schedulingGroup.podGroupName"
        causes += subdomain(here, name) if name else [required(here)]
    causes += check_claims(spec, at)
    for name, text in (spec.get("overhead") or {}).items():
        causes += quantity(f"{at}.overhead[{name}]", name, text)
    _check_resources(spec.get("resources") or {}, f"{at}.resources", causes)
    return causes or pod_level.check(spec, at)


def _check_one_of(holder: Document, name: str, allowed: tuple[str, ...], at: str, causes: list[Cause]) -> None:
    value = holder.get(name)
    if value is not None and value not in allowed:
        causes.append(unsupported(f"{at}.{name}", value, allowed))


def _check_volumes(volumes: list[Document], at: str, causes: list[Cause]) -> set[str]:
    names: set[str] = set()
    for index, volume in enumerate(volumes):
        name = volume.get("name") or ""
        if not name:
            causes.append(required(f"{at}[{index}].name"))
            continue
        causes += label(f"{at}[{index}].name", name)
        if name in names:
            causes.append(duplicate(f"{at}[{index}].name", name))
        names.add(name)
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and not claim.get("claimName"):
            causes.append(required(f"{at}[{index}].persistentVolumeClaim.claimName"))
        ephemeral = volume.get("ephemeral")
        if ephemeral is not None and not ephemeral.get("volumeClaimTemplate"):
            causes.append(required(f"{at}[{index}].ephemeral.volumeClaimTemplate"))
    return names


def _check_container(
    container: Document,
    at: str,
    kind: str,
    volumes: set[str],
    host_ports: set[tuple[Any, ...]],
    causes: list[Cause],
) -> None:
    if name := container.get("name"):
        causes += label(f"{at}.name", name)
    else:
        causes.append(required(f"{at}.name"))
    image = container.get("image") or ""
    if not image:
        causes.append(required(f"{at}.image"))
    elif image != image.strip():
        causes.append(invalid(f"{at}.image", image, "must not have leading or trailing whitespace"))
    else:
        causes += plain_text(f"{at}.image", image)
    _check_one_of(container, "imagePullPolicy", ("Always", "IfNotPresent", "Never"), at, causes)
    _check_one_of(container, "terminationMessagePolicy", ("FallbackToLogsOnError", "File"), at, causes)
    causes += check_restarts(container, at, kind)
    for index, variable in enumerate(container.get("env") or []):
        if not variable.get("name"):
            causes.append(required(f"{at}.env[{index}].name"))
        elif variable.get("value") and variable.get("valueFrom"):
            causes.append(invalid(f"{at}.env[{index}].valueFrom", "", "may not be specified when `value` is not empty"))
    for index, mount in enumerate(container.get("volumeMounts") or []):
        here = f"{at}.volumeMounts[{index}]"
        if not mount.get("name"):
            causes.append(required(f"{here}.name"))
        elif mount["name"] not in volumes:
            causes.append(Cause(f"{here}.name", "FieldValueNotFound", f'Not found: "{mount["name"]}"'))
        if not mount.get("mountPath"):
            causes.append(required(f"{here}.mountPath"))
    _check_ports(container.get("ports") or [], f"{at}.ports", host_ports, causes)
    _check_resources(container.get("resources") or {}, f"{at}.resources", causes)


def _check_ports(ports: list[Document], at: str, host_ports: set[tuple[Any, ...]], causes: list[Cause]) -> None:
    names: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{at}[{index}]"
        number, host = port.get("containerPort"), port.get("hostPort")
        if not number:
            causes.append(required(f"{here}.containerPort"))
        elif not 1 <= number <= 65535:
            causes.append(invalid(f"{here}.containerPort", number, "must be between 1 and 65535, inclusive"))
        if host and not 1 <= host <= 65535:
            causes.append(invalid(f"{here}.hostPort", host, "must be between 1 and 65535, inclusive"))
        elif host:
            used = (port.get("protocol", "TCP"), port.get("hostIP", ""), host)
            if used in host_ports:
                causes.append(duplicate(f"{here}.hostPort", f"{used[0]}/{used[1]}/{host}"))
            host_ports.add(used)
        _check_one_of(port, "protocol", ("SCTP", "TCP", "UDP"), here, causes)
        if name := port.get("name"):
            if name in names:
                causes.append(duplicate(f"{here}.name", name))
            names.add(name)


def _check_resources(resources: Document, at: str, causes: list[Cause]) -> None:
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    start = len(causes)
    for part, values in (("limits", limits), ("requests", requests)):
        for name, text in values.items():
            causes += qualified_name(f"{at}.{part}", name)
            if "/" not in name and name not in _STANDARD and not name.startswith(PREFIX):
                causes.append(invalid(f"{at}.{part}", name, "must be a standard resource type or fully qualified"))
            causes += quantity(f"{at}.{part}[{name}]", name, text)
    if len(causes) > start:
        return
    for name, text in requests.items():
        may_differ = name in _STANDARD
        if name in limits:
            limit, request = amount(name, limits[name]), amount(name, text)
            if not may_differ and limit != request:
                causes.append(invalid(f"{at}.requests", text, f"must be equal to {name} limit of {limits[name]}"))
            elif request > limit:
                causes.append(
                    invalid(f"{at}.requests", text, f"must be less than or equal to {name} limit of {limits[name]}")
                )
        elif not may_differ:
            causes.append(required(f"{at}.limits", "Limit must be set for non overcommitable resources"))
    _check_hugepages(limits, requests, at, causes)


def _check_hugepages(limits: Document, requests: Document, at: str, causes: list[Cause]) -> None:
    """Huge pages come in whole pages, and never alone."""
    asked = [(name, text) for part in (limits, requests) for name, text in part.items() if name.startswith(PREFIX)]
    for name, text in asked:
        try:
            is_whole = amount(name, text) % page_size(name) == 0
        except ValueError:
            is_whole = False
        if not is_whole:
            causes.append(invalid(at, text, f"{text} is not positive integer multiple of {name}"))
    if asked and not {"cpu", "memory"} & {*limits, *requests}:
        causes.append(forbidden(at, "HugePages require cpu or memory"))


_STANDARD = frozenset(("cpu", "memory", "ephemeral-storage"))


def _check_gates(spec: Document, at: str, causes: list[Cause]) -> None:
    gates = spec.get("schedulingGates") or []
    causes += too_many(f"{at}.schedulingGates", len(gates), GATES_MAX)
    names: set[str] = set()
    for index, gate in enumerate(gates[:GATES_MAX]):
        name = gate.get("name") or ""
        causes += qualified_name(f"{at}.schedulingGates[{index}].name", name)
        if name in names:
            causes.append(duplicate(f"{at}.schedulingGates[{index}].name", name))
        names.add(name)


_POD_MAKERS = {
    "replicaset": "ReplicaSet", "deployment": "ReplicaSet", "daemonset": "DaemonSet", "statefulset": "StatefulSet",
}  # fmt: skip
"""Who makes the pods of a workload, as refusals name it."""


def check_template(spec: Document, kind: str, *, comparing: bool = False, is_whole: bool = True) -> list[Cause]:
    """Return what is wrong with `spec.selector` and `spec.template` of a workload whose pods always restart.

    `is_whole`: whether the template says all of a pod, so that it can be judged as one.
    """
    causes: list[Cause] = []
    selector, template = spec.get("selector"), spec.get("template") or {}
    own = (template.get("metadata") or {}).get("labels") or {}
    if selector is None:
        causes.append(required("spec.selector"))
    else:
        wrong = label_selector("spec.selector", selector)
        causes += wrong
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            causes.append(invalid("spec.selector", selector, f"empty selector is invalid for {kind}"))
        elif not wrong and not selects(selector, own):
            causes.append(invalid("spec.template.metadata.labels", own, "`selector` does not match template `labels`"))
    if spec.get("template") is None:
        causes.append(required("spec.template"))
        return causes
    causes += labels("spec.template.metadata.labels", own)
    pod = template.get("spec") or {}
    if is_whole:
        causes += check(pod, "spec.template.spec", comparing=comparing)
    if pod.get("restartPolicy", "Always") != "Always":
        causes.append(unsupported("spec.template.spec.restartPolicy", pod["restartPolicy"], ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {_POD_MAKERS[kind]} is not Supported"
        causes.append(forbidden("spec.template.spec.activeDeadlineSeconds", text))
    for name in ("replicas", "minReadySeconds", "revisionHistoryLimit"):
        causes += not_negative(f"spec.{name}", spec.get(name))
    return causes
