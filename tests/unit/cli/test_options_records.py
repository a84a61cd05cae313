"""A command that takes its options as a record has a field for each, and what keplab says to itself again is the same."""

import importlib
import inspect
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, get_args, get_origin, get_type_hints

import click
import pytest

from lab.cli.__main__ import cli
from lab.cli.command_table import COMMANDS
from lab.cli.commands import up as up_module
from lab.cli.commands.up import words_of
from lab.cli.output import takes
from lab.cli.up_options import DEFAULT_AUDIT, UpOptions
from lab.cli.up_process import check, mesh_options
from lab.simulator.config import PORT

SIMULATOR = """\
apiVersion: kube-scheduler-simulator-config/v1alpha1
kind: SimulatorConfiguration
etcdURL: http://127.0.0.1:2379
port: 3131
"""


def record_of(command):
    """Return the record that a command takes, None for one with parameters."""
    inner = getattr(command.callback, "__wrapped__", None)
    hints = (
        get_type_hints(inner) if inner is not None and list(inspect.signature(inner).parameters) == ["options"] else {}
    )
    return hints.get("options")


def commands():
    found = {name: cli.get_command(click.Context(cli), name) for name in COMMANDS}
    return {name: (command, record_of(command)) for name, command in found.items() if record_of(command)}


RECORDS = commands()


def values_of(hint):
    """Return what a field may be: a type, or its texts."""
    if get_origin(hint) is Literal:
        return set(get_args(hint))
    return {each for each in get_args(hint) if each is not NoneType} if isinstance(hint, UnionType) else {hint}


def test_the_commands_with_many_options_take_a_record():
    assert set(RECORDS) >= {"up", "ui", "compare", "replay", "bench", "device-plugin", "dra-driver"}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_has_a_field_for_each_parameter(name):
    command, record = RECORDS[name]

    assert set(get_type_hints(record)) == {each.name for each in command.params}


@pytest.mark.parametrize("name", RECORDS)
def test_a_field_can_be_what_click_makes_of_its_parameter(name):
    command, record = RECORDS[name]
    hints = get_type_hints(record)

    for each in command.params:
        hint = hints[each.name]
        assert (get_origin(hint) is tuple) == (each.multiple or each.nargs == -1), each.name
        if isinstance(each.type, click.Choice):
            members = [one for one in get_args(hint) if get_origin(one) is Literal] or [hint]
            assert values_of(members[0]) in ({str}, set(each.type.choices)), each.name
        is_number = isinstance(each.type, click.types.IntParamType)
        assert not is_number or int in values_of(hint), each.name
        assert not isinstance(each.type, click.Path) or Path in {hint, *get_args(hint)}, each.name


def test_takes_hands_over_one_record():
    @takes(dict)
    def command(options):
        """Say."""
        return options

    assert command(a=1, b=2) == {"a": 1, "b": 2}
    assert (command.__name__, command.__doc__) == ("command", "Say.")


def parsed(monkeypatch, *words):
    """Return the record of a command line of `keplab up`."""
    seen = []
    monkeypatch.setattr(up_module, "_lock_directory", lambda data, fd: (False, -1))
    context = up_module.up.make_context("up", list(words))
    seen.append(UpOptions(**context.params))
    return seen[0]


WORDS = (
    "--nodes", "7", "--extra-scheduler", "a", "--extra-scheduler", "b", "--audit", "--simulator-api", "--ui",
    "--set", "scheduler.exclusion=soft", "--stages", "s.yaml", "--latency", "all=constant:0",
)  # fmt: skip


def test_the_words_for_the_background_say_the_same_options(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    options = parsed(monkeypatch, *WORDS, "--detach", "-o", "json")

    again = parsed(monkeypatch, *words_of(options))

    assert (again.detach, again.output, again.lock_fd) == (False, "text", -1)
    assert again.stages == (tmp_path / "s.yaml",)
    same = {"nodes", "extra_schedulers", "audit", "simulator_api", "ui", "assignments", "latency", "engine"}
    assert {name: getattr(again, name) for name in same} == {name: getattr(options, name) for name in same}


def test_options_without_a_value_are_keplabs_own(monkeypatch):
    options = parsed(monkeypatch, "--audit", "--simulator-api")

    assert (options.audit, options.simulator_api) == (DEFAULT_AUDIT, PORT)


def test_a_plan_is_the_options_and_what_their_files_say(monkeypatch, tmp_path):
    (tmp_path / "simulator.yaml").write_text(SIMULATOR)
    words = ("--engine", "etcd", "--simulator-config", str(tmp_path / "simulator.yaml"), "--data", str(tmp_path / "d"))

    plan = check(parsed(monkeypatch, *words, "--etcd-prefix", "/x"))
    started = mesh_options(plan, None)

    assert (plan.etcd_servers, plan.simulator_port) == ("http://127.0.0.1:2379", 3131)
    assert started.etcd_servers == plan.etcd_servers
    assert started.simulator_api[:2] == ("--port", "3131")
    assert "scheduler.record=annotations" in started.switches


def test_an_option_wins_over_what_a_file_says(monkeypatch, tmp_path):
    (tmp_path / "simulator.yaml").write_text(SIMULATOR)
    words = ("--engine", "etcd", "--simulator-config", str(tmp_path / "simulator.yaml"))

    words = (*words, "--etcd-servers", "http://e:1", "--etcd-cafile", "ca.crt", "--etcd-user", "me")
    plan = check(parsed(monkeypatch, *words, "--simulator-api", "0"))

    assert (plan.etcd_servers, plan.simulator_port) == ("http://e:1", 0)
    flags = mesh_options(plan, None).arguments["apiserver"]
    assert flags[-4:] == ["--etcd-user", "me", "--etcd-cafile", str(Path("ca.crt").absolute())]


def test_importing_the_record_imports_no_part_of_the_mesh():
    module = importlib.import_module("lab.cli.up_options")

    assert {name.partition(".")[0] for name in vars(module) if name.startswith(("services", "lab"))} == set()
