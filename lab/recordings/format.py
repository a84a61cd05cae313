"""What is in a recording: the names of its members, and their lines as values. Pure.

A recording is a folder while it grows, and one file (a zip that compresses nothing, since its members are compressed)
afterwards; both have the same members. Members that end in `.gz` are a row of gzip streams one after the other, so that
any of them can be read without the ones before it, and one that was torn at the end costs nothing that was before it.
The lines of each are JSON, one a line. docs/reference/recordings.md describes all of it for other readers.
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
"""So many versions are one gzip stream."""
BLOCK_BYTES: Final = 256 * 1024
"""So many bytes of lines, spans or bodies are one gzip stream."""
ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"
COMMIT: Final = "store.commit"
"""The event of a line of the event log that tells of a version."""


class Clock(msgspec.Struct, frozen=True, omit_defaults=True):
    """How times of the recording are read. All are seconds since `zero_s` of the run's own clock, which was `wall_s` of
    the wall's; before the run began they are negative. `is_virtual`: both are a simulation's."""

    zero_s: float = 0.0
    wall_s: float = 0.0
    is_virtual: bool = False


class Parts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a mesh consists of beside its objects, as far as another mesh can be made of it.

    `nodes`: definitions by name, as `kubelet/node/definition.py` reads them. `own_switches`: NAME=VALUE by process or
    component. `latencies` of kubelets: `STAGE=DISTRIBUTION`. `schedulers`: names of those beside the default one.
    `file_lines`: lines of the scenario that name files, whose texts are not kept.
    """

    nodes: dict[str, dict[str, Any]] = {}
    own_switches: dict[str, list[str]] = {}
    latencies: list[str] = []
    schedulers: list[str] = []
    file_lines: list[str] = []


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """What was recorded, and by what.

    `mode`: simulated, processes or mesh. `versions`: of `keplab`, and the `revision` of its sources. `started` and
    `ended`: by the wall's clock of the recorder; without `ended` it grows, or its writer was killed. `not_recorded`: in
    words, what a reader may miss. `digest`: that of the run's event log. `about`: whose data it is, of a recording that
    was made of a published trace. `parts`: what the mesh consisted of.
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

    `t`: seconds of the recording's clock. `resource`: the wire name, or the kind where no wire name is known. `sha`: of
    the body, "" where it may not be recorded. `group_end`: whether what was committed together ends here. `line`: which
    line of the event log (from 0) says so. `identity`, `verb`, `subresource`: the request that wrote it; `owners`: the
    uids of the owners, of an object's first version. `facts`: what the event log says of an object whose body is not
    recorded.
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
    """Where the body with that hash is: in the gzip stream of `size` bytes at `offset` of the pack, `length` bytes from
    `at` on."""

    sha: str
    offset: int
    size: int
    at: int
    length: int


class Block(msgspec.Struct, frozen=True, omit_defaults=True):
    """One gzip stream of lines: `size` bytes at `offset`, which has `count` lines, `first` being the number of the
    first of them. Of versions: `rv` and `t`, the last."""

    offset: int
    size: int
    first: int
    count: int
    rv: int = 0
    t: float = 0.0


class Index(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where everything is, once the recording is complete."""

    versions: list[Block] = []
    lines: list[Block] = []
    spans: list[Block] = []
    bodies: int = 0


class Unreadable(ValueError):
    """A recording that cannot be read; the message is one line that says why."""
