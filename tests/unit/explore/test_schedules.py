import random

from lab.explore.deliveries import Delivery
from lab.explore.schedules import JUST_AFTER_S, LADDER_S, Hold, Moment, Plan, share


def delivery(name, arrives_s, *, component="scheduler", way="request", about="pods/default/p"):
    return Delivery((name,), component, way, f"{component} {way}", (about,), name, arrives_s, arrives_s, arrives_s)


BIND = delivery("bind", 1.0)
OTHERS = delivery("bind of another", 1.2, component="second", about="pods/default/q")
MESSAGES = delivery("change", 1.3, way="watch")
LEASE = delivery("lease", 1.01, component="second", about="leases.coordination.k8s.io/kube-system/x")
SCENARIO = delivery("scenario", 1.1, component="observer", about="pods/default/c")
FAR = delivery("far", 9.0)
ALL = [BIND, LEASE, SCENARIO, OTHERS, MESSAGES, FAR]
MOMENT = Moment(1.0, frozenset({"default/p"}), 0.5)


def plan(deliveries=ALL, moment=MOMENT, depth=3):
    return Plan(deliveries, moment, random.Random(1), depth)


def test_what_may_be_held_is_near_the_moment_and_its_own_objects_come_first():
    assert [d.names[0] for d in plan().candidates] == ["bind", "change", "bind of another", "lease"]


def test_a_swap_holds_a_message_until_the_next_one_at_the_same_place_has_passed():
    first = next(plan().swaps())

    assert first == (Hold("bind", round(0.01 + JUST_AFTER_S, 6)),)


def test_messages_of_one_stream_are_never_asked_to_overtake_each_other():
    again = delivery("again", 1.05)

    assert list(plan([BIND, again]).swaps()) == []


def test_overtakings_are_by_what_is_related_and_reach_over_what_is_not():
    assert next(plan(moment=Moment(1.0, frozenset({"default/q"}), 0.5)).overtakings()) == (Hold("bind", 0.2002),)


def test_delays_climb_down_a_ladder_that_ends_at_the_reach():
    held = [schedule[0].held_s for schedule in plan().delays()][:5]

    assert held == [0.5, *(s for s in reversed(LADDER_S) if s < 0.5)]


def test_a_budget_is_spent_on_different_schedules_only_and_holds_at_most_depth_messages():
    schedules = list(plan(depth=2).schedules(60))

    assert len(schedules) == 60
    assert len(set(schedules)) == 60
    assert {len(s) for s in schedules} == {1, 2}


def test_the_same_seed_plans_the_same():
    assert list(plan().schedules(80)) == list(plan().schedules(80))


def test_where_nothing_can_be_held_nothing_is_tried():
    assert list(plan([FAR, SCENARIO]).schedules(50)) == []


def test_a_budget_is_shared_evenly():
    assert share(10, 3) == [4, 3, 3]
