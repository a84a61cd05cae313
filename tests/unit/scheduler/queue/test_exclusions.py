"""What a node's refusal of one pod means for its like (kubelet-unbinding 7.3, exclusion.scope=signature)."""

import msgspec
import pytest

from scheduler.queue.exclusions import Exclusions
from services.api.kinds.pod import Pod


def replica(name, *, owner="rs", cpu="1", given_back_by="", exclude_s=60):
    history = [
        {"nodeName": given_back_by, "reason": "SMTAlignmentError", "excludeSeconds": exclude_s, "requestID": name}
    ]
    owners = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
    return msgspec.convert(
        {
            "metadata": {"name": name, "uid": name, "ownerReferences": owners if owner else []},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
            "status": {"unbindHistory": history if given_back_by else []},
        },
        Pod,
    )


@pytest.fixture
def exclusions():
    found = Exclusions(by_kind=True)
    found.learn_kind(replica("first", given_back_by="n1"), 0.0)
    return found


def test_unbinding_20_the_node_is_closed_to_pods_of_the_same_owner_that_ask_for_the_same(exclusions):
    assert exclusions.of_kind(replica("second")) == {"n1": "SMTAlignmentError"}
    assert exclusions.of_kind(replica("other-owner", owner="else")) == {}
    assert exclusions.of_kind(replica("other-size", cpu="2")) == {}
    assert exclusions.of_kind(replica("bare", owner="")) == {}


def test_unbinding_20_after_thirty_seconds_those_who_were_turned_away_are_named(exclusions):
    exclusions.of_kind(replica("second"))
    exclusions.learn_kind(replica("third", given_back_by="n1"), 10.0)

    assert exclusions.expire(30.0) == []
    assert exclusions.next_expiry() == 40.0
    assert exclusions.expire(40.0) == ["second"]
    assert exclusions.of_kind(replica("second")) == {}


def test_unbinding_7_3_who_was_turned_away_is_named_for_each_node_until_the_last_is_open(exclusions):
    exclusions.learn_kind(replica("third", given_back_by="n2"), 10.0)
    exclusions.of_kind(replica("second"))

    assert [exclusions.expire(at) for at in (30.0, 40.0)] == [["second"], ["second"]]
    assert exclusions.next_expiry() is None
    exclusions.learn_kind(replica("fourth", given_back_by="n1"), 50.0)
    assert exclusions.expire(80.0) == []


def test_unbinding_7_3_a_change_of_one_node_keeps_who_waits_for_another(exclusions):
    exclusions.learn_kind(replica("third", given_back_by="n2"), 10.0)
    exclusions.of_kind(replica("second"))

    exclusions.clear_node("n1")

    assert exclusions.expire(40.0) == ["second"]


def test_unbinding_7_3_a_change_of_the_node_opens_it_to_every_kind(exclusions):
    exclusions.clear_node("n1")

    assert exclusions.of_kind(replica("second")) == {}


def test_unbinding_7_3_an_exclusion_of_no_length_teaches_nothing():
    found = Exclusions(by_kind=True)

    found.learn_kind(replica("first", given_back_by="n1", exclude_s=0), 0.0)

    assert found.of_kind(replica("second")) == {}


def test_unbinding_7_3_with_scope_pod_others_are_not_concerned():
    found = Exclusions()

    found.learn_kind(replica("first", given_back_by="n1"), 0.0)

    assert found.of_kind(replica("second")) == {}


def test_a_record_that_was_taken_in_does_not_close_its_node_again_after_it_was_opened():
    """Every status of the pod brings its whole history once more (kubelet-unbinding 7.3)."""
    found, pod = Exclusions(), replica("p", given_back_by="n1")
    found.learn(pod, 0.0)
    assert {"n1": "SMTAlignmentError"} == found.of("p")
    found.clear_node("n1")

    found.learn(pod, 1.0)

    assert {} == found.of("p")
