"""Shells complete switches and their values, arms, scenarios, kinds and processes; in bash through a real shell."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab.cli.__main__ import run
from services.runtime import mesh_directory

ROOT = Path(__file__).parents[3]
TYPED = """
source <(keplab completion bash)
compopt() { :; }
while read -r COMP_LINE; do
  COMP_POINT=${#COMP_LINE}; COMP_WORDS=($COMP_LINE); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  COMPREPLY=(); _keplab_completion keplab
  echo "${COMPREPLY[@]}"
done
"""
"""Prints a line of completions for each that is typed."""


@pytest.fixture
def completed(monkeypatch, capsys):
    """Return what zsh is given to complete the last word with."""

    def go(*words):
        monkeypatch.setenv("_KEPLAB_COMPLETE", "zsh_complete")
        monkeypatch.setenv("COMP_WORDS", " ".join(("keplab", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit) as ended:
            run([])
        assert ended.value.code == 0 or ended.value.code is None
        return capsys.readouterr().out.splitlines()[1::3]

    return go


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("comp",), ["component", "compare", "completion"]),
        (("switches", "kubelet.on_r"), ["kubelet.on_reject"]),
        (("run", "--set", "kubelet.on_r"), ["kubelet.on_reject="]),
        (("run", "--set", "kubelet.on_reject=un"), ["kubelet.on_reject=unbind"]),
        (("up", "--set", "PodUnbinding="), ["PodUnbinding=true", "PodUnbinding=false"]),
        (
            ("compare", "x", "--arm", "a:PodUnbinding=true,kubelet.on_reject=u"),
            ["a:PodUnbinding=true,kubelet.on_reject=unbind"],
        ),
        (("compare", "x", "--arm", "a"), []),
        (("run", "runaway-u"), ["runaway-unbind"]),
        (("get", "daem"), ["daemonsets"]),
        (("restart", ""), []),
    ],
)
def test_names_and_values_are_completed(completed, words, expected):
    assert sorted(completed(*words)) == sorted(expected)


def test_processes_of_the_mesh_are_completed(completed, tmp_path):
    fd = mesh_directory.lock(tmp_path)
    state = {"processes": [{"name": "scheduler"}, {"name": "kubelet/h0"}, {"name": "kubelet/h1"}]}
    (tmp_path / mesh_directory.STATE_FILE).write_text(json.dumps(state))

    assert completed("restart", "--data", str(tmp_path), "kub") == ["kubelet/h0", "kubelet/h1"]
    assert fd


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_says_where_to_put_it(capsys, shell):
    assert run(["completion", shell]) == 0

    said = capsys.readouterr().out
    assert said.startswith("# ")
    assert f"keplab completion {shell}" in said.splitlines()[0]
    assert f"_KEPLAB_COMPLETE={shell}_complete" in said


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_after_its_own_ends_of_words(tmp_path):
    keplab = tmp_path / "keplab"
    keplab.write_text(f'#!/bin/sh\nexec {sys.executable} -m lab.cli "$@"\n')
    keplab.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}

    typed = "keplab run --set kubelet.on_reject=un\nkeplab compare x --arm a:kubelet.on_r\n"
    done = subprocess.run(
        ["bash", "--norc", "-c", TYPED],
        input=typed,
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )

    assert (done.stdout, done.stderr) == ("unbind\nkubelet.on_reject=\n", "")
