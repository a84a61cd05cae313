"""The ResourceSlices of one node that stages drive: they are listed as often as the Node is read."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Protocol

import msgspec
import structlog

from kubelet.stages.manager import FAILED
from services.api.errors import ApiError, UnknownOutcome
from services.api.meta import Document, Key
from services.api.seams import Clock, EventLog
from services.client.client import Client
from services.client.stage_calls import SLICES, Target
from services.kwok.stages.lifecycle import Draws, Life, operations
from services.kwok.stages.operation import Operation, Outcome
from services.kwok.stages.stage import Stage
from services.kwok.stages.template_functions import Context
from services.kwok.stages.templates import TemplateError

READ_SLICES: Final = "read-slices"
STAGE_SLICE: Final = "stage-slice/"
"""Prefix of the timers of a slice's stages; the slice's name follows."""
READ_PERIOD_S: Final = 10.0
"""Seconds between reads of objects that stages drive: as a kubelet computes its Node's status (kubelet 1)."""
Perform = Callable[[Sequence[Operation], Target], Awaitable[Outcome]]

log = structlog.get_logger()


class StagedNode(Protocol):
    """A node, as the stages of its slices need it."""

    name: str

    @property
    def client(self) -> Client:
        """The node's own client."""

    def set_timer(self, at_s: float, what: str) -> None:
        """Call `fire(what)` at that time."""

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in a task that ends with the node's power."""

    def record(self, reason: str, message: str, event_type: str) -> None:
        """Record an Event about the Node."""


class SliceStages:
    """The slices of one node and their stages.

    `context`: values that templates may use; `perform`: performs the operations of a stage.
    """

    def __init__(
        self,
        node: StagedNode,
        stages: tuple[Stage, ...],
        *,
        clock: Clock,
        events: EventLog,
        seed: int,
        context: Callable[[float], Context],
        perform: Perform,
    ) -> None:
        self._node, self._stages, self._seed = node, stages, seed
        self._clock, self._events = clock, events
        self._context, self._perform = context, perform
        self._lives: dict[str, tuple[str, Life]] = {}
        """With the uids of the slices, by name."""

    def begin(self) -> None:
        """Read the slices periodically from now on, if there are stages for them."""
        if self._stages:
            self._node.set_timer(self._clock.now(), READ_SLICES)

    def replace(self, stages: tuple[Stage, ...]) -> None:
        """Replace the stages of the slices."""
        if stages == self._stages:
            return
        self._stages = stages
        for name, (_, life) in self._lives.items():
            self._arm(name, life.replace(stages, self._clock.now(), self._clock.wall()))
        self.begin()

    def observe(self, stored: Document) -> None:
        """Take the newest state of a slice of the node."""
        if not self._stages:
            return
        metadata = stored["metadata"]
        name, uid = metadata["name"], metadata.get("uid", "")
        if name not in self._lives or self._lives[name][0] != uid:
            draws = Draws(self._seed, f"ResourceSlice//{name}")
            self._lives[name] = uid, Life(self._stages, draws)
        self._arm(name, self._lives[name][1].observe(stored, self._clock.now(), self._clock.wall()))

    def fire(self, what: str, now: float) -> None:
        """Handle a timer of the slices."""
        if what != READ_SLICES:
            self._due(what.removeprefix(STAGE_SLICE), now)
        elif self._stages:
            self._node.set_timer(now + READ_PERIOD_S, READ_SLICES)
            self._node.spawn(self._read())

    def _arm(self, name: str, due_s: float | None) -> None:
        if due_s is not None:
            self._node.set_timer(due_s, f"{STAGE_SLICE}{name}")

    async def _read(self) -> None:
        try:
            slices, _ = await self._node.client.list(SLICES, field_selector=f"spec.nodeName={self._node.name}")
        except (ApiError, UnknownOutcome) as error:
            log.warning("slices.read_failed", node=self._node.name, reason=str(error))
            return
        for name in self._lives.keys() - {each["metadata"]["name"] for each in slices}:
            del self._lives[name]
        for document in slices:
            self.observe(document)

    def _due(self, name: str, now: float) -> None:
        uid, life = self._lives.get(name, ("", None))
        turn = life.due(now) if life is not None else None
        if life is None or turn is None:
            return
        try:
            wanted = operations(turn.stage, turn.document, self._context(now))
        except TemplateError as error:
            self._record_failure(str(error))
            self._arm(name, life.on_played(now, self._clock.wall()))
            return
        data = {"stage": turn.stage.name, "slice": name}
        self._events.write("node.stage", node=self._node.name, data=data)
        is_deleting = turn.document["metadata"].get("deletionTimestamp") is not None
        target = Target(SLICES, Key("", name), uid, is_deleting)
        self._node.spawn(self._play(turn.stage.name, wanted, target, life))

    async def _play(self, stage: str, wanted: Sequence[Operation], target: Target, life: Life) -> None:
        outcome = await self._perform(wanted, target)
        if self._lives.get(target.key.name, ("", None))[1] is not life:
            return
        if outcome.is_refused:
            self._record_failure(f"stage {stage}: {outcome.said}")
        if outcome.body:
            self.observe(msgspec.json.decode(outcome.body))
        due_s = life.on_played(self._clock.now(), self._clock.wall(), is_lost=outcome.is_lost)
        self._arm(target.key.name, due_s)

    def _record_failure(self, why: str) -> None:
        self._node.record(FAILED, why, "Warning")
