"""Player of KWOK's Stages for objects that no kubelet hosts: Deployments, Jobs, Leases, custom kinds.

`services/kwok/stages/lifecycle` decides what stages do to one object. This module follows objects, a kind as
soon as it is served and a stage refers to it, and makes the calls, as one user and under the lease of the
process.
Source: kubernetes-sigs/kwok pkg/kwok/controllers/stage_controller.go, stages_manager.go; decision 0078.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec
import structlog

from services.api.identity import STAGE_PLAYER
from services.api.kinds.customresourcedefinition import CustomResourceDefinition, defined_resource
from services.api.meta import AnyObject, Document, Key, Resource, View
from services.api.resources import resource_of_kind
from services.api.seams import Seams
from services.api.times import format_time
from services.client.client import Client
from services.client.informer import Informer
from services.client.recorder import Recorder
from services.client.stage_calls import Target, ask, requests_of
from services.kwok.definitions import resource_of
from services.kwok.documents import STAGE
from services.kwok.objects import KwokObjects
from services.kwok.stages.lifecycle import Draws, Life, operations
from services.kwok.stages.operation import Operation, Outcome, StageApply, StageEvent
from services.kwok.stages.stage import Stage
from services.kwok.stages.template_functions import Context
from services.kwok.stages.templates import TemplateError
from services.reconcile.controller import Change

V = TypeVar("V", bound=View)
MANAGER: Final = "kwok-stages"
FAILED: Final = "StageFailed"
"""Reason of the Event about a stage that failed."""
log = structlog.get_logger()
Ref = tuple[str, str]
"""apiVersion and kind, as stages give them."""


@dataclass
class _Moved:
    """An object that stages may move. `timer`: the timer of the next stage."""

    uid: str
    life: Life
    timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        """Let no stage be played any more."""
        if self.timer is not None:
            self.timer.cancel()


class StagePlayer:
    """The stages of one mesh, for objects that no kubelet hosts.

    `follows_objects`: Stage objects count besides `stages`.
    """

    def __init__(self, seams: Seams, stages: tuple[Stage, ...], *, seed: int, follows_objects: bool) -> None:
        self._seams, self._seed, self._follows = seams, seed, follows_objects
        self._objects = KwokObjects(stages)
        self._api = seams.transport.api(STAGE_PLAYER.user)
        self._client = Client(self._api, seams.clock, seams.random, field_manager=MANAGER)
        self._recorder = Recorder(self._client, seams.clock, seams.random, component="kwok_controller")
        self._start = format_time(seams.clock.wall())
        self._defined: dict[str, Resource] = {}
        self._kinds: dict[Ref, _Kind] = {}
        self._group: asyncio.TaskGroup | None = None
        self._is_due = False

    def lead(self, epoch: str, deposed: Callable[[], None]) -> None:
        """Write under this lease epoch from now on."""
        self._client.lead(epoch, deposed)

    async def run(self) -> None:
        """Play stages until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                group.create_task(self._recorder.run())
                definitions = self._informer(CustomResourceDefinition)
                definitions.on_change(self._defines)
                group.create_task(definitions.run())
                if self._follows:
                    stages = self._informer(AnyObject, resource_of(STAGE))
                    stages.on_change(lambda change: self._stage_changed(stages, change))
                    group.create_task(stages.run())
                self._settle()
                await asyncio.Event().wait()
        finally:
            for kind in self._kinds.values():
                kind.stop()

    def _informer(self, view: type[V], resource: Resource | str = "") -> Informer[V]:
        seams = self._seams
        return Informer(self._api, view, clock=seams.clock, random=seams.random, resource=resource, events=seams.events)

    # --- which kinds, by which stages ---

    def _defines(self, change: Change[CustomResourceDefinition]) -> None:
        resource = defined_resource(change.new) if change.new is not None else None
        name = change.object.metadata.name
        if resource is None:
            self._defined.pop(name, None)
        else:
            self._defined[name] = resource
        self._settle_soon()

    def _stage_changed(self, stages: Informer[AnyObject], change: Change[AnyObject]) -> None:
        key = change.object.metadata.key
        document = stages.lister.document(key) if change.new is not None else None
        if document is None:
            self._objects.remove(STAGE, key)
        else:
            self._objects.put({**document, "kind": STAGE})  # what is wrong with it, the kubelets' logs say
        self._settle_soon()

    def _settle_soon(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._settle)

    def _settle(self) -> None:
        """Follow the kinds that there are stages for, by these stages."""
        self._is_due = False
        wanted: dict[Ref, tuple[Stage, ...]] = {}
        for stage in self._objects.stages:
            if not stage.is_of_kubelets:
                wanted[stage.ref] = (*wanted.get(stage.ref, ()), stage)
        for ref in [*self._kinds]:
            if ref not in wanted or self._kinds[ref].resource != self._resource(ref):
                self._kinds.pop(ref).stop()
        for ref, stages in wanted.items():
            resource = self._resource(ref)
            if ref in self._kinds:
                self._kinds[ref].replace(stages)
            elif resource is not None:
                assert self._group is not None, "only while it runs"
                kind = self._kinds[ref] = _Kind(self, resource, stages)
                kind.task = self._group.create_task(kind.informer.run())

    def _resource(self, ref: Ref) -> Resource | None:
        api_version, kind = ref
        group = api_version.rpartition("/")[0]
        own = (each for each in self._defined.values() if (each.group, each.kind) == (group, kind))
        return resource_of_kind(api_version, kind) or next(own, None)

    # --- what a kind asks of the player ---

    @property
    def now(self) -> float:
        """The current time, in monotonic seconds."""
        return self._seams.clock.now()

    @property
    def wall_s(self) -> float:
        """The current time, in epoch seconds."""
        return self._seams.clock.wall()

    def follow(self, resource: Resource) -> Informer[AnyObject]:
        """Return an informer of a kind, with whole objects."""
        return self._informer(AnyObject, resource)

    def life(self, resource: Resource, key: Key, stages: tuple[Stage, ...]) -> Life:
        """Return the life of an object; its random draws depend on its name."""
        return Life(stages, Draws(self._seed, f"{resource.kind}/{key.namespace}/{key.name}"))

    def context(self) -> Context:
        """Return the context of templates, without a node."""
        return Context(format_time(self.wall_s), start_time=self._start)

    def record(self, resource: Resource, document: Document, event: StageEvent) -> None:
        """Record an Event about an object."""
        metadata = document["metadata"]
        self._recorder.event(
            kind=resource.kind,
            api_version=resource.api_version,
            key=Key(metadata.get("namespace") or "", metadata["name"]),
            uid=metadata.get("uid", ""),
            reason=event.reason,
            message=event.message,
            type=event.type,
        )

    def spawn(self, play: "_Kind", moved: _Moved, stage: str, wanted: list[Operation], document: Document) -> None:
        """Play a stage in a task of its own."""
        assert self._group is not None, "only while it runs"
        data = {"stage": stage, "resource": play.resource.name, "object": document["metadata"]["name"]}
        self._seams.events.write("controller.stage", data=data)
        self._group.create_task(self._play(play, moved, stage, wanted, document))

    async def _play(
        self, kind: "_Kind", moved: _Moved, stage: str, wanted: list[Operation], document: Document
    ) -> None:
        metadata = document["metadata"]
        key = Key(metadata.get("namespace") or "", metadata["name"])
        target = Target(kind.resource.name, key, moved.uid, metadata.get("deletionTimestamp") is not None)
        outcome = await self._perform(wanted, target, kind.resource, document)
        if outcome.is_refused:
            self.record(kind.resource, document, StageEvent("Warning", FAILED, f"stage {stage}: {outcome.said}"))
        kind.on_played(key, moved, outcome)

    async def _perform(
        self, wanted: list[Operation], target: Target, resource: Resource, document: Document
    ) -> Outcome:
        """Do it in order; what fails ends it."""
        outcome = Outcome(200)
        for operation in wanted:
            if isinstance(operation, StageEvent):
                self.record(resource, document, operation)
                continue
            if isinstance(operation, StageApply):
                return Outcome(400, "only stages of Nodes apply ResourceSlices")
            for request in requests_of(operation, target, manager=MANAGER):
                outcome = await ask(self._client, request)
                if not outcome.is_done:
                    return outcome
        return outcome


class _Kind:
    """One kind that stages move: its objects, each with its life."""

    def __init__(self, player: StagePlayer, resource: Resource, stages: tuple[Stage, ...]) -> None:
        self._player, self.resource, self._stages = player, resource, stages
        self._moved: dict[Key, _Moved] = {}
        self.informer = player.follow(resource)
        self.informer.on_change(self._on_changed)
        self.task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Move no object of the kind any more."""
        if self.task is not None:
            self.task.cancel()
        for moved in self._moved.values():
            moved.stop()
        self._moved.clear()

    def replace(self, stages: tuple[Stage, ...]) -> None:
        """Move the objects by these stages from now on."""
        if stages == self._stages:
            return
        self._stages = stages
        for key, moved in self._moved.items():
            self._arm(key, moved, moved.life.replace(stages, self._player.now, self._player.wall_s))

    def _on_changed(self, change: Change[AnyObject]) -> None:
        key = change.object.metadata.key
        document = self.informer.lister.document(key) if change.new is not None else None
        if document is not None:
            self._observe(key, document)
        elif (gone := self._moved.pop(key, None)) is not None:
            gone.stop()

    def _observe(self, key: Key, document: Document) -> None:
        uid = document["metadata"].get("uid", "")
        moved = self._moved.get(key)
        if moved is None or moved.uid != uid:
            if moved is not None:
                moved.stop()
            moved = self._moved[key] = _Moved(uid, self._player.life(self.resource, key, self._stages))
        self._arm(key, moved, moved.life.observe(document, self._player.now, self._player.wall_s))

    def _arm(self, key: Key, moved: _Moved, due_s: float | None) -> None:
        if due_s is None:
            return
        moved.stop()
        delay_s = max(0.0, due_s - self._player.now)
        moved.timer = asyncio.get_running_loop().call_later(delay_s, self._due, key, moved)

    def _due(self, key: Key, moved: _Moved) -> None:
        turn = moved.life.due(self._player.now)
        if turn is None:
            return
        try:
            wanted = operations(turn.stage, turn.document, self._player.context())
        except TemplateError as error:
            self._player.record(self.resource, turn.document, StageEvent("Warning", FAILED, str(error)))
            self._arm(key, moved, moved.life.on_played(self._player.now, self._player.wall_s))
            return
        self._player.spawn(self, moved, turn.stage.name, wanted, turn.document)

    def on_played(self, key: Key, moved: _Moved, outcome: Outcome) -> None:
        """Take what came of a stage."""
        if self._moved.get(key) is not moved:
            return
        if outcome.body and self.informer.lister.get(key) is not None:
            moved.life.observe(msgspec.json.decode(outcome.body), self._player.now, self._player.wall_s)
        due_s = moved.life.on_played(self._player.now, self._player.wall_s, is_lost=outcome.is_lost)
        self._arm(key, moved, due_s)
