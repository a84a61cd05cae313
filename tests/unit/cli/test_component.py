"""What `keplab component` becomes, and what it adds to a component's flags."""

import pytest
from click.testing import CliRunner

from lab.cli.commands import component, run


@pytest.mark.parametrize(
    ("name", "given", "environ", "flags"),
    [
        ("kubelet", [], {}, ["--name", "kubelet/3f2a", "--address", "172.18.0.4"]),
        ("kubelet", ["--name", "k"], {}, ["--address", "172.18.0.4", "--name", "k"]),
        ("kubelet", ["--address=1.2.3.4"], {}, ["--name", "kubelet/3f2a", "--address=1.2.3.4"]),
        ("kubelet", [], {"KEPLAB_NAME": "k", "KEPLAB_ADDRESS": "::1"}, []),
        ("scheduler", ["--leader-elect"], {}, ["--leader-elect"]),
    ],
)
def test_a_kubelet_is_named_after_its_machine_unless_it_is_given_a_name(monkeypatch, name, given, environ, flags):
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)

    assert flags == component.arguments(name, given, "3f2a", "172.18.0.4")


@pytest.mark.parametrize("name", component.STARTED_ALONE)
def test_each_becomes_its_module_with_the_flags_behind_its_name(monkeypatch, name):
    became = []
    monkeypatch.setattr(component.os, "execv", lambda program, words: became.append(words[1:]))
    monkeypatch.setattr(component.socket, "gethostbyname", lambda _: "10.0.0.1")

    done = CliRunner().invoke(component.component, [name, "--help"])

    assert 0 == done.exit_code, done.output
    assert [["-m", component.MODULES[name]], ["--help"]] == [became[0][:2], became[0][-1:]]


def test_a_component_that_there_is_not_is_named_with_those_that_there_are():
    done = CliRunner().invoke(component.component, ["kubelt"])

    assert 2 == done.exit_code
    assert "'kubelt' is not one of 'apiserver', 'scheduler'" in done.output


@pytest.mark.parametrize("words", [["--processes"], ["--seeds", "2"], ["--workers", "2"]])
def test_a_running_mesh_has_one_run_after_the_other(words):
    file = "experiments/containers/broken-parts.txt"

    done = CliRunner().invoke(run.run, [file, "--server", "127.0.0.1:1", *words])

    assert 2 == done.exit_code
    assert "--server and --containers use a mesh that runs already" in done.output


def test_a_server_without_credentials_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("KEPLAB_LAB_CREDENTIALS", str(tmp_path))

    done = CliRunner().invoke(run.run, ["experiments/containers/broken-parts.txt", "--server", "127.0.0.1:1"])

    assert 2 == done.exit_code
    assert f"--server 127.0.0.1:1: {tmp_path} has no token.json" in done.output
