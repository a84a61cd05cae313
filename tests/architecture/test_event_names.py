"""The register of events holds what the source writes: no event is missing in it, and none is there that nothing writes."""

import ast
import re
from itertools import chain
from pathlib import Path

from services.telemetry.event_names import EVENTS, OF_FAULTS

ROOT = Path(__file__).parents[2]
FOLDERS = ("apiserver_fake", "scheduler", "kubelet", "claim_controller", "services", "lab")
WRITERS = ("write", "_write", "log", "_log", "line", "gate")
"""What functions are called that write a line of the event log, and are given the event's name."""
EVENT = re.compile(r"(api|store|watch|proc|sched|kubelet|controller|ctrl|driver|plugin|fault|lease)\.[a-z_]+")


def written_events():
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and node.args:
                    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                    if name in WRITERS:
                        arguments = chain.from_iterable(ast.walk(each) for each in node.args[:2])
                        yield from (
                            each.value
                            for each in arguments
                            if isinstance(each, ast.Constant) and EVENT.fullmatch(str(each.value))
                        )


def test_the_register_of_events_is_what_the_source_writes():
    assert {*chain.from_iterable(EVENTS.values()), *OF_FAULTS} == set(written_events())
