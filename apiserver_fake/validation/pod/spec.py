"""The table of a pod's spec, wherever it stands: in a Pod or in a workload's template.

The texts are upstream's (`pkg/apis/core/validation`). What may change later is in `update` and `resize`.
"""

from apiserver_fake.switches import NO_GATES, ApiServerSwitches
from apiserver_fake.validation.fields import Check, Field, Report, Struct, quantities, unique
from apiserver_fake.validation.formats import (
    Cause,
    Causes,
    forbidden,
    invalid,
    label,
    label_selector,
    labels,
    qualified_name,
    required,
    selects,
    subdomain,
    unsupported,
)
from apiserver_fake.validation.pod.claims import CLAIMS_MAX, POD_CLAIM, used_claims
from apiserver_fake.validation.pod.container import CONTAINER, EPHEMERAL_CONTAINER, PodScope, check_resources
from apiserver_fake.validation.pod.defaults import check_pod_level
from apiserver_fake.validation.pod.placement import AFFINITY, SPREAD, TERMS_MAX, TOLERATION, TOLERATIONS_MAX
from services.api.meta import Document

CONTAINERS_MAX, GATES_MAX = 100, 32
PREEMPTION_POLICIES = ("Never", "PreemptLowerPriority")

_MODE = Struct(Field("defaultMode", default=420))


def _empty_dir(volume: Document) -> None:
    if len(volume) == 1 and "name" in volume:
        volume["emptyDir"] = {}


_VOLUME = Struct(
    Field("name", required=True, form=label),
    unique("name", is_empty_a_key=False),
    Field("persistentVolumeClaim", struct=Struct(Field("claimName", required=True))),
    Field("ephemeral", struct=Struct(Field("volumeClaimTemplate", required=True, missing={}))),
    Field("secret", struct=_MODE),
    Field("configMap", struct=_MODE),
    Field("downwardAPI", struct=_MODE),
    Field("projected", struct=_MODE),
    Field("hostPath", struct=Struct(Field("type", default=""))),
    completion=_empty_dir,
)


def _open_scope(spec: Document, at: str, report: Report) -> Causes:
    volumes = {name: None for volume in spec.get("volumes") or () if (name := volume.get("name"))}
    report.scope = PodScope(spec.get("restartPolicy") or "", volumes, len(report.causes))
    return ()


def _agree_with_pod_level(spec: Document, at: str, report: Report) -> Causes:
    # Quantities must be valid for that.
    if len(report.causes) == report.scope.causes_before and spec.get("resources"):
        yield from check_pod_level(spec, at[:-1])


def _complete(spec: Document) -> None:
    if spec.get("hostNetwork"):
        for kind in ("initContainers", "containers", "ephemeralContainers"):
            for container in spec.get(kind) or ():
                if ports := container.get("ports"):
                    container["ports"] = [_on_host(port) for port in ports]
    if account := spec.get("serviceAccountName") or spec.get("serviceAccount"):
        spec["serviceAccountName"] = spec["serviceAccount"] = account


def _on_host(port: Document) -> Document:
    return {"hostPort": port["containerPort"], **port} if port.get("containerPort") else port


POD_SPEC = Struct(
    _open_scope,
    Field("volumes", items=_VOLUME),
    Field("containers", required=True, missing=[]),
    Field("initContainers", most=CONTAINERS_MAX, items=CONTAINER),
    Field("containers", most=CONTAINERS_MAX, items=CONTAINER),
    Field("ephemeralContainers", most=CONTAINERS_MAX, items=EPHEMERAL_CONTAINER),
    Field("restartPolicy", default="Always", is_blank_absent=True, enum=("Always", "OnFailure", "Never")),
    Field("terminationGracePeriodSeconds", default=30, minimum=0),
    Field(
        "dnsPolicy",
        default="ClusterFirst",
        is_blank_absent=True,
        enum=("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
    ),
    Field("preemptionPolicy", enum=PREEMPTION_POLICIES),
    Field("activeDeadlineSeconds", minimum=1, maximum=2**31 - 1),
    Field("nodeSelector", form=labels),
    Field("schedulerName", default="default-scheduler", is_blank_absent=True, form=subdomain),
    Field("nodeName", form=subdomain),
    Field("priorityClassName", form=subdomain),
    Field("serviceAccountName", form=subdomain),
    Field("runtimeClassName", form=subdomain),
    Field("securityContext", default={}),
    Field("tolerations", most=TOLERATIONS_MAX, items=TOLERATION),
    Field("affinity", struct=AFFINITY),
    Field("topologySpreadConstraints", most=TERMS_MAX, items=SPREAD),
    Field(
        "schedulingGates", most=GATES_MAX, items=Struct(Field("name", missing="", form=qualified_name), unique("name"))
    ),
    Field("schedulingGroup", struct=Struct(Field("podGroupName", required=True, form=subdomain))),
    Field("resourceClaims", most=CLAIMS_MAX, items=POD_CLAIM),
    used_claims,
    Field("overhead", rule=quantities),
    Field("resources", rule=check_resources),
    _agree_with_pod_level,
    completion=_complete,
)


def check(spec: Document, at: str, switches: ApiServerSwitches = NO_GATES) -> list[Cause]:
    """Return what is wrong with a spec; `at` is its path (`spec`). Without switches no feature gate is on."""
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
"""Who makes the pods of a workload, as refusals name it."""


def _selector(kind: str) -> Check:
    def check(spec: Document, at: str, report: Report) -> Causes:
        selector = spec.get("selector")
        own = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
        if selector is None:
            yield required(f"{at}selector")
        else:
            wrong = label_selector(f"{at}selector", selector)
            yield from wrong
            if not selector.get("matchLabels") and not selector.get("matchExpressions"):
                yield invalid(f"{at}selector", selector, f"empty selector is invalid for {kind}")
            elif not wrong and not selects(selector, own):
                yield invalid(f"{at}template.metadata.labels", own, "`selector` does not match template `labels`")

    return check


def always_restarts(kind: str) -> Check:
    """Return the rule for templates of pods that never end by themselves."""

    def check(template: Document, at: str, report: Report) -> Causes:
        pod = template.get("spec") or {}
        if pod.get("restartPolicy", "Always") != "Always":
            yield unsupported(f"{at}spec.restartPolicy", pod["restartPolicy"], ("Always",))
        if pod.get("activeDeadlineSeconds") is not None:
            text = f"activeDeadlineSeconds in {_POD_MAKERS[kind]} is not Supported"
            yield forbidden(f"{at}spec.activeDeadlineSeconds", text)

    return check


TEMPLATE_METADATA = Field("metadata", struct=Struct(Field("labels", form=labels)))


def workload_fields(
    kind: str,
    *,
    has_replicas: bool = True,
    has_history: bool = True,
    is_whole: bool = True,
    is_selector_fixed: bool = True,
) -> tuple[Field | Check, ...]:
    """Return what workloads' specs begin with: selector, template, counts. `is_whole`: the template is a whole pod."""
    template = Struct(
        TEMPLATE_METADATA, Field("spec", default={}, struct=POD_SPEC, is_checked=is_whole), always_restarts(kind)
    )
    return (
        _selector(kind),
        Field("selector", is_immutable=is_selector_fixed),
        Field("template", required=True, struct=template),
        *([Field("replicas", default=1, minimum=0)] if has_replicas else []),
        Field("minReadySeconds", minimum=0),
        *([Field("revisionHistoryLimit", default=10, minimum=0)] if has_history else []),
    )
