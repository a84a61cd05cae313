"""Plugins that are not kube-scheduler's own, and pods that wait on their nodes for capacity (kep-5836 6.1)."""

from __future__ import annotations

import pytest

from scheduler.configuration.assembly import MadeProfile
from scheduler.configuration.plugins import default_profile
from scheduler.cycle.result import ScheduleResult
from scheduler.framework.arrangement import Enabled
from scheduler.framework.events import ASSIGNED_POD, NODE, Action, ClusterEvent, Registration
from scheduler.framework.plugin import PostFilterResult, PreFilterResult
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, error_status, unresolvable, unschedulable
from scheduler.preemption.progress import Eviction, Preemptor
from scheduler.queue.scheduling_queue import Pool
from scheduler.resize.outcome import Waits
from scheduler.wiring import core_of
from services.api.meta import Key
from tests.unit.scheduler.resize.test_resize_preemption import HIGH, LOW, Scene


class OutOfTree:
    """What every plugin is; tests add points. `asked`: which points were called, in order."""

    def __init__(self, name="OutOfTree"):
        self.name = name
        self.asked = []

    def say(self, point, answer):
        self.asked.append(point)
        return answer


class Refuser(OutOfTree):
    """A Filter that rejects every node while it is on; events of node labels wake its pods."""

    def __init__(self, no=None, name="Refuser"):
        super().__init__(name)
        self.no = no if no is not None else unresolvable("node(s) were refused by a plugin")

    def filter(self, state, pod, node):
        return self.say("filter", self.no)

    def events_to_register(self):
        return [Registration(ClusterEvent(NODE, Action.UPDATE_NODE_LABEL))]


class Relevant(Refuser):
    """The same, for pods that have a node, and for no others."""

    def is_relevant_for_pod(self, state, pod):
        return self.say("relevance", SUCCESS if pod.spec.node_name else SKIP)


class Sparing(OutOfTree):
    """A Filter that lets a pod grow only while another runs beside it."""

    def __init__(self, wanted):
        super().__init__("Sparing")
        self.wanted = wanted

    def is_relevant_for_pod(self, state, pod):
        return SUCCESS

    def filter(self, state, pod, node):
        names = [other.key.name for other in node.pods.values()]
        return SUCCESS if self.wanted in names else unschedulable("node(s) lost a neighbour")


class Evictor(OutOfTree):
    """A PostFilter that evicts the pod of that name."""

    def __init__(self, handle, victim, name="Evictor"):
        super().__init__(name)
        self.handle, self.victim = handle, victim

    def post_filter(self, state, pod, columns, diagnosis):
        self.asked.append("postFilter")
        row = columns.slots["n1"]
        assert (not diagnosis.unresolvable[row], diagnosis.rejected) == (
            True,
            {"NodeResourcesFit": {"Insufficient cpu": 1}},
        )
        found = [p for p in self.handle.cache.nodes["n1"].pods.values() if p.key.name == self.victim]
        if not found:
            return PostFilterResult(unschedulable("no node of that name"))
        eviction = Eviction(Preemptor(pod.uid, pod.priority, (pod,)), "n1", tuple(found), ("n1",), self.name)
        return PostFilterResult(SUCCESS, actions=(eviction,))


class OptingIn(Evictor):
    def should_handle_deferred_resize(self, pod, node_name):
        return self.say("opt in", node_name == "n1")


class Reserving(OutOfTree):
    """Reserve, Permit and PostBind; `no` is said at Permit."""

    no = SUCCESS

    def is_relevant_for_pod(self, state, pod):
        return SUCCESS

    def reserve(self, state, pod, node_name):
        return self.say(f"reserve {node_name}", SUCCESS)

    def unreserve(self, state, pod, node_name):
        self.asked.append("unreserve")

    def permit(self, state, pod, node_name):
        return self.say("permit", self.no), 10.0

    def post_bind(self, state, pod, node_name):
        self.asked.append("postBind")


@pytest.fixture
def scene(a):
    def make(generation, *plugins, first=False, **switches):
        """A scene whose profile has plugins besides the default plugins: before DefaultPreemption if `first`."""
        s = Scene(a, resize__generation=generation, **switches)
        made = [each(s.handle) if callable(each) else each for each in plugins]
        own = default_profile(s.handle)
        order = [*map(Enabled, made), *own] if first else [*own, *map(Enabled, made)]
        s.core = core_of(s.handle, made_profiles=[MadeProfile(s.handle.profile, None, tuple(order), None)])
        s.queue, s.cycle, s.plugins = s.core.queue, s.core.resizes.cycle, made
        return s

    return make


def two(s):
    """H, of 100m, wants 300m of a node of 300m, where V has 200m."""
    return s.node(300).pod("v", 200, priority=LOW).deferred("h", 300, 100)


def fitting(s):
    return s.node(300).deferred("h", 300, 100)


def place(s, name="new", cpu=50):
    """Show a new pod and return what its cycle decides."""
    s.pod(name, cpu, node="")
    while (queued := s.queue.pop(s.now)).key.name != name:
        pass
    return s.core.profiles.of(queued.info).cycle.schedule(queued.info, s.now)


# -- who is asked ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "plugin", "waits_for"),
    [
        ("G0", Refuser, Waits.CAPACITY),  # whether it fits is not asked at all
        ("G1", Refuser, Waits.KUBELET),  # the fit parks it before others are asked
        ("G3", Refuser, Waits.PLUGIN),
        ("G4", Refuser, Waits.NOTHING),  # who does not say so is not relevant
        ("G4", Relevant, Waits.PLUGIN),
    ],
)
def test_an_out_of_tree_filter_keeps_a_pod_from_growing_where_its_generation_asks_it(
    scene, generation, plugin, waits_for
):
    s = fitting(scene(generation, plugin()))

    outcome = s.attempt()

    assert outcome.waits_for is waits_for
    if waits_for is Waits.PLUGIN:
        assert (outcome.plugin, outcome.message) == (
            "Refuser",
            "0/1 nodes are available: 1 node(s) were refused by a plugin.",
        )


def test_who_bows_out_at_prefilter_is_not_asked_about_a_deferred_pod(scene):
    class Advised(Refuser):
        def pre_filter(self, state, pod, columns):
            return SKIP if pod.spec.node_name else SUCCESS

    s = fitting(scene("G3", Advised()))

    assert s.attempt().waits_for is Waits.KUBELET
    assert s.plugins[0].asked == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [(unresolvable("not this pod"), "not this pod"),
     (PreFilterResult(node_names=("n2",)), "node(s) didn't satisfy plugin(s) [Chooser]")],
)  # fmt: skip
def test_an_out_of_tree_prefilter_may_refuse_the_pod_or_its_node(scene, answer, reason):
    class Chooser(OutOfTree):
        def pre_filter(self, state, pod, columns):
            return answer

    s = two(scene("G3", Chooser("Chooser")))

    outcome = s.attempt()

    assert (outcome.plugin, outcome.reasons, outcome.has_tried) == ("Chooser", (reason,), False)


def test_a_new_pod_meets_only_those_to_whom_it_is_relevant(scene):
    beta, before = scene("G4", Relevant()), scene("G3", Relevant())

    placed, refused = place(beta.node(1000)), place(before.node(1000))

    assert (isinstance(placed, ScheduleResult), beta.plugins[0].asked) == (True, ["relevance"])
    assert "1 node(s) were refused by a plugin" in refused.diagnosis.message


@pytest.mark.parametrize(("generation", "asked"), [
    ("G4", []), ("G3", ["reserve n1", "permit", "postBind", "unreserve"]),
])  # fmt: skip
def test_a_plugin_that_a_new_pod_does_not_concern_is_silent_at_every_point(scene, generation, asked):
    class ForOldPods(Reserving):
        def is_relevant_for_pod(self, state, pod):
            return SUCCESS if pod.spec.node_name else SKIP

        def pre_score(self, state, pod, columns, feasible):
            raise AssertionError("one node is feasible, nothing is scored")

    s = scene(generation, ForOldPods("ForOldPods")).node(1000)
    placed = place(s)
    info = s.queue.get(Key("default", "new")).info
    runner = s.core.profiles.of(info).runner

    runner.reserve(placed.state, info, "n1")
    runner.permit(placed.state, info, "n1")
    runner.post_bind(placed.state, info, "n1")
    runner.unreserve(placed.state, info, "n1")

    assert s.plugins[0].asked == asked


def test_a_postfilter_that_a_new_pod_does_not_concern_evicts_no_pod_for_it(scene):
    class ForOldPods(Evictor):
        def is_relevant_for_pod(self, state, pod):
            return SUCCESS if pod.spec.node_name else SKIP

    s = scene("G4", lambda handle: ForOldPods(handle, "w"), first=True).node(300)
    s.pod("v", 100, start="2026-01-01T00:00:09Z").pod("w", 200)

    s.pod("new", 100, node="", priority=HIGH)
    queued = s.queue.pop(s.now)
    refused = s.core.profiles.of(queued.info).cycle.schedule(queued.info, s.now)

    assert [victim.key.name for victim in refused.post_filter.actions[0].victims] == ["v"]
    assert s.plugins[0].asked == []


def test_an_error_of_a_relevance_check_is_not_taken_for_a_no(scene):
    class Broken(OutOfTree):
        def is_relevant_for_pod(self, state, pod):
            return error_status("no answer from the licence server")

        def filter(self, state, pod, node):
            return SUCCESS

    s = fitting(scene("G4", Broken("Broken")))

    outcome = s.attempt()

    assert (outcome.is_error, outcome.message) == (True, 'running plugin "Broken": no answer from the licence server')
    assert s.pool("h") is Pool.ERROR_BACKOFF


# -- what wakes it ---------------------------------------------------------------------------------------


def test_who_was_refused_by_an_out_of_tree_plugin_waits_for_the_events_that_it_named(scene, a):
    s = fitting(scene("G4", Relevant()))
    s.attempt()

    s.later(10.0).pod("x", 50).gone("x")
    asleep = s.pool("h")
    s.core.handlers.on_node(s.nodes["n1"], a.node("n1", cpu="300m", labels={"a": "b"}), s.now)

    assert (asleep, s.pool("h")) == (Pool.UNSCHEDULABLE, Pool.ACTIVE)


def test_an_out_of_tree_plugin_that_waits_for_an_external_actor_spares_the_pod_the_back_off(scene, a):
    s = fitting(scene("G4", Relevant(Status(Code.PENDING, ("a client is asked",)))))
    s.attempt()

    s.core.handlers.on_node(s.nodes["n1"], a.node("n1", cpu="300m", labels={"a": "b"}), s.now)

    assert s.pool("h") is Pool.ACTIVE


@pytest.mark.parametrize("generation", ["G0", "G4"])
def test_an_out_of_tree_gate_holds_in_every_generation(scene, generation):
    class Gate(OutOfTree):
        is_open = False

        def pre_enqueue(self, pod):
            return SUCCESS if self.is_open or not pod.spec.node_name else unresolvable("not in office hours")

        def events_to_register(self):
            return [Registration(ClusterEvent(ASSIGNED_POD, Action.DELETE))]

    s = two(scene(generation, Gate("Gate")))
    gated = s.pool("h")
    s.plugins[0].is_open = True
    s.pod("x", 1).gone("x")

    assert (gated, s.pool("h")) == (Pool.GATED, Pool.ACTIVE)


# -- preemption ------------------------------------------------------------------------------------------


def test_an_out_of_tree_filter_is_asked_about_the_node_without_the_victims(scene):
    class Banning(Sparing):
        def filter(self, state, pod, node):
            return (
                unschedulable("node(s) had a bad neighbour") if super().filter(state, pod, node).is_success else SUCCESS
            )

    s = scene("G4", Banning("v")).node(300).pod("v", 100, start="2026-01-01T00:00:05Z")
    s.pod("w", 100, start="2026-01-01T00:00:09Z").deferred("h", 200, 100)

    assert s.victims() == ["v"]  # w, the younger, would go but for the plugin


def test_the_first_draft_asks_no_out_of_tree_filter_whom_to_evict(scene):
    s = two(scene("G0", Refuser()))

    assert s.victims() == ["v"]
    assert s.plugins[0].asked == []


def test_where_an_out_of_tree_plugin_forbids_it_no_pod_is_evicted(scene):
    s = two(scene("G4", Sparing("v")))

    outcome = s.attempt()

    assert (outcome.evictions, outcome.plugin) == ((), "NodeResourcesFit")
    assert outcome.message == (
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 node(s) lost a neighbour."
    )


@pytest.mark.parametrize(
    ("generation", "plugin", "victims", "said"),
    [
        ("G0", Evictor, ["v"], []),  # DefaultPreemption's choice
        ("G0", OptingIn, ["w"], ["opt in", "postFilter"]),
        ("G3", Evictor, ["w"], ["postFilter"]),
        ("G4", Evictor, ["v"], []),
    ],
)
def test_an_out_of_tree_postfilter_evicts_if_its_generation_lets_it(scene, generation, plugin, victims, said):
    s = scene(generation, lambda handle: plugin(handle, "w"), first=True).node(300)
    s.pod("v", 100, start="2026-01-01T00:00:09Z").pod("w", 100).deferred("h", 200, 100)

    assert s.victims() == victims
    assert s.plugins[0].asked == said


def test_a_postfilter_that_does_not_opt_in_is_named_among_the_reasons(scene):
    s = scene("G0", lambda handle: Evictor(handle, "w")).node(300).pod("v", 200, priority=HIGH).deferred("h", 300, 100)

    assert s.attempt().message.endswith("incoming pod., plugin does not support deferred resizes")


def test_without_defaultpreemption_in_its_profile_no_pod_is_evicted_for_a_resize(scene, a):
    s = scene("G3")
    own = tuple(e for e in default_profile(s.handle) if e.name != "DefaultPreemption")
    s.core = core_of(s.handle, made_profiles=[MadeProfile(s.handle.profile, None, own, None)])
    s.queue, s.cycle = s.core.queue, s.core.resizes.cycle

    outcome = two(s).attempt()

    assert (outcome.evictions, outcome.message) == ((), "0/1 nodes are available: 1 Insufficient cpu.")


# -- where it fits ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generation", "no", "asked", "waits_for"),
    [
        ("G3", SUCCESS, ["reserve n1", "unreserve"], Waits.KUBELET),  # DeferredPodScheduling says no at Permit
        ("G4", SUCCESS, ["reserve n1", "permit", "postBind"], Waits.NOTHING),
        ("G4", Status(Code.WAIT), ["reserve n1", "permit", "postBind"], Waits.NOTHING),
        ("G4", unschedulable("not today"), ["reserve n1", "permit", "unreserve"], Waits.PLUGIN),
    ],
)
def test_a_pod_that_fits_passes_out_of_tree_reserve_and_permit(scene, generation, no, asked, waits_for):
    s = fitting(scene(generation, Reserving("Reserving")))
    s.plugins[0].no = no

    assert s.attempt().waits_for is waits_for
    assert s.plugins[0].asked == asked


class Raising(OutOfTree):
    """It has a mistake at one point, for any pod that has a node."""

    def __init__(self, point):
        super().__init__("Raising")
        setattr(self, point, self._raise)
        if point != "post_filter":
            self.post_filter = lambda *_: PostFilterResult(unschedulable("no help"))

    def _raise(self, *_):
        raise KeyError("a mistake")


@pytest.mark.parametrize(
    ("generation", "point"),
    [("G0", "should_handle_deferred_resize"), ("G3", "post_filter"), ("G3", "filter"), ("G3", "pre_filter")],
)
def test_a_plugin_that_raises_fails_the_attempt_of_its_pod_and_not_the_scheduler(scene, generation, point):
    s = scene(generation, Raising(point), first=True).node(300)
    if point != "filter":  # which is asked where the pod fits
        s.pod("v", 200, priority=HIGH)

    outcome = s.deferred("h", 300, 100).attempt()

    assert not outcome.fits
    assert "internal error: KeyError: 'a mistake'" in outcome.message
