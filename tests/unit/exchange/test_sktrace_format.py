"""SimKube's traces: what is read of them, what is refused, and what is written."""

import io
from pathlib import Path

import msgspec
import pytest

from lab.exchange.format import Reading, format_of, formats, open_stream
from lab.exchange.formats.sktrace import stable_hash
from lab.exchange.reading import Source
from lab.exchange.simkube import decode
from lab.exchange.stream import Change, Refused
from lab.exchange.traces.runs import GATE, LIFECYCLE, Lifecycles
from services.api.kinds.pod import RUN
from tests.unit.exchange.sktraces import BEGAN, CONFIG, OWNER, cronjob, deployment, event, trace

WIDGET = {
    "apiVersion": "example.com/v1",
    "kind": "Widget",
    "metadata": {"name": "w", "namespace": "shop"},
    "spec": {"template": {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "m", "image": "x"}]}}},
}
WIDGETS = {"trackedObjects": {"example.com/v1.Widget": {"podSpecTemplatePaths": ["/spec/template"]}}}


def source(data):
    return Source(Path("t.sktrace"), data=data)


def opened(data, **options):
    _found, stream = open_stream(source(data), Reading(options=options))
    return stream, list(stream.objects), list(stream.changes)


def test_22_the_example_of_simkube_has_one_owner_whose_pods_ran_thirty_seconds():
    read = decode(trace(), "t")
    stream, objects, changes = opened(trace())

    assert (read.version, len(read.config.tracked_objects)) == (2, 3)
    (runtime,) = stream.runtimes
    assert runtime.owner == ("batch/v1.CronJob", "default", "hello-simkube")
    assert [end - start for start, end in runtime.lives] == [30.0, 30.0, 30.0]
    assert (objects, stream.origin.started_wall_s) == ([], BEGAN)
    assert [(each.at_s, each.method, each.resource, each.name) for each in changes] == [
        (0.0, "create", "cronjobs.batch", "hello-simkube"),
        (205.0, "delete", "cronjobs.batch", "hello-simkube"),
    ]


def test_templates_hold_their_pods_until_their_run_time_is_known():
    (create, _) = opened(trace())[2]

    template = create.document["spec"]["jobTemplate"]["spec"]["template"]
    assert template["metadata"]["annotations"] == {LIFECYCLE: "batch/v1.CronJob default/hello-simkube"}
    assert template["spec"]["schedulingGates"] == [{"name": GATE}]


def test_the_kth_pod_lives_as_lifecycle_k_mod_n():
    lifecycles = Lifecycles.of(
        opened(trace(lives={OWNER: {7: [{"Finished": [BEGAN, BEGAN + n]} for n in (1, 2)]}}))[0].runtimes
    )

    found = [lifecycles.next("batch/v1.CronJob default/hello-simkube") for _ in range(5)]

    assert found == [(0, (0.0, 1.0)), (1, (0.0, 2.0)), (2, (0.0, 1.0)), (3, (0.0, 2.0)), (4, (0.0, 1.0))]
    assert lifecycles.next("batch/v1.CronJob default/other") == (0, None)


def test_lifecycles_of_all_hashes_are_one_sequence_of_a_built_in_owner():
    lives = {OWNER: {9: [{"Finished": [BEGAN + 60, BEGAN + 70]}], 3: [{"Running": BEGAN + 5}, "Empty"]}}

    (runtime,) = opened(trace(lives=lives))[0].runtimes

    assert runtime.lives == ((0.0, None), (5.0, None), (60.0, 70.0))


def three(moments):
    config = {"trackedObjects": {"batch/v1.CronJob": {"podSpecTemplatePaths": ["/spec/jobTemplate/spec/template"]}}}
    index = {"batch/v1.CronJob": {"default/hello-simkube": moments}}
    events = [event(0, [cronjob()]), event(100, [cronjob()])]
    return msgspec.msgpack.encode({"version": 3, "config": config, "events": events, "index": index})


def test_version_3_has_lifecycles_by_the_owners_moment():
    life = {"lifecycle": {"Finished": [BEGAN, BEGAN + 45]}, "metrics": {"containers": {}}}
    _, _, (first, second) = opened(three({str(BEGAN): [life], str(BEGAN + 90): [life]}))

    marks = [
        each.document["spec"]["jobTemplate"]["spec"]["template"]["metadata"]["annotations"][LIFECYCLE]
        for each in (first, second)
    ]
    assert marks == [f"batch/v1.CronJob default/hello-simkube {BEGAN + n}" for n in (0, 90)]
    assert second.method == "update"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (trace(version=1), "a trace of version 1: SimKube up to 1.1.1 reads it"),
        (msgspec.msgpack.encode([CONFIG, [], {}, {}]), "a trace of version 1: SimKube up to 1.1.1 reads it"),
        (trace(version=4), "a trace of version 4: want one of 2, 3"),
        (trace()[:-9], "a torn or malformed trace of SimKube: "),
        (trace(lives={OWNER: {1: [{"Paused": 3}]}}), 'lifecycle {"Paused":3}: want Empty, {Running: START}'),
        (trace(events=[{"ts": "x", "applied_objs": [], "deleted_objs": []}]), "event 1: "),
        (trace(config={"trackedObjects": {}, "other": 1}), "unknown field `other`"),
        (three({"soon": []}), "'soon': want seconds since the epoch"),
        (b"", "it is empty"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(data, message):
    with pytest.raises(Refused) as refused:
        opened(data)
    assert message in str(refused.value)
    assert str(refused.value).startswith("t.sktrace")
    assert "\n" not in str(refused.value)


def test_namespaces_are_made_and_may_have_a_prefix():
    data = trace([event(0, [deployment()]), event(9, [], [deployment()])], {})

    plain, prefixed = opened(data), opened(data, **{"namespace-prefix": "virtual"})

    assert [each.document["metadata"]["name"] for each in plain[1]] == ["shop"]
    assert [each.document["metadata"]["name"] for each in prefixed[1]] == ["virtual-shop"]
    assert [each.namespace for each in prefixed[2]] == ["virtual-shop", "virtual-shop"]
    assert prefixed[2][0].document["metadata"]["namespace"] == "virtual-shop"


def test_a_duration_cuts_and_ends_with_an_empty_event():
    data = trace([event(0, [deployment()]), event(50, [deployment("late")])], {})

    changes = opened(data, duration="40s")[2]

    assert [(each.at_s, each.name) for each in changes] == [(0.0, "web"), (40.0, "default")]


def test_kinds_that_the_mesh_does_not_serve_are_counted_or_unrolled():
    lives = {("example.com/v1.Widget", "shop/w"): {5: [{"Finished": [BEGAN, BEGAN + 9]}, {"Running": BEGAN + 20}]}}
    data = trace([event(0, [WIDGET]), event(30, [], [WIDGET])], lives, config=WIDGETS)

    left, unrolled = opened(data), opened(data, unroll="yes")

    (note,) = left[0].notes
    assert (
        note
        == "objects of example.com/v1.Widget, a kind that the mesh does not serve; --unroll makes bare pods of them"
    )
    assert [(c.at_s, c.method, c.name) for c in unrolled[2]] == [
        (0.0, "create", "w-0"),
        (20.0, "create", "w-1"),
        (30.0, "delete", "w-0"),
        (30.0, "delete", "w-1"),
    ]
    assert [c.document["metadata"]["annotations"][RUN] for c in unrolled[2][:2]] == ["exit 0 after 9s", "forever"]
    assert unrolled[0].notes == {"bare pods made of example.com/v1.Widget": 2}


def test_pods_without_an_owner_have_their_run_time_at_once():
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": []},
    }
    lives = {("v1.Pod", "default/p"): {1: [{"Finished": [BEGAN, BEGAN + 7]}]}}

    (create,) = opened(trace([event(0, [pod])], lives, config={"trackedObjects": {}}))[2]

    assert create.document["metadata"]["annotations"] == {RUN: "exit 0 after 7s"}
    assert "schedulingGates" not in create.document["spec"]


def test_events_whose_time_goes_back_happen_at_once():
    data = trace([event(10, [deployment("a")]), event(30, [deployment("b")]), event(20, [deployment("c")])], {})

    assert [each.at_s for each in opened(data)[2]] == [0.0, 20.0, 20.0]


def test_a_trace_is_known_by_its_content():
    assert format_of(source(trace())).name == "sktrace"
    assert format_of(source(trace(version=1))).name == "sktrace"


def test_a_recording_is_written_as_a_trace_with_run_times():
    file = io.BytesIO()
    writer = formats()["sktrace"].write(file, float(BEGAN))
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default", "uid": "u1", "resourceVersion": "3"},
        "spec": {"template": {"spec": {"containers": [{"name": "m", "image": "x"}]}}},
        "status": {"active": 1},
    }
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u1", "controller": True}

    def pod(state):
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "j-1", "namespace": "default", "uid": "u2", "ownerReferences": [owner]},
            "spec": {"nodeName": "n1", "containers": [{"name": "m", "image": "x"}]},
            "status": {"containerStatuses": [{"name": "m", "state": state}]} if state else {},
        }

    at = "2025-03-29T22:21:{:02}Z".format  # BEGAN is 22:20:55
    writer.put(job)
    for at_s, state in (
        (1.0, {}),
        (6.5, {"running": {"startedAt": at(1)}}),
        (37.0, {"terminated": {"startedAt": at(1), "finishedAt": at(31)}}),
    ):
        writer.change(Change(at_s, "update", "pods", "default", "j-1", pod(state)))
    writer.change(Change(40.0, "delete", "pods", "default", "j-1"))
    writer.change(Change(50.0, "delete", "jobs.batch", "default", "j"))
    writer.close()

    read = decode(file.getvalue(), "t")
    stream, _, changes = opened(file.getvalue())
    (lives,) = read.lives[("batch/v1.Job", "default/j")].values()
    assert [each.end - each.start for each in lives] == [30]
    assert [(c.at_s, c.method, c.resource) for c in changes] == [
        (0.0, "create", "jobs.batch"),
        (50.0, "delete", "jobs.batch"),
    ]
    assert "status" not in changes[0].document
    assert "uid" not in changes[0].document["metadata"]
    assert len(stream.runtimes) == 1


def test_hashes_are_equal_on_every_machine():
    assert stable_hash({"a": 1, "b": [2]}) == stable_hash({"b": [2], "a": 1}) == 600596965515251626
