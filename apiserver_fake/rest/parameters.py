"""Typed query parameters of a request."""

from collections.abc import Mapping

from multidict import MultiMapping

from services.api.errors import BadRequest

NUMBER_MAX = 2**63 - 1
SINGLE_PARAMETERS = frozenset(
    (
        "allowWatchBookmarks", "at", "container", "continue", "dryRun", "fieldManager", "fieldSelector",
        "fieldValidation", "follow", "force", "gracePeriodSeconds", "includeObject", "labelSelector", "limit",
        "limitBytes", "orphanDependents", "previous", "propagationPolicy", "resourceVersion", "resourceVersionMatch",
        "sendInitialEvents", "sinceSeconds", "sinceTime", "tailLines", "timeoutSeconds", "timestamps", "watch",
    )
)  # fmt: skip
"""Known query parameters; each may be given once (V14). All others are ignored."""


def is_set(query: Mapping[str, str], name: str) -> bool:
    """Return the value of a boolean parameter: true unless it is `0` or `false` in any case; a name without
    value is true.

    Source: upstream `staging/src/k8s.io/apimachinery/pkg/runtime/conversion.go` (Convert_Slice_string_To_bool).
    """
    return query.get(name, "false").lower() not in ("0", "false")


class Parameters:
    """The typed parameters of a query. Raises: BadRequest for a repeated known parameter or a malformed value (V14)."""

    def __init__(self, query: MultiMapping[str]) -> None:
        self._query = query
        self.is_empty = not query
        """Whether nothing is asked for, so that each parameter is what it is when it is absent."""
        if len(query) > 1:
            for name in dict.fromkeys(query):
                if name in SINGLE_PARAMETERS and len(query.getall(name)) > 1:
                    raise BadRequest(f"query parameter {name!r} is given {len(query.getall(name))} times, want once")

    def __contains__(self, name: str) -> bool:
        return name in self._query

    def text(self, name: str) -> str:
        """Return the parameter; empty string if absent."""
        return self._query.get(name, "")

    def flag(self, name: str) -> bool:
        """Return a boolean parameter, as `is_set` reads it."""
        return is_set(self._query, name)

    def number(self, name: str) -> int | None:
        """Return a non-negative 64-bit integer, or None when absent."""
        text = self._query.get(name, "")
        if not text:
            return None
        if not text.isascii() or not text.lstrip("-").isdigit():
            raise BadRequest(f'strconv.ParseInt: parsing "{text[:32]}": invalid syntax')
        if not text.isdigit() or len(text) > 19 or int(text) > NUMBER_MAX:
            raise BadRequest(f"query parameter {name}={text[:32]!r}: want an integer from 0 to {NUMBER_MAX}")
        return int(text)

    def version(self) -> str:
        """Return `resourceVersion`; a 0 beside a continue token is ignored."""
        text = self.text("resourceVersion")
        return "" if text == "0" and "continue" in self else text

    def limit(self) -> int:
        """Return the maximum number of items of a page; 0 for no limit.

        A negative limit counts as none, and lists from the cache (`resourceVersion=0`) are not paged. Source: upstream
        `staging/src/k8s.io/apiserver/pkg/storage/cacher/cacher.go`.
        """
        is_of_the_cache = self.text("resourceVersion") == "0" and "continue" not in self
        if is_of_the_cache or (self.text("limit").startswith("-") and self.text("limit")[1:].isdigit()):
            return 0
        return self.number("limit") or 0
