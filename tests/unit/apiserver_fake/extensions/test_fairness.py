"""Which FlowSchema a request belongs to, and what becomes of requests in priority levels (KEP-1040)."""

import heapq
import random
from collections import Counter

import msgspec
import pytest

from apiserver_fake.extensions.fairness.concurrency import (
    SMOOTHING,
    Bounds,
    Impossible,
    Limits,
    Shares,
    Smoothed,
    adjust,
    allocate,
    limits_of,
    max_seats,
)
from apiserver_fake.extensions.fairness.flow_schemas import FlowSchema, FlowSchemas, as_client, attributes_of
from apiserver_fake.extensions.fairness.levels import PriorityLevels, Refused, RetryAfter, configuration_of
from apiserver_fake.extensions.fairness.queue_set import (
    CONCURRENCY_LIMIT,
    EXECUTING,
    ONE,
    QUEUE_FULL,
    TIME_OUT,
    UNLIMITED,
    WAITING,
    Demand,
    QueuedRequest,
    QueueSet,
    Queuing,
    Work,
    hand_of,
    hash_of,
)
from apiserver_fake.extensions.fairness.work import Stored, of_list, of_write
from apiserver_fake.registry.controlplane.cluster_objects import standing_objects
from apiserver_fake.registry.policy import Attributes
from services.api.identity import (
    ADMIN,
    ANONYMOUS,
    CLAIM_MANAGER,
    CONTROLLER_MANAGER,
    NODE_HOSTS_GROUP,
    SCHEDULER,
    Identity,
    controller_identity,
    node_identity,
)

LEADER = Identity("system:kube-scheduler", ("system:authenticated",))
NODE = Identity("system:node:n1", ("system:nodes", "system:authenticated"))
ACCOUNT = Identity("system:serviceaccount:kube-system:gc", ("system:authenticated",))
LEASE = Attributes("update", "coordination.k8s.io", "leases", namespace="kube-system", name="x")


def schema(name, precedence, level="low", **rule):
    subjects = rule.pop("subjects")
    return msgspec.json.encode(
        {
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {
                "matchingPrecedence": precedence,
                "priorityLevelConfiguration": {"name": level},
                "rules": [{"subjects": subjects, **rule}],
            },
        }
    )


def user(name):
    return [{"kind": "User", "user": {"name": name}}]


def group(name):
    return [{"kind": "Group", "group": {"name": name}}]


def resources(*names, verbs=("*",), groups=("*",), namespaces=("*",), cluster=False):
    rule = {"verbs": verbs, "apiGroups": groups, "resources": names, "namespaces": namespaces, "clusterScope": cluster}
    return [rule]


LEVELS = ["low"]
ALL = group("system:authenticated")


def matched(identity, asked, *schemas):
    found = FlowSchemas(map(FlowSchema.of, schemas), LEVELS).match(identity, asked)
    return None if found is None else found.schema


def test_the_lowest_precedence_matches_and_names_decide_between_equals():
    b, a = (schema(n, 500, subjects=ALL, resourceRules=resources("*")) for n in ("b", "a"))
    first = schema("z", 100, subjects=ALL, resourceRules=resources("leases"))
    assert matched(LEADER, LEASE, b, a, first) == "z"
    assert matched(LEADER, LEASE._replace(resource="pods"), b, a, first) == "a"


def test_a_schema_without_its_priority_level_matches_nothing():
    dangling = schema("x", 1, "gone", subjects=ALL, resourceRules=resources("*"))
    assert matched(LEADER, LEASE, dangling) is None


@pytest.mark.parametrize(
    ("subjects", "who"),
    [
        (user("system:kube-scheduler"), {LEADER}),
        (user("*"), {LEADER, NODE, ACCOUNT}),
        (group("system:nodes"), {NODE}),
        ([{"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "kube-system"}}], {ACCOUNT}),
        ([{"kind": "ServiceAccount", "serviceAccount": {"name": "other", "namespace": "kube-system"}}], set()),
    ],
)
def test_subjects(subjects, who):
    only = schema("s", 1, subjects=subjects, resourceRules=resources("*"))
    assert {each for each in (LEADER, NODE, ACCOUNT) if matched(each, LEASE, only)} == who


@pytest.mark.parametrize(
    ("rules", "asked", "expected"),
    [
        (resources("nodes", cluster=True), Attributes("get", "", "nodes", name="n"), True),
        (resources("nodes"), Attributes("get", "", "nodes", name="n"), False),
        (resources("pods", namespaces=["a"]), Attributes("get", "", "pods", namespace="a"), True),
        (resources("pods", namespaces=["a"]), Attributes("get", "", "pods", namespace="b"), False),
        (resources("pods"), Attributes("update", "", "pods", "status", namespace="a"), False),
        (resources("pods/status"), Attributes("update", "", "pods", "status", namespace="a"), True),
        (resources("pods", verbs=["get"]), Attributes("list", "", "pods", namespace="a"), False),
        (resources("*", groups=["apps"]), Attributes("list", "", "pods", namespace="a"), False),
    ],
)
def test_resource_rules(rules, asked, expected):
    assert bool(matched(LEADER, asked, schema("s", 1, subjects=ALL, resourceRules=rules))) is expected


@pytest.mark.parametrize(
    ("urls", "path", "expected"),
    [(["*"], "/x", True), (["/healthz"], "/healthz", True), (["/healthz"], "/healthz/ping", False),
     (["/healthz/*"], "/healthz/ping", True), (["/healthz"], "/livez", False)],
)  # fmt: skip
def test_paths(urls, path, expected):
    rules = [{"verbs": ["*"], "nonResourceURLs": urls}]
    only = schema("s", 1, subjects=ALL, nonResourceRules=rules)
    assert bool(matched(LEADER, Attributes("get", path=path), only)) is expected


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        ("GET", "/version", {}, Attributes("get", path="/version")),
        ("GET", "/apis/apps/v1", {}, Attributes("get", path="/apis/apps/v1")),
        ("GET", "/api/v1/pods", {}, Attributes("list", "", "pods")),
        ("GET", "/api/v1/pods", {"watch": "1"}, Attributes("watch", "", "pods")),
        ("GET", "/api/v1/watch/pods", {}, Attributes("watch", "", "pods")),
        ("DELETE", "/api/v1/namespaces/a/pods", {}, Attributes("deletecollection", "", "pods", namespace="a")),
        ("GET", "/api/v1/namespaces/a", {}, Attributes("get", "", "namespaces", name="a", namespace="a")),
        ("PUT", "/api/v1/namespaces/a/finalize", {}, Attributes("update", "", "namespaces", "finalize", "a", "a")),
        (
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/d/scale",
            {},
            Attributes("patch", "apps", "deployments", "scale", "d", "a"),
        ),
    ],
)
def test_what_a_path_asks_for(method, path, query, expected):
    assert attributes_of(method, path, path.strip("/").split("/"), query) == expected


# -- queues of one level


class Load:
    """Drives a queue set through virtual time: requests are executed for as long as they say."""

    def __init__(self, queuing, limit):
        self.set, self.now_s, self.ends, self.served = QueueSet(queuing, limit), 0.0, [], Counter()
        self.number, self.widest = 0, 0
        self.began = []

    def arrive(self, flow, *, for_s=1.0, work=ONE):
        request = QueuedRequest((flow, for_s), work)
        refused = self.set.start(request, "schema", flow, self.now_s)
        if not refused:
            self._begin(([request] if request.state == EXECUTING else []) + self.set.dispatch(self.now_s))
        self.check()
        return refused or request

    def _begin(self, requests):
        # No more than the limit, or one that is wider and alone.
        assert not requests or self.set.seats_in_use <= max(self.set.limit, requests[0].most)
        for request in requests:
            flow, for_s = request.flow
            self.number += 1
            self.began.append(flow)
            heapq.heappush(self.ends, (self.now_s + for_s, self.number, request, False))

    def step(self):
        self.now_s, _, request, is_release = heapq.heappop(self.ends)
        flow, for_s = request.flow
        if is_release:
            self._begin(self.set.release(request, self.now_s))
        else:
            self.served[flow] += request.work.seats * for_s
            self._begin(self.set.finish(request, self.now_s))
            if request.work.additional_s:
                self.number += 1
                heapq.heappush(self.ends, (self.now_s + request.work.additional_s, self.number, request, True))
        self.check()

    def run(self, until_s=float("inf")):
        while self.ends and self.ends[0][0] <= until_s:
            self.step()

    def check(self):
        found = self.set
        executing = [request for _, _, request, is_release in self.ends if not is_release]
        assert found.executing == len(executing)
        assert found.seats_in_use == sum(request.most for _, _, request, _ in self.ends)
        assert found.waiting == sum(len(queue.waiting) for queue in found.queues)
        assert found.seats_waiting == sum(queue.seats_waiting for queue in found.queues)
        assert found._busy == sum(1 for queue in found.queues if queue.waiting or queue.executing)
        if found.waiting:  # work conservation: what waits does not fit
            narrowest = min(request.most for queue in found.queues for request in queue.waiting)
            widest = max(request.most for queue in found.queues for request in queue.waiting)
            assert found.seats_in_use + max(widest, narrowest) > found.limit


def flows_apart(queues, hand, count):
    """Return names of flows whose hands have no queue in common."""
    found, taken = [], set()
    for number in range(10_000):
        cards = set(hand_of(hash_of("schema", f"f{number}"), queues, hand))
        if not cards & taken:
            found.append(f"f{number}")
            taken |= cards
        if len(found) == count:
            return found
    raise AssertionError("too few queues")


@pytest.mark.parametrize("seed", range(20))
def test_random_requests_keep_the_limits_and_leave_no_place_unused_that_one_would_fit(seed):
    dice = random.Random(seed)
    load = Load(Queuing(8, 2, 5), 4)
    outcomes = Counter()
    for _ in range(400):
        work = Work(dice.choice((1, 1, 1, 2, 7)), dice.choice((0, 0, 3)), dice.choice((0.0, 0.3)))
        outcome = load.arrive(f"f{dice.randrange(6)}", for_s=dice.uniform(0.1, 2), work=work)
        outcomes[outcome if isinstance(outcome, str) else outcome.state] += 1
        if dice.random() < 0.1:
            waiting = [request for queue in load.set.queues for request in queue.waiting]
            if waiting:
                load._begin(load.set.withdraw(dice.choice(waiting), TIME_OUT, load.now_s))
        if dice.random() < 0.03:
            queuing = Queuing(dice.choice((2, 8, 12)), 2, dice.choice((3, 5)))
            load._begin(load.set.configure(queuing, dice.choice((3, 4, 9)), load.now_s))
        load.run(load.now_s + dice.uniform(0, 1))
    load._begin(load.set.configure(load.set.queuing, 9, load.now_s))
    load.run()
    assert outcomes[QUEUE_FULL]
    assert len(load.began) > 30
    assert load.set.is_idle
    assert load.set.seats_in_use == load.set.seats_waiting == load.set._busy == 0


def test_flows_that_always_want_more_get_the_same_seats_whatever_their_number_and_width():
    queues, hand = 64, 2
    many, wide, quick = flows_apart(queues, hand, 3)
    load = Load(Queuing(queues, hand, 1000), 12)
    for _ in range(600):
        load.arrive(many, for_s=1)
        load.arrive(many, for_s=1)
    for _ in range(300):
        load.arrive(wide, for_s=1, work=Work(4))
        load.arrive(quick, for_s=0.5)
        load.arrive(quick, for_s=0.5)
    load.run(60)
    least, most = min(load.served.values()), max(load.served.values())
    # `many` and `quick` have two queues each, `wide` too: the shares are of queues.
    assert set(load.served) == {many, wide, quick}
    assert most - least <= 0.15 * most, load.served


def test_a_flow_that_comes_late_is_served_before_the_backlog_of_another():
    busy, late = flows_apart(64, 2, 2)
    load = Load(Queuing(64, 2, 1000), 4)
    for _ in range(200):
        load.arrive(busy)
    load.run(3)
    load.arrive(late)
    began = len(load.began)
    load.run(load.now_s + 3)
    assert load.began.index(late) - began <= 4


def test_time_in_which_a_flow_wanted_nothing_is_not_saved_for_it():
    busy, idle = flows_apart(64, 2, 2)
    load = Load(Queuing(64, 2, 1000), 2)
    load.arrive(idle)
    for _ in range(100):
        load.arrive(busy)
    load.run(20)
    for _ in range(40):
        load.arrive(idle)
    before = load.served[idle]
    load.run(load.now_s + 10)
    assert load.served[idle] - before <= 11


def test_a_flow_with_a_long_request_is_not_served_before_one_that_asked_earlier():
    """While a long request is executed its queue has used little by the estimate; that does not count for its next."""
    queues = QueueSet(Queuing(64, 1, 10), 2)
    long, other, third = flows_apart(64, 1, 3)
    first, filler, earlier, later = (QueuedRequest(flow) for flow in (long, third, other, long))
    for request, at_s in ((first, 0.0), (filler, 0.0), (earlier, 1.0), (later, 2.0)):
        assert queues.start(request, "schema", request.flow, at_s) == ""
        queues.dispatch(at_s)

    assert [request.state for request in (first, filler, earlier, later)] == [EXECUTING, EXECUTING, WAITING, WAITING]
    assert queues.finish(filler, 3.0) == [earlier]


def test_what_does_not_fit_waits_until_its_queue_is_full():
    load = Load(Queuing(1, 1, 2), 1)
    states = [load.arrive("f") for _ in range(4)]
    assert [each if isinstance(each, str) else each.state for each in states] == [
        EXECUTING,
        WAITING,
        WAITING,
        QUEUE_FULL,
    ]
    assert load.set.rejected == 1


def test_a_level_without_queues_refuses_what_does_not_fit_and_an_exempt_one_nothing():
    load = Load(Queuing(), 2)
    assert [load.arrive("f") for _ in range(3)][2] == CONCURRENCY_LIMIT
    exempt = QueueSet(UNLIMITED, 0)
    requests = [QueuedRequest(None) for _ in range(50)]
    assert not any(exempt.start(each, "s", "f", 0.0) for each in requests)
    assert exempt.executing == 50


def test_seats_of_events_are_kept_after_the_answer():
    load = Load(Queuing(1, 1, 5), 2)
    load.arrive("f", for_s=1, work=Work(1, 2, 0.5))
    waits = load.arrive("f", for_s=1)
    load.run(1.2)
    assert waits.state == WAITING
    load.run(1.6)
    assert waits.state == EXECUTING


def test_a_hand_is_of_different_queues_and_every_queue_is_dealt_as_often():
    hands = [hand_of(hash_of("s", str(number)), 16, 4) for number in range(4000)]
    assert all(len({*hand}) == 4 for hand in hands)
    times = Counter(card for hand in hands for card in hand)
    assert set(times) == set(range(16))
    assert max(times.values()) < 1.2 * min(times.values())
    assert hand_of(0, 128, 3) == (0, 1, 2)


def test_demand_is_averaged_over_time():
    load = Load(Queuing(1, 1, 9), 2)
    for _ in range(4):
        load.arrive("f", for_s=1)
    load.run()
    assert load.set.demand(4.0) == Demand(1.5, pytest.approx(2.75**0.5), 4, 4.0)
    assert load.set.demand(5.0) == Demand(0.0, 0.0, 0, 1.0)


# -- concurrency


def suggested():
    """Return upstream's objects."""
    found = [
        (each["kind"], msgspec.json.encode(each)) for each in standing_objects() if "flowcontrol" in each["apiVersion"]
    ]
    levels = [configuration_of(body) for kind, body in found if kind == "PriorityLevelConfiguration"]
    return levels, [body for kind, body in found if kind == "FlowSchema"]


def test_upstreams_levels_share_600_seats_as_they_do_there():
    limits = limits_of({each.metadata.name: each.shares for each in suggested()[0]}, 600)
    assert {name: (each.nominal, each.lower) for name, each in limits.items()} == {
        "exempt": (0, 0), "catch-all": (13, 13), "leader-election": (25, 25), "node-high": (98, 73), "system": (74, 50),
        "workload-high": (98, 49), "workload-low": (245, 24), "global-default": (49, 24),
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(50))
def test_an_allocation_sums_up_keeps_the_bounds_and_is_in_proportion_where_none_is_met(seed):
    dice = random.Random(seed)
    classes = []
    for _ in range(dice.randrange(1, 9)):
        lower = dice.choice((0.0, dice.uniform(0, 20)))
        classes.append(Bounds(lower + dice.uniform(0, 40), lower, lower + dice.uniform(0, 80)))
    low, high = sum(each.lower for each in classes), sum(each.upper for each in classes)
    total = int(dice.uniform(low + 1, high)) if high > low + 1 else int(high)
    if not low <= total <= high:
        pytest.skip("no whole number lies between")
    found, fair = allocate(total, classes)
    assert sum(found) == pytest.approx(total)
    for each, given in zip(classes, found, strict=True):
        wanted = max(each.target, 0.001) * fair
        assert given == pytest.approx(min(each.upper, max(each.lower, wanted)))


def test_bounds_that_contradict_the_sum_are_refused_and_change_no_limit():
    with pytest.raises(Impossible, match="lower bounds sum to 9"):
        allocate(8, [Bounds(9, 9, 9)])
    with pytest.raises(Impossible, match="upper bounds sum to 9"):
        allocate(10, [Bounds(9, 9, 9)])


def test_a_busy_level_borrows_what_idle_ones_lend_and_gives_it_back():
    limits = {"busy": Limits(20, 20, 620), "idle": Limits(80, 20, 680)}
    demands = {
        "busy": Smoothed().after(Demand(90.0, 5.0, 100, 10.0)),
        "idle": Smoothed().after(Demand(0.0, 0.0, 1, 10.0)),
    }
    borrowed = adjust(limits, demands, {"busy": 20, "idle": 80}).current
    assert borrowed == {"busy": 80, "idle": 20}
    demands["idle"] = demands["idle"].after(Demand(70.0, 5.0, 90, 10.0))
    assert adjust(limits, demands, borrowed).current["idle"] == 80


def test_demand_rises_at_once_falls_slowly_and_stays_over_a_period_of_no_length():
    risen = Smoothed().after(Demand(90.0, 10.0, 120, 10.0))
    fallen = risen.after(Demand(10.0, 0.0, 12, 10.0))

    assert risen.smoothed == 100.0
    assert fallen.smoothed == pytest.approx(SMOOTHING * 100.0 + (1 - SMOOTHING) * 10.0)
    assert risen.after(Demand(most=7)) == Smoothed(Demand(90.0, 10.0, 7), 100.0)


def test_a_level_without_borrowing_keeps_to_its_share():
    limits = limits_of({"a": Shares(10, 0, 0), "b": Shares(10, 50)}, 100)
    assert limits["a"] == Limits(50, 50, 50)
    demands = {name: Smoothed().after(Demand(500.0, 0.0, 500, 10.0)) for name in limits}
    assert adjust(limits, demands, {"a": 50, "b": 50}).current["a"] == 50


@pytest.mark.parametrize(
    ("nominal", "hand", "most"), [(5, 6, 1), (10, 6, 1), (15, 6, 2), (20, 6, 3), (49, 6, 8), (245, 6, 37)]
)
def test_one_request_may_not_take_a_whole_level(nominal, hand, most):
    assert max_seats(nominal, hand) == most


# -- work


def test_a_list_costs_by_what_it_holds_at_once():
    few, many = Stored(20, 40_000), Stored(20_000, 40_000_000)
    assert of_list(few, 0, 10, is_single=False) == ONE
    assert of_list(many, 0, 37, is_single=False) == Work(10, is_long=True)
    assert of_list(many, 0, 8, is_single=False) == Work(8, is_long=True)
    assert of_list(many, 100, 10, is_single=False) == Work(2, is_long=True)
    assert of_list(many, 0, 10, is_single=True) == ONE
    assert of_list(Stored(0, 0), 0, 10, is_single=False) == ONE


def test_a_write_that_many_watch_keeps_seats_for_their_events():
    assert of_write(9, 10) == ONE
    assert of_write(25, 10) == Work(1, 3, 0.005)
    assert of_write(1000, 10) == Work(1, 10, 0.05)


# -- levels


def a_server(limit=600):
    found = PriorityLevels(limit)
    found.configure(*suggested(), 0.0)
    return found


LIST = Attributes("list", "", "pods")


@pytest.mark.parametrize(
    ("identity", "asked", "schema", "level"),
    [
        (node_identity("n"), LEASE._replace(namespace="kube-node-lease"), "system-node-high", "node-high"),
        (node_identity("n"), Attributes("patch", "", "nodes", "status", "n"), "system-node-high", "node-high"),
        (node_identity("n"), Attributes("patch", "", "pods", "status", "p", "d"), "system-nodes", "system"),
        (
            Identity("system:node-host:h0", (NODE_HOSTS_GROUP,)),
            Attributes("create", "", "nodetokens"),
            "system-nodes",
            "system",
        ),
        (SCHEDULER, LEASE, "system-leader-election", "leader-election"),
        (SCHEDULER, Attributes("create", "", "pods", "binding", "p", "d"), "kube-scheduler", "workload-high"),
        (CONTROLLER_MANAGER, LIST, "kube-controller-manager", "workload-high"),
        (controller_identity("job"), LIST, "kube-system-service-accounts", "workload-high"),
        (CLAIM_MANAGER, LIST, "kube-system-service-accounts", "workload-high"),
        (Identity("system:serviceaccount:d:a", ("system:serviceaccounts",)), LIST, "service-accounts", "workload-low"),
        (Identity("alice"), LIST, "global-default", "global-default"),
        (ANONYMOUS, LIST, "global-default", "global-default"),
        (ADMIN, LIST, "exempt", "exempt"),
        (Identity("alice"), Attributes("get", path="/readyz"), "probes", "exempt"),
    ],
)
def test_components_and_clients_belong_where_upstream_has_them(identity, asked, schema, level):
    flow = a_server().flow_of(identity, asked)
    assert (flow.matched.schema, flow.level.name) == (schema, level)


def test_heartbeats_and_binds_pass_while_lists_are_refused():
    levels, alice = a_server(20), Identity("alice")
    flow = levels.flow_of(alice, LIST)
    outcomes = [levels.start(flow, alice, LIST, Work(1), 0.0)[0] for _ in range(1000)]
    refused = [each for each in outcomes if isinstance(each, Refused)]
    assert {each.reason for each in refused} == {QUEUE_FULL}
    assert refused[0].retry_after_s == 1
    for identity, asked in ((node_identity("n"), LEASE), (SCHEDULER, LEASE), (SCHEDULER, LIST)):
        request, _ = levels.start(levels.flow_of(identity, asked), identity, asked, ONE, 0.0)
        assert request.state == EXECUTING


def test_one_client_of_a_level_does_not_take_the_place_of_another():
    levels, alice, bob = a_server(20), Identity("alice"), Identity("bob")
    started = [levels.start(levels.flow_of(alice, LIST), alice, LIST, ONE, 0.0)[0] for _ in range(1000)]
    running = [each for each in started if not isinstance(each, Refused) and each.state == EXECUTING]
    request, _ = levels.start(levels.flow_of(bob, LIST), bob, LIST, ONE, 0.0)
    assert request.state == WAITING
    level = levels.flow_of(bob, LIST).level
    waiting = sum(len(queue.waiting) for queue in level.queues.queues)
    for _ in range(8):
        executing = [each for each in level.queues.queues if each.executing]
        assert executing
        [first, *_] = levels.finish(running.pop(0), 1.0)
        running.append(first)
    assert request.state != WAITING
    assert waiting > 100


def test_a_level_that_is_deleted_serves_what_it_has_and_gets_nothing_new():
    levels, alice = a_server(), Identity("alice")
    request, _ = levels.start(levels.flow_of(alice, LIST), alice, LIST, ONE, 0.0)
    configurations, schemas = suggested()
    left = [each for each in configurations if each.metadata.name != "global-default"]
    levels.configure(left, schemas, 1.0)
    assert levels.levels["global-default"].is_quiescing
    assert levels.flow_of(alice, LIST).level.name == "catch-all"
    levels.finish(request, 2.0)
    levels.configure(left, schemas, 3.0)
    assert "global-default" not in levels.levels


def test_more_shares_let_waiting_requests_run_at_once():
    levels, alice = a_server(100), Identity("alice")
    for _ in range(40):
        levels.start(levels.flow_of(alice, LIST), alice, LIST, ONE, 0.0)
    configurations, schemas = suggested()
    wider = [
        configuration_of(msgspec.json.encode({
            "metadata": {"name": "global-default"},
            "spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 2000, "limitResponse": {"type": "Reject"}}},
        })) if each.metadata.name == "global-default" else each
        for each in configurations
    ]  # fmt: skip
    started = levels.configure(wider, schemas, 0.0)
    assert len(started) > 20
    assert all(each.state == EXECUTING for each in started)


def test_components_have_their_users_as_upstream_knows_them():
    assert as_client(controller_identity("job-controller")).user == "system:serviceaccount:kube-system:job-controller"
    assert "system:masters" in as_client(ADMIN).groups


def test_who_is_refused_often_is_asked_to_come_later_and_sooner_again():
    after = RetryAfter()
    raised = [after.note(second + part / 10) for second in range(100, 110) for part in range(10)]
    assert raised[0] == 1
    assert raised[-1] >= 4
    assert raised == sorted(raised)
    lowered = [after.note(second) for second in range(200, 300, 20)]
    assert lowered[-1] < lowered[0]


def test_dumps_show_levels_queues_and_requests():
    levels, alice = a_server(20), Identity("alice")
    for _ in range(6):
        levels.start(levels.flow_of(alice, LIST), alice, LIST, ONE, 0.0)
    rows = [[cell.strip() for cell in line.split(",")] for line in levels.dump_priority_levels().splitlines()]
    assert rows[0] == [
        "PriorityLevelName",
        "ActiveQueues",
        "IsIdle",
        "IsQuiescing",
        "WaitingRequests",
        "ExecutingRequests",
    ]
    waiting = {row[0]: row[4] for row in rows[1:]}
    assert waiting["exempt"] == "<none>"
    assert int(waiting["global-default"]) > 0
    queues = levels.dump_queues().splitlines()
    assert len(queues) == 1 + 1 + 16 + 64 + 64 + 3 * 128
    requests = [
        [c.strip() for c in line.split(",")] for line in levels.dump_requests(str, has_details=True).splitlines()
    ]
    assert len(requests) == 1 + int(waiting["global-default"])
    assert requests[1][:2] + requests[1][4:5] + requests[1][9:11] == [
        "global-default",
        "global-default",
        "alice",
        "alice",
        "list",
    ]
