"""Proxy from a foreign scheduler to the configuration's extenders: calls are forwarded, and the responses
recorded on the pod.

The mesh's own scheduler calls extenders itself and records their responses. Source: simulator 3;
kubernetes-sigs/kube-scheduler-simulator, `simulator/server/handler/extender.go`,
`simulator/scheduler/extender`.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import structlog

from lab.simulator.schedulerconfig import SchedulerConfiguration
from scheduler.configuration.document import Extender
from scheduler.explain.record_store import EXTENDER_KEYS
from scheduler.explain.record_text import PREFIX, go_json
from scheduler.extenders.documents import in_go_form
from scheduler.extenders.extended_cycle import TIMEOUT_S, verb_url
from scheduler.extenders.http import HttpTransport
from scheduler.preemption.candidates import ExtenderError
from services.api.errors import UNREADABLE, ApiError, UnknownOutcome
from services.api.lru import LRU
from services.api.meta import Key, metadata_of
from services.client.client import Client

PODS_MAX: Final = 4096
log = structlog.get_logger()
Answers = dict[str, dict[str, Any]]


class NoSuchExtender(LookupError):
    """The configuration has no extender with that number, or the extender has no such verb."""


@dataclass
class ExtenderProxy:
    """Proxy to extenders. `_answers`: responses by pod, verb and URL prefix."""

    client: Client
    configuration: SchedulerConfiguration | None
    transport: HttpTransport
    _answers: LRU[Key, Answers] = field(default_factory=lambda: LRU(PODS_MAX))

    async def ask(self, verb: str, number: int, body: bytes, traceparent: str = "") -> bytes:
        """Return the extender's response in Go's form.

        Raises: NoSuchExtender; ValueError: the request body is not valid; ExtenderError: the extender does not
        answer.
        """
        extender = self._extender(verb, number)
        pod = _pod_of(body)
        timeout_s = extender.http_timeout or TIMEOUT_S
        answer = await self.transport.post(extender, verb_url(extender, verb), body, timeout_s, traceparent)
        go_answer = in_go_form(verb, answer)
        if isinstance(go_answer, str):
            raise ExtenderError(f"extender {extender.url_prefix} answers {go_answer[:200]!r} to {verb}")
        await self._record(pod, verb, extender.url_prefix, go_answer)
        return go_json(go_answer).encode()

    async def close(self) -> None:
        """Close the connections."""
        await self.transport.close()

    def _extender(self, verb: str, number: int) -> Extender:
        extenders = self.configuration.extenders() if self.configuration is not None else ()
        if not 0 <= number < len(extenders):
            raise NoSuchExtender(f"extender {number}: the configuration has {len(extenders)}")
        if verb_url(extenders[number], verb).endswith("/"):
            raise NoSuchExtender(f"extender {number} ({extenders[number].url_prefix}) is not asked to {verb}")
        return extenders[number]

    async def _record(self, pod: Key, verb: str, url: str, answer: Any) -> None:
        answers = self._answers.get(pod) or {}
        answers.setdefault(verb, {})[url] = answer
        self._answers.put(pod, answers)
        texts = {f"{PREFIX}extender-{each}-result": go_json(answers.get(each, {})) for each in EXTENDER_KEYS}
        try:
            await self.client.patch_rv("pods", pod, {"metadata": {"annotations": texts}})
        except (ApiError, UnknownOutcome) as error:
            log.info("extender.not_recorded", pod=str(pod), reason=str(error))


def _pod_of(body: bytes) -> Key:
    """Return the pod that a question is about. Raises: ValueError."""
    try:
        question = msgspec.json.decode(body)
    except UNREADABLE as error:
        raise ValueError(f"the question is no JSON: {error}") from None
    folded = {str(key).lower(): value for key, value in question.items()} if isinstance(question, dict) else {}
    pod = folded.get("pod")
    if isinstance(pod, dict):
        metadata = metadata_of(pod)
        return Key(str(metadata.get("namespace") or "default"), str(metadata.get("name") or ""))
    if folded.get("podname"):
        return Key(str(folded.get("podnamespace") or "default"), str(folded["podname"]))
    raise ValueError("the question names no pod: want Pod, or PodName and PodNamespace")
