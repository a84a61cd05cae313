"""Every kind is served as upstream serves it, and its views read what an object does not say as the API means it.

A kind has a generation where `PrepareForCreate` of its strategy sets one.
Source: upstream `pkg/registry/resource/resourceclaimtemplate/strategy.go`,
`pkg/registry/scheduling/priorityclass/strategy.go`, `pkg/registry/storage/volumeattachment/strategy.go`.
"""

import typing

import msgspec
import pytest

from services.api.resources import resources

KINDS = """
    NAME SHORTNAMES APIVERSION NAMESPACED KIND GENERATION SUBRESOURCES CATEGORIES
    apiservices - apiregistration.k8s.io/v1 false APIService - status api-extensions
    certificatesigningrequests csr certificates.k8s.io/v1 false CertificateSigningRequest - status,approval -
    clusterrolebindings - rbac.authorization.k8s.io/v1 false ClusterRoleBinding - - -
    clusterroles - rbac.authorization.k8s.io/v1 false ClusterRole - - -
    configmaps cm v1 true ConfigMap - - -
    controllerrevisions - apps/v1 true ControllerRevision - - -
    cronjobs cj batch/v1 true CronJob 1 status all
    csidrivers - storage.k8s.io/v1 false CSIDriver 1 - -
    csinodes - storage.k8s.io/v1 false CSINode - - -
    csistoragecapacities - storage.k8s.io/v1 true CSIStorageCapacity - - -
    customresourcedefinitions crd,crds apiextensions.k8s.io/v1 false CustomResourceDefinition 1 status api-extensions
    daemonsets ds apps/v1 true DaemonSet 1 status all
    deployments deploy apps/v1 true Deployment 1 status,scale all
    deviceclasses - resource.k8s.io/v1 false DeviceClass 1 - -
    devicetaintrules - resource.k8s.io/v1beta2 false DeviceTaintRule 1 status -
    endpoints ep v1 true Endpoints - - -
    endpointslices - discovery.k8s.io/v1 true EndpointSlice - - -
    events ev v1 true Event - - -
    flowschemas - flowcontrol.apiserver.k8s.io/v1 false FlowSchema 1 status -
    horizontalpodautoscalers hpa autoscaling/v2 true HorizontalPodAutoscaler - status all
    ingressclasses - networking.k8s.io/v1 false IngressClass 1 - -
    ingresses ing networking.k8s.io/v1 true Ingress 1 status -
    ipaddresses ip networking.k8s.io/v1 false IPAddress - - -
    jobs - batch/v1 true Job 1 status all
    leases - coordination.k8s.io/v1 true Lease - - -
    limitranges limits v1 true LimitRange - - -
    mutatingadmissionpolicies - admissionregistration.k8s.io/v1 false MutatingAdmissionPolicy 1 - api-extensions
    mutatingadmissionpolicybindings - admissionregistration.k8s.io/v1 false MutatingAdmissionPolicyBinding 1 - api-extensions
    mutatingwebhookconfigurations - admissionregistration.k8s.io/v1 false MutatingWebhookConfiguration - - api-extensions
    namespaces ns v1 false Namespace - status,finalize -
    networkpolicies netpol networking.k8s.io/v1 true NetworkPolicy 1 - -
    noderesourcetopologies node-res-topo topology.node.k8s.io/v1alpha2 false NodeResourceTopology - - -
    nodes no v1 false Node - status,proxy -
    persistentvolumeclaims pvc v1 true PersistentVolumeClaim - status -
    persistentvolumes pv v1 false PersistentVolume - status -
    poddisruptionbudgets pdb policy/v1 true PodDisruptionBudget 1 status -
    podgroups - scheduling.k8s.io/v1beta1 true PodGroup 1 status -
    pods po v1 true Pod 1 status,binding,unbind,eviction,log,resize,ephemeralcontainers,attach,exec,portforward,proxy all
    podtemplates - v1 true PodTemplate - - -
    priorityclasses pc scheduling.k8s.io/v1 false PriorityClass 1 - -
    prioritylevelconfigurations - flowcontrol.apiserver.k8s.io/v1 false PriorityLevelConfiguration 1 status -
    replicasets rs apps/v1 true ReplicaSet 1 status,scale all
    replicationcontrollers rc v1 true ReplicationController 1 status,scale all
    resourceclaims - resource.k8s.io/v1 true ResourceClaim 1 status -
    resourceclaimtemplates - resource.k8s.io/v1 true ResourceClaimTemplate - - -
    resourcequotas quota v1 true ResourceQuota - status -
    resourceslices - resource.k8s.io/v1 false ResourceSlice 1 - -
    rolebindings - rbac.authorization.k8s.io/v1 true RoleBinding - - -
    roles - rbac.authorization.k8s.io/v1 true Role - - -
    runtimeclasses - node.k8s.io/v1 false RuntimeClass - - -
    secrets - v1 true Secret - - -
    serviceaccounts sa v1 true ServiceAccount - token -
    servicecidrs - networking.k8s.io/v1 false ServiceCIDR - status -
    services svc v1 true Service - status,proxy all
    statefulsets sts apps/v1 true StatefulSet 1 status,scale all
    storageclasses sc storage.k8s.io/v1 false StorageClass - - -
    validatingadmissionpolicies - admissionregistration.k8s.io/v1 false ValidatingAdmissionPolicy 1 status api-extensions
    validatingadmissionpolicybindings - admissionregistration.k8s.io/v1 false ValidatingAdmissionPolicyBinding 1 - api-extensions
    validatingwebhookconfigurations - admissionregistration.k8s.io/v1 false ValidatingWebhookConfiguration - - api-extensions
    volumeattachments - storage.k8s.io/v1 false VolumeAttachment - status -
    volumeattributesclasses vac storage.k8s.io/v1 false VolumeAttributesClass - - -
    workloads - scheduling.k8s.io/v1beta1 true Workload - - -
"""
"""As `kubectl api-resources` prints kinds, and what their generation is at creation: 1, or none."""
DEFAULTS = """
    ServiceReference port 443
    CronJobSpec concurrency_policy Allow
    CSIDriverSpec attach_required True
    PodSpec scheduler_name default-scheduler
    PodSpec preemption_policy PreemptLowerPriority
    PodSpec restart_policy Always
    PodSpec termination_grace_period_seconds 30
    ContainerPort protocol TCP
    RBDVolumeSource pool rbd
    DaemonSetUpdateStrategy type RollingUpdate
    RollingUpdateDaemonSet max_unavailable 1
    DaemonSetSpec revision_history_limit 10
    DeploymentSpec replicas 1
    DeploymentSpec revision_history_limit 10
    DeploymentSpec progress_deadline_seconds 600
    DeploymentStrategy type RollingUpdate
    RollingUpdate max_surge 25%
    RollingUpdate max_unavailable 25%
    EndpointPort protocol TCP
    HorizontalPodAutoscalerSpec min_replicas 1
    HPAScalingRules select_policy Max
    JobSpec parallelism 1
    JobSpec backoff_limit 6
    JobSpec completion_mode NonIndexed
    JobSpec pod_replacement_policy TerminatingOrFailed
    OnPodCondition status True
    Zone type Node
    ZoneResource capacity 0
    ZoneResource allocatable 0
    ZoneResource available 0
    PersistentVolumeClaimSpec volume_mode Filesystem
    PersistentVolumeSpec persistent_volume_reclaim_policy Retain
    PersistentVolumeSpec volume_mode Filesystem
    GangSchedulingPolicy min_count 1
    PriorityClass preemption_policy PreemptLowerPriority
    ReplicaSetSpec replicas 1
    ReplicationControllerSpec replicas 1
    ExactDeviceRequest allocation_mode ExactCount
    ExactDeviceRequest count 1
    DeviceSubRequest allocation_mode ExactCount
    DeviceSubRequest count 1
    DeviceToleration operator Equal
    ResourcePool resource_slice_count 1
    DeviceCapacity value 0
    CapacityRequestPolicyRange min 0
    Counter value 0
    ServiceSpec type ClusterIP
    ServicePort protocol TCP
    ServiceSpec allocate_load_balancer_node_ports True
    StatefulSetSpec replicas 1
    StatefulSetSpec pod_management_policy OrderedReady
    StatefulSetSpec revision_history_limit 10
    UpdateStrategy type RollingUpdate
    RetentionPolicy when_deleted Retain
    RetentionPolicy when_scaled Retain
    StorageClass reclaim_policy Delete
    StorageClass volume_binding_mode Immediate
"""
"""Fields of views that read as something when an object does not have them; all others read as empty."""


def rows(table):
    return [line.split() for line in table.strip().splitlines()]


@pytest.mark.parametrize("row", rows(KINDS)[1:], ids=lambda row: row[0])
def test_a_kind_is_served_under_its_names_and_counts_generations_where_upstream_does(row):
    plural, _, version, *_ = row
    group = version.rpartition("/")[0]
    found = resources()[f"{plural}.{group}" if group else plural]

    shown = [found.plural, ",".join(found.short_names), found.api_version, str(found.namespaced).lower(), found.kind]
    shown += ["1" if found.has_generation else "", ",".join(found.subresources), ",".join(found.categories)]
    assert [each or "-" for each in shown] == row
    assert (found.singular, found.list_kind) == (found.kind.lower(), f"{found.kind}List")


def test_no_kind_is_served_that_is_not_in_the_table():
    assert len(resources()) == len(rows(KINDS)[1:])


def structs(view, found):
    """Collect the structs that a view is made of."""
    for part in typing.get_args(view):
        structs(part, found)
    if isinstance(view, type) and issubclass(view, msgspec.Struct) and view not in found:
        found[view] = None
        for each in typing.get_type_hints(view).values():
            structs(each, found)
    return found


def test_what_an_object_does_not_say_reads_as_empty_or_as_the_default_of_the_api():
    found: dict[type, None] = {}
    for resource in resources().values():
        structs(resource.view, found)
    defaults = set()
    for view in found:
        empty = view()
        for name in view.__struct_fields__:
            value = getattr(empty, name)
            is_empty = value == type(value)() if isinstance(value, msgspec.Struct) else value in ("", 0, None, (), {})
            if not is_empty:
                defaults.add((view.__name__, name, str(value)))

    assert len(found) > 200
    assert defaults == {tuple(row) for row in rows(DEFAULTS)}
