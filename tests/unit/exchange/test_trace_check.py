"""What is found wrong with a file, what is mended, and SKEL."""

import msgspec
import pytest
from click.testing import CliRunner

from lab.cli.__main__ import cli
from lab.exchange.check import requests_of
from lab.exchange.simkube import decode
from lab.exchange.skel import apply, parse
from lab.exchange.stream import Refused
from tests.unit.exchange.sktraces import BEGAN, OWNER, cronjob, deployment, event, trace


def keplab(*words):
    done = CliRunner().invoke(cli, [str(word) for word in words], catch_exceptions=False, standalone_mode=False)
    return done.return_value if done.exception is None else done.exception.code, done.output


def found(path, *more):
    code, printed = keplab("trace-check", path, "-o", "json", *more)
    document = msgspec.json.decode(printed[printed.index("{") :])
    return code, document


@pytest.fixture
def written(tmp_path):
    def write(data, name="t.sktrace"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


SECRETIVE = {
    "serviceAccountName": "builder",
    "containers": [
        {
            "name": "main",
            "image": "app",
            "env": [
                {"name": "A", "value": "1"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k", "optional": True}}},
            ],
            "envFrom": [{"configMapRef": {"name": "c"}}],
        }
    ],
    "volumes": [{"name": "v", "secret": {"secretName": "s"}}, {"name": "w", "configMap": {"name": "c"}}],
}


def test_23_a_status_is_found_and_mended_and_a_second_run_is_clean(written):
    path = written(trace([event(0, [deployment(status={"replicas": 2})]), event(12, [], [deployment("gone")])], {}))

    code, first = found(path)
    assert (code, [(each["code"], each["at_s"], each["object"]) for each in first["findings"]]) == (
        1,
        [("W0000", 0.0, "Deployment shop/web"), ("K0002", 12.0, "Deployment shop/gone")],
    )
    assert "12.000 s" in keplab("trace-check", path)[1]

    code, fixed = found(path, "--fix")
    assert (code, fixed["fixed"], fixed["left"]) == (0, {"W0000": 1, "K0002": 1}, 0)
    (first_event, last) = decode(path.read_bytes(), "t").decode_events("t")
    assert "status" not in first_event.applied_objs[0]
    assert last.deleted_objs == []
    assert found(path) == (0, {"findings": [], "fixed": {}, "left": 0})


def test_what_pods_need_and_is_not_there_is_found_and_mended(written):
    path = written(trace([event(0, [deployment(spec=SECRETIVE)])], {}))

    assert sorted(each["code"] for each in found(path)[1]["findings"]) == ["E0001", "E0002", "E0003", "E0004", "E0005"]

    assert found(path, "--fix")[0] == 0
    (only,) = decode(path.read_bytes(), "t").decode_events("t")
    spec = only.applied_objs[0]["spec"]["template"]["spec"]
    assert "serviceAccountName" not in spec
    assert [each["name"] for each in spec["containers"][0]["env"]] == ["A", "C"]
    assert spec["containers"][0]["envFrom"] == []
    assert spec["volumes"] == [{"name": "v", "emptyDir": {}}, {"name": "w", "emptyDir": {}}]
    assert found(path)[0] == 0


def test_what_is_applied_in_the_same_second_is_there(written):
    def made(kind, name):
        return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": "shop"}}

    needed = [made("ServiceAccount", "builder"), made("Secret", "s"), made("ConfigMap", "c")]
    path = written(trace([event(0, [deployment(spec=SECRETIVE), *needed])], {}))

    assert found(path) == (0, {"findings": [], "fixed": {}, "left": 0})


def test_times_that_go_back_and_pods_without_run_times_are_found(written):
    path = written(trace([event(0), event(20, [cronjob()]), event(10)], {}))
    later = written(trace([event(0), event(20, [cronjob()]), event(10, [deployment()])], {}), "later.sktrace")

    assert [each["code"] for each in found(path)[1]["findings"]] == ["K0003"]
    codes = [each["code"] for each in found(later)[1]["findings"]]
    assert sorted(codes) == ["K0001", "K0003"]
    assert found(later, "--fix")[1]["left"] == 2


SNAPSHOT = """\
apiVersion: v1
kind: Node
metadata: {name: n1, labels: {zone: a}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: big, namespace: default, labels: {app: big}}
spec:
  containers: [{name: m, image: x, resources: {requests: {cpu: 3}}}, {name: n, image: x, resources: {requests: {cpu: 2500m}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: far, namespace: default, labels: {app: far}}
spec: {nodeSelector: {zone: b}, restartPolicy: Never, containers: [{name: m, image: x}]}
---
apiVersion: v1
kind: Service
metadata: {name: none, namespace: default}
spec: {selector: {app: nothing}}
---
apiVersion: v1
kind: Service
metadata: {name: some, namespace: default}
spec: {selector: {app: far}}
"""


def test_requests_selectors_and_endless_pods_of_a_snapshot(written):
    code, document = found(written(SNAPSHOT.encode(), "s.yaml"))

    assert code == 1
    assert [(each["code"], each["object"]) for each in document["findings"]] == [
        ("K0003", "Pod default/far"),
        ("K0004", "Pod default/big"),
        ("K0005", "Pod default/far"),
        ("K0006", "Service default/none"),
    ]
    assert document["findings"][1]["text"] == "cpu 5,500 is requested, the largest node offers 4,000"


def test_requests_count_init_containers_and_overhead():
    spec = {
        "containers": [{"resources": {"requests": {"cpu": "1"}}}],
        "initContainers": [{"resources": {"limits": {"cpu": "3"}}}],
        "overhead": {"cpu": "250m"},
    }
    assert requests_of(spec) == {"cpu": 3250}


def test_a_recording_of_kwokctl_is_mended_in_its_own_form(written):
    text = """\
apiVersion: action.kwok.x-k8s.io/v1alpha1
kind: ResourcePatch
resource: {version: v1, resource: pods}
target: {name: ghost, namespace: default}
durationNanosecond: 3000000000
method: delete
"""
    path = written((SNAPSHOT.split("---")[0] + "---\n" + text).encode(), "d.yaml")

    assert [each["at_s"] for each in found(path)[1]["findings"]] == [3.0]
    assert found(path, "--fix")[0] == 0
    assert "ghost" not in path.read_text()
    assert "cpu: '4'" in path.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "want a FILE, or --explain CODE"),
        (("--explain", "X9"), "--explain X9: want all, or one of W0000"),
        (("t.csv", "--fix"), "are only read"),
        (("missing.yaml",), "No such file"),
        (("-", "--fix"), "say --write FILE"),
    ],
)
def test_wrong_words_are_one_line(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\na,1,1,0,\n")

    code, printed = keplab("trace-check", *words)

    assert (code, message in printed) == (2, True), printed


def test_codes_are_explained():
    code, printed = keplab("trace-check", "--explain", "W0000")
    assert (code, printed.splitlines()[0]) == (0, "W0000 status_field_populated (warning)")


# SKEL

OBJECT = deployment(
    status={"replicas": 1},
    spec={
        "nodeSelector": {"simkube.dev/foo": "bar"},
        "containers": [
            {"name": "a", "image": "x:1", "securityContext": {"privileged": True}},
            {"name": "b", "image": "y:1", "securityContext": {}},
            {"name": "c", "image": "x:1"},
        ],
    },
)
PODS = OBJECT["spec"]["template"]["spec"]


def rewritten(text, at_s=0.0):
    return apply(parse(text, "f.skel"), OBJECT, BEGAN + at_s, BEGAN, "f.skel")


def containers(document):
    return document["spec"]["template"]["spec"]["containers"]


def test_skel_removes_modifies_and_deletes():
    assert "status" not in rewritten("# a comment\nremove(status);")
    assert rewritten('delete(kind == "Deployment");') is None
    assert rewritten('delete(kind == "Job");') == OBJECT
    assert rewritten("delete(*);") is None
    assert rewritten("modify(spec.replicas = 7);")["spec"]["replicas"] == 7
    assert rewritten('modify(*, metadata.labels."a.b/c" = "d");')["metadata"]["labels"] == {"a.b/c": "d"}
    chosen = 'spec.template.spec.nodeSelector."simkube.dev/foo"'
    changed = rewritten(f'modify({chosen} == "bar", {chosen} = "baz");')
    assert changed["spec"]["template"]["spec"]["nodeSelector"] == {"simkube.dev/foo": "baz"}
    assert OBJECT["spec"]["template"]["spec"]["nodeSelector"] == {"simkube.dev/foo": "bar"}


def test_skel_binds_elements_of_lists():
    of_x = rewritten('remove($x := spec.template.spec.containers[*] | $x.image == "x:1", $x.securityContext);')
    assert ["securityContext" in each for each in containers(of_x)] == [False, True, False]
    gone = rewritten("remove($x := spec.template.spec.containers[*] | !exists($x.securityContext), $x);")
    assert [each["name"] for each in containers(gone)] == ["a", "b"]
    both = rewritten('remove($x := spec.template.spec.containers[*] | $x.image == "x:1", $x);')
    assert [each["name"] for each in containers(both)] == ["b"]
    assert (
        rewritten("remove(spec.template.spec.containers[1]);")["spec"]["template"]["spec"]["containers"][1]["name"]
        == "c"
    )


@pytest.mark.parametrize(
    ("at_s", "condition", "is_gone"),
    [
        (600, "@t >= 10m", True),
        (599, "@t >= 10m", False),
        (30, f"@t == {BEGAN + 30}", True),
        (30, f"@t < {BEGAN + 30}", False),
        (30, '@t > 10s && kind == "Deployment" && exists(status)', True),
        (30, "@t > 10s && !exists(status)", False),
        (30, "metadata.name != metadata.namespace", True),
    ],
)
def test_skel_selects_by_time_and_fields(at_s, condition, is_gone):
    assert (rewritten(f"delete({condition});", at_s) is None) == is_gone


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("remove(status)", "f.skel:1:15: the end: want ';'"),
        ("\n  apply(status = 1);", "f.skel:2:3: 'apply': want one of delete, remove, modify"),
        ("remove(* && a == 1, b);", "f.skel:1:10: '&&': want ','"),
        ("remove(sta%tus);", "f.skel:1:11: '%' is not understood here"),
        ("remove(a < 3, b);", "f.skel:1:10: '<': want == or !=; fields are not compared otherwise"),
        ("remove($x.a);", "f.skel:1:8: '$x.a': want a variable that is bound before; $x is not"),
        ("remove(@t > soon, a);", "f.skel:1:13: 'soon': want a moment such as 10m or seconds since the epoch"),
        ("remove($x := a[*] | b == 1, $x);", "f.skel:1:21: 'b': want a condition about $x"),
    ],
)
def test_the_rest_of_the_grammar_is_refused_with_its_place(text, message):
    with pytest.raises(Refused) as refused:
        parse(text, "f.skel")
    assert str(refused.value).startswith(message)


def test_a_file_of_skel_rewrites_a_trace_and_keeps_the_rest(written, tmp_path):
    path = written(trace())
    skel = tmp_path / "s.skel"
    skel.write_text('modify(@t >= 0s && kind == "CronJob", spec.suspend = true);\ndelete(@t > 100s);\n')

    code, _ = keplab("trace-check", path, "--skel", skel, "--write", tmp_path / "new.sktrace")

    made = decode((tmp_path / "new.sktrace").read_bytes(), "t")
    events = list(made.decode_events("t"))
    assert code == 0
    assert events[1].applied_objs[0]["spec"]["suspend"] is True
    assert events[2].deleted_objs == []
    assert len(made.lives[OWNER]) == 1
    assert decode(path.read_bytes(), "t").events[1] != made.events[1]
