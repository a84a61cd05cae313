"""The volume plugins, a rule a test: reasons, codes, who is skipped, what wakes a pod."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.events import Hint
from scheduler.framework.status import Code, Status
from scheduler.plugins.node_volume_limits import PLUGIN as LIMITS
from scheduler.plugins.volume_binding import PLUGIN as BINDING
from scheduler.plugins.volume_binding import UtilizationShapePoint, VolumeBindingArgs
from scheduler.plugins.volume_restrictions import PLUGIN as RESTRICTIONS
from scheduler.plugins.volume_zone import PLUGIN as ZONE
from services.api.kinds.csidriver import CSIDriver, CSIDriverSpec
from services.api.kinds.csinode import CSINode, CSINodeDriver, CSINodeSpec, VolumeNodeResources
from services.api.kinds.csistoragecapacity import CSIStorageCapacity
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
    PersistentVolumeClaimStatus,
)
from services.api.kinds.pod import (
    AWSElasticBlockStoreVolumeSource,
    GCEPersistentDiskVolumeSource,
    ISCSIVolumeSource,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolumeClaimVolumeSource,
    RBDVolumeSource,
    ResourceRequirements,
    Volume,
)
from services.api.kinds.storageclass import StorageClass, TopologySelectorLabelRequirement, TopologySelectorTerm
from services.api.meta import LabelSelector, Mark, ObjectMeta, ObjectReference, OwnerReference
from services.api.switches import Switches
from tests.unit.scheduler.conftest import new_handle

GIB = "1Gi"
ZONE_KEY = "topology.kubernetes.io/zone"


def in_zone(*zones: str, key: str = ZONE_KEY) -> VolumeNodeAffinity:
    requirement = NodeSelectorRequirement(key=key, operator="In", values=zones)
    return VolumeNodeAffinity(
        required=NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(requirement,)),))
    )


def volume(
    name: str,
    size: str = GIB,
    *,
    claim: str = "",
    zone: str = "",
    storage_class: str = "late",
    driver: str = "disk.example.com",
    rv: int = 1,
    **fields: Any,
) -> PersistentVolume:
    labels = fields.pop("labels", {})
    reference = ObjectReference(namespace="default", name=claim, uid=f"uid-{claim}") if claim else None
    spec = {"access_modes": ("ReadWriteOnce",), **fields}
    return PersistentVolume(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", resource_version=str(rv), labels=labels),
        spec=PersistentVolumeSpec(
            capacity={"storage": size},
            claim_ref=reference,
            storage_class_name=storage_class,
            node_affinity=in_zone(zone) if zone else None,
            csi=CSIPersistentVolumeSource(driver=driver, volume_handle=name) if driver else None,
            **spec,
        ),
        status=PersistentVolumeStatus(phase="Bound" if claim else "Available"),
    )


def claim(
    name: str = "data",
    size: str = GIB,
    *,
    bound: str = "",
    storage_class: str | None = "late",
    node: str = "",
    owner: str = "",
    phase: str = "",
    rv: int = 1,
    **fields: Any,
) -> PersistentVolumeClaim:
    annotations = {**({BIND_COMPLETED: "yes"} if bound else {}), **({SELECTED_NODE: node} if node else {})}
    owners = (OwnerReference(kind="Pod", name="p", uid=owner, controller=True),) if owner else ()
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-{name}",
            annotations=annotations,
            owner_references=owners,
            resource_version=str(rv),
        ),
        spec=PersistentVolumeClaimSpec(
            volume_name=bound,
            storage_class_name=storage_class,
            access_modes=fields.pop("modes", ("ReadWriteOnce",)),
            resources=ResourceRequirements(requests={"storage": size}),
            **fields,
        ),
        status=PersistentVolumeClaimStatus(phase=phase or ("Bound" if bound else "Pending")),
    )


def late(
    name: str = "late",
    provisioner: str = "disk.example.com",
    *,
    zones: tuple[str, ...] = (),
    mode: str = "WaitForFirstConsumer",
) -> StorageClass:
    terms = (
        (TopologySelectorTerm(match_label_expressions=(TopologySelectorLabelRequirement(key=ZONE_KEY, values=zones),)),)
        if zones
        else ()
    )
    return StorageClass(
        metadata=ObjectMeta(name=name), provisioner=provisioner, volume_binding_mode=mode, allowed_topologies=terms
    )


def mount(*names: str) -> tuple[Volume, ...]:
    return tuple(
        Volume(name=f"v{i}", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=name))
        for i, name in enumerate(names)
    )


class Case:
    """One plugin, three nodes (n1 in zone a, n2 in zone b, n3 in none), and what the informers hold."""

    def __init__(self, a: Any, entry: Any, *objects: Any, args: Any = None, **switches: Any) -> None:
        self.handle = new_handle(Switches(switches), *objects)
        self.plugin = entry.make(args or entry.defaults(self.handle.switches), self.handle)
        self.cache: Cache = self.handle.cache
        self.a = a
        for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "")):
            self.cache.set_node(a.node(name, labels={ZONE_KEY: zone} if zone else {}))
        self.state = CycleState()

    def begin(self, pod: Any) -> Code:
        """Run PreFilter and return its code; its words are in `said`."""
        self.state = CycleState()
        self.pod = PodInfo(pod)
        answer = self.plugin.pre_filter(self.state, self.pod, self.cache.columns)
        status = answer if isinstance(answer, Status) else answer.status
        self.said = status.message
        return status.code

    def fits(self, pod: Any) -> dict[str, str]:
        """Return node to its reasons ("" where the pod fits), after checking that both forms agree."""
        if self.begin(pod) is Code.SKIP:
            return dict.fromkeys(("n1", "n2", "n3"), "")
        assert self.said == ""
        columns = self.cache.columns
        mask = self.plugin.filter_all(self.state, self.pod, columns)
        found = {}
        for name, row in columns.slots.items():
            status = self.plugin.filter(self.state, self.pod, self.cache.nodes[name])
            assert status.is_success == (mask is None or bool(mask[row])), name
            found[name] = status.message
            self.code = status.code if not status.is_success else getattr(self, "code", status.code)
        return found

    def hint(self, kind: str, pod: Any, old: Any, new: Any) -> Hint:
        for registration in self.plugin.events_to_register():
            if registration.event.resource == kind and registration.hint is not None:
                return registration.hint(PodInfo(pod), old, new)
        raise AssertionError(kind)


NODE_CONFLICT = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"


@pytest.mark.parametrize("entry", [BINDING, ZONE, RESTRICTIONS, LIMITS], ids=lambda e: e.name)
def test_a_pod_without_volumes_is_skipped_by_every_volume_plugin(a, entry):
    assert Case(a, entry).begin(a.pod("p")) is Code.SKIP


# -- VolumeBinding


def test_a_bound_claim_keeps_its_pod_where_the_volume_is_reached(a):
    case = Case(a, BINDING, claim(bound="pv"), volume("pv", claim="data", zone="a"))
    assert case.fits(a.pod("p", volumes=mount("data"))) == {"n1": "", "n2": NODE_CONFLICT, "n3": NODE_CONFLICT}
    assert case.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_a_claim_bound_to_a_volume_that_is_gone_fits_nowhere(a):
    case = Case(a, BINDING, claim(bound="pv"))
    gone = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
    assert set(case.fits(a.pod("p", volumes=mount("data"))).values()) == {gone}


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ((), 'persistentvolumeclaim "data" not found'),
        ((claim(phase="Lost", bound="pv"),),
         'persistentvolumeclaim "data" bound to non-existent persistentvolume "pv"'),
        ((claim(storage_class="now"), late("now", mode="Immediate")),
         "pod has unbound immediate PersistentVolumeClaims"),
        ((claim(storage_class=""),), "pod has unbound immediate PersistentVolumeClaims"),
    ],
)  # fmt: skip
def test_a_claim_that_cannot_be_used_yet_ends_the_attempt_before_any_node(a, objects, message):
    case = Case(a, BINDING, *objects)
    assert case.begin(a.pod("p", volumes=mount("data"))) is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert case.said == message


def test_a_claim_of_a_class_that_does_not_exist_waits_for_no_consumer(a):
    case = Case(a, BINDING, claim())
    assert case.begin(a.pod("p", volumes=mount("data"))) is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert case.said == "pod has unbound immediate PersistentVolumeClaims"


def test_an_ephemeral_volume_waits_for_its_claim_and_takes_no_other_pods(a):
    pod = a.pod("p", volumes=(Volume(name="tmp", ephemeral=Mark()),))
    case = Case(a, BINDING, late())
    assert case.begin(pod) is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert case.said == 'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-tmp"'
    case.handle.world.put(claim("p-tmp", owner="another"))
    case.begin(pod)
    assert case.said == "PVC default/p-tmp was not created for pod default/p (pod is not owner)"
    case.handle.world.put(claim("p-tmp", owner="p"))
    assert case.fits(pod) == {"n1": "", "n2": "", "n3": ""}


def test_a_waiting_claim_gets_the_smallest_volume_that_the_node_reaches(a):
    volumes = (volume("big-a", "5Gi", zone="a"), volume("small-a", "2Gi", zone="a"), volume("b", "9Gi", zone="b"))
    case = Case(a, BINDING, claim(size="2Gi"), late(provisioner="kubernetes.io/no-provisioner"), *volumes)
    assert case.fits(a.pod("p", volumes=mount("data"))) == {"n1": "", "n2": "", "n3": NO_VOLUME}
    assert case.plugin.reserve(case.state, case.pod, "n1").is_success
    notes = case.state.data["VolumeBinding"]
    assert [bound.metadata.name for _, bound, _ in notes.reserved.bindings] == ["small-a"]


@pytest.mark.parametrize(
    "change",
    [
        {"size": "512Mi"}, {"claim": "other"}, {"storage_class": "another"}, {"volume_mode": "Block"},
        {"access_modes": ("ReadOnlyMany",)},
    ],
    ids=lambda c: next(iter(c)),
)  # fmt: skip
def test_a_volume_that_does_not_suit_the_claim_is_not_offered(a, change):
    no_provisioner = late(provisioner="kubernetes.io/no-provisioner")
    pod = a.pod("p", volumes=mount("data"))
    assert set(Case(a, BINDING, claim(), no_provisioner, volume("pv")).fits(pod).values()) == {""}
    assert set(Case(a, BINDING, claim(), no_provisioner, volume("pv", **change)).fits(pod).values()) == {NO_VOLUME}


def test_a_selector_chooses_among_volumes(a):
    wanted = claim(selector=LabelSelector(match_labels={"tier": "gold"}))
    objects = (
        late(provisioner="kubernetes.io/no-provisioner"),
        volume("tin", labels={"tier": "tin"}),
        volume("gold", zone="b", labels={"tier": "gold"}),
    )
    found = Case(a, BINDING, wanted, *objects).fits(a.pod("p", volumes=mount("data")))
    assert [name for name, reason in found.items() if not reason] == ["n2"]


def test_two_claims_of_a_pod_need_two_volumes_and_the_smaller_one_takes_the_smaller(a):
    objects = (
        claim("one", "1Gi"),
        claim("two", "3Gi"),
        late(provisioner="kubernetes.io/no-provisioner"),
        volume("x", "1Gi", zone="a"),
        volume("y", "3Gi", zone="a"),
        volume("z", "4Gi", zone="b"),
    )
    case = Case(a, BINDING, *objects)
    assert case.fits(a.pod("p", volumes=mount("two", "one"))) == {"n1": "", "n2": NO_VOLUME, "n3": NO_VOLUME}


def test_a_volume_reserved_by_a_person_is_the_only_one_its_claim_gets(a):
    mine = volume("mine", "9Gi", claim="data", zone="b")
    case = Case(a, BINDING, claim(), late(provisioner="kubernetes.io/no-provisioner"), mine, volume("free", zone="a"))
    assert case.fits(a.pod("p", volumes=mount("data"))) == {"n1": NO_VOLUME, "n2": "", "n3": NO_VOLUME}


def test_volumes_are_made_only_where_the_class_allows(a):
    case = Case(a, BINDING, claim(), late(zones=("b",)))
    assert case.fits(a.pod("p", volumes=mount("data"))) == {"n1": NO_VOLUME, "n2": "", "n3": NO_VOLUME}


def test_a_claim_whose_node_was_chosen_before_fits_nowhere_else(a):
    case = Case(a, BINDING, claim(node="n2"), late())
    assert case.fits(a.pod("p", volumes=mount("data"))) == {"n1": NO_VOLUME, "n2": "", "n3": NO_VOLUME}


def test_a_driver_that_publishes_its_capacity_is_believed(a):
    def capacity_of(name: str, size: str | None, zone: str, largest: str | None = None) -> CSIStorageCapacity:
        topology = LabelSelector(match_labels={ZONE_KEY: zone})
        return CSIStorageCapacity(
            metadata=ObjectMeta(name=name, namespace="default"),
            storage_class_name="late",
            node_topology=topology,
            capacity=size,
            maximum_volume_size=largest,
        )

    driver = CSIDriver(metadata=ObjectMeta(name="disk.example.com"), spec=CSIDriverSpec(storage_capacity=True))
    pod, full = a.pod("p", volumes=mount("data")), "node(s) did not have enough free storage"
    objects = (claim(size="10Gi"), late(), driver, capacity_of("a", "20Gi", "a"), capacity_of("b", "5Gi", "b"))
    assert Case(a, BINDING, *objects).fits(pod) == {"n1": "", "n2": full, "n3": full}
    piecemeal = capacity_of("a", "20Gi", "a", largest="4Gi")
    assert Case(a, BINDING, *objects, piecemeal).fits(pod)["n1"] == full
    assert set(Case(a, BINDING, claim(size="10Gi"), late()).fits(pod).values()) == {""}


def test_a_node_lists_all_its_reasons(a):
    objects = (claim("old", bound="pv"), volume("pv", claim="old", zone="a"), claim(), late(zones=("a",)))
    found = Case(a, BINDING, *objects).fits(a.pod("p", volumes=mount("old", "data")))
    assert found == {"n1": "", "n2": f"{NODE_CONFLICT}, {NO_VOLUME}", "n3": f"{NODE_CONFLICT}, {NO_VOLUME}"}


def test_what_is_reserved_is_not_offered_again_until_it_is_given_back(a):
    case = Case(a, BINDING, claim(), claim("other"), late(provisioner="kubernetes.io/no-provisioner"), volume("pv"))
    assert set(case.fits(a.pod("p", volumes=mount("data"))).values()) == {""}
    case.plugin.reserve(case.state, case.pod, "n1")
    first = case.state
    assert set(case.fits(a.pod("q", volumes=mount("other"))).values()) == {NO_VOLUME}
    case.plugin.unreserve(first, PodInfo(a.pod("p")), "n1")
    assert set(case.fits(a.pod("q", volumes=mount("other"))).values()) == {""}


def test_a_node_reserved_for_a_claim_holds_for_the_next_pod_that_shares_it(a):
    case = Case(a, BINDING, claim(), late())
    case.fits(a.pod("p", volumes=mount("data")))
    case.plugin.reserve(case.state, case.pod, "n2")
    assert case.fits(a.pod("q", volumes=mount("data"))) == {"n1": NO_VOLUME, "n2": "", "n3": NO_VOLUME}
    case.handle.world.put(claim(rv=2))
    assert set(case.fits(a.pod("q", volumes=mount("data"))).values()) == {""}, "a newer version is the truth"


def test_pre_bind_has_work_only_for_claims_that_wait(a):
    bound = Case(a, BINDING, claim(bound="pv"), volume("pv", claim="data"))
    bound.fits(a.pod("p", volumes=mount("data")))
    assert bound.plugin.reserve(bound.state, bound.pod, "n1").is_success
    assert bound.plugin.pre_bind_pre_flight(bound.state, bound.pod, "n1").code is Code.SKIP
    waiting = Case(a, BINDING, claim(), late())
    waiting.fits(a.pod("p", volumes=mount("data")))
    waiting.plugin.reserve(waiting.state, waiting.pod, "n1")
    assert waiting.plugin.pre_bind_pre_flight(waiting.state, waiting.pod, "n1").is_success


def scores(case: Case, pod: Any) -> list[int] | None:
    case.fits(pod)
    columns = case.cache.columns
    if case.plugin.pre_score(case.state, case.pod, columns, columns.valid).code is Code.SKIP:
        return None
    found = case.plugin.score_all(case.state, case.pod, columns)
    return [int(found[columns.slots[name]]) for name in ("n1", "n2")]


def test_storage_counts_in_scoring_only_with_its_gate(a):
    objects = (
        claim(size="2Gi"),
        late(provisioner="kubernetes.io/no-provisioner"),
        volume("a", "4Gi", zone="a"),
        volume("b", "10Gi", zone="b"),
    )
    pod = a.pod("p", volumes=mount("data"))
    assert scores(Case(a, BINDING, *objects), pod) is None
    on = {"StorageCapacityScoring": True}
    assert scores(Case(a, BINDING, *objects, **on), pod) == [50, 80]
    points = (UtilizationShapePoint(utilization=0, score=0), UtilizationShapePoint(utilization=100, score=10))
    assert scores(Case(a, BINDING, *objects, args=VolumeBindingArgs(shape=points), **on), pod) == [50, 20]
    assert scores(Case(a, BINDING, **on), a.pod("p")) is None, "a pod without volumes is not scored (12.9)"


def test_capacity_for_volumes_yet_to_be_made_is_scored_once_for_all_claims_of_a_class(a):
    def capacity_of(zone: str, size: str) -> CSIStorageCapacity:
        return CSIStorageCapacity(
            metadata=ObjectMeta(name=zone, namespace="default"),
            storage_class_name="late",
            node_topology=LabelSelector(match_labels={ZONE_KEY: zone}),
            capacity=size,
        )

    driver = CSIDriver(metadata=ObjectMeta(name="disk.example.com"), spec=CSIDriverSpec(storage_capacity=True))
    objects = (
        claim("one", "2Gi"),
        claim("two", "2Gi"),
        late(),
        driver,
        capacity_of("a", "8Gi"),
        capacity_of("b", "40Gi"),
    )
    case = Case(a, BINDING, *objects, StorageCapacityScoring=True)
    assert scores(case, a.pod("p", volumes=mount("one", "two"))) == [50, 90]


def test_hints_of_volume_binding_let_only_what_may_help_wake_a_pod(a):
    case, pod = Case(a, BINDING), a.pod("p", volumes=mount("data"))
    assert case.hint("PersistentVolumeClaim", pod, None, claim()) is Hint.QUEUE
    assert case.hint("PersistentVolumeClaim", pod, None, claim("other")) is Hint.SKIP
    assert case.hint("StorageClass", pod, None, late()) is Hint.QUEUE
    assert case.hint("StorageClass", pod, late(), late()) is Hint.SKIP
    assert case.hint("StorageClass", pod, late(zones=("a",)), late(zones=("a", "b"))) is Hint.QUEUE
    small, large = (CSIStorageCapacity(storage_class_name="late", capacity=size) for size in ("1Gi", "2Gi"))
    assert case.hint("CSIStorageCapacity", pod, small, large) is Hint.QUEUE
    assert case.hint("CSIStorageCapacity", pod, large, small) is Hint.SKIP
    assert case.hint("CSINode", pod, CSINode(), CSINode()) is Hint.SKIP


# -- VolumeZone


@pytest.mark.parametrize(
    ("labels", "good"),
    [
        ({ZONE_KEY: "a"}, ["n1", "n3"]),
        ({ZONE_KEY: "a__b"}, ["n1", "n2", "n3"]),
        ({"failure-domain.beta.kubernetes.io/zone": "b"}, ["n2", "n3"]),
        ({"topology.kubernetes.io/region": "r"}, ["n3"]),
    ],
)
def test_a_volumes_zone_labels_hold_but_for_nodes_in_no_zone_at_all(a, labels, good):
    case = Case(a, ZONE, claim(bound="pv"), volume("pv", claim="data", labels=labels))
    found = case.fits(a.pod("p", volumes=mount("data")))
    assert [name for name, reason in found.items() if not reason] == good
    assert {reason for reason in found.values() if reason} <= {"node(s) had no available volume zone"}


def test_a_volume_without_zone_labels_is_anywhere(a):
    case = Case(a, ZONE, claim(bound="pv"), volume("pv", claim="data", labels={ZONE_KEY: "a__"}))
    assert case.begin(a.pod("p", volumes=mount("data"))) is Code.SKIP


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ((claim(storage_class=""),), "PersistentVolumeClaim had no pv name and storageClass name"),
        ((claim(storage_class="now"), late("now", mode="Immediate")), "PersistentVolume had no name"),
        ((claim(bound="pv"),), 'persistentvolume "pv" not found'),
    ],
)
def test_a_volume_that_is_not_there_has_no_zone(a, objects, message):
    case = Case(a, ZONE, *objects)
    assert case.begin(a.pod("p", volumes=mount("data"))) is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert case.said == message


def test_a_claim_that_waits_has_no_zone_yet(a):
    assert Case(a, ZONE, claim(), late()).begin(a.pod("p", volumes=mount("data"))) is Code.SKIP


# -- VolumeRestrictions


def gce(read_only: bool = False) -> Volume:
    return Volume(name="d", gce_persistent_disk=GCEPersistentDiskVolumeSource(pd_name="disk", read_only=read_only))


def rbd(*monitors: str, read_only: bool = False) -> Volume:
    return Volume(name="d", rbd=RBDVolumeSource(monitors=monitors, image="i", read_only=read_only))


def iscsi(read_only: bool = False) -> Volume:
    return Volume(name="d", iscsi=ISCSIVolumeSource(iqn="iqn", read_only=read_only))


EBS = Volume(name="d", aws_elastic_block_store=AWSElasticBlockStoreVolumeSource(volume_id="vol", read_only=True))


@pytest.mark.parametrize(
    ("held", "wanted", "conflicts"),
    [
        (gce(), gce(), True), (gce(True), gce(), True), (gce(True), gce(True), False), (EBS, EBS, True),
        (iscsi(), iscsi(True), True), (iscsi(True), iscsi(True), False),
        (rbd("m1", "m2"), rbd("m2"), True), (rbd("m1"), rbd("m2"), False),
        (rbd("m1", read_only=True), rbd("m1", read_only=True), False), (gce(), EBS, False),
    ],
)  # fmt: skip
def test_a_disk_in_use_keeps_other_pods_off_its_node(a, held, wanted, conflicts):
    case = Case(a, RESTRICTIONS)
    case.cache.add_pod(PodInfo(a.pod("holder", node="n1", volumes=(held,))), "n1")
    found = case.fits(a.pod("p", volumes=(wanted,)))
    assert found == {"n1": "node(s) had no available disk" if conflicts else "", "n2": "", "n3": ""}
    if conflicts:
        assert case.code is Code.UNSCHEDULABLE


def test_a_claim_for_one_pod_alone_keeps_others_off_every_node_until_that_pod_goes(a):
    case = Case(a, RESTRICTIONS, claim(bound="pv", modes=("ReadWriteOncePod",)))
    pod, holder = a.pod("p", volumes=mount("data")), a.pod("holder", node="n1", volumes=mount("data"))
    assert case.begin(pod) is Code.SKIP
    case.cache.add_pod(PodInfo(holder), "n1")
    assert set(case.fits(pod).values()) == {
        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
    }
    assert case.code is Code.UNSCHEDULABLE, "preemption may help"
    without = case.state.clone()
    case.plugin.remove_pod(without, case.pod, PodInfo(holder), case.cache.nodes["n1"])
    assert case.plugin.filter(without, case.pod, case.cache.nodes["n1"]).is_success
    assert not case.plugin.filter(case.state, case.pod, case.cache.nodes["n1"]).is_success
    case.plugin.add_pod(without, case.pod, PodInfo(holder), case.cache.nodes["n1"])
    assert not case.plugin.filter(without, case.pod, case.cache.nodes["n1"]).is_success
    assert case.hint("AssignedPod", pod, holder, None) is Hint.QUEUE
    assert case.hint("AssignedPod", pod, a.pod("stranger", node="n1"), None) is Hint.SKIP
    case.cache.remove_pod("holder")
    assert case.begin(pod) is Code.SKIP


# -- NodeVolumeLimits


def csi_node(name: str, count: int | None, driver: str = "disk.example.com", migrated: str = "") -> CSINode:
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    drivers = (CSINodeDriver(name=driver, allocatable=VolumeNodeResources(count=count)),)
    return CSINode(metadata=ObjectMeta(name=name, annotations=annotations), spec=CSINodeSpec(drivers=drivers))


TOO_MANY = "node(s) exceed max volume count"


def test_a_driver_attaches_no_more_than_its_node_says_and_each_volume_once(a):
    objects = (
        claim("one", bound="v1"),
        claim("two", bound="v2"),
        volume("v1", claim="one"),
        volume("v2", claim="two"),
        csi_node("n1", 1),
        csi_node("n2", None),
    )
    case = Case(a, LIMITS, *objects)
    case.cache.add_pod(PodInfo(a.pod("holder", node="n1", volumes=mount("one"))), "n1")
    assert case.fits(a.pod("p", volumes=mount("two"))) == {"n1": TOO_MANY, "n2": "", "n3": ""}
    assert case.code is Code.UNSCHEDULABLE
    assert set(case.fits(a.pod("q", volumes=mount("one"))).values()) == {""}, "attached already"
    case.handle.world.put(csi_node("n1", 2))
    assert set(case.fits(a.pod("p", volumes=mount("two"))).values()) == {""}


def test_a_volume_that_is_not_made_yet_counts_for_the_driver_of_its_class(a):
    case = Case(a, LIMITS, claim("one"), claim("two"), late(), csi_node("n1", 1))
    assert case.fits(a.pod("p", volumes=mount("one", "two"))) == {"n1": TOO_MANY, "n2": "", "n3": ""}
    other = Case(a, LIMITS, claim("one"), claim("two"), late(provisioner="other.example.com"), csi_node("n1", 1))
    assert set(other.fits(a.pod("p", volumes=mount("one", "two"))).values()) == {""}


def test_a_disk_of_a_former_plugin_counts_where_the_node_has_migrated_it(a):
    driver = "pd.csi.storage.gke.io"
    old = volume("v1", claim="one", driver="", gce_persistent_disk=GCEPersistentDiskVolumeSource(pd_name="d1"))
    for migrated, reason in (("kubernetes.io/gce-pd", TOO_MANY), ("", "")):
        case = Case(a, LIMITS, claim("one", bound="v1"), old, csi_node("n1", 1, driver, migrated))
        case.cache.add_pod(PodInfo(a.pod("holder", node="n1", volumes=(gce(),))), "n1")
        assert case.fits(a.pod("p", volumes=mount("one")))["n1"] == reason


def test_a_pod_whose_claim_is_missing_attaches_nothing_anywhere(a):
    case = Case(a, LIMITS)
    words = 'looking up PVC default/data: persistentvolumeclaim "data" not found'
    assert set(case.fits(a.pod("p", volumes=mount("data"))).values()) == {words}
    assert case.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE


def test_hints_of_volume_limits_want_a_free_slot_or_the_claim(a):
    case, pod = Case(a, LIMITS), a.pod("p", volumes=mount("data"))
    assert case.hint("CSINode", pod, csi_node("n1", 1), csi_node("n1", 2)) is Hint.QUEUE
    assert case.hint("CSINode", pod, csi_node("n1", 2), csi_node("n1", 1)) is Hint.SKIP
    assert case.hint("AssignedPod", pod, a.pod("q", volumes=mount("x")), None) is Hint.QUEUE
    assert case.hint("AssignedPod", pod, a.pod("q"), None) is Hint.SKIP
    assert case.hint("PersistentVolumeClaim", pod, None, claim()) is Hint.QUEUE
