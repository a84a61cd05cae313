"""Contents of a recording: the names of its members, and their lines as values. Pure.

A recording is a folder while it grows, and one file (a zip that compresses nothing, since its members are
compressed) afterwards; both have the same members. Members that end in `.gz` are a series of gzip streams. Each
stream can be read without those before it, and a stream that was torn at the end does not affect those before
it. Each line of a member is one JSON document. docs/reference/recordings.md describes the format for other
readers.
"""

from typing import Any, Final

import msgspec

FORMAT: Final = "keplab.dev/recording"
VERSION: Final = 1
SUFFIX: Final = ".keprec"
META, INDEX = "meta.json", "index.json"
LINES, SPANS, DECISIONS = "lines.jsonl.gz", "spans.jsonl.gz", "decisions.jsonl.gz"
VERSIONS, BODIES, PACK = "versions.jsonl.gz", "bodies.jsonl.gz", "bodies.pack"
ROWS: Final = "rows.gz"
MEMBERS: Final = (META, INDEX, VERSIONS, BODIES, PACK, LINES, SPANS, DECISIONS, ROWS)
BLOCK_VERSIONS: Final = 1000
"""Number of versions in one gzip stream."""
BLOCK_BYTES: Final = 256 * 1024
"""Number of bytes of lines, spans or bodies in one gzip stream."""
ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
COMMIT: Final = "store.commit"
"""Event name of an event-log line that reports a version."""


class Clock(msgspec.Struct, frozen=True, omit_defaults=True):
    """Zero of the recording's times. All are seconds since `zero_s` of the run's own clock, at which the wall clock
    showed `wall_s`; before the run began they are negative. `is_virtual`: both clocks are a simulation's.
    """

    zero_s: float = 0.0
    wall_s: float = 0.0
    is_virtual: bool = False


class Parts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Parts of a mesh beside its objects, as far as they are needed to make another mesh like it.

    `nodes`: definitions by name, as `kubelet/node/definition.py` reads them. `own_switches`: NAME=VALUE by process
    or component. `latencies`: those of kubelets, `STAGE=DISTRIBUTION`. `schedulers`: names of those beside the
    default one. `file_lines`: lines of the scenario that name files, whose texts are not kept.
    """

    nodes: dict[str, dict[str, Any]] = {}
    own_switches: dict[str, list[str]] = {}
    latencies: list[str] = []
    schedulers: list[str] = []
    file_lines: list[str] = []


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """Description of a recording and of the product that made it.

    `mode`: simulated, processes or mesh. `versions`: of `keplab`, and the `revision` of its sources. `started` and
    `ended`: by the recorder's wall clock; without `ended` the recording still grows, or its writer was killed.
    `not_recorded`: what a reader may miss, in words. `digest`: that of the run's event log. `about`: source of the
    data, if the recording was made from a published trace. `parts`: parts of the mesh.
    """

    format: str = FORMAT
    version: int = VERSION
    title: str = ""
    scenario: str = ""
    arm: str = ""
    seed: int = 0
    mode: str = "mesh"
    switches: list[str] = []
    parts: Parts = Parts()
    versions: dict[str, str] = {}
    clock: Clock = Clock()
    started: str = ""
    ended: str = ""
    passed: bool | None = None
    digest: str = ""
    command: str = ""
    not_recorded: list[str] = []
    about: list[str] = []


class Version(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One committed version of one object.

    `t`: seconds of the recording's clock. `resource`: the wire name, or the kind where no wire name is known.
    `sha`: of the body, "" where it may not be recorded. `group_end`: whether the group of changes committed
    together ends here. `line`: number of the event-log line (from 0) that reports it. `identity`, `verb`,
    `subresource`: the request that wrote it; `owners`: the uids of the owners, given with an object's first
    version. `facts`: fields from the event log, for an object whose body is not recorded.
    """

    rv: int
    t: float
    type: str
    resource: str
    kind: str = ""
    ns: str = ""
    name: str = ""
    uid: str = ""
    sha: str = ""
    group_end: bool = True
    line: int = -1
    identity: str = ""
    verb: str = ""
    subresource: str = ""
    req_id: str = ""
    trace_id: str = ""
    owners: tuple[str, ...] = ()
    facts: dict[str, Any] = {}

    @property
    def key(self) -> tuple[str, str, str]:
        """Resource, namespace and name."""
        return self.resource, self.ns, self.name


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Place of the body with that hash: in the gzip stream of `size` bytes at `offset` of the pack, `length` bytes
    from `at` on.
    """

    sha: str
    offset: int
    size: int
    at: int
    length: int


class Block(msgspec.Struct, frozen=True, omit_defaults=True):
    """One gzip stream of lines: `size` bytes at `offset`, with `count` lines from number `first` on. `rv` and `t`:
    those of the last version, in a stream of versions.
    """

    offset: int
    size: int
    first: int
    count: int
    rv: int = 0
    t: float = 0.0


class Index(msgspec.Struct, frozen=True, omit_defaults=True):
    """Places of all gzip streams in a complete recording."""

    versions: list[Block] = []
    lines: list[Block] = []
    spans: list[Block] = []
    bodies: int = 0


class Unreadable(ValueError):
    """The recording cannot be read; the message is one line that says why."""
