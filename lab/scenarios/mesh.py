"""The whole mesh as one object: start it, reach it, break parts of it, stop it.

Scenarios run against a `Mesh`; `SimMesh` (simulated_mesh) and `ProcessMesh` (process_mesh) are its two
forms. Component names are `apiserver`, `scheduler`, `controllers`, `claim-controller`, `kubelet/<host>`;
`kubelet/<node>` means the host of that node.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Protocol

from lab.scenarios.initial_state import State
from services.api.identity import ADMIN, EVERY_STAGE, SCHEDULER, Identity, Stages, controller_identity, node_identity
from services.api.seams import Clock
from services.api.switches import Switches
from services.api.wire import Api
from services.client.link_faults import HEALTHY, LinkFaults
from services.kwok.documents import STAGE, load
from services.kwok.stages.document import load_stages
from services.kwok.stages.rights import rights_of
from services.runtime.components import CLAIM_CONTROLLER, Schedulers, block_sizes, component_of


class NotPossible(ValueError):
    """A request of the scenario that this form of the mesh cannot perform; the message says which form can."""


@dataclass(frozen=True)
class Site:
    """A moment in the life of a component: the `count`-th occurrence of `name` from now on.

    `name`: an event of its log, in the middle of what that line reports; or `before:` or `after:` and a call,
    such as `before:pods/status`.
    """

    name: str
    count: int = 1


@dataclass(frozen=True)
class MeshPlan:
    """Configuration of a mesh. `nodes` are node definitions as `kubelet/config.py` reads them (JSON objects).

    `hosts`: number of kubelet processes among which the nodes are distributed; 0 means min(3, nodes).
    `latencies`: `STAGE=DISTRIBUTION` texts for the kubelets. `engine`: memory or sqlite. `traced`: keep every
    span; it changes no decision, but costs time. `origin`: resource attributes of these spans that name the
    run. `stages`: files of KWOK documents, Stages and its other kinds. `enable_crds`: KWOK kinds of which
    objects are allowed. `own_switches`: switches that differ for one process or component. `window_s`:
    seconds for which the API server keeps changes; None: the default window. `state`: the state from which a
    simulated mesh begins, if any.
    """

    nodes: tuple[dict[str, object], ...] = ()
    switches: Switches = field(default_factory=Switches)
    latencies: tuple[str, ...] = ()
    hosts: int = 0
    engine: str = "sqlite"
    seed: int = 0
    traced: bool = False
    origin: Mapping[str, str] = field(default_factory=dict)
    schedulers: Schedulers = field(default_factory=Schedulers)
    stages: tuple[str, ...] = ()
    enable_crds: tuple[str, ...] = ()
    own_switches: tuple[tuple[str, tuple[str, ...]], ...] = ()
    window_s: float | None = None
    state: State | None = None
    off: frozenset[str] = frozenset()
    """Nodes whose machines are off at the beginning, to be switched on later."""

    @cached_property
    def identifiers(self) -> str:
        """Seed of new uids and names: the seed, and the state that a simulation begins from."""
        return f"{self.seed}/{self.state.fingerprint}" if self.state is not None else str(self.seed)

    @property
    def draws(self) -> str:
        """Seed of all other random numbers.

        It equals `identifiers` for a state from a run, so that the request ids and traces of that run do not
        recur. A snapshot of another tool has none of these. So two snapshots with the same content in different
        form lead to the same decisions with one seed.
        """
        return self.identifiers if self.state is not None and self.state.is_of_run else str(self.seed)

    @property
    def usage_files(self) -> tuple[str, ...]:
        """The files of KWOK documents, if any of them defines a ResourceUsage; otherwise empty. Raises: KwokError."""
        return self.stages if self.stages and load(self.stages)["ResourceUsage"] else ()

    @property
    def stage_rights(self) -> Stages:
        """Parts of metadata that kubelet hosts may change. Raises: StageError."""
        return EVERY_STAGE if STAGE in self.enable_crds else rights_of(load_stages(self.stages))

    def switches_of(self, component: str) -> Switches:
        """Return the switches of one process or component."""
        names = (component, component_of(component))
        own = [word for name, words in self.own_switches if name in names for word in words]
        return Switches.parse([*self.switches.assignments, *own]) if own else self.switches

    def components(self) -> list[str]:
        """Return the components and processes that may have switches of their own."""
        kinds = ["apiserver", "scheduler", "controllers", CLAIM_CONTROLLER, "kubelet"]
        processes = [each.name for each in self.schedulers.processes()] + [f"kubelet/{host}" for host in self.deal()]
        return [*kinds, *(name for name in processes if name not in kinds)]

    def deal(self) -> dict[str, list[dict[str, object]]]:
        """Return the nodes by host name, in contiguous blocks of equal size as far as possible; h0 gets the first."""
        rest = iter(self.nodes)
        sizes = block_sizes(len(self.nodes), self.hosts) if self.nodes else []
        return {f"h{i}": list(islice(rest, size)) for i, size in enumerate(sizes)}


Progress = Callable[[Sequence[str]], Awaitable[int]]
"""Function that requests bookmarks on the observer's watches of these resources, and returns the store's
version before that. Raises: ApiError, UnknownOutcome.
"""


class Mesh(Protocol):
    """A running control plane. All times are seconds since its start."""

    @property
    def progress(self) -> Progress | None:
        """Function with which the observer checks how far it has caught up; None where it sees every change at its
        commit.
        """

    @property
    def clock(self) -> Clock:
        """Clock for the scenario's times."""

    async def start(self) -> None:
        """Start the mesh; return when every process is ready and every node is registered and Ready."""

    async def stop(self) -> None:
        """Stop everything that was started."""

    def api(self, identity: Identity) -> Api:
        """Return the API server as that identity reaches it, over a link without faults."""

    async def kill(self, component: str, down_s: float | None, site: Site | None = None) -> None:
        """Send SIGKILL, once the site is reached; the component restarts after `down_s`, or when its supervisor
        restarts it.
        """

    async def restart(self, component: str, switches: Sequence[str] = ()) -> None:
        """Shut a process down in an orderly way, and return when its successor is ready.

        `switches`: NAME=VALUE, which override those it had, for this and later lives. Raises: ValueError when it
        cannot start with them.
        """

    async def pause(self, component: str, duration_s: float, site: Site | None = None) -> None:
        """Send SIGSTOP, once the site is reached, and SIGCONT after the duration."""

    async def reboot(self, component: str, down_s: float) -> None:
        """Crash the machine of a kubelet host: nothing runs on its nodes until it is back, with a new boot id."""

    async def corrupt(self, component: str, how: str, what: str) -> None:
        """End a kubelet host and damage the files on its machine before it restarts (`corruption`)."""

    def link(self, component: str, faults: LinkFaults = HEALTHY) -> None:
        """Set the faults of a component's link; without any, heal it.

        `node/<name>` is the link of that node alone, even if it shares its host with others.
        """

    def set_clock(self, component: str, offset_s: float) -> None:
        """Offset the component's wall clock from now on; its monotonic clock is not affected."""

    def set_disk(self, component: str, error: str, slow_s: float) -> None:
        """Make every sync of the component's disk fail (`ENOSPC`, `EIO`) or take `slow_s` longer; "" and 0 heal it."""

    def has_machine(self, node: str) -> bool:
        """Return whether a kubelet of the mesh hosts the node, so that it can be switched off and be given files."""

    async def put_file(self, node: str, name: str, data: bytes | None) -> None:
        """Give the node this file (`kubelet/agent/node_files.py`) from now on; None: remove it."""

    def exit_codes(self, component: str) -> Sequence[int]:
        """Return the exit codes of the component's lives that ended by themselves, oldest first."""

    async def command_plugin(self, node: str, resource: str, act: str, devices: tuple[str, ...]) -> None:
        """Make an emulated device plugin act (`kubelet/deviceplugin/emulated/plugin.py`). Raises: ValueError."""

    async def command_driver(self, node: str, driver: str, act: str, words: tuple[str, ...]) -> None:
        """Make an emulated DRA driver act (`kubelet/dra/emulated/driver.py`). Raises: ValueError."""

    def components(self) -> Sequence[str]:
        """Return the names of all components, sorted."""


def identity_named(text: str) -> Identity:
    """Return the identity that a scenario names: `node:n1`, `scheduler`, `admin`, `controller:gc`, or a user name."""
    if text in ("admin", ADMIN.user):
        return ADMIN
    if text in ("scheduler", SCHEDULER.user):
        return SCHEDULER
    kind, _, name = text.removeprefix("system:").partition(":")
    named = {"node": node_identity, "controller": controller_identity}.get(kind)
    return named(name) if named is not None and name else Identity(text)
