"""Follow the mesh for the page: one watch for each kind, event lines as they grow, counters once a second.

It is a client like any other: it watches in a name of its own, and its queues are bounded. If it is too slow,
the API server cuts it like any slow watcher, and it begins anew. Bodies are not kept: a page asks for the
object it shows.
"""

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import aiohttp
import msgspec
import structlog

from lab.recordings import frames
from lab.recordings.model import Change, Model
from lab.ui.access import Place
from lab.ui.lines import MOMENT, Entry, LineFeed, Ring, add_in_order, is_noise
from lab.ui.rates import Rates, Sample, read_leads
from lab.ui.rest import Rest
from services.api.errors import UNREADABLE, ApiError
from services.api.meta import ObjectMeta, View
from services.api.wire import Api, WatchEvent
from services.client.discovery import ServedKind
from services.client.informer import Reflector
from services.client.store import Item
from services.runtime.components import CLAIM_CONTROLLER, component_of
from services.runtime.config import MeshError
from services.runtime.real import RealClock, seeded_random
from services.telemetry import kernel

TICK_S: Final = 0.05
LINES_S: Final = 0.1
SETTLED_S: Final = 0.5
"""Age in seconds up to which a line may still be overtaken by one of another process."""
HISTORY_LINES: Final = 500
RATES_S: Final = 1.0
ELECTED_S: Final = 10.0
"""Seconds between reads of leadership; it is in /metrics, which costs more than everything read each second."""
ELECTING: Final = ("scheduler", "controllers", CLAIM_CONTROLLER)
KINDS_S: Final = 30.0
RELEASED_S: Final = 30.0
"""Seconds between releases of freed memory to the machine.

It is also released after a full state or picture was sent, since these are large and short-lived.
"""
SCRAPE_MAX_S: Final = 2.0
LINES_A_FRAME: Final = 500
LEASES: Final = "leases.coordination.k8s.io"
PARTS: Final = {LEASES: "kube-system"}
"""The only followed namespace of a kind, by kind: the leases of leaders, not the heartbeats of nodes."""

_log = structlog.get_logger()


class _Head(View, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_head = msgspec.json.Decoder(_Head)


class Listener(Protocol):
    """One page that shows the mesh as it is now."""

    def whole(self, made: Sequence[bytes]) -> None:
        """Take all columns; they replace those sent before."""
        ...

    def columns(self, made: Sequence[bytes], changed: dict[str, Sequence[int]]) -> None:
        """Take frames of strings and changed rows. `changed`: numbers of these rows, by table."""
        ...

    def lines(self, entries: Sequence[Entry]) -> None:
        """Take event lines."""
        ...

    def document(self, kind: int, frame: bytes, about: str = "") -> None:
        """Take rates, counts, progress or an alarm. `about`: the job, fault or violation that it concerns."""
        ...


class Live:
    """Present state of the mesh. `on_change`: functions called with each change from the watches, its kind, and its
    time (seconds of the live clock).
    """

    def __init__(self, place: Place, rest: Rest, api: Callable[[], Api]) -> None:
        self.place, self._rest, self._api = place, rest, api
        self.zero_s, self.wall_s = time.monotonic(), time.time()
        """When the live clock was 0: the monotonic clock that event lines are written by, and the wall's."""
        self.model, self.ring, self.rates = Model(), Ring(), Rates()
        self.listeners: dict[Listener, None] = {}
        self.status: dict[str, Any] = {"processes": [], "faults": []}
        self.status_error = ""
        self.feeds: dict[str, Feed] = {}
        self.on_change: list[Callable[[WatchEvent, ServedKind, float], None]] = []
        self.on_lines: list[Callable[[Sequence[Entry]], None]] = []
        """Called with event lines in the order of their time, half a second late."""
        self.on_look: list[Callable[[], None]] = []
        """Called each second, when the processes were looked at."""
        self.line_feed: LineFeed | None = None
        self.is_history_read = False
        self._held: list[Entry] = []
        self._has_changed = False
        self._was_sent = False
        """Whether all columns were asked for, which take much for a moment."""
        self._scraping: aiohttp.ClientSession | None = None
        self._leads: dict[str, bool | None] = {}
        self._elected_at: dict[str, float] = {}

    @property
    def now_s(self) -> float:
        """Return the current time in seconds of the live clock."""
        return time.monotonic() - self.zero_s

    @property
    def has_synced(self) -> bool:
        """Whether every followed kind was completely received once."""
        return bool(self.feeds) and all(feed.has_synced for feed in self.feeds.values())

    async def run(self) -> None:
        """Follow the kind until cancelled."""
        timeout = aiohttp.ClientTimeout(total=SCRAPE_MAX_S)
        async with aiohttp.ClientSession(timeout=timeout) as self._scraping, asyncio.TaskGroup() as group:
            for work in (self._follow_kinds(group), self._show_columns(), self._show_lines(), self._show_rates()):
                group.create_task(work)

    # -- objects ---------------------------------------------------------------------------------------

    async def _follow_kinds(self, group: asyncio.TaskGroup) -> None:
        """Follow every kind that is served, those that are defined later as well."""
        while True:
            try:
                for kind in await self._rest.kinds(time.monotonic()):
                    if kind.has_past and kind.title not in self.feeds:
                        feed = self.feeds[kind.title] = Feed(kind, self._take, self.model.keys)
                        group.create_task(feed.run(self._api()))
                await asyncio.sleep(KINDS_S)
            except ApiError as error:
                _log.warning("ui.kinds_unknown", error=str(error))
                await asyncio.sleep(RATES_S)

    def followed_kinds(self) -> list[tuple[str, str]]:
        """Return the followed kinds, each with the only namespace that is followed ("": all)."""
        return [(resource, PARTS.get(resource, "")) for resource in self.feeds]

    def _take(self, kind: ServedKind, event: WatchEvent) -> None:
        """Take one change of the mesh."""
        now_s = self.now_s
        rv = max(self.model.rv, event.rv)
        body = event.body if event.type != "DELETED" else None
        change = Change(event.type, kind.title, kind.kind, event.namespace, event.name, event.uid, body)
        self.model.apply(rv, now_s, True, (change,))
        self._has_changed = True
        for call in self.on_change:
            call(event, kind, now_s)

    async def _show_columns(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.flush()

    def flush(self) -> None:
        """Send all changes since the last call to all pages."""
        if not self._has_changed:
            return
        self._has_changed = False
        if self.model.compact() and self.listeners:
            self.model.forget_changes()
            new_frames = self.model.frames()
            for listener in list(self.listeners):
                listener.whole(new_frames)
            return
        if not self.listeners:
            self.model.forget_changes()
            return
        # Before the frames are made, which begin anew to note what changes.
        self.model.columns("nodes")
        changed: dict[str, Sequence[int]] = {
            "nodes": list(self.model.nodes.changed),
            "pods": list(self.model.pods.changed),
        }
        new_frames = self.model.delta()
        for listener in list(self.listeners):
            listener.columns(new_frames, changed)

    def whole(self) -> list[bytes]:
        """Return all columns as they are now."""
        self.flush()
        self._was_sent = True
        return self.model.frames()

    # -- lines -----------------------------------------------------------------------------------------

    async def _show_lines(self) -> None:
        folder = self.place.access.events
        if folder is None:
            return
        feed = self.line_feed = LineFeed(folder)
        some: list[Entry] = []
        for entry in feed.history():
            some.append(entry)
            if len(some) >= HISTORY_LINES:
                self._take_settled(some)
                some = []
                await asyncio.sleep(0)
        self._take_settled(some)
        self.is_history_read = True
        while True:
            if entries := feed.poll():
                self.take_lines(entries)
            self._settle_lines()
            await asyncio.sleep(0 if feed.is_behind else LINES_S)

    def _take_settled(self, entries: Sequence[Entry]) -> None:
        """Take lines that no other will be before."""
        for entry in entries:
            if not is_noise(entry.line):
                self.ring.add(entry)
        for call in self.on_lines:
            call(entries)

    def _settle_lines(self) -> None:
        """Hand on the lines that no line of another process will be before any more."""
        before_ns = int((time.monotonic() - SETTLED_S) * 1e9)
        split = bisect_left(self._held, before_ns, key=MOMENT)
        ready, self._held = self._held[:split], self._held[split:]
        if ready:
            for call in self.on_lines:
                call(ready)

    def take_lines(self, entries: Sequence[Entry]) -> None:
        """Show lines as they come."""
        add_in_order(self._held, entries)
        shown = [entry for entry in entries if not is_noise(entry.line)]
        for entry in shown:
            self.ring.add(entry)
            if entry.line.ev == "sched.moved" and entry.line.obj is not None:
                self.model.move(entry.line.obj["uid"], str(entry.line.data.get("to", "")))
                self._has_changed = True
        for listener in list(self.listeners) if shown else ():
            listener.lines(shown)

    # -- rates -----------------------------------------------------------------------------------------

    async def _show_rates(self) -> None:
        released_s, was_complete = time.monotonic(), False
        while True:
            is_complete = self.has_synced and self.is_history_read
            if is_complete > was_complete or self._was_sent or time.monotonic() - released_s > RELEASED_S:
                released_s, was_complete, self._was_sent = time.monotonic(), is_complete, False
                kernel.release_memory()
            await self.look()
            for call in self.on_look:
                call()
            if self.listeners:
                now_s, rv = self.now_s, self.model.rv
                self._send(frames.RATES, self.mesh_document(), rv, now_s)
                if (pools := self.rates.pools()) is not None:
                    self._send(frames.POOLS, {"counts": pools, "sampled": True}, rv, now_s)
            await asyncio.sleep(RATES_S)

    async def look(self, *, is_asked: bool = False) -> None:
        """Update the states of processes from the supervisor, and the counters of each process.

        The counters are read only while a page shows the mesh, or if `is_asked`.
        """
        try:
            self.status = await self.place.status()
            self.status_error = ""
        except MeshError as error:
            self.status_error = str(error)
            self.status = {**self.status, "processes": [_mark_gone(each) for each in self.status["processes"]]}
        processes = self.status["processes"]
        self.rates.forget([process["name"] for process in processes])
        if self.listeners or is_asked:
            await asyncio.gather(*(self._scrape(process) for process in processes))

    async def _scrape(self, process: dict[str, Any]) -> None:
        url = self.place.health_url(process)
        if not url or not process["ready"] or process["state"] == "Stopped" or self._scraping is None:
            return
        name, headers = process["name"], {"Authorization": f"Bearer {self.place.access.reader}"}
        try:
            async with self._scraping.get(f"{url}/rates", headers=headers) as reply:
                if reply.status == 200:
                    values: dict[str, float] = msgspec.json.decode(await reply.read(), type=dict[str, float])
                    self.rates.add(name, Sample(time.monotonic(), values))
            if component_of(name) in ELECTING and time.monotonic() - self._elected_at.get(name, -ELECTED_S) > ELECTED_S:
                self._elected_at[name] = time.monotonic()
                async with self._scraping.get(f"{url}/metrics", headers=headers) as reply:
                    if reply.status == 200:
                        self._leads[name] = read_leads(await reply.text())
        except (aiohttp.ClientError, TimeoutError, *UNREADABLE):
            process["answers"] = False

    def mesh_document(self) -> dict[str, Any]:
        """Return processes, links, and faults in force."""
        processes, links = [], []
        faults = {
            (each["target"], "link" if each["action"] in ("cut", "slow") else "down"): each
            for each in self.status.get("faults", ())
        }
        for process in self.status["processes"]:
            name = process["name"]
            shown = {field: process.get(field) for field in SHOWN_OF_PROCESSES}
            link = self.rates.link(name, "apiserver")
            paused = faults.get((name, "down"))
            processes.append(
                {
                    **shown,
                    **self.rates.process(name),
                    "leads": self._leads.get(name) if process["ready"] else None,
                    "answers": process.get("answers", True),
                    "fault": paused,
                    "by_hand": {action: line for action in BY_HAND if (line := self.place.how_to_break(name, action))},
                }
            )
            if link is not None or (name, "link") in faults:
                empty = {"from": name, "to": "apiserver", "messages_s": 0.0, "bytes_s": 0.0}
                links.append({**(link or empty), "fault": faults.get((name, "link"))})
        return {
            "at": round(self.now_s, 3),
            "rv": self.model.rv,
            "processes": processes,
            "links": links,
            "faults": self.status.get("faults", []),
            "conditions": self.status.get("conditions", []),
            "error": self.status_error,
            "has_faults": bool(self.status.get("has_faults")),
        }

    def _send(self, kind: int, document: dict[str, Any], rv: int, now_s: float, about: str = "") -> None:
        frame = frames.document_frame(kind, document, rv, now_s)
        for listener in list(self.listeners):
            listener.document(kind, frame, about)

    def announce(self, kind: int, document: dict[str, Any], about: str) -> None:
        """Send a document to all pages: progress of a job, an alarm.

        `about`: its subject; for pages that are behind only the newest document of a subject counts.
        """
        self._send(kind, document, self.model.rv, self.now_s, about)


BY_HAND: Final = ("kill", "pause", "heal")
"""Faults for which a process shows a command line, if they cannot be injected here."""
SHOWN_OF_PROCESSES: Final = (
    "name",
    "pid",
    "port",
    "ports",
    "ready",
    "state",
    "next_try_in_s",
    "uptime_s",
    "restarts",
    "last_error",
)
"""Fields of a process that are shown as in `keplab status -o json`."""


def _mark_gone(process: dict[str, Any]) -> dict[str, Any]:
    return {**process, "ready": False, "state": "Gone", "uptime_s": 0.0}


class Feed:
    """Feed of one kind from a watch. It keeps no objects: the model has those that are shown.

    `known`: returns their keys; a later full state is compared with them to find the objects that are gone.
    """

    def __init__(
        self,
        kind: ServedKind,
        take: Callable[[ServedKind, WatchEvent], None],
        known: Callable[[str], Sequence[tuple[str, str]]],
    ) -> None:
        self.resource = kind.title
        self._kind, self._take, self._known = kind, take, known
        self._arrived: set[tuple[str, str]] | None = None
        """Keys of a state that is not the first one."""
        self._has_any = self.has_synced = False
        self.rv = 0

    async def run(self, api: Api) -> None:
        """Follow until cancelled."""
        part: Any = {"namespace": PARTS.get(self.resource, ""), "field_selector": "", "label_selector": ""}
        clock, random = RealClock(), seeded_random(None)
        await Reflector(self, api, part, clock=clock, random=random, events=None, spread_s=0.0, beginning=self).run()

    def began(self) -> None:
        """Begin to take a full state anew."""
        self._arrived = set() if self._has_any else None

    def on_arrived(self, item: Item) -> None:
        """Take one object of a full state; a known object changes nothing that is shown."""
        key = item.key.namespace, item.key.name
        try:
            uid = _head.decode(item.body).metadata.uid
        except UNREADABLE:
            return
        if self._arrived is not None:
            self._arrived.add(key)
        self._has_any = True
        self._take(self._kind, self._event("MODIFIED" if self.has_synced else "ADDED", key, uid, item.rv, item.body))

    def on_replaced(self, items: list[Item], rv: int) -> None:
        """End a full state: the objects that arrived are all that exist."""
        arrived, self._arrived = self._arrived, None
        gone = [key for key in self._known(self.resource) if key not in arrived] if arrived is not None else []
        for key in gone:
            self._take(self._kind, self._event("DELETED", key, "", rv))
        self.rv, self.has_synced = rv, True

    def _event(self, kind: str, key: tuple[str, str], uid: str, rv: int, body: bytes = b"") -> WatchEvent:
        return WatchEvent(type=kind, resource=self.resource, namespace=key[0], name=key[1], uid=uid, rv=rv, body=body)

    def on_event(self, event: WatchEvent) -> None:
        """Take one change from the watch."""
        self._has_any = True
        self._take(self._kind, event)

    def on_progressed(self, rv: int, *, is_bookmark: bool) -> None:
        """Note the version up to which this kind was received."""
        self.rv = rv


def chunks(entries: Sequence[Entry]) -> list[Sequence[Entry]]:
    """Split lines into pieces of one frame each."""
    return [entries[begin : begin + LINES_A_FRAME] for begin in range(0, len(entries), LINES_A_FRAME)]
