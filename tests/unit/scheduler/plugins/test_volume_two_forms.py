"""The volume plugins' two forms say the same of every node, whatever claims, volumes and nodes there are."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.cache.node_info import PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.plugin import PreFilterResult
from scheduler.plugins import node_volume_limits, volume_binding, volume_restrictions, volume_zone
from services.api.kinds.csidriver import CSIDriver, CSIDriverSpec
from services.api.kinds.csinode import CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources
from services.api.kinds.csistoragecapacity import CSIStorageCapacity
from services.api.kinds.node import Node, NodeStatus
from services.api.kinds.persistentvolume import (
    CSIPersistentVolumeSource,
    PersistentVolume,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    VolumeNodeAffinity,
)
from services.api.kinds.persistentvolumeclaim import (
    BIND_COMPLETED,
    SELECTED_NODE,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
)
from services.api.kinds.pod import (
    GCEPersistentDiskVolumeSource,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolumeClaimVolumeSource,
    Pod,
    PodSpec,
    ResourceRequirements,
    Volume,
)
from services.api.kinds.storageclass import StorageClass, TopologySelectorLabelRequirement, TopologySelectorTerm
from services.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta, ObjectReference
from tests.unit.scheduler.conftest import new_handle

ZONE, OLD_ZONE = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"
NODES = [f"n{i}" for i in range(5)]
CLAIMS = ["c0", "c1", "c2"]
DRIVER = "disk.example.com"
ZONES = st.sampled_from(["a", "b"])
GIBS = st.sampled_from(["1Gi", "2Gi", "4Gi"])
LABELS = st.dictionaries(st.sampled_from([ZONE, OLD_ZONE, "rack"]), ZONES, max_size=3)
AFFINITY = st.builds(
    lambda key, op, values: VolumeNodeAffinity(required=NodeSelector(node_selector_terms=(
        NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key=key, operator=op, values=values),)),))),
    st.sampled_from([ZONE, "rack", "kubernetes.io/hostname"]),
    st.sampled_from(["In", "NotIn", "Exists"]),
    st.lists(st.sampled_from(["a", "b", *NODES]), min_size=1, max_size=2).map(tuple),
)  # fmt: skip
TOPOLOGY = st.one_of(
    st.none(),
    st.builds(lambda zone: LabelSelector(match_labels={ZONE: zone}), ZONES),
    st.builds(lambda zone: LabelSelector(match_labels={ZONE: zone, "rack": "a"}), ZONES),
    st.just(LabelSelector(match_expressions=(LabelSelectorRequirement(key="rack", operator="DoesNotExist"),))),
)


@st.composite
def volumes(draw: Any) -> list[PersistentVolume]:
    made = []
    for i in range(draw(st.integers(2, 5))):
        owner = draw(st.sampled_from(["", "", "", "", "c0"]))
        reference = ObjectReference(namespace="default", name=owner, uid=draw(st.sampled_from(["", owner])))
        made.append(
            PersistentVolume(
                metadata=ObjectMeta(name=f"v{i}", labels=draw(LABELS)),
                spec=PersistentVolumeSpec(
                    capacity={"storage": draw(GIBS)},
                    storage_class_name="late",
                    access_modes=("ReadWriteOnce",),
                    claim_ref=reference if owner else None,
                    node_affinity=draw(st.none() | AFFINITY),
                    csi=CSIPersistentVolumeSource(driver=DRIVER, volume_handle=f"h{i}"),
                ),
                status=PersistentVolumeStatus(phase="Available"),
            )
        )
    return made


@st.composite
def claims(draw: Any) -> list[PersistentVolumeClaim]:
    made = []
    for name in CLAIMS:
        bound = draw(st.sampled_from(["", "", "", "v0", "gone"]))
        node = draw(st.sampled_from(["", "", "", "n1"]))
        annotations = {BIND_COMPLETED: "yes"} if bound else ({SELECTED_NODE: node} if node else {})
        modes = (draw(st.sampled_from(["ReadWriteOnce", "ReadWriteOnce", "ReadWriteOnce", "ReadWriteOncePod"])),)
        made.append(
            PersistentVolumeClaim(
                metadata=ObjectMeta(name=name, namespace="default", uid=name, annotations=annotations),
                spec=PersistentVolumeClaimSpec(
                    volume_name=bound,
                    storage_class_name="late",
                    access_modes=modes,
                    resources=ResourceRequirements(requests={"storage": draw(GIBS)}),
                ),
            )
        )
    return made


@st.composite
def storage(draw: Any) -> list[Any]:
    terms = tuple(
        TopologySelectorTerm(
            match_label_expressions=(
                TopologySelectorLabelRequirement(key=draw(st.sampled_from([ZONE, "rack"])), values=(draw(ZONES),)),
            )
        )
        for _ in range(draw(st.integers(0, 2)))
    )
    provisioner = draw(st.sampled_from([DRIVER, "kubernetes.io/no-provisioner"]))
    found: list[Any] = [
        StorageClass(
            metadata=ObjectMeta(name="late"),
            provisioner=provisioner,
            allowed_topologies=terms,
            volume_binding_mode="WaitForFirstConsumer",
        ),
        CSIDriver(metadata=ObjectMeta(name=DRIVER), spec=CSIDriverSpec(storage_capacity=draw(st.booleans()))),
    ]
    for i in range(draw(st.integers(0, 3))):
        found.append(
            CSIStorageCapacity(
                metadata=ObjectMeta(name=f"r{i}", namespace="default"),
                capacity=draw(GIBS),
                storage_class_name="late",
                node_topology=draw(TOPOLOGY),
            )
        )
    for name in draw(st.lists(st.sampled_from(NODES), unique=True, max_size=3)):
        allocatable_count = VolumeNodeResources(count=draw(st.integers(0, 3)))
        migrated = draw(st.sampled_from(["", "kubernetes.io/gce-pd"]))
        found.append(
            CSINode(
                metadata=ObjectMeta(name=name, annotations={"storage.alpha.kubernetes.io/migrated-plugins": migrated}),
                spec=CSINodeSpec(
                    drivers=(
                        CSINodeDriver(name=DRIVER, allocatable=allocatable_count),
                        CSINodeDriver(name="pd.csi.storage.gke.io", allocatable=allocatable_count),
                    )
                ),
            )
        )
    return found


@st.composite
def pods(draw: Any, name: str) -> Pod:
    mounted = draw(st.lists(st.sampled_from(CLAIMS), unique=True, min_size=1, max_size=3))
    parts = [Volume(name=c, persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=c)) for c in mounted]
    for disk in draw(st.lists(st.sampled_from(["d1", "d2"]), unique=True, max_size=1)):
        source = GCEPersistentDiskVolumeSource(pd_name=disk, read_only=draw(st.booleans()))
        parts.append(Volume(name=disk, gce_persistent_disk=source))
    return Pod(metadata=ObjectMeta(name=name, namespace="default", uid=name), spec=PodSpec(volumes=tuple(parts)))


@settings(max_examples=150)
@given(
    objects=st.tuples(volumes(), claims(), storage()),
    labels=st.lists(LABELS, min_size=len(NODES), max_size=len(NODES)),
    others=st.lists(st.tuples(pods("other"), st.sampled_from(NODES)), max_size=4),
    pod=pods("p"),
)
def test_the_volume_plugins_say_of_all_nodes_what_they_say_of_each(objects, labels, others, pod):
    handle = new_handle(None, *(each for part in objects for each in part))
    cache = handle.cache
    for name, own in zip(NODES, labels, strict=True):
        meta = ObjectMeta(name=name, labels={**own, "kubernetes.io/hostname": name})
        cache.set_node(Node(metadata=meta, status=NodeStatus(allocatable={"pods": "10"})))
    for i, (other, node) in enumerate(others):
        meta = ObjectMeta(name=f"o{i}", namespace="default", uid=f"o{i}")
        cache.add_pod(PodInfo(Pod(metadata=meta, spec=other.spec)), node)
    info, columns = PodInfo(pod), cache.columns
    for module in (volume_binding, volume_zone, volume_restrictions, node_volume_limits):
        entry, state = module.PLUGIN, CycleState()
        plugin = entry.make(entry.defaults(handle.switches), handle)
        answer = plugin.pre_filter(state, info, columns)
        if not (answer.status if isinstance(answer, PreFilterResult) else answer).is_success:
            continue
        mask = plugin.filter_all(state, info, columns)
        passed = columns.full(True) if mask is None else mask
        refused = columns.valid & ~passed
        refusals = plugin.explain_all(state, info, columns, refused)
        for name, row in columns.slots.items():
            status = plugin.filter(state, info, cache.nodes[name])
            assert status.is_success == bool(passed[row]), (entry.name, name, status)
            found = {(refusal.reason, refusal.code) for refusal in refusals if refusal.mask[row]}
            assert found == {(reason, status.code) for reason in status.reasons}, (entry.name, name)
