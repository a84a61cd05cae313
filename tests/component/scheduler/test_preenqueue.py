"""What a pod's status says of PreEnqueue, second by second, in a whole scheduler (KEP-5501; delay 5 s)."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.config import SchedulerConfig
from scheduler.wiring import build
from services.api.meta import Key
from services.api.wire import Response
from tests.component.scheduler.conftest import World

# A pod with claims has work before its bind; that this is announced is another matter (KEP-5278).
GATES = {"SchedulerAsyncAPICalls": True, "SchedulerPreEnqueuePodStatus": True,
         "NominatedNodeNameForExpectation": False}  # fmt: skip
CLAIMS = "resourceclaims.resource.k8s.io"
MISSING = 'could not find ResourceClaim "default/c"'
READY = "NotReadyForScheduling"


class Seen:
    """The scheduler's calls about pods, with their times in seconds since the pod under test was created."""

    def __init__(self, world):
        self.calls, self.fails, self.bind_s = [], 0, 0.0
        self._world, self._start = world, 0.0
        world.hook = self

    def begin(self):
        self._start = self._world.clock.now()

    async def until(self, at_s):
        """Let time pass until then."""
        await asyncio.sleep(self._start + at_s - self._world.clock.now())

    async def __call__(self, request, call):
        if request.resource == "pods" and request.subresource in ("status", "binding"):
            self.calls.append((request.subresource, round(self._world.clock.now() - self._start, 1)))
            if request.subresource == "status" and self.fails:
                self.fails -= 1
                return Response(code=500, body=b'{"message":"etcd is away","code":500}')
            if request.subresource == "binding":
                await asyncio.sleep(self.bind_s)
        return await call(request)

    @property
    def patches(self):
        return [at for kind, at in self.calls if kind == "status"]


def wants(*claims):
    return {"resourceClaims": [{"name": name, "resourceClaimName": name} for name in claims]}


async def claim(world, name="c"):
    document = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {},
    }
    await world.admin.create(CLAIMS, document)


async def shown(world, name="p"):
    """Return (reason, message) of PodScheduled, None when it is absent."""
    conditions = (await world.get(name))["status"].get("conditions", ())
    return next(((c.get("reason"), c.get("message")) for c in conditions if c["type"] == "PodScheduled"), None)


async def status_of(world, name="p"):
    return [message for _, reason, message in await world.notes(name) if reason == READY]


@pytest.mark.parametrize(("model", "patches"), [("implicit_delayed", []), ("implicit_immediate", [0.0])])
def test_preenqueue_01_a_passing_no_is_seen_only_in_the_immediate_model(play, model, patches):
    async def scenario(world):
        await world.node("n1")
        seen = Seen(world)
        seen.begin()
        await world.pod("p", **wants("c"))
        await seen.until(2)
        await claim(world)
        await world.until(world.bound("p"))
        await seen.until(20)
        return seen.patches, await status_of(world)

    found, notes = play(scenario, preenqueue_report__model=model, **GATES)

    # The clear of the immediate model is overwritten by the bind, or comes at the same moment.
    assert found[:1] == patches
    assert len(found) <= 2 * len(patches)
    assert len(notes) == len(patches)


class Configured(World):
    """A scheduler with a configuration file."""

    config = ""

    def build(self, seams):
        return build(SchedulerConfig(name="scheduler", config=self.config), seams)


def test_the_delay_may_come_from_the_scheduler_s_configuration(play, tmp_path):
    """Asked for in the review of KEP-5501; the file counts where the switch is not set."""
    file = tmp_path / "scheduler.yaml"
    head = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
    file.write_text(f"{head}preEnqueuePodStatusDelay: 2s\n")
    Configured.config = str(file)

    async def scenario(world):
        seen = Seen(world)
        seen.begin()
        await world.pod("p", **wants("c"))
        await seen.until(20)
        return seen.patches

    assert play(scenario, kind=Configured, **GATES) == [2.0]


def test_preenqueue_02_a_lasting_rejection_is_reported_once_after_five_seconds(play):
    async def scenario(world):
        seen = Seen(world)
        seen.begin()
        await world.pod("p", **wants("c"))
        await seen.until(4.9)
        before = await shown(world)
        await seen.until(5.1)
        after = await shown(world)
        await seen.until(605)
        return before, after, seen.patches, await status_of(world)

    before, after, patches, notes = play(scenario, **GATES)

    assert before is None
    assert after == (READY, MISSING)
    assert patches == [5.0]
    assert notes == [MISSING]


def test_preenqueue_04_new_words_are_reported_five_seconds_later(play):
    async def scenario(world):
        seen = Seen(world)
        seen.begin()
        await world.pod("p", **wants("c", "d"))
        await seen.until(19.9)
        await claim(world)
        await world.node("n1")  # has the gate asked again: a claim alone that does not suffice does not
        await seen.until(24.5)
        early = await shown(world)
        await seen.until(26)
        return early, await shown(world), seen.patches, await status_of(world)

    early, late, patches, notes = play(scenario, **GATES)

    assert early == (READY, MISSING)
    assert late == (READY, 'could not find ResourceClaim "default/d"')
    assert patches == [5.0, pytest.approx(25.0, abs=0.15)]
    assert len(notes) == 2


def test_preenqueue_05_an_attempt_that_fails_speaks_at_once_and_nothing_is_cleared(play):
    async def scenario(world):
        await world.node("n1", cpu="1")
        seen = Seen(world)
        seen.begin()
        await world.pod("p", cpu="2", **wants("c"))
        await seen.until(30)
        await claim(world)
        await seen.until(30.1)
        at_once = await shown(world)
        await seen.until(60)
        return at_once, await shown(world), seen.patches

    at_once, later, patches = play(scenario, **GATES)

    assert at_once[0] == "Unschedulable"
    assert later == at_once
    assert patches == [5.0, 30.0]


@pytest.mark.parametrize(("delay_s", "cleared_at"), [(5.0, 35.0), (0.0, 30.0)])
def test_preenqueue_06_a_pod_let_in_that_is_not_tried_loses_the_condition(play, delay_s, cleared_at):
    async def scenario(world):
        await world.node("n1")
        seen = Seen(world)
        seen.begin()
        await world.pod("p", **wants("c"))
        await seen.until(29)
        world.scheduler._binder.in_flight = 10**6  # the loop takes no pod
        await seen.until(30)
        await claim(world)
        await seen.until(cleared_at + 0.1)
        return await shown(world), seen.patches

    found, patches = play(scenario, preenqueue_report__clear_delay_s=delay_s, **GATES)

    assert found is None
    assert patches == [5.0, cleared_at]


def test_preenqueue_08_a_bind_is_the_only_call_about_a_pod_let_in_in_time(play):
    async def scenario(world):
        await world.node("n1")
        seen = Seen(world)
        seen.bind_s = 1.0
        seen.begin()
        await world.pod("p", **wants("c"))
        await seen.until(3)
        await claim(world)
        await seen.until(20)
        return seen.calls, await world.get("p"), await status_of(world)

    calls, pod, notes = play(scenario, **GATES)

    assert calls == [("binding", 3.0)]
    assert [c["status"] for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"] == ["True"]
    assert notes == []


@pytest.mark.parametrize(("message", "patches", "reason"), [
    ("unified", [], "SchedulingGated"), ("legacy", [5.0, pytest.approx(15.0, abs=0.1)], READY),
])  # fmt: skip
def test_preenqueue_09_and_10_gates_cost_nothing_in_the_api_servers_words(play, message, patches, reason):
    async def scenario(world):
        seen = Seen(world)
        seen.begin()
        await world.pod("p", schedulingGates=[{"name": "x"}, {"name": "y"}])
        await seen.until(10)
        gated = await shown(world)
        await world.admin.patch("pods", Key("default", "p"), {"spec": {"schedulingGates": [{"name": "y"}]}})
        # Fewer gates are no event of the plugin's; only a look for another reason finds the other words.
        world.scheduler._core.queue.activate([Key("default", "p")], world.clock.now())
        await seen.until(20)
        before = list(seen.patches)
        await world.admin.patch("pods", Key("default", "p"), {"spec": {"schedulingGates": None}})
        await seen.until(21)
        return gated, before, await shown(world)

    gated, before, after = play(scenario, preenqueue_report__gates_message=message, **GATES)

    assert gated[0] == reason
    assert before == (patches if message == "unified" else patches[:1]) or before == patches
    assert after[0] == "Unschedulable"


def test_preenqueue_11_a_gang_short_of_members_says_so_until_it_is_complete(play):
    async def scenario(world):
        await world.node("n1", cpu="8")
        group = {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}},
        }
        await world.admin.create("podgroups.scheduling.k8s.io", group)
        seen = Seen(world)
        seen.begin()
        await asyncio.gather(*(world.pod(f"m{i}", schedulingGroup={"podGroupName": "g"}) for i in range(3)))
        await seen.until(5.2)
        early = [await shown(world, f"m{i}") for i in range(3)]
        await seen.until(8)
        await world.pod("m3", schedulingGroup={"podGroupName": "g"})
        await world.until(world.bound("m3"))
        await seen.until(30)
        return early, seen.patches, [await world.node_of(f"m{i}") for i in range(4)]

    early, patches, nodes = play(scenario, GenericWorkload=True, **GATES)

    assert early == [(READY, "waiting for minCount pods from a gang to appear in scheduling queue")] * 3
    assert patches == [5.0] * 3
    assert nodes == ["n1"] * 4


def test_preenqueue_12_a_preemptor_whose_victims_leave_slowly_is_no_candidate_for_new_nodes_meanwhile(play):
    async def scenario(world):
        await world.node("n1", cpu="2")
        await world.pod("small", cpu="10m", terminationGracePeriodSeconds=0)
        await world.pod("v", cpu="1900m", terminationGracePeriodSeconds=0)
        await world.until(world.bound("v"))
        seen = Seen(world)

        async def stalled(request, call):
            if request.verb == "delete" and request.name == "v":
                await seen.until(8)
            return await seen(request, call)

        world.hook = stalled
        await world.admin.create(
            "priorityclasses.scheduling.k8s.io",
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 1000,
            },
        )
        seen.begin()
        await world.pod("p", cpu="1500m", priorityClassName="high")
        await seen.until(0.3)
        at_once = await shown(world)
        await world.admin.delete("pods", Key("default", "small"), grace_period_s=0)  # an event that asks the gate
        await seen.until(4.5)
        before = await shown(world)
        await seen.until(6)
        held_back = await shown(world)
        took = await world.until(world.bound("p"))
        return at_once, before, held_back, 6 + took, await status_of(world)

    at_once, before, held_back, bound_s, notes = play(scenario, **GATES)

    assert at_once[0] == before[0] == "Unschedulable", "what a cluster autoscaler acts on"
    assert held_back == (READY, "waiting for the preemption for this pod to be finished")
    assert 8 <= bound_s <= 11
    assert notes == ["waiting for the preemption for this pod to be finished"]


def test_preenqueue_14_a_restarted_scheduler_does_not_repeat_what_stands_there(play):
    async def scenario(world):
        seen = Seen(world)
        seen.begin()
        await world.pod("p", **wants("c"))
        await seen.until(60)
        await world.restart_scheduler()
        await seen.until(90)
        return seen.patches, await shown(world)

    patches, found = play(scenario, **GATES)

    assert patches == [5.0]
    assert found == (READY, MISSING)


def test_preenqueue_15_a_report_that_failed_is_not_repeated_in_the_same_words(play):
    async def scenario(world):
        seen = Seen(world)
        seen.fails = 1
        seen.begin()
        await world.pod("p", **wants("c"))
        await seen.until(19.99)
        await world.node("n1")
        await seen.until(60)
        return [round(at) for at in seen.patches]

    assert play(scenario, **GATES) == [5.0]


@pytest.mark.parametrize(("client", "least_s", "most_s"), [("shared", 5.0, 8.0), ("separate_per_type", 0.0, 1.0)])
def test_preenqueue_16_a_burst_of_reports_delays_a_bind_of_the_same_client(play, client, least_s, most_s):
    """A tenth of the scenario's pods."""

    async def scenario(world):
        await world.node("n1")
        seen = Seen(world)
        seen.begin()
        await asyncio.gather(*(world.pod(f"p{i}", **wants("c")) for i in range(500)))
        await seen.until(6)
        await world.pod("ready")
        await seen.until(30)
        return next(at for kind, at in seen.calls if kind == "binding") - 6

    limits = {"async_api__qps": 50.0, "async_api__burst": 100, "async_api__client": client}
    assert least_s <= play(scenario, **limits, **GATES) <= most_s


@pytest.mark.parametrize("reason", ["NotReadyForScheduling", "Unschedulable", "SchedulingGated"])
def test_a_report_has_the_reason_that_was_chosen_and_goes_with_its_cause(play, reason):
    async def scenario(world):
        await world.node("n1")
        seen = Seen(world)
        seen.begin()
        await world.pod("p", **wants("c"))
        await seen.until(6)
        said = await shown(world)
        world.scheduler._binder.in_flight = 10**6  # the loop takes no pod
        await claim(world)
        await seen.until(12)
        return said, await shown(world), seen.patches

    said, after, patches = play(scenario, preenqueue_report__reason=reason, **GATES)

    assert said == (reason, MISSING)
    assert after is None
    assert patches == [5.0, 11.0]


@pytest.mark.parametrize("seed", range(4))
def test_a_condition_of_its_own_costs_a_write_after_the_bind(play, seed):
    async def scenario(world):
        await world.node("n1")
        seen = Seen(world)
        seen.begin()
        await world.pod("p", **wants("c"))
        await seen.until(6)
        said = {c["type"]: c.get("message", "") for c in (await world.get("p"))["status"]["conditions"]}
        await claim(world)
        await seen.until(20)
        return said, [c["type"] for c in (await world.get("p"))["status"]["conditions"]], seen.calls

    said, after, calls = play(scenario, seed=seed, preenqueue_report__condition="ReadyForScheduling", **GATES)

    assert said == {"ReadyForScheduling": MISSING}
    assert after == ["PodScheduled"]
    assert calls == [("status", 5.0), ("binding", 6.0), ("status", pytest.approx(6.0, abs=0.15))]


def test_a_rate_of_their_own_keeps_reports_out_of_the_way_of_a_bind(play):
    async def scenario(world):
        await world.node("n1")
        seen = Seen(world)
        seen.begin()
        await asyncio.gather(*(world.pod(f"p{i}", **wants("c")) for i in range(100)))
        await seen.until(6)
        await world.pod("ready")
        await seen.until(16)
        bound_s = next(at for kind, at in seen.calls if kind == "binding") - 6
        return bound_s, len([at for at in seen.patches if at <= 5.1]), len(seen.patches)

    limits = {"async_api__qps": 5.0, "async_api__burst": 5, "preenqueue_report__qps": 10.0}
    bound_s, at_once, in_all = play(scenario, **limits, **GATES)

    assert bound_s < 1.0
    assert 10 <= at_once <= 11, "a second's worth at once"
    assert in_all == 100


def test_a_group_speaks_for_its_members_until_it_is_scheduled(play):
    async def scenario(world):
        await world.node("n1", cpu="8")
        groups = "podgroups.scheduling.k8s.io"
        member = {"schedulingGroup": {"podGroupName": "g"}}
        await world.pod("m0", **member)
        seen = Seen(world)
        seen.begin()
        await seen.until(6)
        alone = await shown(world, "m0")
        group = {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        }
        await world.admin.create(groups, group)
        await seen.until(12)
        (said,) = (await world.admin.get(groups, Key("default", "g")))["status"]["conditions"]
        of_member = await shown(world, "m0")
        await world.pod("m1", **member)
        await world.until(world.bound("m1"))
        await seen.until(20)
        await world.pod("m2", **member, **wants("c"))
        await seen.until(26)
        (scheduled,) = (await world.admin.get(groups, Key("default", "g")))["status"]["conditions"]
        return alone, said, of_member, scheduled["status"], await shown(world, "m2")

    alone, said, of_member, scheduled, late = play(
        scenario, GenericWorkload=True, preenqueue_report__target="podgroup", **GATES
    )

    assert alone == (READY, 'waiting for pods\'s pod group "g" to appear in scheduling queue')
    assert (said["type"], said["status"], said["reason"]) == ("PodGroupInitiallyScheduled", "False", READY)
    assert said["message"] == "waiting for minCount pods from a gang to appear in scheduling queue"
    assert of_member is None
    assert scheduled == "True"
    assert late == (READY, MISSING), "True is never taken back: a late member speaks for itself"


@pytest.mark.parametrize(("scope", "named_s", "made_s"), [("global", 5, 5), ("per_plugin", 3, 3), ("per_call", 1, 10)])
def test_plugins_say_how_long_their_rejections_may_pass_unreported(play, scope, named_s, made_s):
    async def scenario(world):
        seen = Seen(world)
        seen.begin()
        await world.pod("p", **wants("c"))
        await world.pod("q", resourceClaims=[{"name": "c", "resourceClaimTemplateName": "t"}])
        await seen.until(20)
        return seen.patches

    assert play(scenario, preenqueue_report__delay_scope=scope, **GATES) == [named_s, made_s]


def test_without_the_gate_nothing_is_reported(play):
    async def scenario(world):
        seen = Seen(world)
        seen.begin()
        await world.pod("p", **wants("c"))
        await seen.until(60)
        return seen.patches, await shown(world), world.said("sched.gated", "p")

    patches, found, lines = play(scenario)

    assert (patches, found) == ([], None)
    assert [line.data for line in lines] == [{"plugin": "DynamicResources", "message": MISSING}]
