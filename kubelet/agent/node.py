"""The parts that one node's agent shares: the node's identity, its API client, its tasks, its Events."""

from abc import abstractmethod
from collections.abc import Coroutine
from typing import Any

from kubelet.agent.host import Host
from kubelet.agent.pod_traces import PodTraces
from kubelet.agent.power import Tenant
from kubelet.node.definition import NodeDefinition
from kubelet.node.status import NodeReport
from services.api.errors import UnknownOutcome
from services.api.kinds.node import Node
from services.api.meta import Key
from services.api.wire import Api, Request, Response
from services.client.client import Client
from services.client.recorder import Recorder


class NodeShell(Tenant):
    """One node of a host, as its loops and calls use it; `Agent` is such a node and owns them."""

    def __init__(self, host: Host, definition: NodeDefinition) -> None:
        self.host, self.definition, self.name = host, definition, definition.name
        self.switches = host.switches_of(definition)
        config = host.config
        self.session = _uid(host.random.getrandbits(128))
        self.report = NodeReport(
            definition,
            session=self.session,
            address=config.address,
            port=config.port or max(0, config.health_port),
            release=self.switches.release,
            declared=definition.declares(self.switches),
        )
        self.traces = PodTraces(host.seams.tracer, self.name)
        self.api: Api | None = None
        """None: the API server was not reached yet, and nothing is called."""
        self._client: Client | None = None
        self._recorder: Recorder | None = None
        self.node_uid = ""
        self.is_registered = self.is_off = False
        self.writes_status = True
        """Whether the Node's status is the kubelet's to write, not that of stages."""
        self.node_writes = 0

    @abstractmethod
    def take_node(self, node: Node) -> None:
        """Take the Node as read from the API server."""

    @abstractmethod
    def report_soon(self) -> None:
        """Write the Node's status."""

    @abstractmethod
    def node_gone(self) -> None:
        """Handle the deletion of the Node."""

    def now(self) -> float:
        """Return the time, in monotonic seconds."""
        return self.host.clock.now()

    def set_timer(self, at_s: float, what: str) -> None:
        """Call `fire(what)` at that time."""
        self.host.set_timer(at_s, self, what)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in a task that ends with the node's power."""
        self.host.power.start(self, work)

    async def connect(self) -> None:
        """Prepare to call the API server as this node."""
        if self.api is None:
            self.api = await self.host.seams.transport.node_api(self.name)
            self._client = Client(self.api, self.host.clock, self.host.random, field_manager="kubelet")

    @property
    def client(self) -> Client:
        """The node's own client, once `connect` was called."""
        assert self._client is not None
        return self._client

    async def call(self, request: Request) -> Response | None:
        """Return the answer, or None when the outcome is unknown."""
        assert self.api is not None
        try:
            return await self.api.call(request)
        except UnknownOutcome:
            return None

    @property
    def events(self) -> Recorder:
        """The recorder of Events about the Node."""
        if self._recorder is None:
            self._recorder = Recorder(
                self.client, self.host.clock, self.host.random, component="kubelet", host=self.name
            )
            self.spawn(self._recorder.run())
        return self._recorder

    def record(self, reason: str, message: str, event_type: str) -> None:
        """Record an Event about the Node."""
        self.events.event(
            kind="Node",
            api_version="v1",
            key=Key("", self.name),
            uid=self.node_uid,
            reason=reason,
            message=message,
            type=event_type,
        )


def _uid(bits: int) -> str:
    """Return a UUID4-shaped text."""
    text = f"{bits & ~(0xF << 76) & ~(0x3 << 62) | (4 << 76) | (2 << 62):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
