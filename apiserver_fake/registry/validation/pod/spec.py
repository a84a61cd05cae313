"""The field table of a pod's spec, in a Pod or in a workload's template.

Rules are in upstream's order, so that a refusal lists errors in that order. Rules for changes are in `update`.
Lists have limits that upstream does not have (guarantees V7). Source: upstream
`pkg/apis/core/validation/validation.go` (v1.36): `ValidatePodSpec`, `ValidatePodCreate`,
`validatePodMetadataAndSpec`, `ValidatePodTemplateSpec`.
"""

import re

import msgspec

from apiserver_fake.registry.switches import NO_GATES, ApiServerSwitches
from apiserver_fake.registry.validation.fields import Check, Field, RememberedStruct, Report, Struct
from apiserver_fake.registry.validation.formats import (
    NEGATIVE_TEXT,
    Cause,
    Causes,
    annotations,
    duplicate,
    forbidden,
    invalid,
    label,
    label_selector,
    labels,
    not_supported,
    qualified_name,
    required,
    selects,
    subdomain,
)
from apiserver_fake.registry.validation.pod.annotations import check_agreement, check_annotations
from apiserver_fake.registry.validation.pod.claims import CLAIMS_MAX, POD_CLAIM
from apiserver_fake.registry.validation.pod.container import (
    CONTAINER,
    CONTAINERS_MAX,
    check_containers,
    check_ephemeral_containers,
    check_images,
    check_init_containers,
)
from apiserver_fake.registry.validation.pod.defaults import check_pod_level
from apiserver_fake.registry.validation.pod.environment import files_are_in_empty_dirs
from apiserver_fake.registry.validation.pod.network import (
    DNS_POLICIES,
    HOST_ALIAS,
    dns_config,
    host_name,
    ports_of_host,
)
from apiserver_fake.registry.validation.pod.placement import AFFINITY, SPREAD, TERMS_MAX, TOLERATION, TOLERATIONS_MAX
from apiserver_fake.registry.validation.pod.resources import check_overhead, check_pod_resources
from apiserver_fake.registry.validation.pod.scope import CONTAINER_LISTS, PodScope
from apiserver_fake.registry.validation.pod.security import POD_CONTEXT, host_processes, own_users, system
from apiserver_fake.registry.validation.pod.volumes import VOLUME, check_volumes
from services.api.kinds.pod import TOKEN_VOLUME_PREFIX
from services.api.meta import Document

GATES_MAX = 32
RESTART_POLICIES = ("Always", "OnFailure", "Never")
PREEMPTION_POLICIES = ("PreemptLowerPriority", "Never")


def _open_scope(spec: Document, at: str, report: Report) -> Causes:
    names = [name for each in spec.get("resourceClaims") or () if (name := each.get("name"))]
    report.scope = PodScope(spec, report.pod, names)
    return ()


def _agree_with_pod_level(resources: Document, path: str, report: Report) -> Causes:
    if report.scope.os != "windows":
        yield from check_pod_level(report.scope.spec, path)


def _complete(spec: Document) -> None:
    if spec.get("hostNetwork"):
        for kind in CONTAINER_LISTS:
            for container in spec.get(kind) or ():
                if ports := container.get("ports"):
                    container["ports"] = [_on_host(port) for port in ports]
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _on_host(port: Document) -> Document:
    if not port.get("containerPort") or port.get("hostPort"):
        return port
    return {"hostPort": port["containerPort"], **{name: value for name, value in port.items() if name != "hostPort"}}


def _gates(gates: list[Document], path: str, report: Report) -> Causes:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        yield from qualified_name(f"{path}[{index}]", name)
        if name in seen:
            yield duplicate(f"{path}[{index}]", name)
        seen.add(name)


def _group(group: Document, at: str, report: Report) -> Causes:
    name = group.get("podGroupName")
    if name is None:
        yield invalid(f"{at}podGroupName", None, "must specify one of: `podGroupName`")
    else:
        yield from subdomain(f"{at}podGroupName", name)


_TOKEN_VOLUME = re.compile(rb'"(%b[a-z0-9]{5})"' % TOKEN_VOLUME_PREFIX.encode())


def _spec_identity(spec: Document, report: Report) -> bytes | None:
    """Return what the rules of a spec look at, as JSON; None where they look at the name of its pod.

    Ports of the host's network are a matter of pods alone, so that a template is no pod here. The volume of an
    account's token, whose name is drawn, has none.
    """
    if any(each.get("ephemeral") is not None for each in spec.get("volumes") or ()):
        return None  # claims are named after the pod
    text = msgspec.json.encode(spec)
    if (match := _TOKEN_VOLUME.search(text)) is not None:
        text = text.replace(match[1], b"\0")
    return text if report.pod is None else b"\1" + text


POD_SPEC = RememberedStruct(
    _spec_identity,
    # The defaults, in the order in which they are written.
    Field("restartPolicy", default="Always", is_blank_absent=True),
    Field("terminationGracePeriodSeconds", default=30),
    Field("dnsPolicy", default="ClusterFirst", is_blank_absent=True),
    Field("schedulerName", default="default-scheduler", is_blank_absent=True),
    Field("securityContext", default={}),
    # The rules, in upstream's order.
    _open_scope,
    Field("volumes", items=VOLUME, is_checked=False, rule=check_volumes),
    Field("resourceClaims", most=CLAIMS_MAX, items=POD_CLAIM),
    Field("containers", required=True, missing=[]),
    Field("containers", most=CONTAINERS_MAX),
    Field("containers", items=CONTAINER, is_checked=False, rule=check_containers),
    Field("initContainers", most=CONTAINERS_MAX),
    Field("initContainers", items=CONTAINER, is_checked=False, rule=check_init_containers),
    Field("ephemeralContainers", most=CONTAINERS_MAX),
    Field("ephemeralContainers", items=CONTAINER, is_checked=False, rule=check_ephemeral_containers),
    Field("resources", rule=check_pod_resources),
    Field("resources", rule=_agree_with_pod_level),
    ports_of_host,
    Field("restartPolicy", enum=RESTART_POLICIES),
    Field("dnsPolicy", enum=DNS_POLICIES),
    Field("nodeSelector", form=labels),
    Field("securityContext", struct=POD_CONTEXT),
    Field("affinity", struct=AFFINITY),
    dns_config,
    Field("readinessGates", items=Struct(Field("conditionType", missing="", form=qualified_name))),
    Field("schedulingGates", most=GATES_MAX),
    Field("schedulingGates", rule=_gates),
    Field("topologySpreadConstraints", most=TERMS_MAX, items=SPREAD),
    host_processes,
    own_users,
    Field("hostnameOverride", rule=host_name),
    Field("serviceAccountName", form=subdomain),
    Field("nodeName", form=subdomain),
    Field("activeDeadlineSeconds", minimum=1, maximum=2**31 - 1),
    Field("hostname", form=label),
    Field("subdomain", form=label),
    Field("tolerations", most=TOLERATIONS_MAX, items=TOLERATION),
    Field("hostAliases", items=HOST_ALIAS),
    Field("priorityClassName", form=subdomain),
    Field("runtimeClassName", rule=lambda name, path, report: subdomain(path, name)),
    Field("preemptionPolicy", enum=PREEMPTION_POLICIES),
    Field("overhead", rule=check_overhead),
    system,
    Field("schedulingGroup", struct=Struct(_group)),
    files_are_in_empty_dirs,
    completion=_complete,
)


def _tokens_need_an_account(spec: Document, at: str, report: Report) -> Causes:
    if spec.get("serviceAccountName"):
        return
    for index, volume in enumerate(spec.get("volumes") or ()):
        for place, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if source.get("serviceAccountToken") is not None:
                path = f"{at}volumes[{index}].projected.sources[{place}].serviceAccountToken"
                yield forbidden(path, "must not be specified when serviceAccountName is not set")


def check_pod(pod: Document, report: Report) -> None:
    """Add the errors in a pod's annotations and spec that are refused for new and for changed pods."""
    meta, spec = pod["metadata"], pod.get("spec") or {}
    check_annotations(meta.get("annotations") or {}, spec, "metadata.annotations", report)
    report.pod = meta
    POD_SPEC.check(spec, "spec.", report)
    report.causes += _tokens_need_an_account(spec, "spec.", report)
    grace = spec.get("terminationGracePeriodSeconds")
    if grace is not None and grace < 0:
        report.causes.append(invalid("spec.terminationGracePeriodSeconds", grace, NEGATIVE_TEXT))
    check_images(spec, "spec.", report)


def check_new_pod(pod: Document, report: Report) -> None:
    """Add the errors in a pod that is being created (upstream `ValidatePodCreate`)."""
    check_pod(pod, report)
    meta, spec = pod["metadata"], pod.get("spec") or {}
    if spec.get("ephemeralContainers"):
        report.causes.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        text = "cannot be set until all schedulingGates have been cleared"
        report.causes.append(forbidden("spec.nodeName", text))
    report.causes += check_agreement(meta.get("annotations") or {}, spec, "spec.")


def _template(template: Document, at: str, report: Report) -> Causes:
    meta, spec = template.get("metadata") or {}, template.get("spec") or {}
    annotated = meta.get("annotations") or {}
    if annotated:
        check_annotations(annotated, spec, f"{at}annotations", report)
    POD_SPEC.check(spec, f"{at}spec.", report)
    if annotated:
        report.causes += check_agreement(annotated, spec, f"{at}spec.")
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        report.causes.append(forbidden(f"{at}spec.ephemeralContainers", text))
    return ()


def _template_metadata(template: Document, at: str, report: Report) -> Causes:
    # As upstream: named without `metadata`.
    meta = template.get("metadata") or {}
    yield from labels(f"{at}labels", meta.get("labels") or {})
    yield from annotations(f"{at}annotations", meta.get("annotations") or {})


_TEMPLATE_PARTS = (_template_metadata, Field("spec", default={}, struct=POD_SPEC, is_checked=False))


def pod_template(*rules: Check) -> Struct:
    """Return the table of a pod template with rules of its kind."""
    return Struct(*_TEMPLATE_PARTS, _template, *rules)


def _template_of_set(spec: Document, at: str, report: Report) -> Causes:
    """Check the template of a StatefulSet; it may stay wrong where it is stored so.

    Source: upstream `pkg/apis/apps/validation/validation.go` (v1.36), `ValidateStatefulSetSpec`.
    """
    wrong = _wrong_with_claims(spec, at, report)
    if wrong and (report.update is None or not _wrong_with_claims(report.update[0]["spec"], at, report)):
        yield from wrong
    yield from always_restarts("statefulset")(spec.get("template") or {}, f"{at}template.", report)


def _wrong_with_claims(spec: Document, at: str, report: Report) -> list[Cause]:
    """Return what is wrong with the template when the claims' volumes stand before those that it names otherwise."""
    template = spec.get("template") or {}
    pod = template.get("spec") or {}
    names = [(claim.get("metadata") or {}).get("name") or "" for claim in spec.get("volumeClaimTemplates") or ()]
    if names:
        volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(names)]
        volumes += [each for each in pod.get("volumes") or () if each.get("name") not in names]
        template = {**template, "spec": {**pod, "volumes": volumes}}
    inner_report = Report(report.switches)
    _template(template, f"{at}template.", inner_report)
    return inner_report.causes


def check(spec: Document, at: str, switches: ApiServerSwitches = NO_GATES) -> list[Cause]:
    """Return the errors in a spec; `at` is its path (`spec`). Without switches no feature gate is on."""
    report = Report(switches)
    POD_SPEC.check(spec, f"{at}.", report)
    return report.causes


_POD_MAKERS = {
    "replicaset": "ReplicaSet",
    "deployment": "ReplicaSet",
    "daemonset": "DaemonSet",
    "statefulset": "StatefulSet",
    "replicationcontroller": "ReplicationController",
}
"""The kind that makes the pods of a workload, as refusals name it."""


def always_restarts(kind: str) -> Check:
    """Return the rule for templates of pods that must not end by themselves."""

    def check(template: Document, at: str, report: Report) -> Causes:
        pod = template.get("spec") or {}
        if pod.get("restartPolicy", "Always") != "Always":
            yield not_supported(f"{at}spec.restartPolicy", pod["restartPolicy"], ("Always",))
        if pod.get("activeDeadlineSeconds") is not None:
            text = f"activeDeadlineSeconds in {_POD_MAKERS[kind]} is not Supported"
            yield forbidden(f"{at}spec.activeDeadlineSeconds", text)

    return check


_EMPTY = {"replicaset": "deployment"}
"""Name of a kind in upstream's refusal of an empty selector, where it differs from the kind's own name."""
_UNREADABLE = {"replicaset": "invalid label selector", "deployment": "invalid label selector", "statefulset": ""}
"""Error text for an unreadable selector, by kind. A DaemonSet has none, and its template is still checked."""


def selected_template(
    kind: str, *, has_claims: bool = False, is_selector_fixed: bool = True
) -> tuple[Field | Check, ...]:
    """Return the fields that workload specs share: a selector, and the template of the pods that it selects.

    `has_claims`: pods get volumes from the workload's claim templates. An absent selector selects nothing, so that
    no template matches it. Source: upstream `pkg/apis/apps/validation/validation.go`,
    `ValidatePodTemplateSpecForReplicaSet` and its callers.
    """
    template = Struct(*_TEMPLATE_PARTS) if has_claims else pod_template(always_restarts(kind))
    fits = "`selector` does not match template `labels`"

    def check(spec: Document, at: str, report: Report) -> Causes:
        selector, pods = spec.get("selector"), spec.get("template") or {}
        own = (pods.get("metadata") or {}).get("labels")
        wrong = label_selector(f"{at}selector", selector) if selector is not None else []
        if selector is None and kind != "daemonset":
            yield required(f"{at}selector")
        yield from wrong
        if selector is not None and not selector.get("matchLabels") and not selector.get("matchExpressions"):
            yield invalid(f"{at}selector", selector, f"empty selector is invalid for {_EMPTY.get(kind, kind)}")
        elif wrong and kind in _UNREADABLE:
            yield invalid(f"{at}selector", selector, _UNREADABLE[kind])
            return
        elif not wrong and (selector is None or not selects(selector, own or {})):
            yield invalid(f"{at}template.metadata.labels", own, fits)
        template.check(pods, f"{at}template.", report)
        if has_claims:
            yield from _template_of_set(spec, at, report)

    return (
        check,
        Field("selector", is_immutable=is_selector_fixed),
        Field("template", struct=template, is_checked=False),
    )
