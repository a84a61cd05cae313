"""`PodLogOptions`: the options of a container log request, read and validated before the pod is read.

Source: upstream `pkg/registry/core/pod/rest/log.go`, `pkg/apis/core/validation/validation.go`
(ValidatePodLogOptions), `staging/src/k8s.io/apimachinery/pkg/runtime/conversion.go`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from apiserver_fake.registry.schema.mistakes import wrong_time
from apiserver_fake.registry.validation.formats import Causes, forbidden, invalid, value_text
from apiserver_fake.rest.parameters import is_set
from services.api.errors import BadRequest
from services.api.errors import invalid as invalid_object

_FLAGS = ("follow", "previous", "timestamps")
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True)
class LogOptions:
    """The options by their query names; a number or a time that is absent is None."""

    container: str = ""
    flags: tuple[str, ...] = ()
    tail_lines: int | None = None
    since_seconds: int | None = None
    since_time: str | None = None
    limit_bytes: int | None = None
    stream: str | None = None

    @classmethod
    def read(cls, query: Mapping[str, str]) -> "LogOptions":
        """Return the options of a query. Raises: BadRequest for a value of the wrong type."""
        since = query.get("sinceTime")
        if since not in (None, "", "null") and (why := wrong_time(since or "")):
            raise BadRequest(why)
        return cls(
            container=query.get("container", ""),
            flags=tuple(flag for flag in _FLAGS if is_set(query, flag)),
            tail_lines=_number(query, "tailLines"),
            since_seconds=_number(query, "sinceSeconds"),
            since_time="" if since == "null" else since,
            limit_bytes=_number(query, "limitBytes"),
            stream=query.get("stream"),
        )

    def check(self, pod: str) -> None:
        """Check the options for that pod's log. Raises: Invalid naming each wrong option."""
        if causes := list(self._causes()):
            raise invalid_object("PodLogOptions", pod, causes)

    def _causes(self) -> Causes:
        if self.tail_lines is not None and self.tail_lines < 0:
            yield invalid("tailLines", self.tail_lines, "must be greater than or equal to 0")
        if self.limit_bytes is not None and self.limit_bytes < 1:
            yield invalid("limitBytes", self.limit_bytes, "must be greater than 0")
        if self.since_seconds is not None and self.since_time is not None:
            yield forbidden("", "at most one of `sinceTime` or `sinceSeconds` may be specified")
        elif self.since_seconds is not None and self.since_seconds < 1:
            yield invalid("sinceSeconds", self.since_seconds, "must be greater than 0")
        if self.stream is not None:
            # PodLogsQuerySplitStreams is alpha.
            yield forbidden("stream", "may not be specified")

    @property
    def query(self) -> str:
        """The query for the kubelet, including the question mark; "" without options."""
        options = [f"{flag}=true" for flag in self.flags]
        numbers = {"tailLines": self.tail_lines, "sinceSeconds": self.since_seconds, "limitBytes": self.limit_bytes}
        options += [f"{name}={value}" for name, value in numbers.items() if value is not None]
        if self.since_time:
            options.append(f"sinceTime={quote(self.since_time, safe='')}")
        return f"?{'&'.join(options)}" if options else ""


def _number(query: Mapping[str, str], name: str) -> int | None:
    """Return a 64-bit integer, None when it is absent. Raises: BadRequest."""
    text = query.get(name)
    if text is None:
        return None
    why = "" if _INTEGER.fullmatch(text) else "invalid syntax"
    if not why and (len(text) > 20 or not -(2**63) <= int(text) < 2**63):
        why = "value out of range"
    if why:
        raise BadRequest(f"strconv.ParseInt: parsing {value_text(text[:64])}: {why}")
    return int(text)
