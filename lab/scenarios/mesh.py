"""The whole mesh as one value: start it, reach it, break parts of it, stop it.

`Mesh` is what scenarios are run against; `SimMesh` (simulated_mesh) and `ProcessMesh` (process_mesh)
are its two forms. A component is named as people name it: `apiserver`, `scheduler`, `controllers`, `claim-controller`,
`kubelet/<host>`; `kubelet/<node>` means the host that node lives on.
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
    """One form of the mesh cannot do what the scenario asks; the message says which form can."""


@dataclass(frozen=True)
class Site:
    """A moment in the life of a component: its `count`-th passing of something from now on. `name`: an event of its
    log, in the middle of what that line reports; or `before:` or `after:` and a call, such as `before:pods/status`."""

    name: str
    count: int = 1


@dataclass(frozen=True)
class MeshPlan:
    """What a mesh consists of. `nodes` are node definitions as `kubelet/config.py` reads them (JSON objects).

    `hosts` is the number of kubelet processes the nodes are dealt out to; 0 means min(3, nodes).
    `latencies`: `STAGE=DISTRIBUTION` texts for the kubelets. `engine`: memory or sqlite.
    `traced`: keep every span; it changes no decision, but costs time. `origin`: resource attributes
    of these spans that name the run. `stages`: files of KWOK documents, Stages and its other kinds.
    `enable_crds`: kinds of KWOK's of which there may be objects.
    `own_switches`: by process or component, what is set there otherwise than everywhere. `window_s`: seconds for which
    the API server keeps changes, none besides; None: as ever. `state`: what a simulated mesh begins from, if anything.
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
    """Nodes without power at the beginning: machines that come later."""

    @cached_property
    def identifiers(self) -> str:
        """What new uids and names follow from: the seed and the state that a simulation begins from."""
        return f"{self.seed}/{self.state.fingerprint}" if self.state is not None else str(self.seed)

    @property
    def draws(self) -> str:
        """What all else that is drawn follows from.

        The same as identifiers, so that request ids and traces of a run are not drawn again. A snapshot of another tool
        has none of them: two that say the same in other words are decided about alike with one seed.
        """
        return self.identifiers if self.state is not None and self.state.is_of_run else str(self.seed)

    @property
    def usage_files(self) -> tuple[str, ...]:
        """The files of KWOK documents, if any of them says what pods use. Raises: KwokError."""
        return self.stages if self.stages and load(self.stages)["ResourceUsage"] else ()

    @property
    def stage_rights(self) -> Stages:
        """What kubelet hosts may change of metadata. Raises: StageError."""
        return EVERY_STAGE if STAGE in self.enable_crds else rights_of(load_stages(self.stages))

    def switches_of(self, component: str) -> Switches:
        """Return the switches as one process has them."""
        names = (component, component_of(component))
        own = [word for name, words in self.own_switches if name in names for word in words]
        return Switches.parse([*self.switches.assignments, *own]) if own else self.switches

    def components(self) -> list[str]:
        """Return the components and processes that may have switches of their own."""
        kinds = ["apiserver", "scheduler", "controllers", CLAIM_CONTROLLER, "kubelet"]
        processes = [each.name for each in self.schedulers.processes()] + [f"kubelet/{host}" for host in self.deal()]
        return [*kinds, *(name for name in processes if name not in kinds)]

    def deal(self) -> dict[str, list[dict[str, object]]]:
        """Return nodes by host name, dealt in blocks as equal as can be: h0 gets the first."""
        rest = iter(self.nodes)
        sizes = block_sizes(len(self.nodes), self.hosts) if self.nodes else []
        return {f"h{i}": list(islice(rest, size)) for i, size in enumerate(sizes)}


Progress = Callable[[Sequence[str]], Awaitable[int]]
"""Has bookmarks sent on the observer's watches of these resources, and returns the store's version before that. Raises:
ApiError, UnknownOutcome."""


class Mesh(Protocol):
    """A running control plane. All times are seconds since its start."""

    @property
    def progress(self) -> Progress | None:
        """How the observer learns how far it has seen; None where it sees every change at the moment of its commit."""

    @property
    def clock(self) -> Clock:
        """Return the clock that the scenario's times are counted with."""

    async def start(self) -> None:
        """Return when every process is ready and every node is registered and Ready."""

    async def stop(self) -> None:
        """Stop everything that was started."""

    def api(self, identity: Identity) -> Api:
        """Return the server as that identity reaches it, over a link without faults."""

    async def kill(self, component: str, down_s: float | None, site: Site | None = None) -> None:
        """SIGKILL, once the site is reached; it comes back after `down_s`, or when its supervisor restarts it."""

    async def restart(self, component: str, switches: Sequence[str] = ()) -> None:
        """End a process in good order and return when its successor is ready; `switches`: NAME=VALUE, which it and its
        later lives have over those it had. Raises: ValueError when it cannot start with them.
        """

    async def pause(self, component: str, duration_s: float, site: Site | None = None) -> None:
        """SIGSTOP, once the site is reached, and SIGCONT after the duration."""

    async def reboot(self, component: str, down_s: float) -> None:
        """The machine of a kubelet host crashes: nothing runs on its nodes until it is back, with a new boot id."""

    async def corrupt(self, component: str, how: str, what: str) -> None:
        """End a kubelet host and damage what its machine keeps, before it is back (`corruption`)."""

    def link(self, component: str, faults: LinkFaults = HEALTHY) -> None:
        """Set the faults of a component's link; without any, heal it. `node/<name>` is the way of that node alone,
        whatever host it shares with others."""

    def set_clock(self, component: str, offset_s: float) -> None:
        """Have the component's wall clock be off by so much from now on; seconds are counted as before."""

    def set_disk(self, component: str, error: str, slow_s: float) -> None:
        """Have every sync of the component's disk fail (`ENOSPC`, `EIO`) or take so much longer; "" and 0 heal it."""

    def has_machine(self, node: str) -> bool:
        """Whether a kubelet of the mesh hosts the node, so that it can be switched off, and find files."""

    async def put_file(self, node: str, name: str, data: bytes | None) -> None:
        """Have the node find this file (`kubelet/agent/node_files.py`) from now on; None: not find it any more."""

    def exit_codes(self, component: str) -> Sequence[int]:
        """Return how each life of a component ended that ended by itself, oldest first."""

    async def command_plugin(self, node: str, resource: str, act: str, devices: tuple[str, ...]) -> None:
        """Have an emulated device plugin act (`kubelet/deviceplugin/emulated/plugin.py`). Raises: ValueError."""

    async def command_driver(self, node: str, driver: str, act: str, words: tuple[str, ...]) -> None:
        """Have an emulated DRA driver act (`kubelet/dra/emulated/driver.py`). Raises: ValueError."""

    def components(self) -> Sequence[str]:
        """Return the names of all components, sorted."""


def identity_named(text: str) -> Identity:
    """Return the identity a scenario means: `node:n1`, `scheduler`, `admin`, `controller:gc`, or a user name."""
    if text in ("admin", ADMIN.user):
        return ADMIN
    if text in ("scheduler", SCHEDULER.user):
        return SCHEDULER
    kind, _, name = text.removeprefix("system:").partition(":")
    named = {"node": node_identity, "controller": controller_identity}.get(kind)
    return named(name) if named is not None and name else Identity(text)
