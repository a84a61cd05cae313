"""A format that other tools write or read: how it is known, read and written; and the register of all. Pure.

A format is a file of `formats/` that offers `FORMAT`. It is known by its content, never by a file's name; where several
fit, `--format` decides. Source: simulator 1.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import BinaryIO, Protocol

from lab.exchange.reading import Source
from lab.exchange.rules import NODES
from lab.exchange.stream import Change, Refused, Stream
from services.api.meta import Document, Key

NO_OPTIONS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Reading:
    """How a stream is wanted. `began_wall_s`: when its time 0 is, seconds since the epoch, from which times that are
    written relative to the beginning are counted. `is_lenient`: what cannot be used is left out and counted in the
    stream's notes. `options`: what only this format understands, by name. `resources`: only changes of these kinds are
    wanted, so that a format may pass over others unread; () for all.
    """

    began_wall_s: float = 0.0
    is_lenient: bool = False
    options: Mapping[str, str] = field(default_factory=lambda: NO_OPTIONS)
    resources: tuple[str, ...] = ()


class Edit(Protocol):
    """What becomes of an object in a file."""

    def __call__(self, at_s: float, document: Document, *, is_deleted: bool = False, kind: str = "") -> Document | None:
        """Return the object as it is to be, None: it is left out.

        `at_s`: seconds after the beginning. `kind`: of an object, "" where the document says it; given with a patch.
        """


Rename = Callable[[str, Key], Key]
"""What an object of a kind is called, by its namespace and name."""


class Rewrite(Protocol):
    """Writes a file again with its objects edited, and all else as it is."""

    def __call__(
        self, source: Source, file: BinaryIO, edit: Edit, rename: Rename | None = None, shift_s: float = 0.0
    ) -> None:
        """Read the source and write the file. `rename`: also wherever the format names objects itself; `shift_s`:
        seconds by which absolute times are moved. Raises: Refused: the source cannot be read."""


class Writer(Protocol):
    """Writes one stream: objects, then changes in the order of their times."""

    def put(self, document: Document) -> None:
        """Write an object of the snapshot."""

    def change(self, change: Change) -> None:
        """Write what became of an object: create and update have it whole, delete has nothing. A patch is for formats
        that have patches."""

    def close(self) -> None:
        """Write what was held back. The file is the caller's to close."""


@dataclass(frozen=True)
class Format:
    """One format.

    `fits`: whether a file begins so, given its first 64 KiB, uncompressed and without a byte order mark. `read`: raises
    Refused, also while the stream is read. `write`: given the file and when the recording began, seconds since the
    epoch; None: it is only read. `has_changes`: whether it can say what became of the objects. `options`: the names
    that `Reading.options` may have. `kinds`: the wire names of those that it can have, () for any.
    `refusal`: why files of this format cannot be used, and what to do.
    """

    name: str
    title: str
    fits: Callable[[bytes], bool]
    read: Callable[[Source, Reading], Stream] | None = None
    write: Callable[[BinaryIO, float], Writer] | None = None
    has_changes: bool = False
    options: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    refusal: str = ""
    read_many: Callable[[Sequence[Source], Reading], Stream] | None = None
    """For traces whose tables are a file each: one stream of all."""
    rewrite: Rewrite | None = None
    """Write the file again with its objects edited, and all else as it is."""
    has_machines: bool = False
    """Whether Nodes may be among its changes: machines that come and go."""
    is_virtual: bool = False
    """Whether a replay is in virtual time unless it is said otherwise."""
    source: str = ""
    """Whose data it is: licence and citation, for what is published."""


@cache
def formats() -> dict[str, Format]:
    """Return every format by name, sorted by name."""
    # By name, not by import statement: the register finds its entries, which import the register.
    folder = importlib.import_module("lab.exchange.formats")
    found: dict[str, Format] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(folder.__path__)):
        for each in _offered(f"{folder.__name__}.{module}"):
            if each.name in found:
                raise ValueError(f"two files in formats/ offer {each.name}")
            found[each.name] = each
    return dict(sorted(found.items()))


def _offered(module: str) -> Sequence[Format]:
    loaded = importlib.import_module(module)
    several: Sequence[Format] = getattr(loaded, "FORMATS", ())
    one: Format | None = getattr(loaded, "FORMAT", None)
    return (*several, one) if one is not None else several


def format_named(name: str) -> Format:
    """Return the format of that name. Raises: Refused naming those that there are."""
    found = formats().get(name)
    if found is None or found.read is None:
        names = ", ".join(each.name for each in formats().values() if each.read is not None)
        raise Refused(f"--format {name}: want one of {names}")
    return found


def format_of(source: Source, name: str = "") -> Format:
    """Return the format of a file, by name where it is given, else by content.

    Raises: Refused: no format fits, several do, or the one that fits cannot be read.
    """
    head = source.head()
    if not head.strip():
        raise Refused(f"{source.file}: it is empty")
    fitting = [each for each in formats().values() if each.fits(head)]
    unusable = next((each for each in fitting if each.refusal), None)
    if unusable is not None:
        raise Refused(f"{source.file}: {unusable.title}: {unusable.refusal}")
    if name:
        return format_named(name)
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise Refused(
            f"{source.file}: the file may be {' or '.join(each.name for each in fitting)}; name the format by --format"
        )
    names = ", ".join(each.name for each in formats().values() if each.read is not None)
    raise Refused(f"{source.file}: no format fits the beginning of the file; want one of {names}")


def open_stream(source: Source, reading: Reading, name: str = "") -> tuple[Format, Stream]:
    """Return a file's format and the stream that it is. Raises: Refused, also while the stream is read."""
    found = format_of(source, name)
    unknown = [option for option in reading.options if option not in found.options]
    if unknown:
        known = f"; it knows {', '.join(found.options)}" if found.options else ""
        raise Refused(f"{source.file}: format {found.name} has no option {unknown[0]!r}{known}")
    assert found.read is not None, "what cannot be read has a refusal"
    return found, found.read(source, reading)


def nodes_created(source: Source, reading: Reading, name: str = "") -> Iterator[Document]:
    """Yield the Nodes that a file's stream creates after its beginning. Raises: Refused."""
    found, stream = open_stream(source, replace(reading, resources=(NODES,)), name)
    for change in stream.changes if found.has_machines else ():
        if change.is_new_node and change.document is not None:
            yield change.document
