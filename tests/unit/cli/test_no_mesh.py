"""Where no mesh runs every command that asks one says so in a line, and ends with 1 (docs/reference/commands.md)."""

import pytest

from lab.cli.__main__ import run
from lab.cli.command_table import COMMANDS

ASKING = {
    "device-plugin": ("--node", "n1", "--resource", "example.com/gpu"),
    "diff": ("1", "2"),
    "dra-driver": ("--node", "n1", "--driver", "gpu.example.com:2"),
    "events": (),
    "explain": ("pod/a",),
    "export": ("-o", "out.yaml"),
    "fork": (),
    "get": ("pods",),
    "history": ("pod/a",),
    "import": ("pod.yaml",),
    "logs": (),
    "raw": ("get", "pods", "a"),
    "record": ("-o", "out.yaml"),
    "replay": ("pod.yaml",),
    "restart": ("--all",),
    "rotate": (),
    "scale": ("node", "--replicas", "2"),
    "snapshot": ("save", "a"),
    "status": (),
    "store": (),
    "sync": ("--kubeconfig", "kubeconfig"),
    "trace": ("pod/a",),
    "ui": (),
}
"""What else is typed of each command that asks a mesh."""
ASKING_NONE = {
    "anonymise", "bench", "chaos", "compare", "completion", "component", "doctor", "down", "explore", "measures", "new", "report", "run", "runs", "scenarios", "switches",
    "trace-check", "up", "verbs",
}  # fmt: skip
POD = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: main, image: pause}]}\n"
KUBECONFIG = """
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, user: {}}]
current-context: a
"""


def test_every_command_is_known_to_ask_a_mesh_or_to_need_none():
    assert set(COMMANDS) == {*ASKING, *ASKING_NONE}


@pytest.mark.parametrize("command", sorted(ASKING))
def test_a_command_that_finds_no_mesh_says_so_and_ends_with_one(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pod.yaml").write_text(POD)
    (tmp_path / "kubeconfig").write_text(KUBECONFIG)

    with pytest.raises(SystemExit) as ended:
        raise SystemExit(run([command, *ASKING[command]]))
    shown = capsys.readouterr()

    assert 1 == ended.value.code
    assert "no mesh " in (shown.err + shown.out).splitlines()[-1]
    assert not (tmp_path / ".keplab").exists()
