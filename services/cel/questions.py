"""Questions of expressions about permissions, and the answers. Pure.

They are apart from the library of expressions, so that an authorizer that answers them need not load it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Question:
    """A question about a user's permission: either on `path`, or on a resource; empty fields are unset.

    Selectors that cannot be parsed do not narrow the question; the authorizer must handle them.
    """

    user: str
    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """Answer of an authorizer. No opinion counts as not allowed; `error` says why there is no opinion."""

    allowed: bool
    reason: str = ""
    error: str = ""


class Asker(Protocol):
    """An authorizer, in the form that expressions call."""

    def __call__(self, question: Question, /) -> Decision:
        """Return the decision on the question."""
        ...
