"""Help texts name their object: no option's help begins with a relative clause or a preposition without its noun."""

import re
from dataclasses import dataclass, fields

import click
import pytest

from apiserver_fake.config import ApiServerConfig
from kubelet.config import KubeletConfig
from kubelet.control_socket import NodePartConfig
from lab.cli.__main__ import cli
from lab.simulator.config import SimulatorApiConfig
from scheduler.config import SchedulerConfig
from services.controllers.config import ControllersConfig

PROCESSES = (ApiServerConfig, ControllersConfig, KubeletConfig, SchedulerConfig, SimulatorApiConfig, NodePartConfig)
RIDDLE = re.compile(
    r"(about|another|as|here|how|in|it|its|of|so|such|that|then|these|they|this|what|where|who|whoever|whose) ", re.I
)


@dataclass(frozen=True)
class Text:
    place: str
    text: str


def _commands(command, path=("keplab",)):
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from _commands(command.get_command(context, name), (*path, name))


def _options():
    for path, command in _commands(cli):
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                yield Text(f"{' '.join(path)} {option.opts[0]}", option.help or "")


def _flags():
    for config in PROCESSES:
        for field in fields(config):
            yield Text(f"{config.__name__}.{field.name}", field.metadata.get("help", ""))


def riddles(texts):
    """Return the places of the help texts that are empty or do not begin with their object."""
    return [each.place for each in texts if not each.text or RIDDLE.match(each.text)]


def test_every_option_of_a_command_names_its_object():
    assert [] == riddles(_options())


def test_every_flag_of_a_process_names_its_object():
    assert [] == riddles(_flags())


def test_every_command_begins_with_a_verb():
    first = [Text(" ".join(path), command.help or "") for path, command in _commands(cli)]

    assert [] == riddles(first)
    assert [] == [each.place for each in first if not re.match(r"[A-Z][a-z]+ ", each.text)]
    assert [] == [each.place for each in first if re.match(r"\w+(s|ed|ing) ", each.text)]


@pytest.mark.parametrize("text", ["", "of the sample", "what it is, at length", "how long", "its key", "whose port"])
def test_a_riddle_is_found(text):
    assert riddles([Text("here", text)]) == ["here"]
    assert riddles([Text("here", "key of the certificate")]) == []
