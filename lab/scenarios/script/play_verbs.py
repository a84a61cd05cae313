"""Verbs for recordings: play one, also concurrently with other lines, and wait for its end."""

import asyncio
import math
import random
from typing import Final

from kubelet.agent.node_files import CAPACITY, LOOK_PERIOD_S, POWER
from lab.exchange.format import Reading, open_stream
from lab.exchange.load import Loader
from lab.exchange.player import AS_FAST_AS_POSSIBLE, Played, Player
from lab.exchange.reading import Source
from lab.exchange.rules import NODES, Rules
from lab.exchange.stream import Refused, Stream
from lab.exchange.traces.lifecycles import LifecycleGate
from lab.scenarios.mesh import Mesh
from lab.scenarios.script.context import ScenarioContext, verb, verbs_in
from lab.scenarios.script.declaration import FILE, Argument, Option
from lab.scenarios.script.scenario import Scenario, Step
from lab.scenarios.script.streams import source_of
from lab.scenarios.script.value_types import NAME, PAIRS, ValueType, choice
from services.api.errors import NotFound, UnknownOutcome
from services.api.identity import ADMIN, SCHEDULER
from services.api.meta import Document, Key
from services.api.resources import resource_of_kind
from services.api.wire import encode
from services.client.client import Client

TOPIC: Final = "Recordings"
REGISTERED_MAX_S, REGISTERED_POLL_S = 60.0, 0.25
"""Longest wait for a machine's Node after its boot, and the polling interval, in seconds."""


def read_speed(text: str) -> float:
    """Parse the seconds of a recording that pass in one second; infinity for `max`. Raises: ValueError."""
    try:
        speed = AS_FAST_AS_POSSIBLE if text == "max" else float(text)
    except ValueError:
        speed = math.nan
    if not speed > 0:
        raise ValueError("want a number above 0, such as 10, or max")
    return speed


def _check_play(scenario: Scenario, step: Step) -> None:
    _open_source(source_of(scenario, step.args[0]), step, 0.0)


def _open_source(source: Source, step: Step, began_wall_s: float) -> Stream:
    reading = Reading(began_wall_s=began_wall_s, options=step.values.get("options") or {})
    return open_stream(source, reading, step.values.get("format") or "")[1]


@verb(
    TOPIC,
    Argument(FILE, "a recording of another tool, beside the scenario"),
    options=(
        Option("speed", ValueType("SPEED", read_speed), "seconds of the recording in one second, or max", default="1"),
        Option(
            "pods",
            choice("pending", "as-they-are"),
            "whether the mesh decides what its components did in the recording, or pods are bound as they were",
            default="pending",
        ),
        Option("format", NAME, "its format", otherwise="known by its content"),
        Option("options", PAIRS, "what this format alone understands, by name", otherwise="none"),
        Option("beside", choice("yes", "no"), "whether the next lines are run meanwhile", default="no"),
    ),
    check=_check_play,
)
async def play(context: ScenarioContext, step: Step) -> None:
    """Make the changes of a recording at their times, counted from now.

    Objects of its snapshot that the scenario does not `begin` from are created first. With `pods=pending`,
    nodes and statuses, endpoints, and owned objects are left to the mesh. With `beside=yes` the next lines
    run concurrently, and `played` waits for the end. Pods of a trace with run times run for the time it
    states. Machines are added, removed and changed with their Nodes, within two seconds: a removed machine
    loses its power, then its Node is deleted. In virtual time, machines that are added later have kubelets as
    well.
    """
    values = step.values
    rules = Rules(pods="pending" if values["pods"] == "pending" else "as-they-are", has_kubelets=True)
    clock = context.mesh.clock
    source = source_of(context.scenario, step.args[0])
    stream = _open_source(source, step, clock.wall())
    chance = random.Random(context.chance.getrandbits(64))
    client = Client(context.mesh.api(ADMIN), clock, chance, field_manager="keplab-play")
    begin = context.scenario.begin
    loader = Loader(client, rules)
    has_begun = begin is not None and begin.file == step.args[0]
    loaded = None if has_begun else await loader.load(stream.objects)
    if loaded is not None and loaded.failures:
        raise ValueError(f"{step.args[0]}: {loaded.failures[0]}")
    binder = Client(context.mesh.api(SCHEDULER), clock, chance)
    player = Player(
        client, clock, rules, speed=values["speed"], loaded=loaded, binder=binder, power=_Power(context.mesh, client)
    )
    for placed in stream.objects if has_begun else ():
        _remember(player, placed.document)
    if stream.runtimes:
        gate = LifecycleGate(context.mesh.api(ADMIN), clock, chance, stream.runtimes, speed=values["speed"])
        context.background.append(asyncio.create_task(gate.run()))
        await gate.wait_until_synced()

    async def play_stream() -> Played:
        return await player.play(stream.changes)

    task = asyncio.create_task(play_stream())
    if values["beside"] == "yes":
        context.playing.append((step, task))
    else:
        await _wait_for_end(step, task)


class _Power:
    """Power control for the machines of the scenario's mesh."""

    def __init__(self, mesh: Mesh, client: Client) -> None:
        self._mesh, self._client, self._boots = mesh, client, 0

    def has(self, node: str) -> bool:
        return self._mesh.has_machine(node)

    async def on(self, node: str, capacity: Document) -> None:
        await self.resize(node, capacity)
        if await self._is_there(node):
            return
        self._boots += 1
        await self._mesh.put_file(node, POWER, f"on play-{self._boots}".encode())
        for _ in range(int(REGISTERED_MAX_S / REGISTERED_POLL_S)):
            if await self._is_there(node):
                return
            await asyncio.sleep(REGISTERED_POLL_S)
        # It may be that the recording took its power at once, or that a fault holds it up: then it comes later.

    async def _is_there(self, node: str) -> bool:
        try:
            await self._client.get(NODES, Key("", node))
        except NotFound:
            return False
        return True

    async def off(self, node: str) -> None:
        await self._mesh.put_file(node, POWER, b"off")
        await asyncio.sleep(LOOK_PERIOD_S + REGISTERED_POLL_S)

    async def resize(self, node: str, capacity: Document) -> None:
        if capacity:
            await self._mesh.put_file(node, CAPACITY, encode(capacity))


def _remember(player: Player, document: Document) -> None:
    resource = resource_of_kind(str(document.get("apiVersion")), str(document.get("kind")))
    if resource is not None:
        player.remember(resource.name, document)


async def _wait_for_end(step: Step, task: asyncio.Task[Played]) -> None:
    """Wait for the end of a play. Raises: ValueError: a change could not be made."""
    try:
        await task
    except Refused as error:
        raise ValueError(str(error)) from None
    except UnknownOutcome as error:
        raise ValueError(f"{step.text}: {error}") from None


@verb(TOPIC)
async def played(context: ScenarioContext, step: Step) -> None:
    """Wait until every recording that is played with `beside=yes` has ended."""
    for line, task in context.playing:
        await _wait_for_end(line, task)
    context.playing.clear()


VERBS: Final = verbs_in(globals())
