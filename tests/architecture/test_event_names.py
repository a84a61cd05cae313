"""The register of events holds what the source writes: no event is missing in it, and none is there that nothing writes."""

import re
from itertools import chain
from pathlib import Path

from services.telemetry.event_names import EVENTS, OF_FAULTS
from tests.architecture.syntax import facts

ROOT = Path(__file__).parents[2]
FOLDERS = ("apiserver_fake", "scheduler", "kubelet", "claim_controller", "services", "lab")
EVENT = re.compile(r"(api|store|watch|proc|sched|kubelet|controller|ctrl|driver|plugin|fault|lease)\.[a-z_]+")


def written_events():
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            yield from (each for each in facts(path).written if EVENT.fullmatch(each))


def test_the_register_of_events_is_what_the_source_writes():
    assert {*chain.from_iterable(EVENTS.values()), *OF_FAULTS} == set(written_events())
