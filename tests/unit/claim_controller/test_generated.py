"""Claims of pods and pod groups from templates: made once, named in the status, made again, and why not."""

import pytest

from claim_controller.resourceclaim.controller import CONTROLLER
from services.api.kinds.resourceclaim import POD_CLAIM_NAME, ResourceClaim
from services.api.meta import Key
from services.reconcile.actions import NOT_PERFORMED, Create, Patch, Query, RecordEvent
from tests.unit.claim_controller.conftest import CLAIM, a_claim, a_pod

LIST = Query(ResourceClaim, Key("default", ""))
TEMPLATE = {
    "apiVersion": CLAIM, "kind": "ResourceClaimTemplate", "metadata": {"name": "gpu"},
    "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}},
}  # fmt: skip
ENTRY = {"name": "dev", "resourceClaimTemplateName": "gpu"}
GROUPS = {"reserved_for__mode": "kep5729"}


def made(name, owner, kind="Pod"):
    reference = {"apiVersion": "v1", "kind": kind, "name": owner, "uid": f"uid-{owner}", "controller": True}
    return a_claim(name, allocated=False, ownerReferences=[reference], annotations={POD_CLAIM_NAME: "dev"})


def a_group(names=None):
    status = {"resourceClaimStatuses": [{"name": "dev", "resourceClaimName": names}]} if names else {}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g"},
        "spec": {"resourceClaims": [ENTRY]},
        "status": status,
    }


def listed(world):
    return {LIST: tuple(world.of(ResourceClaim).all())}


def of(result, kind):
    return [each for each in result.actions if isinstance(each, kind)]


def named(result):
    return [each.patch["status"]["resourceClaimStatuses"] for each in of(result, Patch)]


def test_nothing_is_made_before_the_server_was_asked_what_there_is(world_of):
    world = world_of(CONTROLLER)
    world.put(TEMPLATE)
    world.put(a_pod("p", entries=[ENTRY], node=""))

    asked = world.sync("pod", "p")
    created = world.sync("pod", "p", listed={LIST: ()})

    assert asked.refresh == (LIST,)
    assert [each.document["metadata"]["generateName"] for each in of(created, Create)] == ["p-dev-"]


def test_a_claim_that_a_former_process_made_is_named_and_none_is_made(world_of):
    world = world_of(CONTROLLER)
    world.put(TEMPLATE)
    world.put(a_pod("p", entries=[ENTRY], node=""))
    world.put(made("p-dev-x", "p"))

    result = world.sync("pod", "p", listed=listed(world))

    assert (of(result, Create), named(result)) == ([], [[{"name": "dev", "resourceClaimName": "p-dev-x"}]])


def test_a_claim_that_a_user_deleted_is_made_again_and_a_name_of_nil_means_none(world_of):
    world = world_of(CONTROLLER)
    world.put(TEMPLATE)
    gone, none = ({"name": "dev", "resourceClaimName": "gone"}, {"name": "dev"})
    world.put(a_pod("p", entries=[ENTRY], node="", status={"resourceClaimStatuses": [gone]}))
    world.put(a_pod("q", entries=[ENTRY], node="", status={"resourceClaimStatuses": [none]}))

    assert len(of(world.sync("pod", "p", listed={LIST: ()}), Create)) == 1
    assert world.sync("pod", "q").actions == ()


def test_a_missing_template_is_an_event_and_an_error_that_is_tried_again(world_of):
    world = world_of(CONTROLLER)
    world.put(a_pod("p", entries=[ENTRY], node=""))

    result = world.sync("pod", "p", listed={LIST: ()})

    what = 'resource claim template "gpu": resourceclaimtemplate.resource.k8s.io "gpu" not found'
    assert result.error == what
    assert [(each.reason, each.message) for each in of(result, RecordEvent)] == [
        ("FailedResourceClaimCreation", f"PodResourceClaim dev: {what}")
    ]


def test_a_refused_creation_is_counted_and_said_at_the_next_try(world_of):
    world = world_of(CONTROLLER)
    world.put(TEMPLATE)
    world.put(a_pod("p", entries=[ENTRY], node=""))
    (create,) = of(world.sync("pod", "p", listed={LIST: ()}), Create)

    world.controller.failed(Key("default", "pod/p"), create, "Forbidden: exceeded quota: q")
    again = world.sync("pod", "p", listed={LIST: ()})
    world.controller.failed(Key("default", "pod/p"), create, NOT_PERFORMED)

    assert of(again, RecordEvent)[0].message == "PodResourceClaim dev: create ResourceClaim : exceeded quota: q"
    found = world.controller.metrics()
    name = "resourceclaim_controller_creates_total"
    assert found[f'{name}{{status="failure",admin_access="false"}}'] == 1
    assert found[f'{name}{{status="success",admin_access="false"}}'] == 0


def test_kep_5194_18_a_group_gets_one_claim_and_its_members_its_name(world_of):
    world = world_of(CONTROLLER, **GROUPS)
    world.put(TEMPLATE)
    world.put(a_group())
    world.put(a_pod("p", entries=[ENTRY], node="", spec={"schedulingGroup": {"podGroupName": "g"}}))

    early = world.sync("pod", "p")
    (create,) = of(world.sync("podgroup", "g", listed={LIST: ()}), Create)
    world.put(made("g-dev-x", "g", "PodGroup"))
    group = world.sync("podgroup", "g", listed=listed(world))
    keys = world.put(a_group("g-dev-x"))
    member = world.sync("pod", "p")

    assert early.actions == ()
    assert create.document["metadata"]["generateName"] == "g-dev-"
    assert create.document["metadata"]["ownerReferences"][0]["kind"] == "PodGroup"
    assert named(group) == named(member) == [[{"name": "dev", "resourceClaimName": "g-dev-x"}]]
    assert Key("default", "pod/p") in keys


def test_an_entry_that_differs_from_the_groups_is_the_pods_own(world_of):
    world = world_of(CONTROLLER, **GROUPS)
    world.put({**TEMPLATE, "metadata": {"name": "other"}})
    world.put(a_group("g-dev-x"))
    own = {"name": "dev", "resourceClaimTemplateName": "other"}
    world.put(a_pod("p", entries=[own], node="", spec={"schedulingGroup": {"podGroupName": "g"}}))

    result = world.sync("pod", "p", listed={LIST: ()})

    assert [each.document["metadata"]["generateName"] for each in of(result, Create)] == ["p-dev-"]


def test_a_pod_whose_group_is_not_there_waits_with_an_error(world_of):
    world = world_of(CONTROLLER, **GROUPS)
    world.put(a_pod("p", entries=[ENTRY], node="", spec={"schedulingGroup": {"podGroupName": "g"}}))

    assert world.sync("pod", "p").error == 'podgroup.scheduling.k8s.io "g" not found'


def test_a_pod_with_a_node_of_its_own_is_listed_unless_an_entry_speaks_for_it(world_of):
    world = world_of(CONTROLLER)
    world.put(a_claim("c"))
    world.put(a_pod("p"))
    workloads = world_of(CONTROLLER, reserved_for__mode="kep5194")
    claim = a_claim("c", consumers=[("batch", "jobs", "work")])
    claim["status"]["allocation"]["reservedForAnyPod"] = True
    workloads.put(claim)
    workloads.put(a_pod("p"))

    (patch,) = of(world.sync("pod", "p"), Patch)

    assert [each["name"] for each in patch.patch["status"]["reservedFor"]] == ["p"]
    assert workloads.sync("pod", "p").actions == ()


def of_its_own(pod="p", **metadata):
    """A claim that was made for the pod and has a device."""
    return {**made("p-dev-x", pod), "status": a_claim()["status"]} | (
        {"metadata": {**made("p-dev-x", pod)["metadata"], **metadata}} if metadata else {}
    )


def with_own_claim(**more):
    names = {"status": {"resourceClaimStatuses": [{"name": "dev", "resourceClaimName": "p-dev-x"}]}}
    return a_pod("p", entries=[ENTRY], **{**names, **more})


def reserved(result):
    return [[each["name"] for each in patch.patch["status"]["reservedFor"]] for patch in of(result, Patch)]


@pytest.mark.parametrize(
    ("pod", "claim", "found"),
    [
        ({}, {}, [["p"]]),
        ({"node": ""}, {}, []),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, []),
        ({"phase": "Succeeded"}, {}, []),
        ({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, []),
    ],
)
def test_a_pod_that_came_without_a_scheduler_is_listed_with_the_claim_that_was_made_for_it(world_of, pod, claim, found):
    world = world_of(CONTROLLER)
    world.put(of_its_own(**claim))
    world.put(with_own_claim(**pod))

    assert reserved(world.sync("pod", "p")) == found


def test_a_pod_is_listed_once_and_not_beyond_the_most_consumers_there_may_be(world_of):
    world = world_of(CONTROLLER)
    world.put(a_claim("c", consumers=["p"]))
    world.put(a_pod("p"))
    world.put(a_claim("full", consumers=[f"q{number}" for number in range(256)]))
    world.put(a_pod("late", "full"))
    world.put(a_claim("idle", allocated=False))
    world.put(a_pod("early", "idle"))

    assert [world.sync("pod", name).actions for name in ("p", "late", "early")] == [(), (), ()]


@pytest.mark.parametrize(
    "other",
    [
        (),
        (a_claim("o", allocated=False),),
        (a_claim("o", consumers=["p"]),),
        (a_claim("o", deletionTimestamp="2026-01-01T00:00:00Z"),),
        (a_claim("o", consumers=[f"q{number}" for number in range(256)]),),
    ],
    ids=["missing", "without devices", "reserved", "deleted", "full"],
)
def test_a_claim_that_a_pod_cannot_be_listed_with_does_not_keep_it_from_its_next_one(world_of, other):
    world = world_of(CONTROLLER)
    for each in (*other, a_claim("c")):
        world.put(each)
    entries = [{"name": name, "resourceClaimName": name} for name in ("o", "c")]
    world.put(a_pod("p", entries=entries))

    (patch,) = of(world.sync("pod", "p"), Patch)

    assert patch.key.name == "c"


def test_a_member_is_not_listed_with_the_claim_of_its_group(world_of):
    world = world_of(CONTROLLER, **GROUPS)
    world.put(a_group("g-dev"))
    world.put({**made("g-dev", "g", "PodGroup"), "status": a_claim()["status"]})
    status = {"resourceClaimStatuses": [{"name": "dev", "resourceClaimName": "g-dev"}]}
    world.put(a_pod("p", entries=[ENTRY], status=status, spec={"schedulingGroup": {"podGroupName": "g"}}))

    assert world.sync("pod", "p").actions == ()


def test_the_claim_of_its_group_does_not_keep_a_member_from_a_claim_that_it_names_itself(world_of):
    world = world_of(CONTROLLER, **GROUPS)
    world.put(a_group("g-dev"))
    world.put({**made("g-dev", "g", "PodGroup"), "status": a_claim()["status"]})
    world.put(a_claim("c"))
    entries = [ENTRY, {"name": "c", "resourceClaimName": "c"}]
    status = {"resourceClaimStatuses": [{"name": "dev", "resourceClaimName": "g-dev"}]}
    world.put(a_pod("p", entries=entries, status=status, spec={"schedulingGroup": {"podGroupName": "g"}}))

    assert [patch.key.name for patch in of(world.sync("pod", "p"), Patch)] == ["c"]


def _created(result):
    return [each.document["metadata"]["generateName"] for each in of(result, Create)]


def _world_with_pods(world_of, *names):
    world = world_of(CONTROLLER)
    world.put(TEMPLATE)
    for name in names:
        world.put(a_pod(name, entries=[ENTRY], node=""))
    return world


def test_guarantees_d1_one_list_of_a_namespace_serves_all_its_pods_and_is_repeated_while_a_request_may_be_under_way(
    world_of,
):
    world = _world_with_pods(world_of, *"abcdefgh")

    first = world.sync("pod", "a", listed={LIST: ()})
    soon = world.sync("pod", "b", after_s=0.9)
    later = world.sync("pod", "c", after_s=0.2)
    again = world.sync("pod", "c", listed={LIST: ()}, after_s=10.0)
    twice_as_old = world.sync("pod", "d", after_s=11.0)
    last = world.sync("pod", "e", after_s=10.0)
    world.sync("pod", "e", listed={LIST: ()})
    at_last = world.sync("pod", "f", after_s=1_000.0)

    assert [_created(each) for each in (first, soon, again, twice_as_old, at_last)] == [
        ["a-dev-"], ["b-dev-"], ["c-dev-"], ["d-dev-"], ["f-dev-"]
    ]  # fmt: skip
    assert (later.refresh, last.refresh) == ((LIST,), (LIST,))


def test_guarantees_d1_a_creation_without_an_answer_is_looked_for_and_a_refused_one_is_not(world_of):
    world = _world_with_pods(world_of, "p", "q")
    (create,) = of(world.sync("pod", "p", listed={LIST: ()}), Create)

    unanswered = world.sync("pod", "p")
    world.controller.failed(Key("default", "pod/p"), create, "InternalError: disk full")
    uncertain = world.sync("pod", "p")
    world.controller.failed(Key("default", "pod/p"), create, "Forbidden: exceeded quota")
    refused = world.sync("pod", "p")

    assert (unanswered.refresh, uncertain.refresh) == ((LIST,), (LIST,))
    assert _created(refused) == ["p-dev-"]


def test_guarantees_d1_a_claim_that_was_seen_and_deleted_is_made_again_without_a_list(world_of):
    world = _world_with_pods(world_of, "p")
    world.sync("pod", "p", listed={LIST: ()})
    world.put(made("p-dev-x", "p"))

    world.drop("ResourceClaim", "p-dev-x", api_version=CLAIM)

    assert _created(world.sync("pod", "p")) == ["p-dev-"]


def test_guarantees_d1_a_listed_claim_that_the_cache_lacks_is_read_by_its_name_until_the_cache_shows_it(world_of):
    world = _world_with_pods(world_of, "p", "q")
    elsewhere = world_of(CONTROLLER)
    elsewhere.put(made("q-dev-x", "q"))
    claim = elsewhere.of(ResourceClaim).get(Key("default", "q-dev-x"))
    named_claim = Query(ResourceClaim, Key("default", "q-dev-x"))

    world.sync("pod", "p", listed={LIST: (claim,)})
    asked = world.sync("pod", "q")
    exists = world.sync("pod", "q", live={named_claim: claim})
    is_gone = world.sync("pod", "q", live={named_claim: None})
    world.put(made("q-dev-x", "q"))
    shown = world.sync("pod", "q")

    assert asked.refresh == (named_claim,)
    assert named(exists) == named(shown) == [[{"name": "dev", "resourceClaimName": "q-dev-x"}]]
    assert (of(exists, Create), _created(is_gone)) == ([], ["q-dev-"])
