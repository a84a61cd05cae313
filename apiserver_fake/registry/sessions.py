"""The session of one write: the webhooks' answers, kept between its attempts (decision 0032, 0088).

A write is evaluated without waiting. Where it needs the answer of a webhook it stops with the question. The
webhook is called outside of the commit, and the write is tried again with the answer.
"""

from __future__ import annotations

from typing import Any, cast

from apiserver_fake.registry.conversion import Conversion
from services.api.errors import ApiError
from services.api.meta import Document


class Unanswered(ApiError):
    """A write waits for a webhook's answer. This is raised inside the server and never sent to a caller.

    `question`: compared to find out whether the same question was asked before.
    """

    def __init__(self, text: str, question: Any) -> None:
        super().__init__(text)
        self.question = question

    def beside(self, refused: ApiError) -> ApiError:
        """Return a webhook's refusal with admission's earlier warnings and audit annotations added."""
        refused.warnings, refused.audit = (*self.warnings, *refused.warnings), {**self.audit, **refused.audit}
        return refused


class Unconverted(Unanswered):
    """A write waits for objects to be converted to another version."""

    def __init__(self, conversion: Conversion, documents: list[Document]) -> None:
        super().__init__("the write waits for a conversion webhook", (conversion, documents))
        self._conversion, self._documents = conversion, documents

    async def answer(self) -> list[Document] | ApiError:
        """Return the converted objects, or the error of the conversion."""
        try:
            return await self._conversion(self._documents)
        except ApiError as error:
            return error


class Session:
    """The webhooks' answers during one write, and the identity that the write gave a new object in its first
    attempt.

    `wall_s`: the time of the write. It is the same in every attempt, as are `uid` and `name`, so that the object
    committed is the one that webhooks were called with. `pending`: the question at which the last attempt stopped.
    `is_rehearsing`: the write is tried on a state that will not be stored.
    """

    def __init__(self, wall_s: float) -> None:
        self.wall_s = wall_s
        self.uid = self.name = ""
        self.is_rehearsing = False
        self.pending: Unanswered | None = None
        self._answers: list[tuple[Any, Any]] = []

    def ask(self, unanswered: Unanswered) -> Any:
        """Return the answer to exactly this question. Raises: Unanswered when it was not asked yet."""
        for question, answer in self._answers:
            if question == unanswered.question:
                return answer
        self.pending = unanswered
        raise unanswered

    def learn(self, unanswered: Unanswered, answer: Any) -> None:
        """Keep the answer to a question."""
        self._answers.append((unanswered.question, answer))


def convert_documents(conversion: Conversion, documents: list[Document], session: Session | None) -> list[Document]:
    """Return objects in another version, during a write. Raises: Unanswered if a webhook must be called first,
    ApiError if the conversion fails.
    """
    if conversion.rule is not None:
        return conversion.rule(documents)
    if session is None:
        raise ApiError("conversion webhooks are not called during this write")
    answer = session.ask(Unconverted(conversion, documents))
    if isinstance(answer, ApiError):
        raise answer
    return cast("list[Document]", answer)
