"""The StatefulSet controller: what a look at pods, claims and revisions leads to."""

import pytest

from services.api.kinds.statefulset import StatefulSet
from services.api.meta import Key
from services.controllers import shared_revisions as revisions
from services.controllers.statefulset.controller import CONTROLLER as STATEFULSET
from services.reconcile.actions import Batch, Create, Delete, Patch, Query, RecordEvent

TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
DATA = {"metadata": {"name": "data", "labels": {"tier": "db"}}, "spec": {"accessModes": ["ReadWriteOnce"]}}
OWNER = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "uid-web", "controller": True,
         "blockOwnerDeletion": True}  # fmt: skip
FIRST = f"web-{revisions.hash_of(revisions.data_of(TEMPLATE), 0)}"
WEB = Key("default", "web")


def a_set(status=None, *, deleted=False, **spec):
    metadata = {"name": "web", "generation": 1}
    if deleted:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": metadata, "status": status or {},
        "spec": {"replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "web"}},
                 "template": TEMPLATE, **spec},
    }  # fmt: skip


def a_claim(name, owners=(), **metadata):
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "ownerReferences": list(owners), **metadata}}  # fmt: skip


class Look:
    """What one reconcile asked for."""

    def __init__(self, result):
        flat = [each for a in result.actions for each in (a.actions if isinstance(a, Batch) else (a,))]
        self.flat, self.refresh, self.again_s = flat, result.refresh, result.requeue_after_s
        self.created = {a.document["metadata"]["name"]: a.document for a in flat if isinstance(a, Create)}
        self.deleted = [a.key.name for a in flat if isinstance(a, Delete)]
        self.patched = {a.key.name: a.patch for a in flat if isinstance(a, Patch) and a.subresource != "status"}
        writes = [a.patch["status"] for a in flat if isinstance(a, Patch) and a.subresource == "status"]
        self.status = writes[0] if writes else {}
        self.events = [(a.reason, a.message) for a in flat if isinstance(a, RecordEvent)]


@pytest.fixture
def web(world_of, a_pod):
    """A world with one set; `pod` puts a pod of it, `look` reconciles."""

    class Web:
        def __init__(self):
            self.world = world_of(STATEFULSET)

        def pod(self, ordinal, phase="Running", *, owner=True, revision=FIRST, name="", **more):
            name = name or f"web-{ordinal}"
            labels = {
                "app": "web",
                "controller-revision-hash": revision,
                "statefulset.kubernetes.io/pod-name": name,
                "apps.kubernetes.io/pod-index": str(ordinal),
            }
            owners = {"ownerReferences": [OWNER]} if owner else {}
            self.world.put(a_pod(name, node="n1", phase=phase, **{"labels": labels, **owners, **more}))

        def revision(self, name=FIRST, number=1, template=TEMPLATE, owner=True, uid="uid-web"):
            owners = [{**OWNER, "uid": uid}] if owner else []
            self.world.put({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": number,
                            "metadata": {"name": name, "ownerReferences": owners, "labels": {"app": "web"}},
                            "data": revisions.data_of(template)})  # fmt: skip

        def look(self, **moment):
            return Look(self.world.reconcile("web", **moment))

    return Web()


def test_the_first_pod_has_its_name_host_labels_claim_and_revision(web):
    web.world.put(a_set(volumeClaimTemplates=[DATA]))

    look = web.look()

    pod = look.created["web-0"]
    assert list(look.created) == [FIRST, "data-web-0", "web-0"]
    assert pod["metadata"]["labels"] == {
        "app": "web", "statefulset.kubernetes.io/pod-name": "web-0", "apps.kubernetes.io/pod-index": "0",
        "controller-revision-hash": FIRST}  # fmt: skip
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("web-0", "db")
    assert pod["spec"]["volumes"] == [{"name": "data", "persistentVolumeClaim": {"claimName": "data-web-0"}}]
    assert pod["metadata"]["ownerReferences"] == [OWNER]
    assert look.created["data-web-0"]["metadata"]["labels"] == {"tier": "db", "app": "web"}
    assert "ownerReferences" not in look.created["data-web-0"]["metadata"]
    assert look.events == [
        ("SuccessfulCreate", "create Claim data-web-0 Pod web-0 in StatefulSet web success"),
        ("SuccessfulCreate", "create Pod web-0 in StatefulSet web successful"),
    ]


def test_a_claims_volume_replaces_one_of_the_template_and_there_is_no_domain_without_service(web):
    own = {**TEMPLATE, "spec": {"volumes": [{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]}}
    web.world.put(a_set(volumeClaimTemplates=[DATA], template=own, serviceName=""))

    pod = web.look().created["web-0"]["spec"]

    assert [sorted(volume)[-1] for volume in pod["volumes"]] == ["persistentVolumeClaim", "name"]
    assert "subdomain" not in pod


def test_a_failed_pod_is_deleted_with_an_event_and_made_anew_when_it_is_gone_controllers_08(web):
    web.world.put(a_set())
    web.revision()
    web.pod(0)
    web.pod(1, "Failed")

    look = web.look()
    keys = web.world.drop("Pod", "web-1")

    assert (look.deleted, look.created) == (["web-1"], {})
    assert look.events == [
        ("RecreatingFailedPod", "StatefulSet default/web is recreating failed Pod web-1"),
        ("SuccessfulDelete", "delete Pod web-1 in StatefulSet web successful"),
    ]
    assert keys == [WEB]
    assert list(web.look().created) == ["web-1"]


def test_a_pod_that_succeeded_is_made_anew_as_well(web):
    web.world.put(a_set())
    web.revision()
    web.pod(0, "Succeeded")

    look = web.look()

    assert (look.deleted, look.events[0][0]) == (["web-0"], "RecreatingTerminatedPod")


def test_the_set_waits_while_another_pod_has_the_name(web, a_pod):
    web.world.put(a_set())
    web.revision()
    web.world.put(a_pod("web-0", owner="other", labels={"app": "other"}))

    assert web.look().created == {}
    assert web.world.drop("Pod", "web-0") == [WEB]
    assert list(web.look().created) == ["web-0"]


def test_status_counts_and_a_complete_update_makes_its_revision_the_current_one(web):
    old = {**TEMPLATE, "spec": {"containers": []}}
    web.world.put(a_set({"currentRevision": "web-a", "replicas": 2}))
    web.revision("web-a", 1, old)
    web.revision(FIRST, 2)
    web.pod(0, revision="web-a")
    web.pod(1)

    partly = web.look().status
    web.pod(0)
    whole = web.look().status

    assert partly == {
        "observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "currentReplicas": 1,
        "updatedReplicas": 1, "currentRevision": "web-a", "updateRevision": FIRST, "collisionCount": 0,
    }  # fmt: skip
    assert (whole["currentRevision"], whole["currentReplicas"]) == (FIRST, 2)


def test_a_pod_that_leaves_is_a_replica_and_of_no_revision(web):
    web.world.put(a_set())
    web.revision()
    web.pod(0, deletionTimestamp="2026-01-01T00:00:30Z")

    status = web.look().status

    assert [status[name] for name in ("replicas", "readyReplicas", "updatedReplicas")] == [1, 1, 0]


def test_an_orphan_of_the_right_name_is_adopted_after_a_live_look_and_another_is_not(web):
    web.world.put(a_set())
    web.revision()
    web.pod(0, owner=False)
    web.pod(1, owner=False, name="other-1")
    query = Query(StatefulSet, WEB)

    asked = web.look()
    live = web.world.of(StatefulSet).get(WEB)
    look = web.look(live={query: live})
    gone = web.look(live={query: None})

    assert asked.refresh == (query,)
    assert list(look.patched) == ["web-0"]
    assert look.status["replicas"] == 1
    assert gone.patched == {}
    assert gone.created == {}, "the name is taken until the orphan has a controller"


def test_a_pod_whose_labels_or_name_no_longer_match_is_released(web):
    web.world.put(a_set())
    web.revision()
    web.pod(0, labels={"app": "mine"})
    web.pod(7, name="orphan")

    look = web.look()

    assert {name: p["metadata"]["ownerReferences"][0]["$patch"] for name, p in look.patched.items()} == {
        "web-0": "delete", "orphan": "delete"}  # fmt: skip
    assert look.status["replicas"] == 0


def test_labels_of_identity_are_put_back(web):
    web.world.put(a_set())
    web.revision()
    web.pod(0, labels={"app": "web", "controller-revision-hash": FIRST})

    look = web.look()

    assert look.patched["web-0"]["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "web-0"
    assert look.events[0] == ("SuccessfulUpdate", "update Pod web-0 in StatefulSet web successful")


def test_a_refused_creation_is_reported_at_the_next_reconcile(web):
    web.world.put(a_set())
    failed = web.world.controller.failed
    create = Create("pods", {"metadata": {"name": "web-0"}})

    failed(WEB, create, "not performed: an action before it failed")
    failed(WEB, create, "Forbidden: exceeded quota: small")
    failed(WEB, create, "Forbidden: again")

    text = "create Pod web-0 in StatefulSet web failed error: exceeded quota: small"
    assert web.look().events[0] == ("FailedCreate", text)
    assert web.look().events[0][0] == "SuccessfulCreate"


def test_old_revisions_beyond_the_limit_go_but_none_that_a_pod_is_of(web):
    web.world.put(a_set({"currentRevision": FIRST}, revisionHistoryLimit=1))
    for number in range(1, 5):
        web.revision(f"web-{number}x", number, {"spec": {"n": number}})
    web.revision(FIRST, 5)
    web.pod(0, revision="web-1x")

    assert [d for d in web.look().deleted if d.endswith("x")] == ["web-2x", "web-3x"]


def test_a_set_that_is_being_deleted_only_reports(web):
    web.world.put(a_set(deleted=True))
    web.revision()
    web.pod(0, "Failed")
    web.pod(1, owner=False)

    look = web.look()

    assert (look.created, look.deleted, look.patched, look.refresh) == ({}, [], {}, ())
    assert look.status["replicas"] == 1


def test_a_pod_is_made_of_the_current_revision_below_the_partition(web):
    old = {**TEMPLATE, "spec": {"containers": [{"name": "c", "image": "i:0"}]}}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    web.world.put(a_set({"currentRevision": "web-a"}, updateStrategy=strategy))
    web.revision("web-a", 1, old)
    web.revision(FIRST, 2)

    below = web.look().created["web-0"]
    web.pod(0, revision="web-a")
    above = web.look().created["web-1"]

    assert [p["spec"]["containers"][0]["image"] for p in (below, above)] == ["i:0", "i:1"]
    assert below["metadata"]["labels"]["controller-revision-hash"] == "web-a"


POD_OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "uid-web-0", "controller": True,
             "blockOwnerDeletion": True}  # fmt: skip
OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"}


@pytest.mark.parametrize(
    ("policy", "replicas", "held", "wanted"),
    [
        (("Retain", "Retain"), 1, [OWNER, OTHER], [OTHER]),
        (("Retain", "Retain"), 1, [OTHER], None),
        (("Delete", "Retain"), 1, [OTHER], [OTHER, OWNER]),
        (("Delete", "Retain"), 0, [OWNER], None),
        (("Retain", "Delete"), 1, [OWNER], []),
        (("Retain", "Delete"), 0, [], [POD_OWNER]),
        (("Delete", "Delete"), 0, [OWNER], [POD_OWNER]),
        (("Delete", "Delete"), 1, [POD_OWNER], [OWNER]),
        (("Delete", "Retain"), 1, [{**OWNER, "uid": "earlier"}], None),
        (("Delete", "Retain"), 1, [{**OWNER, "uid": "earlier", "controller": False}], None),
        (("Delete", "Retain"), 1, [{**OTHER, "controller": True}], None),
        (("Delete", "Retain"), 1, [{**OWNER, "controller": False}], [OWNER]),
    ],
)
def test_a_claim_has_the_owners_that_its_retention_policy_wants(web, policy, replicas, held, wanted):
    kept = {"whenDeleted": policy[0], "whenScaled": policy[1]}
    web.world.put(a_set(replicas=replicas, volumeClaimTemplates=[DATA], persistentVolumeClaimRetentionPolicy=kept))
    web.revision()
    web.pod(0)
    web.world.put(a_claim("data-web-0", held))

    look = web.look()
    patch = look.patched.get("data-web-0")
    found = None if patch is None else patch["metadata"]["ownerReferences"] or []

    assert (found if found is None else [o["uid"] for o in found]) == (wanted if wanted is None else [
        o["uid"] for o in wanted])  # fmt: skip
    if wanted:
        assert all(o.get("controller", False) for o in found if o["uid"] != "c")
    if look.deleted and patch is not None:
        kinds = [type(a).__name__ for a in look.flat if (isinstance(a, Patch) and not a.subresource) or
                 isinstance(a, Delete)]  # fmt: skip
        assert kinds == ["Patch", "Delete"], "whose it is must be known before the pod goes"


def test_a_pending_pods_lost_claim_is_made_again(web):
    web.world.put(a_set(volumeClaimTemplates=[DATA]))
    web.revision()
    web.pod(0, "Pending")

    assert list(web.look().created) == ["data-web-0"]


@pytest.mark.parametrize(
    "claim",
    [
        a_claim("data-web-0", deletionTimestamp="2026-01-01T00:00:00Z"),
        a_claim("data-web-0", [{**POD_OWNER, "uid": "earlier"}]),
    ],
    ids=["leaving", "of the pod before"],
)
def test_no_pod_is_made_while_its_claim_is_still_going(web, claim):
    kept = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    web.world.put(a_set(volumeClaimTemplates=[DATA], persistentVolumeClaimRetentionPolicy=kept))
    web.revision()
    web.world.put(claim)

    assert web.look().created == {}
    assert web.world.drop("PersistentVolumeClaim", "data-web-0") == [WEB]
    assert list(web.look().created) == ["data-web-0", "web-0"]


def test_a_claim_that_is_deleted_with_the_set_is_the_sets_from_the_start(web):
    kept = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    web.world.put(a_set(volumeClaimTemplates=[DATA], persistentVolumeClaimRetentionPolicy=kept))

    assert web.look().created["data-web-0"]["metadata"]["ownerReferences"] == [OWNER]


@pytest.mark.parametrize(
    ("feature", "strategy", "replaced"),
    [
        (False, {"rollingUpdate": {"maxUnavailable": 2}}, ["web-2"]),
        (True, {"rollingUpdate": {"maxUnavailable": 2}}, ["web-2", "web-1"]),
        (True, {"rollingUpdate": {"maxUnavailable": "70%"}}, ["web-2", "web-1"]),
        (True, {"rollingUpdate": {"maxUnavailable": "10%"}}, ["web-2"]),
        (True, {"rollingUpdate": {}}, ["web-2"]),
        (True, {"type": "OnDelete"}, []),
    ],
)
def test_max_unavailable_counts_only_with_its_feature_and_for_a_rolling_update(
    world_of, web, feature, strategy, replaced
):
    web.world = world_of(STATEFULSET, MaxUnavailableStatefulSet=feature)
    web.world.put(a_set({"currentRevision": "web-a"}, replicas=3, updateStrategy={"type": "RollingUpdate", **strategy}))
    web.revision("web-a", 1, {**TEMPLATE, "spec": {"containers": []}})
    web.revision(FIRST, 2)
    for ordinal in range(3):
        web.pod(ordinal, revision="web-a")

    assert web.look().deleted == replaced
