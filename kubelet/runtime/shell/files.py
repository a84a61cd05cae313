"""The file system of an emulated container: directories, files and symbolic links in memory. Pure.

Directories that several containers mount (an emptyDir) are one object below each root. Bytes that the pod's
containers write are counted against one `Quota`; a projected volume is read-only.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

POD_BYTES_MAX = 64 << 20
"""Bytes that the containers of one pod may write together."""
ENTRY_BYTES = 256
"""Bytes that a file, directory or link counts besides its content."""
LINKS_MAX = 40


class FileError(Exception):
    """Error: a file operation is refused, in the words of `strerror`."""


@dataclass(slots=True)
class Quota:
    """The bytes that may still be written."""

    left: int = POD_BYTES_MAX

    def take(self, count: int) -> None:
        """Count bytes. Raises: FileError when the quota is exhausted."""
        if count > self.left:
            raise FileError("No space left on device")
        self.left -= count


@dataclass(slots=True)
class File:
    """A file. `modified_s`: wall seconds."""

    data: bytearray = field(default_factory=bytearray)
    mode: int = 0o644
    modified_s: float = 0.0


@dataclass(slots=True)
class Link:
    """A symbolic link."""

    target: str
    modified_s: float = 0.0


@dataclass(slots=True)
class Directory:
    """A directory; if it is read-only, nothing below it can be changed."""

    entries: dict[str, "Entry"] = field(default_factory=dict)
    mode: int = 0o755
    modified_s: float = 0.0
    is_read_only: bool = False
    is_mount: bool = False


Entry = Directory | File | Link


def _size_of(entry: Entry) -> int:
    match entry:
        case File():
            return ENTRY_BYTES + len(entry.data)
        case Directory():
            return ENTRY_BYTES + sum(_size_of(each) for each in entry.entries.values())
    return ENTRY_BYTES


def split(path: str) -> list[str]:
    """Return the names of a path, without empty ones and `.`."""
    return [part for part in path.split("/") if part not in ("", ".")]


def normal(path: str, directory: str = "/") -> str:
    """Return the absolute path, relative to a directory, without `.` and `..`."""
    parts: list[str] = []
    for part in split(path if path.startswith("/") else f"{directory}/{path}"):
        if part != "..":
            parts.append(part)
        elif parts:
            parts.pop()
    return "/" + "/".join(parts)


class FileSystem:
    """The file system of one container. Paths are absolute.

    Every method raises FileError in the words of `strerror`.
    """

    def __init__(self, quota: Quota | None = None) -> None:
        self.root = Directory()
        self.quota = Quota() if quota is None else quota
        self.now_s = 0.0
        """Wall seconds: when what is written now is modified."""

    def mount(self, path: str, directory: Directory) -> None:
        """Mount a directory at that path, whatever was there."""
        *parents, name = split(path) or [""]
        if not name:
            return
        at = self.root
        for part in parents:
            below = at.entries.get(part)
            if not isinstance(below, Directory):
                below = at.entries[part] = Directory()
            at = below
        directory.is_mount = True
        at.entries[name] = directory

    def put(self, path: str, entry: Entry) -> None:
        """Place an entry of the image or a volume: it counts against no quota."""
        *parents, name = split(path)
        at = self.root
        for part in parents:
            below = at.entries.setdefault(part, Directory())
            if not isinstance(below, Directory):
                return
            at = below
        at.entries[name] = entry

    def _find(self, path: str, *, follows: bool = True) -> tuple[list[Directory], str, Entry | None]:
        """Return the directories above, the last name, and the entry or None when only that does not exist."""
        trail, names, jumps = [self.root], split(path), 0
        name = ""
        while names:
            name = names.pop(0)
            if name == "..":
                if len(trail) > 1:
                    trail.pop()
                name = ""
                continue
            entry = trail[-1].entries.get(name)
            if isinstance(entry, Link) and (follows or names):
                jumps += 1
                if jumps > LINKS_MAX:
                    raise FileError("Too many levels of symbolic links")
                if entry.target.startswith("/"):
                    trail = [self.root]
                names, name = split(entry.target) + names, ""
                continue
            if not names:
                return trail, name, entry
            if entry is None:
                raise FileError("No such file or directory")
            if not isinstance(entry, Directory):
                raise FileError("Not a directory")
            trail.append(entry)
        return trail[:-1] or trail, "", trail[-1]

    def entry(self, path: str, *, follows: bool = True) -> Entry:
        """Return the entry at the path; `follows`: the target of a link instead of the link."""
        found = self._find(path, follows=follows)[2]
        if found is None:
            raise FileError("No such file or directory")
        return found

    def directory(self, path: str) -> Directory:
        """Return the directory at the path."""
        found = self.entry(path)
        if not isinstance(found, Directory):
            raise FileError("Not a directory")
        return found

    def exists(self, path: str) -> bool:
        """Whether the path exists."""
        try:
            self.entry(path)
        except FileError:
            return False
        return True

    def is_directory(self, path: str) -> bool:
        """Whether the path is a directory."""
        try:
            return isinstance(self.entry(path), Directory)
        except FileError:
            return False

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        found = self.entry(path)
        if not isinstance(found, File):
            raise FileError("Is a directory")
        return bytes(found.data)

    def _place(self, path: str, *, follows: bool = True) -> tuple[Directory, str, Entry | None]:
        trail, name, entry = self._find(path, follows=follows)
        if any(each.is_read_only for each in trail):
            raise FileError("Read-only file system")
        return trail[-1], name, entry

    def open(self, path: str, *, appends: bool = False) -> File:
        """Return a file for writing, created when it does not exist; emptied unless `appends`."""
        parent, name, entry = self._place(path)
        if isinstance(entry, File):
            if not appends:
                self.quota.left += len(entry.data)
                entry.data.clear()
            entry.modified_s = self.now_s
            return entry
        if entry is not None or not name:
            raise FileError("Is a directory")
        self.quota.take(ENTRY_BYTES)
        file = File(modified_s=self.now_s)
        parent.entries[name] = file
        return file

    def extend(self, file: File, data: bytes) -> None:
        """Write to an open file."""
        self.quota.take(len(data))
        file.data += data
        file.modified_s = self.now_s

    def write(self, path: str, data: bytes, *, mode: int | None = None) -> None:
        """Write a whole file."""
        file = self.open(path)
        self.extend(file, data)
        if mode is not None:
            file.mode = mode

    def make_directory(self, path: str, *, with_parents: bool = False) -> None:
        """Make a directory; `with_parents`: also those above it, and accept an existing one."""
        if with_parents:
            at = ""
            for name in split(path):
                at = f"{at}/{name}"
                if not self.is_directory(at):
                    self.make_directory(at)
            return
        parent, name, entry = self._place(path)
        if entry is not None or not name:
            raise FileError("File exists")
        self.quota.take(ENTRY_BYTES)
        parent.entries[name] = Directory(modified_s=self.now_s)

    def link(self, path: str, target: str) -> None:
        """Make a symbolic link."""
        parent, name, entry = self._place(path, follows=False)
        if entry is not None or not name:
            raise FileError("File exists")
        self.quota.take(ENTRY_BYTES)
        parent.entries[name] = Link(target, self.now_s)

    def remove(self, path: str, *, recursively: bool = False) -> None:
        """Remove a file or link; with `recursively` also a directory with its content."""
        parent, name, entry = self._place(path, follows=False)
        if entry is None:
            raise FileError("No such file or directory")
        if not name or (isinstance(entry, Directory) and entry.is_mount):
            raise FileError("Device or resource busy")
        if isinstance(entry, Directory):
            if not recursively:
                raise FileError("Is a directory")
            if any(isinstance(each, Directory) and each.is_mount for _, each in walk(entry)):
                raise FileError("Device or resource busy")
        self.quota.left += _size_of(entry)
        del parent.entries[name]


def walk(directory: Directory, path: str = "") -> Iterator[tuple[str, Entry]]:
    """Yield all entries below a directory with their relative paths, a directory before its content."""
    for name, entry in sorted(directory.entries.items()):
        below = f"{path}/{name}" if path else name
        yield below, entry
        if isinstance(entry, Directory):
            yield from walk(entry, below)
