"""The numbers that are kept of an owner's pods are those of a recount, whatever changes came."""

from hypothesis import given
from hypothesis import strategies as st

from services.api.kinds.pod import Pod, PodStatus
from services.api.meta import Condition, Key, ObjectMeta, OwnerReference
from services.controllers.shared_pods import OwnedCounts
from services.controllers.shared_replicas import _numbers_of, _sum

NAMES, OWNERS = ("a", "b", "c"), ("", "u1", "u2")
TEMPLATE = {"app": "web"}


def _pod(name, owner, labels, phase, is_ready, is_ending):
    references = (OwnerReference(kind="ReplicaSet", name="r", uid=owner, controller=True),) if owner else ()
    metadata = ObjectMeta(
        name=name,
        labels=labels,
        owner_references=references,
        deletion_timestamp="2026-01-01T00:00:00Z" if is_ending else None,
    )
    conditions = (Condition(type="Ready", status="True" if is_ready else "False"),)
    return Pod(metadata=metadata, status=PodStatus(phase=phase, conditions=conditions))


PODS = st.builds(
    _pod,
    st.sampled_from(NAMES),
    st.sampled_from(OWNERS),
    st.sampled_from(({"app": "web"}, {"app": "web", "x": "1"}, {"app": "other"}, {})),
    st.sampled_from(("", "Pending", "Running", "Succeeded", "Failed")),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(st.one_of(PODS, st.sampled_from(NAMES)), max_size=25))
def test_the_numbers_kept_are_those_of_a_recount(changes):
    counts, held = OwnedCounts(), {}
    for change in changes:
        name, new = (change, None) if isinstance(change, str) else (change.metadata.name, change)
        old = held.pop(name, None) if new is None else held.get(name)
        if new is not None:
            held[name] = new
        if old is not None or new is not None:
            counts.note(old, new)
        for owner in OWNERS[1:]:
            mine = {
                pod.metadata.key: pod
                for pod in held.values()
                if not pod.is_terminal and pod.metadata.controller is not None and pod.metadata.controller.uid == owner
            }
            assert set(counts.keys_of(owner)) == set(mine)
            assert _sum(counts.of(owner), TEMPLATE) == _numbers_of(mine.values(), 0, TEMPLATE, 0.0)
            assert all(count.active or count.ending for count in counts.of(owner))


def test_pods_come_in_the_order_in_which_they_became_the_owner_s():
    counts = OwnedCounts()
    pending = {name: _pod(name, "u1", {}, "Pending", False, False) for name in NAMES}
    for pod in pending.values():
        counts.note(None, pod)

    counts.note(pending["a"], _pod("a", "u1", {}, "Running", True, False))
    counts.note(pending["b"], _pod("b", "", {}, "Running", True, False))
    counts.note(None, pending["b"])

    assert counts.keys_of("u1") == [Key("", "a"), Key("", "c"), Key("", "b")]
