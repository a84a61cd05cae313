"""A format that other tools write or read: how to recognise, read and write it; and the register of all. Pure.

A format is a file of `formats/` that offers `FORMAT`. It is recognised by a file's content, never by its name;
where several fit, `--format` decides. Source: simulator 1.
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
    """How to read a stream. `began_wall_s`: wall time of the stream's time 0, seconds since the epoch; relative times
    in the file are counted from it. `is_lenient`: objects and changes that cannot be used are left out and counted
    in the stream's notes. `options`: options that only this format understands, by name. `resources`: kinds whose
    changes are wanted, so that a format may pass over others unread; () for all.
    """

    began_wall_s: float = 0.0
    is_lenient: bool = False
    options: Mapping[str, str] = field(default_factory=lambda: NO_OPTIONS)
    resources: tuple[str, ...] = ()


class Edit(Protocol):
    """Function that edits an object of a file."""

    def __call__(self, at_s: float, document: Document, *, is_deleted: bool = False, kind: str = "") -> Document | None:
        """Return the edited object, None to leave it out.

        `at_s`: seconds after the beginning. `kind`: kind of the object, given with a patch; "" where the document says
        it.
        """


Rename = Callable[[str, Key], Key]
"""Function that returns the new namespace and name of an object of a kind."""


class Rewrite(Protocol):
    """Function that writes a file again with its objects edited, and all else unchanged."""

    def __call__(
        self, source: Source, file: BinaryIO, edit: Edit, rename: Rename | None = None, shift_s: float = 0.0
    ) -> None:
        """Read the source and write the file. `rename`: applied wherever the format itself names objects; `shift_s`:
        seconds by which absolute times are moved. Raises: Refused, if the source cannot be read.
        """


class Writer(Protocol):
    """A writer of one stream: first objects, then changes in the order of their times."""

    def put(self, document: Document) -> None:
        """Write an object of the snapshot."""

    def change(self, change: Change) -> None:
        """Write a change of an object.

        A create or update has the whole object, a delete has no document. A patch is for formats that have patches.
        """

    def close(self) -> None:
        """Write what was held back. The caller closes the file."""


@dataclass(frozen=True)
class Format:
    """One format.

    `fits`: whether a file begins like this format, given its first 64 KiB, uncompressed and without a byte order
    mark. `read`: raises Refused, also while the stream is read. `write`: given the file and when the recording
    began, seconds since the epoch; None: the format is only read. `has_changes`: whether it can hold changes of
    objects. `options`: the names that `Reading.options` may have. `kinds`: the wire names of the kinds that it can
    hold, () for any. `refusal`: why files of this format cannot be used, and what to do.
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
    """Reader of several files as one stream, for traces whose tables are one file each."""
    rewrite: Rewrite | None = None
    """Function that writes the file again with its objects edited, and all else unchanged."""
    has_machines: bool = False
    """Whether its changes may have Nodes: machines that come and go."""
    is_virtual: bool = False
    """Whether a replay is in virtual time by default."""
    source: str = ""
    """Licence and citation of published data."""


@cache
def formats() -> dict[str, Format]:
    """Return every format by name, sorted by name."""
    # By name, not by import statement: the register finds its entries, which import the register.
    folder = importlib.import_module("lab.exchange.formats")
    by_name: dict[str, Format] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules(folder.__path__)):
        for file_format in _formats_of(f"{folder.__name__}.{module}"):
            if file_format.name in by_name:
                raise ValueError(f"two files in formats/ offer {file_format.name}")
            by_name[file_format.name] = file_format
    return dict(sorted(by_name.items()))


def _formats_of(module: str) -> Sequence[Format]:
    loaded = importlib.import_module(module)
    several: Sequence[Format] = getattr(loaded, "FORMATS", ())
    one: Format | None = getattr(loaded, "FORMAT", None)
    return (*several, one) if one is not None else several


def format_named(name: str) -> Format:
    """Return the format of that name. Raises: Refused naming the known formats."""
    found = formats().get(name)
    if found is None or found.read is None:
        names = ", ".join(each.name for each in formats().values() if each.read is not None)
        raise Refused(f"--format {name}: want one of {names}")
    return found


def format_of(source: Source, name: str = "") -> Format:
    """Return the format of a file, by name where it is given, else by content.

    Raises: Refused, if no format fits, several do, or the one that fits cannot be read.
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
    """Return a file's format and its stream. Raises: Refused, also while the stream is read."""
    file_format = format_of(source, name)
    unknown = [option for option in reading.options if option not in file_format.options]
    if unknown:
        known = f"; it knows {', '.join(file_format.options)}" if file_format.options else ""
        raise Refused(f"{source.file}: format {file_format.name} has no option {unknown[0]!r}{known}")
    assert file_format.read is not None, "what cannot be read has a refusal"
    return file_format, file_format.read(source, reading)


def nodes_created(source: Source, reading: Reading, name: str = "") -> Iterator[Document]:
    """Yield the Nodes that a file's stream creates after its beginning. Raises: Refused."""
    found, stream = open_stream(source, replace(reading, resources=(NODES,)), name)
    for change in stream.changes if found.has_machines else ():
        if change.is_new_node and change.document is not None:
            yield change.document
