"""Switches of a mesh that runs in containers: set for an arm or a scenario, and restored afterwards.

Every component reads a file in the volume `switches` in addition to its command line, and exits when the
file changes (services/runtime/set_file.py). The engine then starts the same container again, so nodes
keep their slots. Only components whose switches change are touched. The file is changed either on the
host with the engine's client (`EnginePlace`), or in the mesh's network with the volume mounted
(`VolumePlace`).
"""

import asyncio
import json
import socket
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from lab.scenarios.mesh import MeshPlan, NotPossible
from lab.scenarios.processes.containers import Container, Containers
from lab.scenarios.switch_readers import switches_read_by
from services.api.switches import Switches
from services.runtime.components import CLAIM_CONTROLLER, HEALTH_PORT
from services.runtime.config import MeshError
from services.runtime.real import write_atomically
from services.runtime.set_file import words_of

FOLDER: Final = "/switches"
COMPONENTS: Final = ("apiserver", "scheduler", "controllers", CLAIM_CONTROLLER, "kubelet")
READY_MAX_S: Final = 90.0
POLL_S: Final = 0.2
ANSWER_MAX_S: Final = 5.0

Words = tuple[str, ...]
Address = tuple[str, int]


class Place(Protocol):
    """Interface of the place with the files."""

    def read(self) -> dict[str, str]:
        """Return the files' texts by component. Raises: MeshError."""

    async def put(self, texts: Mapping[str, str]) -> None:
        """Write these files; return when each of their components runs with its new switches. Raises: MeshError."""


class MeshSwitches:
    """Switches of one mesh's components in addition to those that they were started with."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._current: dict[str, Words] = {}

    async def set(self, wanted: Mapping[str, Words]) -> None:
        """Set these additional switches for all components; return when all of them run with theirs. Raises:
        MeshError.
        """
        current_words = {name: words_of(text) for name, text in (await asyncio.to_thread(self._place.read)).items()}
        texts = {
            name: ",".join(wanted.get(name, ()))
            for name in COMPONENTS
            if current_words.get(name, ()) != wanted.get(name, ())
        }
        # Before it is so: an interrupt meanwhile has them put back as well.
        self._current = {name: words for name, words in wanted.items() if words}
        # The API server first: whom it answers leaves in good order, and a kubelet that cannot reach it waits for it.
        for is_server in (True, False):
            if part := {name: text for name, text in texts.items() if (name == "apiserver") == is_server}:
                await self._place.put(part)

    async def add(self, component: str, words: Sequence[str]) -> None:
        """Set more switches for one component, which override those it has. Raises: MeshError."""
        own = Switches.parse((*self._current.get(component, ()), *words)).assignments
        await self.set({**self._current, component: own})

    async def put_back(self) -> None:
        """Remove the additional switches of all components. Raises: MeshError."""
        await self.set({})

    def check(self) -> None:
        """Check that nothing else has changed the switches since. Raises: MeshError."""
        current_words = {name: words_of(text) for name, text in self._place.read().items()}
        for name in COMPONENTS:
            if (now := current_words.get(name, ())) != (then := self._current.get(name, ())):
                raise MeshError(
                    f"something else has set the switches of {name} during the run: to {_words_text(now)}, the "
                    "run began "
                    f"with {_words_text(then)}"
                )


def _words_text(words: Words) -> str:
    return ",".join(words) or "its own"


def wanted_by(plan: MeshPlan, own: Words) -> dict[str, Words]:
    """Return the switches that a plan needs for each component in addition to the mesh's `own`.

    Components that read none of these switches are left out. Raises: NotPossible for switches of a single
    process.
    """
    for name, _ in plan.own_switches:
        if name not in COMPONENTS:
            raise NotPossible(
                f"set {name}: of a running mesh the components have switches, {', '.join(COMPONENTS)}; run it with "
                "--processes or simulated"
            )
    read = {name: switches_read_by(name) for name in COMPONENTS}
    own_switches = Switches.parse(own)
    wanted: dict[str, Words] = {}
    for name in COMPONENTS:
        switches = plan.switches_of(name)
        chosen = {
            each for each in switches.chosen_values if each in read[name] or not any(each in r for r in read.values())
        }
        if any(own_switches[each] != switches[each] for each in chosen):
            wanted[name] = tuple(text for text in switches.assignments if text.partition("=")[0] in chosen)
    return wanted


class EnginePlace:
    """The volume, accessed through the engine's client, which also restarts the containers."""

    def __init__(self, containers: Containers) -> None:
        self._containers = containers

    def read(self) -> dict[str, str]:
        """Return the files' texts by component. Raises: MeshError."""
        return self._containers.texts(FOLDER)

    async def put(self, texts: Mapping[str, str]) -> None:
        """Write the files, restart the containers, and wait until the engine reports them healthy.

        A container that does not run is left alone: it reads its file when it starts. Raises: MeshError.
        """
        await asyncio.to_thread(self._containers.write, FOLDER, texts)
        containers = [
            each
            for each in (await asyncio.to_thread(self._containers.by_name)).values()
            if each.is_running and component_of(each.service) in texts
        ]
        try:
            await asyncio.gather(*(self._containers.restart(each) for each in containers))
        except NotPossible as error:
            raise MeshError(str(error)) from None
        await self._healthy(containers)

    async def _healthy(self, containers: Sequence[Container]) -> None:
        end_s = time.monotonic() + READY_MAX_S
        names = {each.id: each.name for each in containers}
        while waiting := set(names) - await asyncio.to_thread(self._containers.healthy):
            if time.monotonic() > end_s:
                named = ", ".join(sorted(names[each] for each in waiting))
                raise MeshError(f"with other switches {named} did not become healthy within {READY_MAX_S:g} s")
            await asyncio.sleep(POLL_S)


class VolumePlace:
    """The volume as a folder, within the mesh's network. `addresses`: `/configz` addresses of a component's
    running processes; `token`: of a user who may read it.
    """

    def __init__(self, folder: Path, token: str, addresses: Callable[[str], list[Address]] | None = None) -> None:
        self._folder, self._token, self._addresses = folder, token, addresses or addresses_by_name

    def read(self) -> dict[str, str]:
        """Return the files' texts by component. Raises: MeshError."""
        paths = {name: self._folder / name for name in COMPONENTS}
        try:
            return {name: path.read_text() for name, path in paths.items() if path.exists()}
        except OSError as error:
            raise MeshError(f"{error.filename}: {error.strerror}") from None

    async def put(self, texts: Mapping[str, str]) -> None:
        """Write the files, and wait until all processes that were running report the new switches. Raises:
        MeshError.
        """
        counts = {name: len(await asyncio.to_thread(self._addresses, name)) for name in texts}
        try:
            for name, text in texts.items():
                write_atomically(self._folder / name, text.encode())
        except OSError as error:
            raise MeshError(f"{error.filename}: {error.strerror}") from None
        await asyncio.gather(
            *(self._wait_until_taken(name, words_of(text), counts[name]) for name, text in texts.items())
        )

    async def _wait_until_taken(self, component: str, words: Words, count: int) -> None:
        end_s = time.monotonic() + READY_MAX_S
        while await asyncio.to_thread(self._count, component, words) < count:
            if time.monotonic() > end_s:
                raise MeshError(
                    f"{component} did not take {_words_text(words)} within {READY_MAX_S:g} s: it is not started "
                    "again when it ends, or does not become ready"
                )
            await asyncio.sleep(POLL_S)

    def _count(self, component: str, words: Words) -> int:
        """Return how many processes are ready and have these words."""
        return sum(self._has(address, words) for address in self._addresses(component))

    def _has(self, address: Address, words: Words) -> bool:
        try:
            self._answer(address, "/readyz")
            return tuple(json.loads(self._answer(address, "/configz"))["set_file"]) == words
        except (OSError, ValueError, KeyError):
            return False

    def _answer(self, address: Address, path: str) -> bytes:
        # By its address: a server answers to no name but the loopback ones.
        url = f"http://{address[0]}:{address[1]}{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(request, timeout=ANSWER_MAX_S) as answer:
            return bytes(answer.read())


def component_of(service: str) -> str:
    """Return the component that a service of the compose file runs."""
    return "apiserver" if service == "apiserver-2" else service


def addresses_by_name(component: str) -> list[Address]:
    """Return the addresses of a component's containers, as the network's DNS resolves them."""
    addresses: list[Address] = []
    for service in ("apiserver", "apiserver-2") if component == "apiserver" else (component,):
        try:
            known = socket.getaddrinfo(service, HEALTH_PORT, socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            continue
        addresses += sorted({(str(address[0]), HEALTH_PORT) for *_, address in known})
    return addresses
