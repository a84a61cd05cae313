"""A run whose observer is behind the store: lines are judged from the state of their moment, and what was not seen is said.

The mesh is simulated; only the watches of the run's own observer bring everything later, as between processes.
"""

import asyncio
import random

import pytest

from lab.scenarios.freshness import ENDED_WITHIN_S, UntilVersion
from lab.scenarios.run import plan_of
from lab.scenarios.runner import run_scenario
from lab.scenarios.script.verbs import read_scenario
from lab.scenarios.simulation import simloop
from lab.scenarios.simulation.simulated_mesh import SimMesh
from services.api.errors import ApiError, UnknownOutcome
from services.api.identity import ADMIN
from services.api.wire import Request, WatchEvent, WatchRequest
from services.telemetry import logs

BOOKMARK_S = 0.05


class LateWatches:
    """An API whose watches bring everything `behind_s` later than they are sent it."""

    def __init__(self, api, behind_s):
        self._api, self.behind_s = api, behind_s
        self._queues = []

    async def call(self, request):
        return await self._api.call(request)

    async def watch(self, request):
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue = asyncio.Queue()
        self._queues.append((request.resource, queue))
        began = loop.time()

        async def pump():
            try:
                async for batch in self._api.watch(request):
                    # The state that a watch begins with comes at once, so that the scenario begins.
                    queue.put_nowait((loop.time() if loop.time() == began else loop.time() + self.behind_s, batch))
            except (ApiError, UnknownOutcome) as error:
                queue.put_nowait((loop.time(), error))

        task = asyncio.create_task(pump())
        try:
            while True:
                at_s, batch = await queue.get()
                await asyncio.sleep(max(0.0, at_s - loop.time()))
                if isinstance(batch, Exception):
                    raise batch
                yield batch
        finally:
            task.cancel()

    def bookmark(self, resources, rv):
        loop = asyncio.get_running_loop()
        for resource, queue in self._queues:
            if resource in resources:
                event = WatchEvent(type="BOOKMARK", resource=resource, rv=rv)
                queue.put_nowait((loop.time() + self.behind_s, [event]))


class MeshWithLateObserver(SimMesh):
    def __init__(self, plan, behind_s):
        super().__init__(plan)
        self.late = LateWatches(super().api(ADMIN), behind_s)

    def api(self, identity):
        return self.late if identity == ADMIN else super().api(identity)

    @property
    def progress(self):
        return self._newest

    async def _newest(self, resources):
        rv = (await self.late.call(Request(verb="list", resource="namespaces", limit=1))).unwrap().rv
        # Behind what was sent for the changes up to that version.
        asyncio.get_running_loop().call_later(BOOKMARK_S, self.late.bookmark, resources, rv)
        return rv


def run(text, behind_s):
    """Run the scenario with an observer that is so many seconds behind."""
    logs.set_up("simulation", "error")
    scenario = read_scenario(text, "late.txt")

    async def main():
        made = MeshWithLateObserver(plan_of(scenario, seed=0), behind_s)
        return await run_scenario(scenario, made, chance=random.Random("late"))

    return simloop.run(main(), seed=0)


def judged(found):
    return [(each.text, each.passed, each.seen) for each in found.judgements]


def test_what_was_true_before_a_line_was_reached_does_not_make_it_true():
    found = run(
        """# Scaled to nothing and up again
nodes n1 cpu=4
deployment web replicas=4 cpu=100m grace=1
expect within 60s count pods phase=Running == 4
scale deployment/web replicas=0
wait 3s
scale deployment/web replicas=4
expect within 60s count pods phase=Running == 4
expect created pods name=web-* == 8
""",
        behind_s=4.0,
    )

    assert found.error == ""
    assert [passed for _, passed, _ in judged(found)] == [True, True, True]
    assert "8" in found.judgements[-1].seen
    assert 4.0 < found.seen.behind_s < 5.0
    assert ["what was seen was up to 4.0 s behind the store: times are as late as that"] == found.seen.notes


BEGIN = """# A line that changes something
nodes n1 cpu=4
pod a cpu=1 labels=app:a
expect within 60s count pods phase=Running == 1
"""


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("delete pod/a grace=0", "count pods == 0"),
        ("delete pod/* grace=0", "count pods == 0"),
        ('patch pod/a {"metadata": {"labels": {"app": "b"}}}', "each pods label.app == b"),
        ("label pod/a app=b", "each pods label.app == b"),
        ('as admin patch pod/a {"metadata": {"labels": {"app": "b"}}} -> 200', "each pods label.app == b"),
        ("resize pod/a cpu=2", "each pods spec.containers[0].resources.requests.cpu == 2"),
        ("cordon n1", "each nodes spec.unschedulable == true"),
        ("taint n1 a=b:NoSchedule", "each nodes spec.taints[0].key == a"),
        ("as admin delete pod/a -> 200", "each pods metadata.deletionTimestamp ~ Z"),
        ("kill apiserver\nlabel pod/a app=b", "each pods label.app == b"),
        (
            'operation {"delete": {"typeMeta": {"apiVersion": "v1", "kind": "Pod"}, "objectMeta": {"name": "a"}}}',
            "each pods metadata.deletionTimestamp ~ Z",
        ),
    ],
)
def test_a_line_is_judged_from_a_view_that_has_seen_the_lines_before_it(change, expected):
    found = run(f"{BEGIN}{change}\nexpect {expected}\n", behind_s=3.0)

    assert found.error == ""
    assert [] == [each for each in judged(found) if not each[1]]
    assert () == found.seen.judged_late


def test_within_its_time_is_judged_by_what_the_store_had_at_the_end_of_that_time():
    change = 'as admin patch pod/a {"metadata": {"labels": {"app": "b"}}} -> 200'

    found = run(f"{BEGIN}{change}\nexpect within 2s each pods label.app == b\n", behind_s=3.0)

    assert [] == [each for each in judged(found) if not each[1]]


def test_during_a_time_is_judged_by_what_the_store_had_until_its_end():
    late = 'as admin patch pod/a {"metadata": {"labels": {"app": "b"}}} -> 200'

    found = run(f"{BEGIN}expect always each pods label.app == a\n{late}\n", behind_s=3.0)

    assert [("expect always each pods label.app == a", False)] == [each[:2] for each in judged(found) if not each[1]]


def test_a_glob_names_what_is_there_when_its_line_is_reached():
    found = run(f"{BEGIN}as admin delete pod/a -> 200\nwait 2s\nlabel pod/* app=b\n", behind_s=3.0)

    assert found.error.endswith("nothing matches 'pod/*' now")


def test_a_line_that_could_not_wait_any_longer_says_from_which_version_it_was_judged():
    found = run(f"{BEGIN}label pod/a app=b\nexpect each pods label.app == b\n", behind_s=15.0)

    assert [True, False] == [passed for _, passed, _ in judged(found)]
    (late, *_) = [each for each in found.seen.judged_late if each.startswith("line 6")]
    assert late.startswith("line 6, expect each pods label.app == b: judged from version ")
    assert " instead of version " in late


def test_a_run_ends_when_its_observer_has_seen_the_last_version():
    found = run(f"{BEGIN}delete pod/a grace=0\n", behind_s=4.0)

    (pod,) = found.history.pods.values()
    assert pod.gone_s == found.ended_s, "what is seen after the end had happened by then"
    assert found.seen.version == found.seen.newest > 0
    assert "" == found.seen.missing


def test_what_a_watch_does_not_bring_in_time_is_listed_again_at_the_end_and_the_run_says_so():
    found = run(
        """# Nothing is seen
nodes n1 cpu=4
as admin create pods {"metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i"}]}} -> 201
wait 5s
""",
        behind_s=ENDED_WITHIN_S * 1.5,
    )

    assert ["a"] == [pod.name for pod in found.history.pods.values()]
    assert "" == found.seen.missing
    (gap, *_) = [each for each in found.seen.gaps if each.startswith("pods: listed again at version ")]
    assert gap.endswith("were not seen one by one")
    assert gap in found.seen.notes


async def _batches(*batches):
    for batch in batches:
        yield batch


class Scripted:
    def __init__(self, *batches):
        self._batches = batches

    def watch(self, request):
        return _batches(*self._batches)


def test_a_watch_brings_nothing_above_the_version_at_which_the_run_ended():
    async def main():
        events = [WatchEvent(type="ADDED", resource="pods", name=f"p{rv}", rv=rv) for rv in (3, 5, 8)]
        until = UntilVersion(Scripted(events))
        until.last_rv = 5
        return [batch async for batch in until.watch(WatchRequest(resource="pods", resource_version="2"))]

    ((first, second, mark),) = simloop.run(main())
    assert [("ADDED", 3), ("ADDED", 5), ("BOOKMARK", 5)] == [(each.type, each.rv) for each in (first, second, mark)]


def test_a_line_that_may_take_long_waits_for_a_server_that_is_away():
    """For a third of its time there is nobody who could say what the store has; the rest decides."""
    found = run(
        """# A server that is away
nodes n1 cpu=4
replicaset web replicas=2 cpu=100m
expect within 60s count pods phase=Running == 2
scale replicaset/web replicas=3
kill apiserver down=15s
expect within 40s count pods phase=Running == 3
""",
        behind_s=0.5,
    )

    assert [True, True] == [passed for _, passed, _ in judged(found)], judged(found)
