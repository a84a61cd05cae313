"""Faults that people inject into a running mesh: a process killed or paused, its link cut or slow, until it
heals.

The supervisor performs them, so that a fault heals on time even if the requesting client is gone.
"""

import asyncio
import math
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import msgspec

from services.api.errors import UNREADABLE
from services.api.seams import Clock, EventLog
from services.client.link_faults import CUTS, HEALTHY, LinkFaults
from services.runtime.config import MeshError
from services.runtime.machine import READ_AGAIN, MachineFaults
from services.runtime.real import write_atomically

FOR_S_MAX: Final = 3600.0
SLOW_S_MAX: Final = 30.0
PAUSE_S: Final = 10.0
"""Default duration of a pause, in seconds."""
WAYS: Final = tuple(way for way in CUTS if way)
STORES: Final = ("apiserver", "etcd")
"""Components that have no link to an API server."""


class FaultFiles:
    """Fault files of every process's machine. A process that is down reads its file when it comes back."""

    def __init__(self, file_of: Callable[[str], Path], send: Callable[[str, int], None]) -> None:
        """`file_of`: returns a process's file. `send`: sends a process a signal; raises MeshError when it does not
        run.
        """
        self._file_of, self._send = file_of, send
        self._faults: dict[str, MachineFaults] = {}

    def set(self, name: str, **faults: Any) -> None:
        """Set the given faults of a process's machine; the others stay as they are. Raises: OSError."""
        made = self._faults[name] = msgspec.structs.replace(self._faults.get(name, MachineFaults()), **faults)
        write_atomically(self._file_of(name), msgspec.json.encode(made))
        with suppress(MeshError, ProcessLookupError):
            self._send(name, READ_AGAIN)

    def link(self, name: str, node: str, faults: LinkFaults) -> None:
        """Set the faults of a process's own link, or of one node's. Raises: OSError."""
        links = {**self._faults.get(name, MachineFaults()).links, node: faults}
        self.set(name, links={way: found for way, found in links.items() if found != HEALTHY})


class FaultOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault; with `heal` the end of a process's faults, or of all when `target` is "".

    `for_s`: seconds after which it heals by itself; 0: never. For a kill, the seconds that the process stays away.
    `way`: for a cut, the lost messages: requests, replies or both. `slow_s`: extra seconds per message.
    """

    action: Literal["kill", "pause", "cut", "slow", "heal"]
    target: str = ""
    for_s: float = 0.0
    way: str = "both"
    slow_s: float = 0.2

    def check(self) -> None:
        """Raise ValueError naming the invalid field and its allowed values."""
        if self.action != "heal" and not self.target:
            raise ValueError(f"target: want the name of a process to {self.action}")
        if not 0.0 <= self.for_s <= FOR_S_MAX:
            raise ValueError(f"for_s: want 0 to {FOR_S_MAX:g} seconds, not {self.for_s:g}")
        if self.way not in WAYS:
            raise ValueError(f"way: want {', '.join(WAYS)}, not {self.way!r}")
        if self.action == "slow" and not 0.0 < self.slow_s <= SLOW_S_MAX:
            raise ValueError(f"slow_s: want more than 0 and at most {SLOW_S_MAX:g} seconds, not {self.slow_s:g}")


class Processes(Protocol):
    """The part of the supervisor that faults need."""

    def kill(self, name: str, number: int = ..., *, down_s: float | None = None) -> None:
        """Send a signal. Raises: KeyError, MeshError."""
        ...

    def faults_file_of(self, name: str) -> Path:
        """Return a process's file."""
        ...


class Breaking:
    """Active faults, by process and sort: `down` (a pause) and `link`."""

    def __init__(
        self, processes: Processes, clock: Clock, *, has_files: bool, component_of: Callable[[str], str]
    ) -> None:
        self._processes, self._clock, self._has_files, self._component_of = processes, clock, has_files, component_of
        self._files = FaultFiles(processes.faults_file_of, processes.kill)
        self._in_force: dict[tuple[str, str], dict[str, Any]] = {}
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}
        self.events: EventLog | None = None
        """Where faults and their ends are written."""

    def status(self) -> list[dict[str, Any]]:
        """Return the active faults: target, action, way, slow_s, elapsed and remaining seconds."""
        now = self._clock.now()
        return [
            {
                **{name: value for name, value in fault.items() if name not in ("at", "until")},
                "since_s": round(now - fault["at"], 3),
                "left_s": None if fault["until"] is None else round(max(0.0, fault["until"] - now), 3),
            }
            for fault in self._in_force.values()
        ]

    def perform(self, request: dict[str, Any]) -> dict[str, Any]:
        """Perform a request of `control`; return what was done, or the error."""
        try:
            wanted = msgspec.convert(request, FaultOrder)
            wanted.check()
            return {"done": self._perform(wanted)}
        except KeyError as error:
            return {"error": str(error.args[0]), "is_usage": True}
        except (*UNREADABLE, ValueError) as error:
            return {"error": str(error), "is_usage": True}
        except (MeshError, OSError) as error:
            return {"error": str(error), "is_usage": False}

    def _perform(self, wanted: FaultOrder) -> list[str]:
        name = wanted.target
        if wanted.action == "heal":
            keys = [key for key in self._in_force if key[0] == name or not name]
            for key in keys:
                self._heal(key)
            return [f"{key[0]} {self._name_of(key)} healed" for key in keys]
        if wanted.action == "kill":
            self._processes.kill(name, signal.SIGKILL, down_s=wanted.for_s or None)
            self._forget((name, "down"))
            self._write("fault.inject", name, {"what": "kill", "for_s": wanted.for_s})
            return [f"{name} killed"]
        if wanted.action == "pause":
            self._processes.kill(name, signal.SIGSTOP)
            self._note((name, "down"), wanted, wanted.for_s or PAUSE_S)
            self._write("fault.inject", name, {"what": "pause", "for_s": wanted.for_s or PAUSE_S})
            return [f"{name} stopped"]
        self._link(name, wanted)
        return [f"{name} {'cut' if wanted.action == 'cut' else 'slow'}"]

    def _link(self, name: str, wanted: FaultOrder) -> None:
        self._processes.kill(name, 0)  # one that is not there has no link
        if self._component_of(name) in STORES:
            raise ValueError(f"target: {name} has no link to an API server to {wanted.action}; name one of its clients")
        if not self._has_files:
            raise MeshError(
                "the processes of this mesh read no faults of their links: start it with `keplab up --faults`"
            )
        is_cut = wanted.action == "cut"
        faults = LinkFaults(cut=wanted.way) if is_cut else LinkFaults(slow_s=wanted.slow_s)
        self._files.link(name, "", faults)
        self._note((name, "link"), wanted, wanted.for_s)
        self._write("fault.inject", name, {"what": wanted.action, "for_s": wanted.for_s, **faults.data()})

    def _note(self, key: tuple[str, str], wanted: FaultOrder, for_s: float) -> None:
        self._forget(key)
        now = self._clock.now()
        fault: dict[str, Any] = {"target": wanted.target, "action": wanted.action, "at": now, "until": None}
        if wanted.action == "cut":
            fault["way"] = wanted.way
        if wanted.action == "slow":
            fault["slow_s"] = wanted.slow_s
        if for_s and math.isfinite(for_s):
            fault["until"] = now + for_s
            self._timers[key] = asyncio.get_running_loop().call_later(for_s, self._heal, key)
        self._in_force[key] = fault

    def _forget(self, key: tuple[str, str]) -> None:
        self._in_force.pop(key, None)
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()

    def _name_of(self, key: tuple[str, str]) -> str:
        return "pause" if key[1] == "down" else "link"

    def _heal(self, key: tuple[str, str]) -> None:
        name, sort = key
        what = self._in_force.get(key, {}).get("action", "")
        self._forget(key)
        if sort == "down":
            with suppress(MeshError, ProcessLookupError):
                self._processes.kill(name, signal.SIGCONT)
        else:
            with suppress(OSError):
                self._files.link(name, "", HEALTHY)
        self._write("fault.heal", name, {"what": what})

    def on_ended(self, name: str) -> None:
        """Forget the pause of a process that has ended; its successor is not paused."""
        if (name, "down") in self._in_force:
            self._forget((name, "down"))
            self._write("fault.heal", name, {"what": "pause"})

    def close(self) -> None:
        """Cancel all timers."""
        for key in list(self._timers):
            self._forget(key)

    def _write(self, event: str, name: str, data: dict[str, Any]) -> None:
        if self.events is not None:
            self.events.write(event, data={"target": name, **data})
