"""Commands read a recording as they read a mesh."""

import json
import zipfile

import msgspec
import pytest

from lab.cli.__main__ import run as run_command
from lab.recordings.format import META, Meta
from lab.recordings.reader import Recording
from lab.recordings.writer import Writer
from lab.scenarios.run import simulate
from tests.unit.recordings.histories import History, pod

SCENARIO = """\
# A pod waits, then another leaves
set kubelet.on_reject=unbind
limit 60s
nodes n1 cpu=2
nodes n2 cpu=1
pod big cpu=1500m node=n1
expect within 10s count pods phase=Running == 1
pod waiting cpu=1500m labels=app:w
expect within 5s count events reason=FailedScheduling involvedObject.name=waiting == 1
delete pod/big grace=1
expect within 20s each pods name=waiting phase == Running
"""


def run(words):
    """Return the exit code of a command, whichever way it ends."""
    try:
        return run_command(words)
    except SystemExit as ended:
        return ended.code


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return the folder with a recording of the scenario, one of the same, and one with another switch."""
    folder = tmp_path_factory.mktemp("recordings")
    (folder / "s.txt").write_text(SCENARIO)
    words = ["run", str(folder / "s.txt"), "--runs", "none", "-o", "json"]
    assert run([*words, "--recording", str(folder / "a.keprec"), "--traced"]) == 0
    assert run([*words, "--recording", str(folder / "again.keprec"), "--traced"]) == 0
    other = ["--set", "kubelet.on_reject=fail", "--seed", "2"]
    assert run([*words, "--recording", str(folder / "b.keprec"), *other]) == 0
    return folder


@pytest.fixture
def command(files, capsys):
    """Run a command about recording `a` (or none); return its exit code, output and errors."""

    def called(*words, name="a.keprec"):
        source = ["--recording", str(files / name)] if name else []
        capsys.readouterr()
        code = run([*map(str, words), *source])
        out, err = capsys.readouterr()
        return code, out, err

    return called


@pytest.fixture(scope="module")
def moments(files):
    """Return versions at which something was so: `waits`, rejected; `runs`, both facts of pod waiting."""
    with Recording.open(files / "a.keprec") as recording:
        found = {}
        for each in recording.versions_of("pods", "default", "waiting"):
            pod = msgspec.json.decode(recording.body(each.sha))
            if "waits" not in found and any(c["status"] == "False" for c in pod["status"].get("conditions", ())):
                found["waits"] = each.rv
            if pod["status"].get("phase") == "Running":
                found.setdefault("runs", each.rv)
        return found


def test_get_shows_objects_as_they_were(command, moments):
    _, now, _ = command("get", "pods")
    _, then, _ = command("get", "po", "--at", moments["waits"])

    assert [line.split()[:3] for line in now.splitlines()] == [
        ["NAME", "READY", "STATUS"],
        ["waiting", "1/1", "Running"],
    ]
    assert [line.split()[0] for line in then.splitlines()] == ["NAME", "big", "waiting"]
    assert "Pending" in then.splitlines()[2]


def test_get_takes_names_selectors_and_forms(command, moments, files):
    _, out, _ = command("get", "pod/waiting", "--at", moments["waits"], "-o", "json")
    assert json.loads(out)["metadata"]["resourceVersion"] == str(moments["waits"])
    _, out, _ = command("get", "pods", "-l", "app=w", "-o", "json", "--at", moments["waits"])
    assert [each["metadata"]["name"] for each in json.loads(out)["items"]] == ["waiting"]
    _, out, _ = command("get", "pods", "--field-selector", "spec.nodeName=n1", "-A")
    assert "waiting" in out
    code, out, _ = command("get", "nodes", "--data", files / "a.keprec", name="")
    assert (code, len(out.splitlines())) == (0, 3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("get", "pods", "--at", "999999"), "the recording has versions 1 to "),
        (("get", "pods", "--at", "abc"), "at: 'abc': want a resource version"),
        (("get", "pod/none"), 'pods "default/none" not found at version'),
        (("get", "nonsense"), "there is no resource type 'nonsense' in the recording"),
        (("get", "pods", "-l", "a in ("), "unable to parse"),
        (("get", "pods", "--field-selector", "spec.magic=1"), "field label not supported: spec.magic"),
        (("history", "pod/none"), 'pods "default/none" not found in the recording'),
        (("explain", "pod/none"), "no scheduler knows pod default/none; there is waiting"),
        (("explain", "pod/waiting", "--at", "999999"), "has versions 1 to "),
        (("events", "RUN"), "a recording takes no RUN"),
        (("events", "--since", "5m"), "takes no RUN, --since or --watch"),
    ],
)
def test_what_a_recording_does_not_have_is_one_line(command, words, message):
    code, _, err = command(*words)

    assert code in (1, 2)
    assert message in err
    assert "Traceback" not in err


def test_a_version_inside_a_group_is_shown_as_what_was_before_it(command, files):
    history = History()
    history.commit("pods", pod("a", "a"))
    history.commit("pods", pod("b", "b"), group_end=False)
    history.commit("pods", pod("c", "c"))
    writer = Writer(files / "groups.keprec", Meta())
    for line, event in zip(history.lines, history.events, strict=True):
        writer.line(line)
        writer.event(event)
    writer.close(Meta(ended="now"))
    _, out, err = command("get", "pods", "-n", "shop", "--at", 2, name="groups.keprec")

    assert "version 2 was committed together with later ones; shown is 1" in err
    assert [line.split()[0] for line in out.splitlines()] == ["NAME", "a"]


def test_history_says_who_wrote_what(command):
    _, out, _ = command("history", "pod/waiting", "-o", "json")
    items = json.loads(out)["items"]

    assert [items[0]["type"], items[0]["user"], items[0]["verb"]] == ["ADDED", "system:mesh-admin", "create"]
    assert any(each["path"] == "spec.nodeName" for item in items[1:] for each in item["changed"])
    _, out, _ = command("history", "pod/waiting", "--limit", "2", "-o", "json")
    assert json.loads(out)["items"] == items[-2:]
    _, out, _ = command("history", "pod/waiting", "--limit", "2")
    assert len([line for line in out.splitlines() if "MODIFIED" in line]) == 2
    assert "older changes are not shown" in out


def test_diff_of_versions_of_a_recording(command, moments):
    code, out, _ = command("diff", moments["waits"], moments["runs"], "pods", "-o", "json")
    found = {each["name"]: each for each in json.loads(out)["objects"]}

    assert code == 0
    assert found["waiting"]["change"] == "MODIFIED"
    assert any(each["path"] == "spec.nodeName" for each in found["waiting"]["fields"])


def test_explain_answers_from_the_decision_of_the_moment(command, moments):
    _, out, _ = command("explain", "pod/waiting", "--at", moments["waits"], "-o", "json")
    then = json.loads(out)
    _, out, _ = command("explain", "pod/waiting", "-o", "json")
    now = json.loads(out)

    assert (then["node"], then["outcome"], then["pool"]) == ("", "unschedulable", "unschedulable")
    assert then["rejected"] == {"NodeResourcesFit": {"Insufficient cpu": 2}}
    assert "Insufficient cpu" in then["message"]
    assert (then["would_fit_if"], then["evaluated"]) == ([], 2)
    assert any("would_fit_if" in text for text in then["left_out"])
    assert (now["node"], now["outcome"], now["phase"]) == ("n1", "scheduled", "Running")
    _, out, _ = command("explain", "pod/wait*", "--at", moments["waits"])
    assert "pod default/waiting had no node (Pending, unschedulable)" in out
    assert "not known: would_fit_if" in out


def test_explain_of_the_queue_counts_its_pools(command, moments):
    _, out, _ = command("explain", "scheduler/queue", "--at", moments["waits"], "-o", "json")

    found = json.loads(out)
    assert found["counts"]["unschedulable"] == 1
    assert found["pods"] == [{"pod": "default/waiting", "pool": "unschedulable", "priority": 0}]


def test_events_and_trace_of_a_recording(command):
    _, out, _ = command("events", "--for", "pod/waiting", "--event", "sched.attempt", "--from", "0", "--tail", "1")
    assert out.count("\n") == 1
    assert "outcome=scheduled" in out
    _, out, _ = command("trace", "pod/waiting", "-o", "json")
    assert json.loads(out)["critical_path"]
    code, _, err = command("trace", "pod/waiting", name="b.keprec")
    assert (code, "the recording has no spans; `keplab run FILE --recording" in err) == (1, True)


def test_two_recordings_of_the_same_differ_in_no_decision(command, files):
    code, out, _ = command("diff", files / "a.keprec", files / "again.keprec", name="")

    assert code == 0
    assert "no difference in " in out


def test_the_first_decision_that_differs_is_named(command, files, tmp_path):
    (tmp_path / "s.txt").write_text(SCENARIO.replace("nodes n2 cpu=1", "nodes n2 cpu=4"))
    assert run(
        ["run", str(tmp_path / "s.txt"), "--runs", "none", "-o", "json", "--recording", str(tmp_path / "c.keprec")]
    )
    _, out, _ = command("diff", files / "a.keprec", tmp_path / "c.keprec", "-o", "json", name="")
    found = json.loads(out)

    assert found["first"]["role"] == "pod/waiting"
    assert (found["first"]["a"]["outcome"], found["first"]["b"]["node"]) == ("unschedulable", "n2")
    assert found["difference_count"] == len(found["differences"]) > 0
    _, out, _ = command("diff", files / "a.keprec", name="")
    code, _, err = command("diff", files / "a.keprec", tmp_path / "no.keprec", name="")
    assert (code, "no.keprec: No such file" in err) == (2, True)


def test_a_recording_without_an_end_says_how_far_it_goes(command, files, tmp_path):
    folder = tmp_path / "killed.keprec"
    with zipfile.ZipFile(files / "a.keprec") as packed:
        packed.extractall(folder)
    meta = json.loads((folder / META).read_text())
    (folder / META).write_text(json.dumps(meta | {"ended": ""}))

    _, out, _ = command("diff", folder, files / "again.keprec", name="")
    _, document, _ = command("diff", folder, files / "again.keprec", "-o", "json", name="")

    assert "killed has no end: it was recorded up to " in out
    assert "again has no end" not in out
    found = json.loads(document)
    assert (found["a"]["until_s"] > 0, found["b"]["until_s"]) == (True, None)


@pytest.mark.parametrize("meta", [None, "", "{}"])
def test_a_fork_from_what_is_no_recording_is_refused(command, tmp_path, meta):
    if meta is not None:
        (tmp_path / META).write_text(meta)

    code, out, err = command("fork", "--from", tmp_path, name="")

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert str(tmp_path) in err


def test_a_fork_begins_from_a_recorded_version(command, files, moments):
    words = ["fork", "--from", str(files / "a.keprec"), "--at", str(moments["waits"]), "--for", "30s", "-o", "json"]
    code, out, err = command(*words, "-e", "delete pod/big grace=1", name="")
    found = {each["name"]: each for each in json.loads(out)["pods"]}

    assert code == 0, err
    assert (found["waiting"]["from"], found["waiting"]["to"]) == ("Pending", "Running on n1")
    code, _, err = command("fork", "--from", files / "a.keprec", "--at", 999999, name="")
    assert (code, "has versions 1 to " in err) == (2, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--seeds", "2"), "--recording records one FILE and one seed"),
        (("s.txt",), "--recording records one FILE and one seed"),
        (("--processes", "--traced"), "--traced needs a simulation"),
    ],
)
def test_a_recording_is_of_one_run(files, capsys, words, message):
    given = [str(files / word) if word.endswith(".txt") else word for word in words]
    code = run(["run", str(files / "s.txt"), "--recording", str(files / "x.keprec"), "--runs", "none", *given])

    assert (code, message in capsys.readouterr().err) == (2, True)
    assert not (files / "x.keprec").exists()


def test_a_recording_that_cannot_be_made_is_refused_before_the_run(files, capsys):
    code = run(["run", str(files / "s.txt"), "--recording", str(files / "s.txt"), "--runs", "none"])

    assert (code, "is a file that is no recording; it is not replaced" in capsys.readouterr().err) == (2, True)
    assert (files / "s.txt").read_text() == SCENARIO


def test_compare_records_each_arm_and_seed(files, tmp_path, capsys):
    arms = ["--arm", "a", "--arm", "b:scheduler.backoff_initial_s=2", "--seeds", "2", "--workers", "2"]
    words = ["compare", str(files / "s.txt"), *arms, "--runs", "none", "--report", str(tmp_path / "page.html")]
    assert run([*words, "--recording", str(tmp_path / "of")]) == 0

    assert sorted(each.name for each in (tmp_path / "of").iterdir()) == [
        f"{arm}-{n}.keprec" for arm in "ab" for n in (0, 1)
    ]
    with Recording.open(tmp_path / "of" / "b-1.keprec") as recording:
        assert (recording.meta.arm, recording.meta.seed, recording.meta.passed) == ("b", 1, True)
        assert "scheduler.backoff_initial_s=2.0" in recording.meta.switches


def test_ctrl_c_in_the_middle_keeps_what_is_there(files, tmp_path, monkeypatch):
    def interrupted(scenario, *, recorder, **options):
        def take(line):
            if line.ev == "sched.bind_result":
                raise KeyboardInterrupt

        return simulate(scenario, recorder=recorder, **options | {"on_line": take})

    monkeypatch.setattr("lab.cli.scenario_runs.simulate", interrupted)
    path = tmp_path / "a.keprec"
    assert run(["run", str(files / "s.txt"), "--runs", "none", "--recording", str(path)]) == 130

    with Recording.open(path) as recording:
        assert path.is_file()
        pod_then = msgspec.json.decode(recording.object_at("pods", "default", "waiting", recording.rv_range[1]))
        assert (pod_then["spec"]["nodeName"], pod_then["status"]["phase"]) == ("n1", "Pending")


def test_an_empty_recording_has_nothing_and_says_so(command, files, capsys):
    Writer(files / "empty.keprec", Meta(title="nothing")).close(Meta(title="nothing", ended="now"))
    code, out, _ = command("get", "pods", name="empty.keprec")
    assert (code, out) == (0, "no pods found\n")
    _, out, _ = command("diff", files / "empty.keprec", files / "empty.keprec", name="")
    assert "no difference in 0 decisions" in out
