"""Conversion of objects of one kind between versions: by a function, or by a webhook.

Source: upstream `staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/conversion/converter.go`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from services.api.meta import Document

Rule = Callable[[list[Document]], list[Document]]
Question = Callable[[list[Document]], Awaitable[list[Document]]]


@dataclass(frozen=True, eq=False)
class Conversion:
    """A conversion of whole objects of one kind to another version; its input is not changed.

    It has a `rule`, which needs no waiting, or a `question` to a webhook.
    """

    rule: Rule | None = None
    question: Question | None = None

    async def __call__(self, documents: list[Document]) -> list[Document]:
        """Return the objects in the other version. Raises: ApiError for an object that cannot be converted."""
        if self.rule is not None:
            return self.rule(documents)
        assert self.question is not None, "a conversion has a rule or a question"
        return await self.question(documents)
