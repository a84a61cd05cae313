"""The acceptance scenarios of kubelet-unbinding observed as scenarios, with their figures read from the event log.

8, 9, 11, 12 and 14 are also tests of one component each, below tests/component and tests/unit; 15 and 16 are about claims.
"""

import asyncio
import contextlib
import random
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from lab.scenarios.run import load_scenario, simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS
from lab.scenarios.simulation.lifetime import SimClock
from services.api.errors import ApiError, UnknownOutcome
from services.api.identity import ADMIN
from services.api.meta import Key
from services.client.client import Client

FOLDER = Path(__file__).parents[2] / "experiments"


class Observed:
    """One scenario observed: its result, its lines and what they show."""

    def __init__(self, name, seed, overrides, change):
        path = FOLDER / f"{name}.txt"
        scenario = load_scenario(path)
        if change:
            scenario = parse_scenario(path.read_text().replace(*change), str(path), VERBS)
        self.lines = []
        self.result = simulate(scenario, seed=seed, overrides=overrides, on_line=self.lines.append)
        self.measures = self.result.measures
        self.failed_expectations = [f"{j.text} ({j.seen})" for j in self.result.expectations if not j.passed]

    def commits(self, sub="", name=""):
        """Return the changes of pods by that subresource, of pods whose names begin so."""
        return [
            line for line in self.lines
            if line.ev == "store.commit" and line.obj["kind"] == "Pod" and not line.data.get("replayed")
            and line.data.get("subresource", "") == sub and line.obj["name"].startswith(name)
        ]  # fmt: skip

    def answers(self, code, path=""):
        """Return the server's answers with that code to writes below that path."""
        return [
            line for line in self.lines
            if line.ev == "api.response" and line.data.get("code") == code and path in str(line.data.get("path", ""))
        ]  # fmt: skip

    def ran(self, uid):
        """Return (node, from, to) of each container's run."""
        open_runs, runs = {}, []
        for line in self.lines:
            if line.ev in ("kubelet.start", "kubelet.stop") and (line.obj or {}).get("uid") == uid:
                at_s = line.mono_ns / 1e9
                if line.ev == "kubelet.start":
                    open_runs[line.node] = at_s
                elif line.node in open_runs:
                    runs.append((line.node, open_runs.pop(line.node), at_s))
        return runs + [(node, at_s, float("inf")) for node, at_s in open_runs.items()]


@cache
def _observed(name, seed=1, overrides=(), change=()):
    observed = Observed(name, seed, dict(overrides), change)
    assert observed.result.violations == []
    assert observed.result.error == ""
    return observed


def seconds(line):
    return line.mono_ns / 1e9


def test_kubelet_unbinding_01_todays_kubelet_fails_three_hundred_pods_in_a_minute_and_none_runs():
    # A fifth of the minute is enough to show it.
    observed = _observed("runaway/runaway-fail", change=("wait 60s", "wait 12s"))

    assert observed.failed_expectations == []
    assert observed.measures["pods_failed"] >= 300
    assert observed.measures["pods_running_at_end"] == 0
    assert observed.measures["first_running_s"] is None


def test_kubelet_unbinding_02_one_pod_ever_unbound_once_runs_elsewhere_within_five_seconds():
    observed = _observed("runaway/runaway-unbind")

    assert observed.failed_expectations == []
    assert (observed.measures["pods_created"], observed.measures["unbinds"], observed.measures["pods_failed"]) == (
        1,
        1,
        0,
    )
    assert observed.measures["first_running_s"] <= 5.0


def test_kubelet_unbinding_03_without_alternative_three_attempts_in_200_seconds_and_free_capacity_ends_the_wait():
    observed = _observed("unbinding/no-alternative")
    unbinds = [seconds(line) for line in observed.commits("unbind", "wide")]
    freed = [seconds(line) for line in observed.commits(name="b") if line.data["type"] == "DELETED"]
    (running,) = [j.at_s for j in observed.result.expectations if "name=wide phase == Running" in j.text]

    assert observed.failed_expectations == []
    assert len([at for at in unbinds if at < unbinds[0] + 200]) <= 3
    assert running + observed.result.started_s - freed[-1] <= 5.0


def test_kubelet_unbinding_04_without_exclusion_five_unbinds_a_failed_pod_and_two_a_minute():
    observed = _observed("unbinding/exclusion-none")
    failures = sorted(seconds(line) for line in observed.commits("status", "web-") if line.data["phase"] == "Failed")
    gaps = [later - earlier for earlier, later in pairwise(failures)]

    assert observed.failed_expectations == []
    assert {line.node for line in observed.lines if line.ev == "kubelet.unbind_call"} == {"n1"}
    assert all(25.0 <= gap <= 40.0 for gap in gaps), "1, 2, 4, 8 and 16 s, then the next pod"
    assert 1.5 <= 60.0 / (sum(gaps) / len(gaps)) <= 2.4


def test_kubelet_unbinding_05_the_fourth_rejection_of_three_allowed_fails_with_reason_and_note():
    observed = _observed("unbinding/limit")

    assert observed.failed_expectations == []
    assert len(observed.commits("unbind", "wide")) == 3


@pytest.mark.parametrize("form", ["subresource", "binding_delete"])
@pytest.mark.parametrize("seed", range(8))
def test_kubelet_unbinding_06_lost_and_doubled_requests_and_answers_count_once(form, seed):
    observed = _observed("unbinding/answers-lost", seed, (("unbind.api", form),))

    assert observed.failed_expectations == []
    assert len(observed.commits("unbind", "guest")) == 1


def test_kubelet_unbinding_07_only_the_pods_own_kubelet_may_unbind_it():
    observed = _observed("unbinding/foreign-kubelet")
    refused = observed.answers(403, "/unbind")

    assert observed.failed_expectations == []
    assert len(refused) == 5
    assert observed.commits("unbind") == []


def test_kubelet_unbinding_09_the_request_of_a_session_that_is_over_is_refused_whatever_it_says():
    observed = _observed("unbinding/delayed")
    (refused,) = observed.answers(409, "/unbind")
    (uid,) = {line.obj["uid"] for line in observed.commits(name="wide")}

    assert observed.failed_expectations == []
    assert refused.data["reason"] == "StaleSession"
    ((node, begun, ended),) = observed.ran(uid)
    assert (node, ended) == ("n1", float("inf"))
    assert begun < seconds(refused)


def test_kubelet_unbinding_09_without_the_fence_the_same_request_makes_the_pod_run_twice():
    lines = []
    scenario = load_scenario(FOLDER / "unbinding" / "delayed.txt")
    result = simulate(scenario, seed=1, overrides={"unbind.fence": "none"}, on_line=lines.append)

    assert {violation.invariant for violation in result.violations} == {"I1"}
    assert {line.node for line in lines if line.ev == "kubelet.start" and line.obj["name"] == "wide"} == {"n1", "n2"}


def test_kubelet_unbinding_10_a_status_twenty_seconds_late_is_of_an_older_binding_to_the_same_node():
    observed = _observed("unbinding/stale-status")
    (refused,) = [line for line in observed.answers(409, "/status") if line.data.get("reason") == "StaleBinding"]

    assert observed.failed_expectations == []
    (uid,) = {line.obj["uid"] for line in observed.commits(name="wide")}
    ((node, begun, ended),) = observed.ran(uid)
    assert (node, ended) == ("n1", float("inf"))
    assert seconds(refused) - begun >= 19.0


def test_kubelet_unbinding_11_the_same_node_may_have_it_back_under_the_same_uid_and_starts_it_once():
    observed = _observed("unbinding/same-node")

    assert observed.failed_expectations == []
    assert len([line for line in observed.lines if line.ev == "kubelet.start" and line.obj["name"] == "wide"]) == 1


def test_kubelet_unbinding_12_a_scheduler_without_the_gate_is_spared_or_ends_with_code_1():
    spared, ended = _observed("unbinding/old-scheduler"), _observed("unbinding/old-scheduler-exits")

    assert spared.failed_expectations == ended.failed_expectations == []
    assert spared.result.failures == []
    assert {line.data["reason"] for line in spared.answers(409, "/unbind")} == {"SchedulerNotCapable"}
    assert "scheduler cache is corrupted" in ended.result.failures[0]


def test_kubelet_unbinding_14_a_move_that_is_seen_as_one_event_moves_the_usage_and_ends_no_pod():
    observed = _observed("unbinding/moved")
    opened = [
        line.data["start_rv"] for line in observed.lines
        if line.ev == "watch.open" and line.comp == "scheduler" and line.data["resource"] == "pods"
    ]  # fmt: skip

    assert observed.failed_expectations == []
    assert observed.result.failures == []
    assert (opened[0], opened[-1]) == (0, 0), "what happened meanwhile is forgotten, so the state is taken anew"
    assert len(opened) > 1


def test_kubelet_unbinding_13_what_was_bound_and_given_back_unseen_is_counted_nowhere():
    assert _observed("unbinding/late-scheduler").failed_expectations == []


def test_kubelet_unbinding_17_a_timer_of_the_node_that_was_left_does_not_follow_the_pod():
    observed = _observed("unbinding/taint-timer")
    (unbound,) = observed.commits("unbind", "guest")

    assert observed.failed_expectations == []
    assert seconds(unbound) - observed.result.started_s >= 10.0
    assert [line for line in observed.commits(name="guest") if line.data.get("deletion")] == []


@pytest.mark.parametrize("cut_s", [30, 60])
def test_kubelet_unbinding_19_a_node_cut_off_for_a_while_completes_the_flow_on_its_return(cut_s):
    observed = _observed("unbinding/partition-short", change=("wait 60s", f"wait {cut_s}s"))

    assert observed.failed_expectations == []
    assert len(observed.commits("unbind", "web-")) == 1


def test_kubelet_unbinding_19_after_400_seconds_a_replacement_runs_and_nothing_ran_twice():
    observed = _observed("unbinding/partition-long")
    uids = list(dict.fromkeys(line.obj["uid"] for line in observed.commits(name="web-")))

    assert observed.failed_expectations == []
    assert [observed.ran(uid) for uid in uids[:1]] == [[]], "what n1 rejected never ran"
    assert [node for node, _, _ in observed.ran(uids[1])] == ["n2"]
    assert observed.commits("unbind") == []


def test_kubelet_unbinding_20_a_storm_is_held_back_by_the_rate_limits_and_tamed_by_signature():
    by_pod, by_signature = _observed("unbinding/storm-by-pod"), _observed("unbinding/storm")
    unbinds = [seconds(line) for line in by_pod.commits("unbind")]

    assert by_pod.failed_expectations == by_signature.failed_expectations == []
    assert len(unbinds) <= 200
    refused = [seconds(line) for line in by_pod.answers(429, "/unbind")]
    assert refused != []
    assert len([at for at in refused if at > refused[0] + 3.0]) <= len(unbinds), "no more than one asks for each turn"
    for begun in unbinds:
        # A burst of twenty, and ten a minute from then on.
        assert sum(begun <= at < begun + 60.0 for at in unbinds) <= 20 + 10
    assert by_pod.measures["rejected_to_running_p99_s"] >= 60.0, "the wait for a turn is a part of it"
    assert by_signature.measures["unbinds"] <= 20
    assert by_signature.measures["time_to_running_p99_s"] <= 90.0


def test_kubelet_unbinding_21_pods_of_a_daemon_set_and_of_a_preset_node_fail_as_today():
    observed = _observed("unbinding/exempt")

    assert observed.failed_expectations == []
    assert {line.obj["name"] for line in observed.lines if line.ev == "kubelet.unbind_call"} == {"movable"}


def test_kubelet_unbinding_22_the_better_the_scheduler_knows_the_fewer_pods_come_back():
    fail, unbind = _observed("unbinding/numa-stale-fail"), _observed("unbinding/numa-stale-unbind")
    oracle = _observed("unbinding/numa-oracle")
    failures = sorted(seconds(line) for line in fail.commits("status", "web-") if line.data["phase"] == "Failed")
    rate = len(failures) / max(failures[-1] - failures[0], 1.0)

    assert fail.failed_expectations == unbind.failed_expectations == oracle.failed_expectations == []
    assert len(failures) <= rate * 10.0 + 1, "until the next report, ten seconds later"
    assert failures[-1] - failures[0] <= 10.0
    assert unbind.measures["pods_failed"] == 0
    assert unbind.measures["unbinds"] <= 3
    assert oracle.measures["unbinds"] == oracle.measures["pods_failed"] == 0


# --- kubelet-unbinding 7.3, 8, 10 and 11 ---


@pytest.mark.parametrize(
    "name",
    [
        "budget", "deleted-after-unbind", "deleted-first", "quota-between-nodes", "own-deadline", "user-bound", "gang-refuse", "attempt-decay",
        "wasted-preemption",
    ],
)  # fmt: skip
def test_kubelet_unbinding_sections_7_to_11_others_take_an_unbind_as_specified(name):
    assert _observed(f"unbinding/{name}").failed_expectations == []


def _metrics_after(name, **overrides):
    """Return all metrics of all components as a scenario leaves them."""
    found = {}

    def look(mesh):
        for component in mesh.components():
            found.update(mesh.instance(component).metrics())

    simulate(load_scenario(FOLDER / f"unbinding/{name}.txt"), seed=1, overrides=overrides, afterwards=look)
    return found


def test_kubelet_unbinding_section_10_every_metric_shows_its_figure():
    back, elsewhere = _metrics_after("stale-status"), _metrics_after("job")
    wasted = _metrics_after("wasted-preemption")

    def figure(found, start, end=""):
        return sum(value for name, value in found.items() if name.startswith(start) and name.endswith(end))

    unbinds = back['scheduler_pod_unbinds_total{reason="TopologyAffinityError"}']
    assert unbinds >= 1
    assert back['apiserver_pod_unbind_total{reason="TopologyAffinityError",code="200"}'] == unbinds
    assert figure(back, "kubelet_pod_unbind_total", 'reason="TopologyAffinityError",result="ok"}') == unbinds
    assert back['stale_status_writes_rejected_total{why="StaleBinding"}'] == 1
    assert back["scheduler_rebound_same_node_total"] == unbinds
    assert figure(elsewhere, "kubelet_pod_unbind_duration_seconds_count") == 1
    assert figure(elsewhere, "kubelet_unbind_teardown_seconds_count") == 1
    assert figure(elsewhere, "kubelet_unbind_teardown_seconds_sum") == 0, "nothing had been set up"
    assert 0.05 <= figure(_metrics_after("devices"), "kubelet_unbind_teardown_seconds_sum") <= 1.0
    assert figure(elsewhere, "kubelet_admission_rejections_total") == 1
    assert elsewhere["scheduler_unbound_to_rebound_seconds_count"] == 1
    assert 0.9 <= elsewhere["scheduler_unbound_to_rebound_seconds_sum"] <= 1.2
    assert wasted["scheduler_node_exclusions"] == 1
    assert figure(elsewhere, "pod_unbinds_until_running_bucket", 'le="0"}') == 0
    assert figure(elsewhere, "pod_unbinds_until_running_bucket", 'le="1"}') == 1
    assert figure(elsewhere, "pod_unbinds_until_running_sum") == 1
    assert wasted["unbind_wasted_preemptions_total"] == 1
    assert "unbind_wasted_preemptions_total" not in elsewhere


EVENTS = [
    ("limit", "wide", {}, "Warning", "TopologyAffinityError", "Resources cannot be allocated with Topology locality", 4),
    ("limit", "wide", {}, "Normal", "UnbindRequested", "Unbinding the pod: TopologyAffinityError", 4),
    ("limit", "wide", {}, "Normal", "Unbound", "Unbound from n1 (TopologyAffinityError), attempt 3 of 3, next try in 4s", None),
    ("limit", "wide", {}, "Warning", "UnbindLimitReached", "The pod was unbound too often: TopologyAffinityError", 1),
    ("limit", "wide", {"unbind.fallback": "hold"}, "Warning", "UnbindBlocked",
     "TopologyAffinityError; the pod cannot be unbound: LimitReached", 1),
    ("deadline", "guest", {}, "Warning", "UnbindFailed", "The pod could not be unbound: DeadlineExceeded", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "pod", "overrides", "kind", "reason", "message", "times"), EVENTS)
def test_kubelet_unbinding_section_10_every_event_is_recorded_by_its_name_and_alike_ones_are_counted(
    name, pod, overrides, kind, reason, message, times
):
    text = "\n".join(
        line for line in (FOLDER / "unbinding" / f"{name}.txt").read_text().splitlines()
        if not overrides or "Failed" not in line
    )  # fmt: skip
    chosen = f'reason={reason} type={kind} involvedObject.name={pod} message="{message}"'
    wanted = f"\nwait 30s\nexpect count events {chosen} == 1\n"
    if times is not None:  # the scheduler's recorder counts in series
        wanted += f"expect each events {chosen} count == {times}\n"

    seen = simulate(parse_scenario(text + wanted, name, VERBS), seed=1, overrides=overrides)

    assert [(j.text, j.seen) for j in seen.expectations[-2:] if not j.passed] == []


# --- kubelet-unbinding 12: what may go wrong meanwhile ---


@pytest.mark.parametrize("name", ["deadline", "crash-points", "clocks", "rate-limited", "binding-delete"])
def test_kubelet_unbinding_section_12_each_failure_ends_as_specified(name):
    assert _observed(f"unbinding/{name}").failed_expectations == []


@pytest.mark.parametrize("after", ["bind", "unbind"])
def test_kubelet_unbinding_section_12_a_scheduler_that_dies_with_the_event_on_its_way_takes_the_pod_up_again(after):
    sub = {"bind": "binding", "unbind": "unbind"}[after]

    def strikes(mesh):
        def received(line):
            if line.ev == "store.commit" and line.data.get("subresource") == sub and line.obj["name"].startswith("web"):
                if not struck:
                    mesh.sever("scheduler")
                struck.append(line)

        return received

    struck = []

    async def disturb(mesh, observer, observed):
        mesh.on_line(strikes(mesh))
        await observed.wait()

    scenario = load_scenario(FOLDER / "unbinding" / "binding-delete.txt")
    result = simulate(scenario, seed=1, disturb=lambda auditor, *rest: disturb(*rest))

    assert struck
    assert [j.text for j in result.expectations if not j.passed and "within" in j.text] == []
    assert result.violations == []


def test_kubelet_unbinding_section_12_a_storm_of_other_writers_delays_an_unbind_that_names_a_version_and_no_more():
    lines, writes = [], []

    async def disturb(mesh, observer, observed):
        admin = Client(mesh.api(ADMIN), SimClock(asyncio.get_running_loop(), 0.0), random.Random(1))

        async def write():
            for number in range(5):
                annotation = {"metadata": {"annotations": {"n": f"{len(writes)}/{number}"}}}
                with contextlib.suppress(ApiError, UnknownOutcome):
                    await admin.patch("pods", Key("default", "guest"), annotation)

        def received(line):
            if line.ev == "kubelet.unbind_call" and len(writes) < 2:
                writes.append(asyncio.get_running_loop().create_task(write()))

        mesh.on_line(received)
        await observed.wait()

    scenario = load_scenario(FOLDER / "unbinding" / "late-scheduler.txt")
    result = simulate(
        scenario, seed=1, overrides={"unbind.fence": "resourceVersion"}, disturb=lambda auditor, *rest: disturb(*rest),
        on_line=lines.append,
    )  # fmt: skip
    conflicts = [
        line
        for line in lines
        if line.ev == "api.response" and line.data.get("code") == 409 and "/unbind" in str(line.data.get("path"))
    ]

    assert conflicts
    assert [(j.text, j.seen) for j in result.expectations if not j.passed] == []
    assert result.violations == []


@pytest.mark.parametrize("seed", [2, 3, 4])
def test_kubelet_unbinding_section_12_a_request_that_is_slow_is_the_same_request(seed):
    change = ("link kubelet/n1 loss=0.5 duplicate=0.5", "link kubelet/n1 slow=4s duplicate=0.5")
    observed = _observed("unbinding/answers-lost", seed, change=change)

    assert observed.failed_expectations == []
    assert len(observed.commits("unbind", "guest")) == 1


@pytest.mark.parametrize("teardown", ["before", "after"])
def test_kubelet_unbinding_8_a_volume_follows_an_unbound_pod_detached_before_it_is_attached_again(teardown):
    observed = _observed("attach-detach/volume-of-unbound", overrides=(("kubelet.unbind_teardown", teardown),))
    commits = [line for line in observed.lines if line.ev == "store.commit"]
    attachments = [
        (line.data["type"], bool(line.data.get("deletion")), seconds(line), line.obj["name"])
        for line in commits if line.obj["kind"] == "VolumeAttachment"
    ]  # fmt: skip
    (unbound,) = [seconds(line) for line in observed.commits("unbind", "db")]
    first, second = dict.fromkeys(name for _, _, _, name in attachments)
    leaving = next(at for _, is_leaving, at, name in attachments if name == first and is_leaving)
    gone = next(at for change, _, at, name in attachments if name == first and change == "DELETED")
    made = next(at for change, _, at, name in attachments if name == second and change == "ADDED")
    of_n1 = [seconds(line) for line in commits if line.obj["kind"] == "Node" and line.obj["name"] == "n1"]
    (started,) = [seconds(line) for line in observed.lines if line.ev == "kubelet.start" and line.node == "n2"]

    assert observed.failed_expectations == []
    assert unbound < leaving < gone <= made < started
    # n1 reported that nothing is in use there, then the controller that nothing is attached, and only then it detached.
    assert len([at for at in of_n1 if unbound - 1 < at < leaving]) >= 2
    assert not any(line.ev == "kubelet.start" and line.node == "n1" for line in observed.lines)
