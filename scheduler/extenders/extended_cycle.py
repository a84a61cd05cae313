"""A scheduling cycle that waits for extenders, and the other calls to extenders.

While it waits, nothing in the cache changes: the loop holds back the informers' changes (decision 0011).
Source: scheduler-queue-and-cycles 4; preemption 3.4; upstream `pkg/scheduler/extender.go`,
`pkg/scheduler/schedule_one.go`.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
import structlog

from scheduler.cache.cache import Cache
from scheduler.cache.node_info import PodInfo
from scheduler.configuration.document import Extender
from scheduler.cycle.profiles import Profile
from scheduler.cycle.result import ExtenderBind, Result, Unschedulable
from scheduler.cycle.scheduling_cycle import Filtered
from scheduler.extenders import documents
from scheduler.extenders.documents import Gathered, is_interested, victims_of
from scheduler.framework.cycle_state import CycleError
from scheduler.framework.status import Status
from scheduler.preemption.candidates import ASKING, LEFT, Candidate, ExtenderError, Victims, left_by_extender
from services.api.errors import UnknownOutcome
from services.api.meta import Document, Key
from services.telemetry.metrics import Metrics, Samples, counter


class ExtenderTransport(Protocol):
    """The transport to extenders: one request and its answer. Processes use HTTP, tests another way."""

    async def post(self, extender: Extender, url: str, body: bytes, timeout_s: float, traceparent: str) -> bytes:
        """Return the body of the answer. Raises: ExtenderError when there is none in time, or its status is not 200.

        `traceparent`: of the attempt or the binding that makes the call.
        """
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


TIMEOUT_S: Final = 5.0
"""Timeout of an extender without an `httpTimeout` of its own, in seconds."""
log = structlog.get_logger()


def verb_url(extender: Extender, verb: str) -> str:
    """Return the URL of an extender's verb (filter, prioritize, preempt, bind)."""
    verbs = {
        "filter": extender.filter_verb,
        "prioritize": extender.prioritize_verb,
        "preempt": extender.preempt_verb,
        "bind": extender.bind_verb,
    }
    return f"{extender.url_prefix.rstrip('/')}/{verbs[verb]}"


@dataclass
class Extenders:
    """All extenders of the configuration, in the order of their calls.

    `pod_document`, `node_document`: return whole objects as informers hold them, None for one that is gone.
    """

    extenders: Sequence[Extender]
    transport: ExtenderTransport
    cache: Cache
    pod_document: Callable[[Key], Document | None]
    node_document: Callable[[Key], Document | None]
    on_answer: Callable[[PodInfo, str, str, Any], None] | None = None
    """Called with each answer: pod, verb (filter, prioritize, preempt, bind), URL prefix, answer in Go's form."""
    asked_total: int = 0
    ignored_total: int = 0
    _attempt: str = ""
    """The traceparent of the present attempt; there is one at a time."""

    def metrics(self) -> Samples:
        """Return the numbers of calls and of ignored failures."""
        return METRICS.of(self)

    def are_interested(self, pod: PodInfo) -> bool:
        """Whether a cycle of this pod has to call an extender."""
        return any(is_interested(each, pod) for each in self.extenders)

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()

    async def schedule(self, profile: Profile, pod: PodInfo, now: float, traceparent: str) -> Result:
        """Return the result of the pod's cycle, with the extenders' answers. `traceparent`: of the attempt."""
        self._attempt = traceparent
        cycle = profile.cycle
        cycle.rotation.cycle += 1  # what a cycle before this one left for the next is not for the one after
        filtered = cycle.filter(pod, now)
        if isinstance(filtered, CycleError):
            return filtered
        asked = [each for each in self.extenders if is_interested(each, pod)]
        if filtered.own >= 0 and await self._take_nominated(asked, pod, filtered):
            return cycle.alone(filtered.own, filtered.state, 1)
        cycle.narrow(filtered)
        opinion = Gathered(self.cache.columns)
        try:
            await self._filter(asked, pod, filtered, opinion)
        except ExtenderError as error:
            return CycleError(str(error))
        rows = np.flatnonzero(filtered.found.mask)
        if len(rows) > 1:
            await self._prioritize(asked, pod, self._names(rows.tolist()), opinion)
        filtered.state.data[ASKING] = any(each.preempt_verb for each in asked)
        result = cycle.choose(pod, filtered, opinion)
        if isinstance(result, Unschedulable) and result.post_filter is not None and result.post_filter.asks:
            filtered.state.data[LEFT] = await self._preempt(asked, pod, result.post_filter.asks)
            columns, diagnosis = self.cache.columns, result.diagnosis
            return replace(result, post_filter=profile.runner.post_filter(filtered.state, pod, columns, diagnosis))
        return result

    async def _take_nominated(self, asked: Sequence[Extender], pod: PodInfo, filtered: Filtered) -> bool:
        """Whether the extenders, too, leave the node that the pod is nominated to; a failure is a rejection here."""
        names = self._names([filtered.own])
        try:
            return bool(await self._pass(asked, pod, names, Gathered(self.cache.columns)))
        except ExtenderError as error:
            log.warning("extender.failed", pod=str(pod.key), node=names[0], reason=str(error))
            return False

    async def _filter(self, asked: Sequence[Extender], pod: PodInfo, filtered: Filtered, opinion: Gathered) -> None:
        names = self._names(np.flatnonzero(filtered.found.mask).tolist())
        left = await self._pass(asked, pod, names, opinion)
        if len(left) < len(names):
            filtered.found.mask, filtered.found.is_narrowed = self.cache.columns.mask_of(left), True

    async def _pass(self, asked: Sequence[Extender], pod: PodInfo, names: list[str], opinion: Gathered) -> list[str]:
        """Return the nodes that all leave, one extender after the other. Raises: ExtenderError."""
        for extender in asked:
            if not names:
                break
            if not extender.filter_verb:
                continue
            try:
                body = await self._ask(extender, "filter", pod, self._question(extender, pod, names), self._attempt)
                left, answer = documents.read_filter(
                    body, names, url=extender.url_prefix, by_name=extender.node_cache_capable
                )
            except ExtenderError as error:
                if not extender.ignorable:
                    raise
                self._ignore(extender, pod, error)
                continue
            opinion.turned_down(names, left, answer)
            names = left
        return names

    async def _prioritize(self, asked: Sequence[Extender], pod: PodInfo, names: list[str], opinion: Gathered) -> None:
        """Gather points of all at once; who fails gives none, ignorable or not."""
        scoring = [each for each in asked if each.prioritize_verb]

        async def points_of(each: Extender) -> list[documents.HostPriority]:
            try:
                body = await self._ask(each, "prioritize", pod, self._question(each, pod, names), self._attempt)
                return documents.read_priorities(body, url=each.url_prefix)
            except ExtenderError as error:
                self._ignore(each, pod, error)
                return []

        for extender, points in zip(scoring, await asyncio.gather(*map(points_of, scoring)), strict=True):
            opinion.add_scores(points, extender.weight)

    async def _preempt(
        self, asked: Sequence[Extender], pod: PodInfo, candidates: Sequence[Candidate]
    ) -> list[Candidate] | Status:
        """Return the candidates that all leave, or why there are none."""
        left: list[Candidate] | Status = list(candidates)
        for extender in asked:
            if not extender.preempt_verb or isinstance(left, Status):
                continue
            answer = await self._victims(extender, pod, left)
            left = left_by_extender(left, answer, is_ignorable=extender.ignorable)
        return left

    async def _victims(
        self, extender: Extender, pod: PodInfo, candidates: Sequence[Candidate]
    ) -> dict[str, Victims] | ExtenderError:
        ours = {each.node: each.victims for each in candidates}
        try:
            whole = {
                node: ([self._document(victim) for victim in victims.pods], victims.violations)
                for node, victims in ours.items()
            }
            question = documents.preemption_args(self._document(pod), whole, by_uid=extender.node_cache_capable)
            body = await self._ask(extender, "preempt", pod, question, self._attempt)
            answer: dict[str, Victims] = {}
            for node, theirs in documents.read_preemption(body, url=extender.url_prefix).items():
                if node not in ours:
                    raise ExtenderError(f"extender {extender.url_prefix} names node {node}, which was not asked about")
                answer[node] = victims_of(self.cache.nodes[node], ours[node], theirs, extender.url_prefix)
        except ExtenderError as error:
            return error
        return answer

    def binding_of(self, pod: PodInfo) -> ExtenderBind | None:
        """Return the function that binds this pod by an extender, or None; it raises UnknownOutcome when it fails."""
        extender = next((each for each in self.extenders if each.bind_verb and is_interested(each, pod)), None)
        return partial(self._bind, extender, pod) if extender is not None else None

    async def _bind(self, extender: Extender, pod: PodInfo, node: str, traceparent: str) -> None:
        question = documents.bind_args(pod.key.namespace, pod.key.name, pod.uid, node)
        try:
            body = await self._ask(extender, "bind", pod, question, traceparent)
            documents.read_binding(body, url=extender.url_prefix)
        except ExtenderError as error:
            # It may have bound the pod all the same: only a read is definite (K2).
            raise UnknownOutcome(str(error)) from error

    async def _ask(self, extender: Extender, verb: str, pod: PodInfo, question: bytes, traceparent: str) -> bytes:
        self.asked_total += 1
        timeout_s = extender.http_timeout or TIMEOUT_S
        body = await self.transport.post(extender, verb_url(extender, verb), question, timeout_s, traceparent)
        if self.on_answer is not None:
            self.on_answer(pod, verb, extender.url_prefix, documents.in_go_form(verb, body))
        return body

    def _question(self, extender: Extender, pod: PodInfo, names: Sequence[str]) -> bytes:
        nodes = None
        if not extender.node_cache_capable:
            nodes = [found for name in names if (found := self.node_document(Key("", name))) is not None]
        return documents.filter_args(self._document(pod), names, nodes)

    def _document(self, pod: PodInfo) -> Document:
        found = self.pod_document(pod.key)
        if found is None or found["metadata"].get("uid") != pod.uid:
            raise ExtenderError(f"{pod.key} is gone")
        return found

    def _names(self, rows: Sequence[int]) -> list[str]:
        nodes = self.cache.columns.nodes
        return [node.name for row in rows if (node := nodes[row]) is not None]

    def _ignore(self, extender: Extender, pod: PodInfo, error: ExtenderError) -> None:
        self.ignored_total += 1
        log.warning("extender.ignored", extender=extender.url_prefix, pod=str(pod.key), reason=str(error))


METRICS: Final[Metrics[Extenders]] = Metrics(
    counter("keplab_scheduler_extender_questions_total", "Questions asked.", lambda own: own.asked_total),
    counter("keplab_scheduler_extender_failures_ignored_total", "Failures passed over.", lambda own: own.ignored_total),
)
