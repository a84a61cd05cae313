"""Defaults and rules of a pod's spec, wherever it stands: in a Pod or in a workload's template.

Defaults copy what they change (a patched document shares the rest with the stored one). The texts of
the rules are upstream's (`pkg/apis/core/validation`).
"""

from __future__ import annotations

from typing import Any

from apiserver_fake.rules import Cause
from apiserver_fake.validation import (
    IMMUTABLE,
    duplicate,
    forbidden,
    invalid,
    label,
    label_selector,
    label_value,
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
from services.api.meta import Document
from services.api.quantity import amount

CONTAINERS_MAX, TOLERATIONS_MAX, TERMS_MAX, CLAIMS_MAX, GATES_MAX = 100, 200, 100, 32, 32
_LISTS = ("initContainers", "containers", "ephemeralContainers")


def with_defaults(spec: Document) -> Document:
    """Return the spec as the API server completes it for pods and templates alike."""
    completed: Document = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        **spec,
    }
    for name in ("restartPolicy", "dnsPolicy", "schedulerName"):
        if completed[name] == "":
            completed[name] = {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst"}.get(name, "default-scheduler")
    is_on_host = bool(spec.get("hostNetwork"))
    for kind in _LISTS:
        if containers := spec.get(kind):
            completed[kind] = [_container(each, is_on_host) for each in containers]
    if volumes := spec.get("volumes"):
        completed["volumes"] = [_volume(each) for each in volumes]
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        completed["serviceAccountName"] = completed["serviceAccount"] = account
    return completed


def _container(container: Document, is_on_host: bool) -> Document:
    completed: Document = {
        "resources": {},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": _pull_policy(container.get("image") or ""),
        **container,
    }
    if ports := container.get("ports"):
        completed["ports"] = [
            {
                **({"hostPort": port["containerPort"]} if is_on_host and port.get("containerPort") else {}),
                "protocol": "TCP",
                **port,
            }
            for port in ports
        ]
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe := container.get(name):
            completed[name] = _probe(probe)
    return completed


def _pull_policy(image: str) -> str:
    if "@" in image:
        return "IfNotPresent"
    tag = image.rpartition("/")[2].partition(":")[2]
    return "Always" if tag in ("", "latest") else "IfNotPresent"


def _probe(probe: Document) -> Document:
    completed = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3, **probe}
    if "httpGet" in probe:
        completed["httpGet"] = {"path": "/", "scheme": "HTTP", **probe["httpGet"]}
    return completed


_VOLUME_MODES = ("secret", "configMap", "downwardAPI", "projected")


def _volume(volume: Document) -> Document:
    if len(volume) == 1 and "name" in volume:
        return {**volume, "emptyDir": {}}
    for source in _VOLUME_MODES:
        if isinstance(volume.get(source), dict):
            return {**volume, source: {"defaultMode": 420, **volume[source]}}
    if isinstance(volume.get("hostPath"), dict):
        return {**volume, "hostPath": {"type": "", **volume["hostPath"]}}
    return volume


def requests_from_limits(spec: Document) -> Document:
    """Return the spec with each limit that has no request taken as the request (pods only, as upstream)."""
    completed = dict(spec)
    for kind in _LISTS[:2]:
        if containers := spec.get(kind):
            completed[kind] = [_requested(each) for each in containers]
    return completed


def _requested(container: Document) -> Document:
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    if all(name in requests for name in limits):
        return container
    missing = {name: value for name, value in limits.items() if name not in requests}
    return {**container, "resources": {**resources, "requests": {**requests, **missing}}}


_TAINTS = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def tolerations_with_defaults(tolerations: list[Document], seconds: int = 300) -> list[Document]:
    """Return the tolerations plus 300 s for unready and unreachable nodes (DefaultTolerationSeconds)."""
    missing = [
        taint
        for taint in _TAINTS
        if not any(
            each.get("key", "") in ("", taint) and each.get("effect", "") in ("", "NoExecute") for each in tolerations
        )
    ]
    return tolerations + [
        {"key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds} for taint in missing
    ]


def qos_class(spec: Document) -> str:
    """Return Guaranteed, Burstable or BestEffort (core/v1 helper `ComputePodQOS`). Quantities must be valid."""
    pod_level = spec.get("resources") or {}
    has_any, is_guaranteed = False, True
    sources = (
        [pod_level]
        if pod_level.get("requests") or pod_level.get("limits")
        else [container.get("resources") or {} for kind in _LISTS[:2] for container in spec.get(kind) or ()]
    )
    for resources in sources:
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            limit = amount(name, limits[name]) if name in limits else 0
            request = amount(name, requests[name]) if name in requests else limit
            has_any = has_any or bool(limit or request)
            is_guaranteed = is_guaranteed and limit > 0 and limit == request
    if not has_any:
        return "BestEffort"
    return "Guaranteed" if is_guaranteed else "Burstable"


# --- rules ------------------------------------------------------------------------------------------------------------


def check(spec: Document, at: str) -> list[Cause]:
    """Return what is wrong with a spec; `at` is its path (`spec`, `spec.template.spec`)."""
    causes: list[Cause] = []
    volumes = _check_volumes(spec.get("volumes") or [], f"{at}.volumes", causes)
    names: set[str] = set()
    host_ports: set[tuple[Any, ...]] = set()
    if not spec.get("containers"):
        causes.append(required(f"{at}.containers"))
    for kind in _LISTS:
        containers = spec.get(kind) or []
        causes += too_many(f"{at}.{kind}", len(containers), CONTAINERS_MAX)
        for index, container in enumerate(containers[:CONTAINERS_MAX]):
            here = f"{at}.{kind}[{index}]"
            _check_container(container, here, kind, volumes, host_ports, causes)
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
    _check_tolerations(spec.get("tolerations") or [], f"{at}.tolerations", causes)
    _check_affinity(spec.get("affinity") or {}, f"{at}.affinity", causes)
    _check_spread(spec.get("topologySpreadConstraints") or [], f"{at}.topologySpreadConstraints", causes)
    _check_gates(spec, at, causes)
    claims = spec.get("resourceClaims") or []
    causes += too_many(f"{at}.resourceClaims", len(claims), CLAIMS_MAX)
    for name, text in (spec.get("overhead") or {}).items():
        causes += quantity(f"{at}.overhead[{name}]", name, text)
    _check_resources(spec.get("resources") or {}, f"{at}.resources", causes)
    return causes


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
    policy = container.get("restartPolicy")
    if kind == "initContainers" and policy is not None:
        _check_one_of(container, "restartPolicy", ("Always",), at, causes)
    elif kind == "ephemeralContainers" and policy is not None:
        causes.append(forbidden(f"{at}.restartPolicy", "may not be set for ephemeral containers"))
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
            if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
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


_STANDARD = frozenset(("cpu", "memory", "ephemeral-storage"))


def _check_tolerations(tolerations: list[Document], at: str, causes: list[Cause]) -> None:
    causes += too_many(at, len(tolerations), TOLERATIONS_MAX)
    for index, each in enumerate(tolerations[:TOLERATIONS_MAX]):
        here = f"{at}[{index}]"
        key, operator, effect = each.get("key") or "", each.get("operator") or "", each.get("effect") or ""
        if key:
            causes += qualified_name(f"{here}.key", key)
        elif operator != "Exists":
            causes.append(
                invalid(
                    f"{here}.operator",
                    operator,
                    'operator must be Exists when `key` is empty, which means "match all values and all keys"',
                )
            )
        if each.get("tolerationSeconds") is not None and effect != "NoExecute":
            causes.append(
                invalid(f"{here}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
            )
        if operator in ("", "Equal"):
            causes += label_value(f"{here}.operator", each.get("value") or "")
        elif operator == "Exists":
            if each.get("value"):
                causes.append(
                    invalid(f"{here}.operator", each["value"], "value must be empty when `operator` is 'Exists'")
                )
        else:
            causes.append(unsupported(f"{here}.operator", operator, ("Equal", "Exists")))
        if effect and effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            causes.append(unsupported(f"{here}.effect", effect, ("NoExecute", "NoSchedule", "PreferNoSchedule")))


_HARD, _SOFT = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"


def _check_affinity(affinity: Document, at: str, causes: list[Cause]) -> None:
    node = affinity.get("nodeAffinity") or {}
    here = f"{at}.nodeAffinity"
    if (hard := node.get(_HARD)) is not None:
        terms = hard.get("nodeSelectorTerms") or []
        if not terms:
            causes.append(required(f"{here}.{_HARD}.nodeSelectorTerms", "must have at least one node selector term"))
        causes += too_many(f"{here}.{_HARD}.nodeSelectorTerms", len(terms), TERMS_MAX)
        for index, term in enumerate(terms[:TERMS_MAX]):
            _check_node_term(term, f"{here}.{_HARD}.nodeSelectorTerms[{index}]", causes)
    soft = node.get(_SOFT) or []
    causes += too_many(f"{here}.{_SOFT}", len(soft), TERMS_MAX)
    for index, term in enumerate(soft[:TERMS_MAX]):
        _check_weight(term, f"{here}.{_SOFT}[{index}]", causes)
        _check_node_term(term.get("preference") or {}, f"{here}.{_SOFT}[{index}].preference", causes)
    for side in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(side) or {}
        here = f"{at}.{side}"
        hard_terms, soft_terms = pods.get(_HARD) or [], pods.get(_SOFT) or []
        causes += too_many(f"{here}.{_HARD}", len(hard_terms), TERMS_MAX)
        causes += too_many(f"{here}.{_SOFT}", len(soft_terms), TERMS_MAX)
        for index, term in enumerate(hard_terms[:TERMS_MAX]):
            _check_pod_term(term, f"{here}.{_HARD}[{index}]", causes)
        for index, term in enumerate(soft_terms[:TERMS_MAX]):
            _check_weight(term, f"{here}.{_SOFT}[{index}]", causes)
            _check_pod_term(term.get("podAffinityTerm") or {}, f"{here}.{_SOFT}[{index}].podAffinityTerm", causes)


def _check_weight(term: Document, at: str, causes: list[Cause]) -> None:
    weight = term.get("weight", 0)
    if not 1 <= weight <= 100:
        causes.append(invalid(f"{at}.weight", weight, "must be in the range 1-100"))


def _check_node_term(term: Document, at: str, causes: list[Cause]) -> None:
    for index, each in enumerate(term.get("matchExpressions") or []):
        here = f"{at}.matchExpressions[{index}]"
        _check_node_requirement(each, here, causes)
        causes += qualified_name(f"{here}.key", each.get("key") or "")
    for index, each in enumerate(term.get("matchFields") or []):
        here = f"{at}.matchFields[{index}]"
        if each.get("key") != "metadata.name":
            causes.append(invalid(f"{here}.key", each.get("key") or "", "not a valid field selector key"))
        if each.get("operator") not in ("In", "NotIn"):
            causes.append(invalid(f"{here}.operator", each.get("operator") or "", "not a valid selector operator"))
        elif len(each.get("values") or []) != 1:
            causes.append(
                required(
                    f"{here}.values",
                    "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
                )
            )


def _check_node_requirement(each: Document, at: str, causes: list[Cause]) -> None:
    operator, values = each.get("operator") or "", each.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            causes.append(required(f"{at}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            causes.append(
                forbidden(f"{at}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
            )
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            causes.append(required(f"{at}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    else:
        causes.append(invalid(f"{at}.operator", operator, "not a valid selector operator"))


def _check_pod_term(term: Document, at: str, causes: list[Cause]) -> None:
    if not term.get("topologyKey"):
        causes.append(required(f"{at}.topologyKey", "can not be empty"))
    else:
        causes += qualified_name(f"{at}.topologyKey", term["topologyKey"])
    for name in ("labelSelector", "namespaceSelector"):
        if term.get(name):
            causes += label_selector(f"{at}.{name}", term[name])


def _check_spread(constraints: list[Document], at: str, causes: list[Cause]) -> None:
    causes += too_many(at, len(constraints), TERMS_MAX)
    seen: set[tuple[str, str]] = set()
    for index, each in enumerate(constraints[:TERMS_MAX]):
        here = f"{at}[{index}]"
        skew, key, action = each.get("maxSkew", 0), each.get("topologyKey") or "", each.get("whenUnsatisfiable") or ""
        if skew <= 0:
            causes.append(invalid(f"{here}.maxSkew", skew, "must be greater than zero"))
        if not key:
            causes.append(required(f"{here}.topologyKey", "can not be empty"))
        if action not in ("DoNotSchedule", "ScheduleAnyway"):
            causes.append(unsupported(f"{here}.whenUnsatisfiable", action, ("DoNotSchedule", "ScheduleAnyway")))
        if (key, action) in seen:
            causes.append(duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        seen.add((key, action))
        if each.get("labelSelector"):
            causes += label_selector(f"{here}.labelSelector", each["labelSelector"])


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


def template_with_defaults(template: Document) -> Document:
    """Return a workload's template with the defaults of pods."""
    return {**template, "spec": with_defaults(template.get("spec") or {})}


def check_template(spec: Document, kind: str) -> list[Cause]:
    """Return what is wrong with `spec.selector` and `spec.template` of a ReplicaSet or Deployment."""
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
    causes += check(pod, "spec.template.spec")
    if pod.get("restartPolicy", "Always") != "Always":
        causes.append(unsupported("spec.template.spec.restartPolicy", pod["restartPolicy"], ("Always",)))
    if pod.get("activeDeadlineSeconds") is not None:
        causes.append(
            forbidden(
                "spec.template.spec.activeDeadlineSeconds", "activeDeadlineSeconds in ReplicaSet is not Supported"
            )
        )
    for name in ("replicas", "minReadySeconds", "revisionHistoryLimit"):
        causes += not_negative(f"spec.{name}", spec.get(name))
    return causes


# --- updates ----------------------------------------------------------------------------------------------------------

_FROZEN = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check_update(old: Document, new: Document) -> list[Cause]:
    """Return what a pod's new spec may not change (upstream `ValidatePodUpdate`)."""
    if old == new:
        return []
    causes: list[Cause] = []
    was_gated = bool(old.get("schedulingGates"))
    kept = {gate.get("name") for gate in old.get("schedulingGates") or []}
    for gate in new.get("schedulingGates") or []:
        if gate.get("name") not in kept:
            causes.append(
                forbidden(
                    "spec.schedulingGates",
                    f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'",
                )
            )
    before, after = old.get("activeDeadlineSeconds"), new.get("activeDeadlineSeconds")
    if before is not None and after is None:
        causes.append(
            invalid("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value")
        )
    elif before is not None and after is not None and after > before:
        causes.append(
            invalid("spec.activeDeadlineSeconds", after, f"must be less than or equal to previous value, {before}")
        )
    tolerations = [_timeless(each) for each in new.get("tolerations") or []]
    if any(_timeless(each) not in tolerations for each in old.get("tolerations") or []):
        causes.append(
            forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
        )
    if was_gated:
        causes += _tightened(old, new)
    frozen_old, frozen_new = _frozen(old, was_gated), _frozen(new, was_gated)
    changed = [
        name for name in dict.fromkeys([*frozen_old, *frozen_new]) if frozen_old.get(name) != frozen_new.get(name)
    ]
    if changed:
        causes.append(forbidden("spec", f"{_FROZEN}; changed: {', '.join(f'spec.{name}' for name in changed)}"))
    return causes


def _timeless(toleration: Document) -> Document:
    return {name: value for name, value in toleration.items() if name != "tolerationSeconds"}


def _frozen(spec: Document, was_gated: bool) -> Document:
    """Return the spec with everything that may change taken out."""
    rest = {
        name: value
        for name, value in spec.items()
        if name not in ("activeDeadlineSeconds", "tolerations", "schedulingGates")
        and not (was_gated and name in ("nodeSelector", "affinity"))
        and value not in (None, "", [], {})
    }
    for kind in ("containers", "initContainers"):
        if kind in rest:
            rest[kind] = [{**container, "image": ""} for container in rest[kind]]
    if rest.get("terminationGracePeriodSeconds", 0) in (1, -1):
        rest["terminationGracePeriodSeconds"] = 1
    return rest


def _tightened(old: Document, new: Document) -> list[Cause]:
    # While gated, the wish may only become narrower (KEP-3838).
    selector = new.get("nodeSelector") or {}
    causes: list[Cause] = []
    if any(selector.get(key) != value for key, value in (old.get("nodeSelector") or {}).items()):
        causes.append(invalid("spec.nodeSelector", selector, "only additions are allowed while the pod is gated"))
    before, after = old.get("affinity") or {}, new.get("affinity") or {}
    for name in ("podAffinity", "podAntiAffinity"):
        if before.get(name) != after.get(name):
            causes.append(invalid(f"spec.affinity.{name}", after.get(name), IMMUTABLE))
    terms, wanted = _required_terms(before), _required_terms(after)
    for index, term in enumerate(terms):
        now = wanted[index] if len(wanted) == len(terms) else {}
        for part in ("matchExpressions", "matchFields"):
            if any(each not in (now.get(part) or []) for each in term.get(part) or []):
                here = f"spec.affinity.nodeAffinity.{_HARD}.nodeSelectorTerms[{index}]"
                causes.append(invalid(here, now, "only additions are allowed (no mutations or deletions)"))
    return causes


def _required_terms(affinity: Document) -> list[Document]:
    hard = (affinity.get("nodeAffinity") or {}).get(_HARD) or {}
    terms: list[Document] = hard.get("nodeSelectorTerms") or []
    return terms
