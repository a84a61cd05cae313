"""Debugging pages for operators: `/statusz`, `/flagz`, `/debug/pprof/`.

The texts are for people: upstream does not specify their format, and picks the separator between a name and its
value anew each time. A client that accepts JSON or YAML names the kind,
`application/json;as=Statusz;g=config.k8s.io;v=v1beta1`. Profiles are not served: decision 0090. Source:
upstream `staging/src/k8s.io/apiserver/pkg/server` (`statusz`, `flagz`, `routes/profiling.go`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields

import msgspec
import yaml

from apiserver_fake.rest.media_types import JSON, YAML, Form, clauses_of, not_acceptable
from services.api.meta import Document
from services.api.times import format_as, format_time

COMPONENT, GROUP = "apiserver", "config.k8s.io"
TEXT = "text/plain"
VERSIONS = ("v1beta1", "v1alpha1")
_FORMS = (JSON, YAML, TEXT)
_NOT_FOR_DEBUGGING = frozenset(("/apis", "/api", "/openid", "/openapi", "/.well-known"))
_HEAD = (
    "\n{} {}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees "
    "and is for debugging purposes only.\n"
)


@dataclass(frozen=True)
class Page:
    """An answer: its body and content type, and its own headers."""

    body: str
    content_type: str = f"{TEXT}; charset=utf-8"
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Status:
    """The data of `/statusz`. `release`: the whole release number; `began_s`, `now_s`: wall seconds."""

    began_s: float
    now_s: float
    runtime: str
    release: str
    paths: tuple[str, ...]

    @property
    def up_s(self) -> int:
        """The uptime in seconds."""
        return max(0, int(self.now_s - self.began_s))

    @property
    def emulation_version(self) -> str:
        """The release without its patch number."""
        return ".".join(self.release.split(".")[:2])

    def document(self) -> Document:
        """Return the status as the fields of a Statusz."""
        return {
            "startTime": format_time(self.began_s),
            "uptimeSeconds": self.up_s,
            "goVersion": self.runtime,
            "binaryVersion": self.release,
            "emulationVersion": self.emulation_version,
            "paths": list(self.paths),
        }

    def text(self) -> str:
        """Return the status as text for people."""
        began = format_as(self.began_s, "%a %b %e %H:%M:%S UTC %Y")
        up = f"{self.up_s // 3600} hr {self.up_s // 60 % 60:02} min {self.up_s % 60:02} sec"
        lines = {
            "Started": began,
            "Up": up,
            "Go version": self.runtime,
            "Binary version": self.release,
            "Emulation version": self.emulation_version,
            "Paths": " ".join(self.paths),
        }
        return "\n" + "".join(f"{name}: {value}\n" for name, value in lines.items())


def debugging_paths(listed: Iterable[str]) -> tuple[str, ...]:
    """Return the first segments of debugging paths, which describe the server itself."""
    folders = {"/" + path.split("/")[1] for path in listed}
    return tuple(sorted(folder for folder in folders - _NOT_FOR_DEBUGGING if folder != "/"))


def flags_of(configuration: object) -> dict[str, str]:
    """Return the flags of a process by name, with values formatted as Go's flags."""
    return {
        each.name.replace("_", "-"): _flag_text(getattr(configuration, each.name))
        for each in fields(configuration)  # type: ignore[arg-type]  # every configuration is a dataclass
    }


def _flag_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{','.join(map(str, value))}]"
    return "" if value is None else str(value)


def status_page(accept: str, status: Status) -> Page:
    """Return `/statusz`. Raises: NotAcceptable."""
    return _page(accept, "Statusz", status.text, status.document)


def flags_page(accept: str, flags: Mapping[str, str]) -> Page:
    """Return `/flagz`. Raises: NotAcceptable."""
    lines = "".join(f"{name}={flags[name]}\n" for name in sorted(flags))
    return _page(accept, "Flagz", lambda: lines, lambda: {"flags": dict(sorted(flags.items()))})


def _page(accept: str, kind: str, text: Callable[[], str], document: Callable[[], Document]) -> Page:
    form = _form(accept, kind)
    if form is None:
        head = _HEAD.format(COMPONENT, kind.lower())
        return Page(head + text())
    body = {"kind": kind, "apiVersion": f"{GROUP}/{form.version}", "metadata": {"name": COMPONENT}, **document()}
    is_json = form.media_type == JSON
    written = msgspec.json.encode(body).decode() if is_json else yaml.safe_dump(body, sort_keys=False)
    why = f"This version of the {kind.lower()} endpoint is deprecated. Please use a newer version."
    warning = {} if form.version == VERSIONS[0] else {"Warning": f'299 - "{why}"'}
    return Page(written, form.media_type, headers=warning)


def _form(accept: str, kind: str) -> Form | None:
    """Return how the page is written, None for text. Raises: NotAcceptable."""
    if not accept.strip():
        return None
    for main, sub, options in clauses_of(accept):
        asked = {name: options.get(name, "") for name in ("g", "as", "v")}
        is_structured = asked["g"] == GROUP and asked["as"] == kind and asked["v"] in VERSIONS
        for media_type in _FORMS:
            its_main, _, its_sub = media_type.partition("/")
            if main not in ("*", its_main) or sub not in ("*", its_sub):
                continue
            if media_type == TEXT and not any(asked.values()):
                return None
            if media_type != TEXT and is_structured:
                return Form(media_type, kind, asked["v"])
    raise not_acceptable(_FORMS)


def profiles_page(rest: Sequence[str], raw_path: str) -> Page:
    """Return the page for a path below `/debug/pprof`: an index that says that there are no profiles, or a 404
    for a profile.
    """
    if raw_path.endswith("/debug/pprof"):
        return Page("", code=302, headers={"Location": "/debug/pprof/"})
    if any(rest):
        return Page("Unknown profile\n", code=404, headers={"X-Go-Pprof": "1"})
    return Page(_PROFILES, "text/html; charset=utf-8")


_PROFILES = """<html>
<head>
<title>/debug/pprof/</title>
</head>
<body>
/debug/pprof/
<br>
<p>This server is a Python process: it has no profile that pprof reads, and writes none to a network.</p>
</body>
</html>
"""
