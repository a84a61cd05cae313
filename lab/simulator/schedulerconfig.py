"""The scheduler's configuration: read as in force, and changed by writing its file and restarting the
scheduler.

A new configuration is checked before anything is written, with plugins created as in the scheduler. If
the scheduler still does not start with it, the previous one is restored. Source: simulator 3;
kubernetes-sigs/kube-scheduler-simulator, `simulator/server/handler/schedulerconfig.go`.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from scheduler.cache.cache import Cache
from scheduler.cache.nominator import Nominator
from scheduler.configuration.document import API_VERSION, KIND, Extender
from scheduler.configuration.file import Configured
from scheduler.configuration.parser import ConfigurationError, read, with_defaults
from scheduler.entry import DEFAULT_SCHEDULER, Handle
from scheduler.framework.world import FixedWorld
from scheduler.queue.exclusions import Exclusions
from scheduler.wiring import core_of
from services.api.documents import yaml_text
from services.api.meta import Document
from services.api.switches import Switches
from services.runtime.config import StartError
from services.runtime.control import NoAnswer, request
from services.runtime.real import write_atomically

RESTART_MAX_S: Final = 60.0
NO_FILE: Final = {"apiVersion": API_VERSION, "kind": KIND}
TAKEN: Final = ("profiles", "extenders")
"""Fields that are used from a posted or imported configuration."""
MERGED_INTO: Final[Mapping[str, str]] = dict.fromkeys(
    ("EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits"), "NodeVolumeLimits"
)
"""Plugins of older releases, which may still occur in documents, with the plugin that does their work today."""


class Invalid(ValueError):
    """A configuration that cannot be used; the message names field and value."""


class NotRestarted(Exception):
    """The scheduler did not start with a valid configuration; the previous one is in force again."""


@dataclass
class SchedulerConfiguration:
    """The configuration of the mesh's schedulers.

    `path`: the file that the `schedulers` are started with; `mesh`: the directory whose supervisor restarts
    them.
    """

    path: Path
    mesh: Path
    schedulers: Sequence[str]
    switches: Switches
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def file_document(self) -> Document:
        """Return the content of the file."""
        found = yaml_text.load(self.path.read_text(encoding="utf-8")) if self.path.exists() else None
        return found if isinstance(found, dict) else dict(NO_FILE)

    def in_force(self) -> Document:
        """Return the configuration with every default and each profile's plugins. Raises: Invalid."""
        whole: Document = _with_integers({**NO_FILE, **self._check_document(self.file_document())})
        election = whole.get("leaderElection")
        if isinstance(election, dict) and election.get("leaderElect", False) is None:
            # What the file leaves open the mesh decides: one scheduler has no leader; of several it is not known here.
            del election["leaderElect"]
            if len(self.schedulers) == 1:
                election["leaderElect"] = False
        return whole

    def extenders(self) -> tuple[Extender, ...]:
        """Return the extenders in the order of the configuration. Raises: Invalid."""
        return read_document(self.file_document()).configuration.extenders

    async def apply(self, posted: Any) -> None:
        """Use the profiles and extenders of a configuration. Raises: Invalid: nothing changed; NotRestarted."""
        if not isinstance(posted, dict):
            raise Invalid(f"want a {KIND}, not {type(posted).__name__}")
        read_document(posted)
        wanted = {key: posted[key] for key in TAKEN if posted.get(key) is not None}
        await self.replace(
            {**{key: value for key, value in self.file_document().items() if key not in TAKEN}, **wanted}
        )

    async def replace(self, document: Document) -> None:
        """Restart the scheduler with this document. Raises: Invalid: nothing changed; NotRestarted."""
        self._check_document(document)
        old = self.path.read_bytes() if self.path.exists() else msgspec.json.encode(NO_FILE)
        write_atomically(self.path, msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n", mode=0o600)
        try:
            await self._restart()
        except NotRestarted:
            write_atomically(self.path, old, mode=0o600)
            await self._restart()
            raise

    async def _restart(self) -> None:
        wanted = {"verb": "restart", "names": list(self.schedulers)}
        try:
            answer = await request(self.mesh, wanted, RESTART_MAX_S)
        except NoAnswer as error:
            raise NotRestarted(str(error)) from None
        if answer.get("error"):
            raise NotRestarted(str(answer["error"]))

    def _check_document(self, document: Document) -> Document:
        """Return a document as it is in force. Raises: Invalid."""
        configured = read_document(document, self.switches, self.path)
        handle = Handle(
            switches=self.switches,
            cache=Cache(),
            nominator=Nominator(),
            world=FixedWorld(),
            exclusions=Exclusions(),
            random=random.Random(0),
            wall=lambda: 0.0,
        )
        try:
            core = core_of(handle, configured, configured.profiles((), handle))
        except StartError as error:
            raise Invalid(str(error).removeprefix(f"--config {self.path}: ")) from None
        return configured.document(core.profiles.lineups())


def _with_integers(value: Any) -> Any:
    """Return the document with whole numbers as Go's integers are read: `1`, not `1.0`."""
    if isinstance(value, dict):
        return {key: _with_integers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_with_integers(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def read_document(document: Document, switches: Switches | None = None, path: Path = Path("config")) -> Configured:
    """Parse a configuration document. Raises: Invalid naming field and value."""
    try:
        found = with_defaults(read(msgspec.json.encode({**NO_FILE, **document}).decode()), DEFAULT_SCHEDULER)
    except ConfigurationError as error:
        raise Invalid(str(error)) from None
    return Configured(switches or Switches(), str(path), found)


def of_older_release(posted: Any) -> tuple[Any, list[str]]:
    """Return the used fields of an imported configuration without plugins that were merged into others, and the
    names of those plugins.

    Other fields, and the apiVersion, belong to the release that wrote it and are ignored.
    """
    gone: list[str] = []

    def without_merged(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_merged(each) for key, each in value.items()}
        if isinstance(value, list):
            left = [each for each in value if not (isinstance(each, dict) and each.get("name") in MERGED_INTO)]
            gone.extend(str(each["name"]) for each in value if each not in left)
            return [without_merged(each) for each in left]
        return value

    taken = {key: posted[key] for key in TAKEN if key in posted} if isinstance(posted, dict) else posted
    return without_merged(taken), sorted(set(gone))
