"""Lifecycle of one object by stages: the next matching stage, its time, its effects, and what follows. Pure.

A change of the object chooses anew and restarts the delay, as in KWOK. While a stage is being played, changes
wait, and only the newest counts. Random draws depend on the seed, the object's name and the number of its
stages so far. So one object more does not change the draws of the others, a change by another client does not
change the object's own draws, and a mesh of processes has the draws of its simulation.
A patch's template sees the object the stage was chosen for, with `metadata`, `spec` and `status` always
present.
Source: kubernetes-sigs/kwok, `pkg/utils/lifecycle` (`Lifecycle.Match`, `Stage.Delay`, `lifecycle.Next`).
"""

import hashlib
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from services.api.meta import Document
from services.api.times import Duration, parse_time
from services.kwok.stages.jq import Query
from services.kwok.stages.operation import Operation, StageApply, StageDelete, StageEvent, StagePatch
from services.kwok.stages.stage import Apply, CelExpression, Finalizers, Patch, Stage
from services.kwok.stages.template_functions import Context
from services.kwok.stages.templates import TemplateError

FINALIZERS = "/metadata/finalizers"
SLICES_VERSION = "resource.k8s.io/v1"
RETRY_MIN_S, RETRY_MAX_S = 1.0, 32.0
EARLY_S = 1e-6
"""Tolerance in seconds: a stage this close to its time is due."""
Luck = Callable[[], float]
"""Function that returns the next number of [0, 1)."""


@dataclass
class Draws:
    """Random draws of one object. `turn`: number of its stages so far; `count`: draws in this turn."""

    seed: int
    name: str
    turn: int = 0
    count: int = 0

    def __call__(self) -> float:
        """Return the next number of [0, 1)."""
        self.count += 1
        text = f"{self.seed}\0{self.name}\0{self.turn}\0{self.count}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "big") / (1 << 56)


def choose(stages: Sequence[Stage], document: Document, luck: Luck, wall_s: float = 0.0) -> Stage | None:
    """Return the next stage for the object in its current state; None if none matches.

    Among several the weights decide: a weight of 0 loses against any positive one; if all are 0, all are alike. A
    stage without a weight, because its expression gives a text that is no number, loses against stages with one.
    """
    matching = [stage for stage in stages if stage.selector.matches(document, wall_s)]
    if len(matching) < 2:
        return matching[0] if matching else None
    weights = [weight(stage, document, wall_s) for stage in matching]
    if not (total := sum(each or 0 for each in weights)):
        alike = [s for s, w in zip(matching, weights, strict=True) if w is not None] or matching
        return alike[int(luck() * len(alike))]
    left = int(luck() * total)
    for stage, stage_weight in zip(matching, weights, strict=True):
        left -= stage_weight or 0
        if left < 0:
            return stage
    return matching[-1]


def weight(stage: Stage, document: Document, wall_s: float = 0.0) -> int | None:
    """Return the stage's weight for this object; None if its expression gives no number."""
    given = _first(stage.weight_from, document, wall_s)
    if isinstance(given, str):
        return max(0, int(given)) if re.fullmatch(r"[+-]?\d+", given) else None
    if isinstance(given, int | float) and not isinstance(given, bool):
        return max(0, int(given))
    return stage.weight


def delay_s(stage: Stage, document: Document, wall_s: float, luck: Luck) -> float:
    """Return the delay of the stage in seconds, at least 0.

    The jitter is the latest time, not an addition: a jitter that does not exceed the delay replaces it.
    """
    delay = stage.delay
    if delay is None:
        return 0.0
    least_s = _seconds(delay.duration_from, delay.duration_s or 0.0, document, wall_s)
    if least_s is None:
        return 0.0
    found_s = _seconds(delay.jitter_from, delay.jitter_s, document, wall_s)
    most_s = least_s if found_s is None else found_s
    return max(0.0, most_s if most_s <= least_s else least_s + luck() * (most_s - least_s))


def _first(query: Query | CelExpression | None, document: Document, wall_s: float) -> Any:
    if isinstance(query, CelExpression):
        found = query.values(document, wall_s)
    else:
        found = query.values(document) if query is not None else None
    return found[0] if found else None


def _seconds(
    query: Query | CelExpression | None, otherwise_s: float | None, document: Document, wall_s: float
) -> float | None:
    """Return what it says: the time left until a moment, or a duration, None for ""; else `otherwise_s`."""
    given = _first(query, document, wall_s)
    if not isinstance(given, str):
        return otherwise_s
    if not given:
        return None
    with suppress(ValueError):
        return parse_time(given) - wall_s
    with suppress(ValueError):
        return Duration.parse(given)
    return otherwise_s


def operations(stage: Stage, document: Document, context: Context) -> list[Operation]:
    """Return the stage's operations for this object. Raises: TemplateError naming the stage."""
    given = {"metadata": {}, "spec": {}, "status": {}, **document}
    finalizers: list[str] = list(given["metadata"].get("finalizers") or ())
    stage_operations: list[Operation] = []
    is_deleted = False
    try:
        for step in stage.steps:
            if step.event is not None:
                message = step.event.message.fill(given, context)
                stage_operations.append(StageEvent(step.event.type, step.event.reason, message))
            if is_deleted:
                continue
            if step.finalizers is not None and (changes := finalizer_changes(finalizers, step.finalizers)):
                stage_operations.append(StagePatch("json", "", changes))
                finalizers = step.finalizers.after(finalizers)
            if step.delete:
                is_deleted = True
                stage_operations.append(StageDelete())
            elif step.patch is not None:
                stage_operations.append(
                    _patch_operation(step.patch, given, context, "strategic" if stage.is_of_kubelets else "merge")
                )
            if step.apply is not None and not is_deleted:
                stage_operations.append(_apply_operation(step.apply, given, context))
    except TemplateError as error:
        raise TemplateError(f"stage {stage.name}: {error}") from None
    return stage_operations


def finalizer_changes(held: list[str], wanted: Finalizers) -> list[Document]:
    """Return the JSON patch that changes the finalizers as wanted; empty if nothing changes."""
    after = wanted.after(held)
    if held == after:
        return []
    if not after:
        return [{"op": "remove", "path": FINALIZERS}]
    # The test keeps a finalizer that another client set meanwhile.
    guard = [{"op": "test", "path": FINALIZERS, "value": held}] if held else []
    return [*guard, {"op": "replace" if held else "add", "path": FINALIZERS, "value": after}]


def _apply_operation(apply: Apply, given: Document, context: Context) -> StageApply:
    manifest = apply.template.fill_yaml(given, context)
    metadata = manifest.get("metadata") if isinstance(manifest, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise TemplateError("what is applied is an object with a name")
    if (manifest.get("apiVersion"), manifest.get("kind")) != (SLICES_VERSION, "ResourceSlice"):
        what = f"{manifest.get('apiVersion')} {manifest.get('kind')}"
        raise TemplateError(f"{what} is not applied; {SLICES_VERSION} ResourceSlice is")
    return StageApply(metadata["name"], manifest)


def _patch_operation(patch: Patch, given: Document, context: Context, otherwise: str) -> StagePatch:
    body = patch.template.fill_yaml(given, context)
    kind = patch.type or otherwise
    if kind == "json":
        if not isinstance(body, list) or not all(isinstance(each, dict) for each in body):
            raise TemplateError("a json patch is a list of operations")
        if patch.root:
            body = [each | {"path": f"/{patch.root}{each.get('path', '')}"} for each in body]
    else:
        if not isinstance(body, dict) and (patch.root == "" or body is not None):
            raise TemplateError(f"a {kind} patch is an object")
        if patch.root:
            body = {patch.root: body or {}}
    as_user = patch.impersonation.username if patch.impersonation is not None else ""
    return StagePatch(kind, patch.subresource, body, as_user)


class Turn(NamedTuple):
    """A stage to play now, for the object as it was when the stage was chosen."""

    stage: Stage
    document: Document


class Life:
    """Effects of stages on one object. Every method that may schedule a stage returns the time for `due`, or None."""

    def __init__(self, stages: Sequence[Stage], draws: Draws) -> None:
        self._stages, self._draws = stages, draws
        self._turn: Turn | None = None
        self._due_s = 0.0
        self._rv = ""
        self._is_playing = False
        self._newer: Document | None = None
        self._last: Document | None = None
        self._retry_s = RETRY_MIN_S

    def observe(self, document: Document, now: float, wall_s: float) -> float | None:
        """Take a new state of the object; an unchanged version has no effect."""
        if self._is_playing:
            self._newer = document
            return None
        rv = _version(document)
        if rv and rv == self._rv:
            return None
        self._rv, self._last = rv, document
        self._draws.count = 0
        stage = choose(self._stages, document, self._draws, wall_s)
        if stage is None:
            self._turn = None
            return None
        self._turn = Turn(stage, document)
        self._due_s = now + delay_s(stage, document, wall_s, self._draws)
        return self._due_s

    def replace(self, stages: Sequence[Stage], now: float, wall_s: float) -> float | None:
        """Replace the stages: choose anew, with the whole delay. A stage that is being played is finished first."""
        self._stages, self._rv = stages, ""
        if self._is_playing or self._last is None:
            return None
        return self.observe(self._last, now, wall_s)

    def due(self, now: float) -> Turn | None:
        """Return the stage to play now; report with `on_played`."""
        if self._turn is None or self._is_playing or now + EARLY_S < self._due_s:
            return None
        self._is_playing = True
        return self._turn

    def on_played(self, now: float, wall_s: float, *, is_lost: bool = False) -> float | None:
        """Note that the stage was played, or refused for good; `is_lost`: try again, unless the object changed."""
        self._is_playing = False
        newer, self._newer = self._newer, None
        turn = self._turn
        if not is_lost:
            self._draws.turn += 1
        if newer is not None and _version(newer) != self._rv:
            self._retry_s = RETRY_MIN_S
            return self.observe(newer, now, wall_s)
        if is_lost and not self._rv and self._last is not None:
            return self.observe(self._last, now, wall_s)  # there are other stages now
        if is_lost:
            self._due_s = now + self._retry_s
            self._retry_s = min(2 * self._retry_s, RETRY_MAX_S)
            return self._due_s
        self._retry_s = RETRY_MIN_S
        self._turn = None
        if turn is None or not turn.stage.is_immediate:
            return None
        # It changed nothing, so no change will be seen: choose again, but never without a delay, for ever.
        self._rv = ""
        due_s = self.observe(turn.document, now, wall_s)
        if due_s is not None and due_s <= now:
            self._turn = None
            return None
        return due_s


def _version(document: Document) -> str:
    return str((document.get("metadata") or {}).get("resourceVersion") or "")
