"""Server of the pages that KWOK's Metrics describe: the Node is read per request, its pods are watched.

Source: kubernetes-sigs/kwok pkg/kwok/server/metrics.go, service_discovery.go; decision 0073.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import structlog

from kubelet.agent.host import Host
from kubelet.view import KubeletPod
from services.api.errors import ApiError, UnknownOutcome
from services.api.meta import Document, Key
from services.client.client import Client
from services.client.informer import Informer
from services.kwok.expressions import Expressions
from services.kwok.kind import Rule
from services.kwok.kinds.metric import NODE_NAME
from services.kwok.metric_pages import CONTENT_TYPE, Scene, page
from services.kwok.node_usage import NodeUsage
from services.kwok.usage import Usages
from services.reconcile.controller import Change
from services.runtime.health import HttpRequest, HttpResponse, path_pattern

log = structlog.get_logger()
_PARAMETER = "nodeName"


class PagedNode(Protocol):
    """A node of this process, as its pages need it."""

    name: str
    is_off: bool
    pods: Informer[KubeletPod] | None

    @property
    def client(self) -> Client:
        """The node's client of the API server."""


class MetricPages:
    """The Metrics of one host. `agents` returns its nodes as they are now."""

    def __init__(self, host: Host, agents: Callable[[], Sequence[PagedNode]]) -> None:
        self._host, self._agents = host, agents
        self._metrics: tuple[Rule, ...] = host.kwok["Metric"].all
        self._expressions = Expressions(has_usage=True)
        self._usage = NodeUsage(Usages(host.kwok["ResourceUsage"], host.config.stages_seed))
        self._nodes: dict[str, Document] = {}
        self._failures: set[str] = set()

    def on_changed(self) -> None:
        """Apply the host's present documents."""
        self._metrics = self._host.kwok["Metric"].all
        self._usage.usages = Usages(self._host.kwok["ResourceUsage"], self._host.config.stages_seed)

    async def answer(self, request: HttpRequest) -> HttpResponse | None:
        """Return the page of the Metric that has this path now, or None."""
        for rule in self._metrics:
            if (match := path_pattern(rule.spec.path).match(request.path)) is not None:
                return await self._answering(rule)(replace(request, params=match.groupdict()))
        return None

    def routes(self) -> list[tuple[str, Callable[[HttpRequest], Awaitable[HttpResponse]]]]:
        """Return the paths of all Metrics with their answers."""
        return [(rule.spec.path, self._answering(rule)) for rule in self._metrics]

    def discovery(self, host: str, nodes: Iterable[str], scheme: str) -> list[dict[str, Any]]:
        """Return the host's targets in the format of Prometheus' HTTP discovery. `host`: its address and port."""
        names = list(nodes)
        targets = []
        for rule in self._metrics:
            paths = [rule.spec.path.replace(NODE_NAME, name) for name in names]
            for path in paths if NODE_NAME in rule.spec.path else [rule.spec.path]:
                labels = {"metrics_name": rule.key.name, "__scheme__": scheme, "__metrics_path__": path}
                targets.append({"targets": [host], "labels": labels})
        return targets

    def pod_changed(self, node: str, change: Change[Any], document: Document | None) -> None:
        """Take a change of a pod: note which containers were started, and what is gone."""
        if change.new is None or document is None:
            if change.old is not None:
                self._usage.on_deleted(change.old.metadata.uid)
            return
        self._usage.observe(node, document)

    def _answering(self, rule: Rule) -> Callable[[HttpRequest], Awaitable[HttpResponse]]:
        async def answer(request: HttpRequest) -> HttpResponse:
            name = request.params.get(_PARAMETER, rule.key.name)
            agent = next((each for each in self._agents() if each.name == name and not each.is_off), None)
            if agent is None or agent.pods is None:
                return 404, "text/plain", f"node {name!r} is not here\n".encode()
            scene = Scene(
                await self._node(agent),
                _pods(agent),
                self._usage,
                self._expressions,
                self._host.clock.wall(),
                self._host.config.stages_seed,
            )
            body = page(rule.spec, scene)
            for text in {*scene.failures, *self._usage.usages.failures.values()} - self._failures:
                self._failures.add(text)
                log.warning("kwok.expression_failed", metric=rule.key.name, node=name, reason=text)
            return 200, CONTENT_TYPE, body

        return answer

    async def _node(self, agent: PagedNode) -> Document:
        """Return the Node as it is; as it was last where the API server cannot be asked."""
        try:
            self._nodes[agent.name] = await agent.client.get("nodes", Key("", agent.name))
        except (ApiError, UnknownOutcome, AssertionError) as error:
            log.warning("node.read_failed", node=agent.name, reason=str(error))
        return self._nodes.get(agent.name, {"metadata": {"name": agent.name}})


def _pods(agent: PagedNode) -> list[Document]:
    assert agent.pods is not None
    lister = agent.pods.lister
    found = (lister.document(key) for key in sorted(lister.keys()))
    return [document for document in found if document is not None]
