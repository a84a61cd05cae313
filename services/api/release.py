"""The Kubernetes releases that keplab can emulate, and the release it follows; all displayed versions are that
one's.
"""

from functools import lru_cache
from typing import Final

RELEASES: Final = {"1.34": "v1.34.6", "1.35": "v1.35.6", "1.36": "v1.36.3", "1.37": "v1.37.0"}
"""Emulated releases: minor version → patch release whose defaults apply."""
FOLLOWED: Final = "1.36"
KUBERNETES: Final = RELEASES[FOLLOWED]
KUBELET_OLDER_MAX: Final = 3
ABSENT: Final = {
    "AllowUnsafeMalformedObjectDeletion": "KEP-3926, beta in 1.37",
    "AtomicWriteVolumeUserFields": "KEP-5936, alpha in 1.37",
    "CBORServingAndStorage": "KEP-4222, alpha in 1.37",
    "CRDObservedGenerationTracking": "beta in 1.37",
    "CSIVolumeHealth": "KEP-1432, alpha in 1.37",
    "ClusterTrustBundle": "KEP-3257, stable in 1.37",
    "ClusterTrustBundleProjection": "KEP-3257, stable in 1.37",
    "CompositePodGroup": "KEP-6012, alpha in 1.37",
    "ConstrainedImpersonation": "KEP-5284, beta in 1.37",
    "ContainerStopSignals": "KEP-4960, alpha in 1.37",
    "CrossNamespaceVolumeDataSource": "KEP-3294, alpha in 1.37",
    "DRADerivedAttributes": "KEP-6080, alpha in 1.37",
    "DRADeviceCompatibilityGroups": "KEP-5963, alpha in 1.37",
    "DRAFractionalCapacityRange": "KEP-5075, beta in 1.37",
    "DRANodeAllocatableResources": "KEP-5517, alpha in 1.37",
    "DRAOptionalNodeOperations": "KEP-5945, alpha in 1.37",
    "DRAPartitionableDevicesType": "KEP-5677, alpha in 1.37",
    "DRAResourcePoolStatus": "KEP-5677, alpha in 1.37",
    "DefaultPodSysctls": "KEP-5996, alpha in 1.37",
    "EmptyDirVolumeMode": "KEP-5502, alpha in 1.37",
    "EvictionRequestAPI": "KEP-4563, alpha in 1.37",
    "ExcludeAdmissionWebhookVirtualResources": "KEP-5793, beta in 1.37",
    "ExtendWebSocketsToKubelet": "KEP-4006, beta in 1.37",
    "GRPCContainerProbeTLS": "KEP-4939, alpha in 1.37",
    "H2CContainerProbe": "KEP-5999, alpha in 1.37",
    "InPlacePodVerticalScalingExclusiveCPUs": "KEP-5554, alpha in 1.37",
    "InPlacePodVerticalScalingMemoryBackedVolumes": "alpha in 1.37",
    "ManifestBasedAdmissionControlConfig": "KEP-5793, beta in 1.37",
    "NodeLifecycleConditions": "KEP-5683, alpha in 1.37",
    "PersistentVolumeClaimUnusedSinceTime": "KEP-5541, beta in 1.37",
    "PodCertificateRequest": "KEP-4317, stable in 1.37",
    "SchedulerPreQueueingHints": "KEP-6132, alpha in 1.37",
    "ShardedListAndWatch": "KEP-5866, alpha in 1.37",
    "StatefulSetRecreateStrategy": "KEP-3541, alpha in 1.37",
    "StorageVersionMigrator": "KEP-4192, stable in 1.37",
    "TopologyAwareWorkloadScheduling": "KEP-5732, alpha in 1.37",
    "VolumeBindMountOptions": "KEP-5855, alpha in 1.37",
    "VolumeLimitScaling": "KEP-5030, beta in 1.37",
    "WorkloadWithJob": "KEP-5547, alpha in 1.37",
}
"""Feature gates of Kubernetes that keplab does not model: by name, the KEP and the stage in the newest release.
Source: upstream `pkg/features/kube_features.go` (v1.37.0)."""


def is_before(one: str, other: str) -> bool:
    """Whether a release, for example `1.36`, is older than another."""
    return _number(one) < _number(other)


def skew(kubelet: str, apiserver: str) -> str:
    """Return why a kubelet of one release may not work with an API server of another; empty if it may.

    A kubelet is at most three minor releases older, and never newer (Kubernetes' version skew policy).
    Source: node-declared-features 6.
    """
    if is_before(apiserver, kubelet):
        return f"a kubelet of {kubelet} is newer than the API server of {apiserver}"
    if _number(apiserver)[1] - _number(kubelet)[1] > KUBELET_OLDER_MAX:
        distance = f"more than {KUBELET_OLDER_MAX} minor releases older"
        return f"a kubelet of {kubelet} is {distance} than the API server of {apiserver}"
    return ""


@lru_cache(maxsize=64)
def _number(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in release.split("."))
