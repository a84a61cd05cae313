"""A mistake in a scenario is one line and exit code 2, never a traceback."""

import subprocess
import sys

import pytest

from lab.cli.__main__ import run


@pytest.mark.parametrize(
    ("scenario", "line", "message"),
    [
        ("nodes n1 cpu=1x\npod a\n", 1, "cpu=1x: quantity '1x'"),
        ("nodes n1 topology=none\npod a\n", 1, "nodes has no option 'topology' (did you mean"),
        ("nodes n1 numa=two\npod a\n", 1, "numa=two: want COUNTxCPUS"),
        ("nodes n1 cpu=1\npod a foo=2\n", 2, "pod has no option 'foo'"),
        ("nodes n1 cpu=1\nreplicaset web replicas=many\n", 2, "many"),
        ("nodes n1 cpu=1\nkill\n", 2, "kill wants COMPONENT"),
        ("nodes n1 cpu=1\nas admin dance pods/x -> 200\n", 2, "want: as WHO VERB"),
        ("set kubelet.on_reject=maybe\npod a\n", 0, "want one of fail"),
        ("scheduler Bad_Name!\nnodes n1 cpu=1\npod a\n", 1, "scheduler name 'Bad_Name!'"),
        ("nodes n1..n99999999\npod a\n", 1, "99999999 names; want at most 20000"),
        ("latency bogus=constant:1\nnodes n1 cpu=1\npod a\n", 1, "with a stage of worker"),
    ],
)
def test_a_mistake_is_refused_before_anything_starts(tmp_path, capsys, scenario, line, message):
    path = tmp_path / "scenario.txt"
    path.write_text(scenario)

    with pytest.raises(SystemExit) as ended:
        run(["run", str(path)])
    shown = capsys.readouterr().err

    assert 2 == ended.value.code
    assert message in shown
    assert (f"scenario.txt:{line}:" in shown) == bool(line)


@pytest.mark.parametrize(
    ("act", "message"),
    [("kill absent", "no component 'absent'"), ("remember x pods/absent-* metadata.uid", "nothing matches")],
)
def test_an_act_that_cannot_be_is_exit_code_2(tmp_path, capsys, act, message):
    path = tmp_path / "scenario.txt"
    path.write_text(f"nodes n1 cpu=1\n{act}\n")

    with pytest.raises(SystemExit) as ended:
        run(["run", str(path)])

    assert 2 == ended.value.code
    assert f"scenario.txt:2: {message}" in capsys.readouterr().out


def test_an_expectation_that_does_not_hold_is_exit_code_1(tmp_path):
    path = tmp_path / "scenario.txt"
    path.write_text("nodes n1 cpu=1\npod a cpu=1\nexpect count pods == 7\n")

    with pytest.raises(SystemExit) as ended:
        run(["run", str(path)])

    assert 1 == ended.value.code


def test_a_byte_order_mark_tabs_and_windows_line_ends_are_read(tmp_path):
    path = tmp_path / "scenario.txt"
    path.write_bytes(b"\xef\xbb\xbfnodes\tn1\tcpu=1\r\npod\ta cpu=1\r\nexpect\tcount pods == 1\r\n")

    with pytest.raises(SystemExit) as ended:
        run(["run", str(path)])

    assert 0 == ended.value.code


def test_what_is_no_text_is_said_with_its_place(tmp_path, capsys):
    path = tmp_path / "scenario.txt"
    path.write_bytes(b"nodes n1\n\xff\n")

    with pytest.raises(SystemExit) as ended:
        run(["run", str(path)])

    assert 2 == ended.value.code
    assert "scenario.txt: a scenario is text in UTF-8, byte 9 is not" in capsys.readouterr().err


def test_a_switch_that_changes_nothing_is_remarked_on_standard_error(tmp_path, capsys):
    path = tmp_path / "scenario.txt"
    path.write_text("nodes n1 cpu=1\npod a cpu=1\nexpect within 5s count pods phase=Running == 1\n")

    with pytest.raises(SystemExit) as ended:
        run(["run", str(path), "--set", "resize.generation=G4"])

    gate = "InPlacePodVerticalScalingSchedulerPreemption"
    assert ended.value.code == 0
    assert f"scenario: resize.generation=G4 changes nothing while {gate}=false" in capsys.readouterr().err


@pytest.mark.parametrize("command", [("run",), ("explore", "--around", "list")])
def test_a_kubelet_that_cannot_start_is_one_line_with_its_node_the_reason_and_the_switch(tmp_path, capsys, command):
    path = tmp_path / "even.txt"
    path.write_text("nodes n1 numa=2x4 cpu-policy=static cpu-options=distribute-cpus-across-numa\npod a cpu=1\n")

    try:
        code = run([command[0], str(path), *command[1:], "--set", "CPUManagerPolicyBetaOptions=false"])
    except SystemExit as ended:
        code = ended.code
    shown = capsys.readouterr()

    assert (code, shown.out, len(shown.err.splitlines())) == (3, "", 1)
    assert 'node n1: CPU Manager Policy Beta-level Options not enabled, but option "distribute' in shown.err
    assert shown.err.endswith("provided (with CPUManagerPolicyBetaOptions=false)\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("# a\nb: c: d\n", "not YAML: line 2, column 5: mapping values are not allowed here"),
        ("profiles: []\n", "apiVersion: want kubescheduler.config.k8s.io/v1"),
        (None, "No such file or directory"),
    ],
)
def test_a_scheduler_configuration_is_read_before_a_mesh_starts(tmp_path, capsys, text, says):
    path = tmp_path / "config.yaml"
    if text is not None:
        path.write_text(text)

    assert run(["up", "--data", str(tmp_path / "mesh"), "--scheduler-config", str(path)]) == 2
    error = capsys.readouterr().err
    assert f"--scheduler-config {path}: {says}" in error or (text is None and str(path) in error)
    assert not (tmp_path / "mesh").exists()


ALONE = """
import sys
from lab.cli.__main__ import run

try:
    run(["run", sys.argv[1], "--runs", "none"])
finally:
    mesh = ("apiserver_fake.server", "scheduler.loops", "kubelet.kubelet", "lab.scenarios.run", "numpy", "cryptography")
    print([name for name in mesh if name in sys.modules], file=sys.stderr)
"""


def test_a_mistake_in_a_file_is_reported_before_the_mesh_is_imported(tmp_path):
    path = tmp_path / "scenario.txt"
    path.write_text("nodes n1 cpu=1\nfrobnicate web\n")

    done = subprocess.run([sys.executable, "-c", ALONE, str(path)], capture_output=True, text=True, timeout=60)

    assert 2 == done.returncode
    assert "scenario.txt:2: no verb 'frobnicate'" in done.stderr
    assert "[]" == done.stderr.splitlines()[-1]
