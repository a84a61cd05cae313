"""The manager runs small controllers over an API server that is a dict; time is virtual."""

import asyncio
import random
from collections.abc import Callable

import msgspec
import pytest
import structlog

from lab.scenarios.simulation import simloop
from services.api.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, Unavailable, UnknownOutcome
from services.api.kinds.pod import Pod
from services.api.kinds.replicaset import ReplicaSet
from services.api.meta import AnyObject, Key
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request, Response, WatchEvent, WatchRequest
from services.reconcile.actions import NOTHING, Batch, Create, Delete, Patch, Query, RecordEvent, Result
from services.reconcile.controller import Controller, Watch
from services.runtime.config import StartError
from services.runtime.election import LeaderElectionConfig
from services.runtime.manager import GATE_MAX_S, Manager, OwnWriteGate

IDENTITY = "system:controller:replicaset"
WEB = Key("default", "web")


class LoopClock:
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now()


class DictApi:
    """An API server that knows create, get, merge patch, delete and watch; `watch_delay_s` per resource."""

    def __init__(self):
        self.rv = 0
        self.objects: dict[tuple[str, str, str], dict] = {}
        self.changes: list[tuple[str, WatchEvent]] = []
        self.moved = asyncio.Event()
        self.requests: list[Request] = []
        self.watch_delay_s: dict[str, float] = {}
        self.refuse: Callable[[Request], Exception | None] = lambda request: None

    async def call(self, request: Request) -> Response:
        self.requests.append(request)
        await asyncio.sleep(0.001)
        try:
            if error := self.refuse(request):
                raise error
            document = self._apply(request)
        except ApiError as error:
            return Response(code=error.code, body=msgspec.json.encode(error.status()))
        return Response(code=200, rv=int(document["metadata"]["resourceVersion"]), body=msgspec.json.encode(document))

    def _apply(self, request: Request) -> dict:
        at = (request.resource, request.namespace, request.name)
        body = msgspec.json.decode(request.body) if request.body else {}
        old = self.objects.get(at)
        if request.verb == "create":
            if old is not None:
                raise AlreadyExists("it is there")
            body["metadata"].setdefault("uid", f"uid-{request.name}")
            return self._store("ADDED", at, body, request)
        if old is None:
            raise NotFound("no such object")
        if request.verb == "get":
            return old
        if request.resource_version not in ("", old["metadata"]["resourceVersion"]):
            raise Conflict("someone wrote first")
        if request.verb == "delete":
            return self._store("DELETED", at, old, request)
        return self._store("MODIFIED", at, {**old, **body, "metadata": old["metadata"]}, request)

    def _store(self, kind: str, at, document: dict, request: Request) -> dict:
        self.rv += 1
        document = {**document, "metadata": {**document["metadata"], "resourceVersion": str(self.rv)}}
        if kind == "DELETED":
            del self.objects[at]
        else:
            self.objects[at] = document
        event = WatchEvent(
            type=kind, namespace=at[1], name=at[2], rv=self.rv, body=msgspec.json.encode(document),
            traceparent=request.traceparent,
        )  # fmt: skip
        self.changes.append((at[0], event))
        self.moved.set()
        return document

    async def watch(self, request: WatchRequest):
        position = len(self.changes)
        state = [
            WatchEvent(type="ADDED", namespace=ns, name=name, rv=int(d["metadata"]["resourceVersion"]),
                       body=msgspec.json.encode(d))
            for (resource, ns, name), d in self.objects.items() if resource == request.resource
        ]  # fmt: skip
        yield [*state, WatchEvent(type="BOOKMARK", rv=self.rv, initial_events_end=True)]
        while True:
            while position == len(self.changes):
                self.moved.clear()
                await self.moved.wait()
            batch = [event for resource, event in self.changes[position:] if resource == request.resource]
            position = len(self.changes)
            if batch:
                await asyncio.sleep(self.watch_delay_s.get(request.resource, 0.002))
                yield batch

    def count(self, verb: str, resource: str) -> int:
        return sum(r.verb == verb and r.resource == resource for r in self.requests)

    def put(self, resource: str, document: dict, traceparent: str = "") -> dict:
        """Create as another client would."""
        metadata = document["metadata"]
        return self._apply(
            Request(verb="create", resource=resource, namespace=metadata.get("namespace", ""), name=metadata["name"],
                    body=msgspec.json.encode(document), traceparent=traceparent)
        )  # fmt: skip

    def touch(self, resource: str, key: Key, traceparent: str = "") -> dict:
        """Modify as another client would."""
        return self._apply(
            Request(verb="patch", resource=resource, namespace=key.namespace, name=key.name, body=b"{}",
                    traceparent=traceparent)
        )  # fmt: skip


class OneApi:
    def __init__(self, api):
        self._api = api
        self.asked = []

    def api(self, identity=""):
        self.asked.append(identity)
        return self._api

    async def node_api(self, node):
        raise NotImplementedError


class Spans:
    def __init__(self):
        self.started = []

    def start(self, name, *, parent="", links=(), **attributes):
        self.started.append((name, parent, tuple(links)))
        return Span(f"00-span{len(self.started)}")


class Span:
    trace_id = "t"

    def __init__(self, traceparent):
        self.traceparent = traceparent

    def set(self, **attributes): ...
    def event(self, name, **attributes): ...
    def end(self, error=""): ...


class Events:
    def __init__(self):
        self.lines = []

    def write(self, ev, **fields):
        self.lines.append((ev, fields))


def seams_over(api, **switches) -> Seams:
    return Seams(
        component="controllers",
        clock=LoopClock(),
        random=random.Random(1),
        disk=None,
        transport=OneApi(api),
        events=Events(),
        tracer=Spans(),
        switches=Switches(switches),
    )


def replica_set(name: str = "web") -> dict:
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"replicas": 3}}


def pod_of(owner: str, name: str) -> dict:
    reference = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": owner,
        "uid": f"uid-{owner}",
        "controller": True,
    }
    return {"metadata": {"name": name, "namespace": "default", "ownerReferences": [reference]}}


def controller(reconcile, **more) -> Controller:
    return Controller(
        name="replicaset", identity=IDENTITY, reconciles=ReplicaSet, reconcile=reconcile, owns=(Pod,), **more
    )


def play(controllers, act, *, prepare=lambda api: None, elector=lambda seams: None, **switches):
    """Run the controllers while `act(api, manager)` runs; return the API, the seams and what `act` returned."""

    async def main():
        api = DictApi()
        prepare(api)
        seams = seams_over(api, **switches)
        manager = Manager(controllers, seams, elector=elector(seams))
        task = asyncio.create_task(manager.run())
        answer = await act(api, manager)
        assert not task.done(), task.exception()
        task.cancel()
        return api, seams, answer

    return simloop.run(main())


async def for_a_second(api, manager):
    await asyncio.sleep(1)
    return manager.metrics()


def up_to_three(names=lambda rv, i: f"web-{i}-{rv}"):
    """Return a reconcile that trusts its cache blindly and creates what it thinks is missing."""

    def reconcile(key, listers, moment):
        owner = listers.of(ReplicaSet).get(key)
        if owner is None:
            return NOTHING
        missing = owner.spec.replicas - len(listers.of(Pod).owned_by(owner.metadata.uid))
        made = [pod_of("web", names(round(moment.now_s * 1e6), i)) for i in range(missing)]
        return Result((Batch(tuple(Create("pods", document) for document in made)),) if made else ())

    return reconcile


def test_objects_that_exist_at_start_are_reconciled():
    api, seams, _ = play(
        [controller(up_to_three())], for_a_second, prepare=lambda api: api.put("replicasets.apps", replica_set())
    )

    assert sum(resource == "pods" for resource, _, _ in api.objects) == 3
    assert IDENTITY in seams.transport.asked


def lose_a_pod(api):
    api.put("replicasets.apps", replica_set())
    api.watch_delay_s["pods"] = 3.0


async def disturb_for_ten_seconds(api, manager):
    for _ in range(20):
        await asyncio.sleep(0.5)
        api.touch("replicasets.apps", WEB)
    return manager.metrics()


def test_c7_a_stale_cache_creates_nothing_twice_because_the_key_waits_for_its_own_writes():
    api, _, _ = play([controller(up_to_three())], disturb_for_ten_seconds, prepare=lose_a_pod)

    assert api.count("create", "pods") == 3


def test_c7_without_the_gate_a_stale_cache_creates_too_many():
    api, _, _ = play(
        [controller(up_to_three())],
        disturb_for_ten_seconds,
        prepare=lose_a_pod,
        **{"controllers.own_write_gate": False},
    )

    assert api.count("create", "pods") > 3


def test_the_gate_opens_by_itself_after_a_minute_and_says_so():
    reached = {"pods": 10}
    gate = OwnWriteGate(reached.get)
    gate.wrote(WEB, {"pods": 12, "nodes": 99}, 0.0)

    assert not gate.is_open(WEB, GATE_MAX_S - 1)
    assert gate.is_open(WEB, GATE_MAX_S)
    assert gate.overdue_total == 1


def test_a_change_of_an_owned_object_leads_to_its_owner_and_to_no_other():
    seen = []

    def reconcile(key, listers, moment):
        seen.append(key)
        return NOTHING

    async def act(api, manager):
        await asyncio.sleep(0.5)
        seen.clear()
        api.put("pods", pod_of("web", "p1"))
        await asyncio.sleep(0.5)
        orphan = pod_of("web", "p2")
        del orphan["metadata"]["ownerReferences"]
        api.put("pods", orphan)
        namesake = pod_of("web", "p3")
        namesake["metadata"]["ownerReferences"][0]["kind"] = "StatefulSet"
        api.put("pods", namesake)
        await asyncio.sleep(0.5)

    play([controller(reconcile)], act)

    assert seen == [WEB]


def test_a_watch_leads_to_the_keys_its_function_names():
    seen = []

    def reconcile(key, listers, moment):
        seen.append(key)
        return NOTHING

    watch = Watch(Pod, lambda change, listers: [Key("default", change.object.metadata.labels["app"])])

    async def act(api, manager):
        await asyncio.sleep(0.5)
        api.put("pods", {"metadata": {"name": "p", "namespace": "default", "labels": {"app": "db"}}})
        api.put("pods", {"metadata": {"name": "poison", "namespace": "default"}})  # has no such label
        api.put("pods", {"metadata": {"name": "q", "namespace": "default", "labels": {"app": "ui"}}})
        await asyncio.sleep(0.5)
        return manager.metrics()

    _, _, metrics = play([controller(reconcile, watches=(watch,))], act)

    assert seen == [Key("default", "db"), Key("default", "ui")]
    assert metrics['controller_runtime_reconcile_panics_total{controller="replicaset"}'] == 1


def test_a_rule_that_wants_to_be_sure_is_given_live_answers():
    query = Query(Pod, Key("default", "p"))
    absent = Query(Pod, Key("default", "none"))
    answers = []

    def reconcile(key, listers, moment):
        if query not in moment.live:
            return Result(refresh=(query, absent))
        answers.append((moment.live[query].metadata.name, moment.live[absent]))
        return NOTHING

    def prepare(api):
        api.put("replicasets.apps", replica_set())
        api.put("pods", {"metadata": {"name": "p", "namespace": "default"}})

    play([controller(reconcile)], for_a_second, prepare=prepare)

    assert answers == [("p", None)]


def test_a_failing_key_backs_off_and_does_not_stop_the_others():
    tried = []

    def reconcile(key, listers, moment):
        tried.append((key.name, moment.now_s))
        if key.name == "bad":
            raise ValueError("poison")
        return NOTHING

    def prepare(api):
        api.put("replicasets.apps", replica_set("bad"))
        api.put("replicasets.apps", replica_set("good"))

    _, _, metrics = play([controller(reconcile)], for_a_second, prepare=prepare)

    assert [name for name, _ in tried].count("good") == 1
    times = [at for name, at in tried if name == "bad"]
    assert 6 <= len(times) <= 9  # 5 ms doubled each time
    assert metrics['workqueue_retries_total{name="replicaset"}'] == len(times)


def test_refused_actions_are_reported_to_the_controller():
    refused = []

    def prepare(api):
        api.put("replicasets.apps", replica_set())
        api.refuse = lambda request: Forbidden("quota") if request.resource == "pods" else None

    reconciling = controller(up_to_three(), failed=lambda key, action, reason: refused.append((key, reason[:9])))
    play([reconciling], for_a_second, prepare=prepare)

    assert refused[:3] == [(WEB, "Forbidden"), (WEB, "not perfo"), (WEB, "not perfo")]


def test_an_invalid_write_waits_for_the_object_to_change():
    def prepare(api):
        api.put("replicasets.apps", replica_set())
        api.refuse = lambda request: ApiError("no", reason="Invalid", code=422) if request.verb == "create" else None

    async def act(api, manager):
        await asyncio.sleep(100)
        before = api.count("create", "pods")
        api.touch("replicasets.apps", WEB)
        await asyncio.sleep(1)
        return before, api.count("create", "pods")

    _, _, counts = play([controller(up_to_three())], act, prepare=prepare)

    assert counts == (1, 2)


def test_a_scan_comes_at_start_and_then_every_period():
    scans = []

    def reconcile(key, listers, moment):
        if key == Key("", ""):
            scans.append(round(moment.now_s))
        return NOTHING

    async def act(api, manager):
        await asyncio.sleep(65)

    play([controller(reconcile, period_s=20.0)], act)

    assert scans == [0, 20, 40, 60]


def test_a_requeue_comes_after_the_time_asked_for():
    times = []

    def reconcile(key, listers, moment):
        times.append(round(moment.now_s))
        return Result(requeue_after_s=30.0)

    async def act(api, manager):
        await asyncio.sleep(70)

    play([controller(reconcile)], act, prepare=lambda api: api.put("replicasets.apps", replica_set()))

    assert times == [0, 30, 60]


def patch_once():
    done = []

    def reconcile(key, listers, moment):
        if done or listers.of(ReplicaSet).get(key) is None:
            return NOTHING
        done.append(key)
        return Result((Patch("replicasets.apps", key, {"status": {"replicas": 3}}, subresource="status"),))

    return reconcile


def test_a_reconcile_with_one_cause_continues_its_trace_and_writes_carry_the_span():
    async def act(api, manager):
        await asyncio.sleep(0.5)
        api.put("replicasets.apps", replica_set(), traceparent="00-user")
        await asyncio.sleep(0.5)

    api, seams, _ = play([controller(patch_once())], act)

    assert seams.tracer.started == [("reconcile replicaset", "00-user", ("00-user",))]
    assert [r.traceparent for r in api.requests if r.verb == "patch"] == ["00-span1"]


def test_a_reconcile_with_many_causes_begins_a_trace_that_links_to_at_most_eight():
    def reconcile(key, listers, moment):
        if len(listers.of(Pod).owned_by("uid-web")) < 12:
            return NOTHING
        return Result((RecordEvent("ReplicaSet", "apps/v1", key, "uid-web", "Full", "all there"),))

    async def act(api, manager):
        await asyncio.sleep(0.5)
        for i in range(12):
            api.put("pods", pod_of("web", f"p{i}"), traceparent=f"00-{i}")
        await asyncio.sleep(0.5)

    _, seams, _ = play([controller(reconcile)], act)

    _, parent, links = seams.tracer.started[0]
    assert parent == ""
    assert links == tuple(f"00-{i}" for i in range(8))


def test_reconciles_and_writes_are_in_the_event_log():
    _, seams, _ = play(
        [controller(patch_once())], for_a_second, prepare=lambda api: api.put("replicasets.apps", replica_set())
    )

    lines = [(ev, f["data"]) for ev, f in seams.events.lines if ev.startswith("ctrl.")]
    assert lines[0] == ("ctrl.reconcile", {"controller": "replicaset", "key": "default/web"})
    assert lines[1][0] == "ctrl.write"
    assert lines[1][1]["site"] == "patch replicasets.apps/status status.replicas"


def test_any_object_reads_all_kinds_as_one_and_names_them():
    seen = []

    def reconcile(key, listers, moment):
        lister = listers.of(AnyObject)
        seen.append((sorted(o.kind for o in lister.all("default")), [o.kind for o in lister.owned_by("uid-web")]))
        return NOTHING

    collector = Controller(
        name="garbage-collector",
        identity="system:controller:gc",
        reconciles=AnyObject,
        reconcile=reconcile,
        owns=(),
        watches=(Watch(AnyObject, lambda change, listers: [Key("", change.object.metadata.uid)]),),
    )

    def prepare(api):
        api.put("replicasets.apps", replica_set())
        api.put("pods", pod_of("web", "p"))
        api.put("configmaps", {"metadata": {"name": "c", "namespace": "default"}})

    play([controller(lambda key, listers, moment: NOTHING), collector], for_a_second, prepare=prepare)

    assert seen[-1] == (["ConfigMap", "Pod", "ReplicaSet"], ["Pod"])


def test_with_a_lease_every_write_carries_the_epoch_and_work_begins_at_once():
    async def act(api, manager):
        await asyncio.sleep(1)

    api, _, _ = play(
        [controller(up_to_three())],
        act,
        prepare=lambda api: api.put("replicasets.apps", replica_set()),
        elector=lambda seams: LeaderElectionConfig(name="manager", leader_elect=True).elector(seams, "controllers"),
    )

    epochs = {r.lease_epoch for r in api.requests if r.resource == "pods"}
    assert epochs == {"kube-system/controllers/0"}


def test_events_are_written_under_the_controllers_name():
    def reconcile(key, listers, moment):
        return Result((RecordEvent("ReplicaSet", "apps/v1", key, "uid-web", "SuccessfulCreate", "done"),))

    api, _, _ = play(
        [controller(reconcile)], for_a_second, prepare=lambda api: api.put("replicasets.apps", replica_set())
    )

    (event,) = [d for (resource, _, _), d in api.objects.items() if resource == "events"]
    assert event["source"] == {"component": "replicaset-controller"}


def test_a_lost_connection_ends_nothing():
    def prepare(api):
        api.put("replicasets.apps", replica_set())
        failures = [UnknownOutcome("reset")] * 3
        plain = api.call

        async def call(request):
            if failures and request.verb == "create":
                raise failures.pop()
            return await plain(request)

        api.call = call

    async def act(api, manager):
        await asyncio.sleep(30)

    api, _, _ = play([controller(up_to_three())], act, prepare=prepare)

    assert sum(resource == "pods" for resource, _, _ in api.objects) == 3


def test_c9_nothing_is_deleted_on_the_word_of_caches_that_have_lost_touch():
    refused = []

    def reconcile(key, listers, moment):
        if moment.now_s < 35.0:
            return Result(requeue_after_s=36.0 - moment.now_s)
        return Result((Delete("pods", Key("default", "p"), uid="uid-p"),))

    def prepare(api):
        api.put("replicasets.apps", replica_set())
        api.put("pods", pod_of("web", "p"))
        plain = api.watch

        async def watch(request):
            if asyncio.get_running_loop().time() > 10.0:
                await asyncio.Event().wait()  # the server accepts and is silent
            async for batch in plain(request):
                yield batch

        api.watch = watch

    async def act(api, manager):
        await asyncio.sleep(50)
        during = api.count("delete", "pods")
        api.watch = type(api).watch.__get__(api)
        await asyncio.sleep(100)
        return during, api.count("delete", "pods")

    reconciling = controller(reconcile, failed=lambda key, action, reason: refused.append(reason))
    _, _, (during, after) = play([reconciling], act, prepare=prepare)

    assert during == 0
    assert after >= 1
    assert refused[0].startswith("not performed")


def test_soon_after_a_long_outage_there_are_as_many_pods_as_desired_i20():
    def prepare(api):
        api.put("replicasets.apps", replica_set())
        api.refuse = lambda request: Unavailable("read-only") if asyncio.get_running_loop().time() < 600 else None

    async def act(api, manager):
        await asyncio.sleep(600)
        before = sum(resource == "pods" for resource, _, _ in api.objects)
        await asyncio.sleep(30)
        return before, sum(resource == "pods" for resource, _, _ in api.objects)

    _, _, counts = play([controller(up_to_three())], act, prepare=prepare)

    assert counts == (0, 3)


def test_an_identity_without_credential_is_refused_at_wiring():
    async def main():
        seams = seams_over(DictApi())

        def api(identity=""):
            if identity:
                raise KeyError(identity)
            return DictApi()

        seams.transport.api = api
        Manager([controller(patch_once())], seams)

    with pytest.raises(StartError, match="system:controller:replicaset"):
        simloop.run(main())


def test_c7_a_held_key_goes_on_as_soon_as_the_caches_show_its_write_whomever_that_leads_to():
    """The pod has no owner, so that nothing of it but a cache's progress leads back to the key."""
    times = []

    def reconcile(key, listers, moment):
        times.append(round(moment.now_s, 1))
        if len(times) > 1:
            return NOTHING
        return Result((Create("pods", {"metadata": {"name": "p", "namespace": "default"}}),))

    async def act(api, manager):
        await asyncio.sleep(0.5)
        api.touch("replicasets.apps", WEB)
        await asyncio.sleep(1)
        held = manager.metrics()['keplab_controller_held_keys{controller="replicaset"}'], manager.is_idle
        await asyncio.sleep(30)
        return held, manager.metrics()['keplab_controller_held_keys{controller="replicaset"}'], manager.is_idle

    _, _, found = play([controller(reconcile)], act, prepare=lose_a_pod)

    assert times == [0.0, 3.0]
    assert found == ((1, False), 0, True)


def test_c5_five_conflicts_in_a_row_are_ordinary_and_each_after_them_is_reported():
    def reconcile(key, listers, moment):
        return Result((Patch("replicasets.apps", key, {"status": {"replicas": 3}}, subresource="status"),))

    def prepare(api):
        api.put("replicasets.apps", replica_set())
        api.refuse = lambda request: Conflict("someone wrote first") if request.verb == "patch" else None

    with structlog.testing.capture_logs() as logs:
        play([controller(reconcile)], for_a_second, prepare=prepare)

    found = [(line["log_level"], line["event"]) for line in logs if line["event"].startswith("reconcile.")]
    assert found[:5] == [("debug", "reconcile.done")] * 5
    assert set(found[5:]) == {("warning", "reconcile.failed")}


def test_p15_a_reconcile_that_takes_longer_than_half_a_minute_is_reported():
    def prepare(api):
        api.put("replicasets.apps", replica_set())
        plain = api.call

        async def call(request):
            if request.verb == "create":
                await asyncio.sleep(4.0)
            return await plain(request)

        api.call = call

    def reconcile(key, listers, moment):
        if listers.of(Pod).all():
            return NOTHING
        return Result(tuple(Create("pods", pod_of("web", f"p{number}")) for number in range(8)))

    async def act(api, manager):
        await asyncio.sleep(10)
        under_way = list(manager.under_way())
        await asyncio.sleep(110)
        return under_way, list(manager.under_way())

    with structlog.testing.capture_logs() as logs:
        _, _, found = play([controller(reconcile)], act, prepare=prepare)

    assert found == (["reconcile replicaset default/web"], [])
    assert any(line["event"] == "reconcile.slow" and line["log_level"] == "warning" for line in logs)


def test_what_reconciles_came_to_is_counted():
    seen = []

    def reconcile(key, listers, moment):
        seen.append(key.name)
        if key.name == "wrong":
            raise ValueError("poison")
        if key.name == "busy" and seen.count("busy") == 1:
            return Result((Create("pods", {"metadata": {"name": "p", "namespace": "default"}}),))
        return NOTHING

    def prepare(api):
        for name in ("busy", "idle", "wrong"):
            api.put("replicasets.apps", replica_set(name))

    async def act(api, manager):
        await asyncio.sleep(0.02)
        return manager.metrics()

    with structlog.testing.capture_logs():
        _, _, metrics = play([controller(reconcile)], act, prepare=prepare)

    counted = {
        name: metrics[f'controller_runtime_reconcile_total{{controller="replicaset",result="{name}"}}']
        for name in ("done", "unchanged", "requeued", "failed", "terminal")
    }
    assert counted == {"done": 1, "unchanged": 1, "requeued": 0, "failed": seen.count("wrong"), "terminal": 0}
    assert metrics['keplab_controller_writes_total{controller="replicaset"}'] == 1


def test_a_rule_that_never_has_enough_of_live_reads_fails_after_five_rounds():
    rounds = []

    def reconcile(key, listers, moment):
        rounds.append(moment.now_s)
        return Result(refresh=(Query(Pod, Key("default", f"p{len(rounds)}")),))

    async def act(api, manager):
        await asyncio.sleep(0.009)

    api, _, _ = play([controller(reconcile)], act, prepare=lambda api: api.put("replicasets.apps", replica_set()))

    assert len(rounds) >= 5
    assert api.count("get", "pods") == len(rounds)
