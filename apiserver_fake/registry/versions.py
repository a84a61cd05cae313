"""The versions of one kind during one write, and conversions of objects between them.

An object sent in another version than the stored one is read and validated by the rules of its version, then
converted. Source: upstream
`staging/src/k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from apiserver_fake.registry.conversion import Conversion
from apiserver_fake.registry.served_version import ServedVersion
from apiserver_fake.registry.sessions import Session, convert_documents
from services.api.meta import Document


class Versions:
    """Converts objects of one kind; conversions by a webhook go through the session."""

    def __init__(self, stored: str, versions: Callable[[], Sequence[ServedVersion]], session: Session | None) -> None:
        """`versions`: those in which the kind is served, made when they are first needed."""
        self._versions, self._session = versions, session
        self.stored = stored
        """The version in which objects are stored."""

    def served_version(self, api_version: str) -> ServedVersion | None:
        """Return the served version of that name; None if it is not served."""
        return next((each for each in self._versions() if each.resource.api_version == api_version), None)

    def caller_version(self, api_version: str) -> ServedVersion | None:
        """Return the version in which the caller sends objects; None if it is the stored one."""
        return None if api_version in ("", self.stored) else self.served_version(api_version)

    def convert(self, documents: list[Document], have: str, wanted: str) -> list[Document]:
        """Return objects converted from one version to another, through the stored one. Raises: ApiError,
        Unanswered.
        """
        if have not in (wanted, self.stored) and (conversion := self._to_stored(have)) is not None:
            documents = convert_documents(conversion, documents, self._session)
        if have != wanted and wanted != self.stored and (served := self.served_version(wanted)) is not None:
            documents = (
                documents
                if served.from_stored is None
                else convert_documents(served.from_stored, documents, self._session)
            )
        return documents

    def _to_stored(self, have: str) -> Conversion | None:
        """Return what makes objects of a version stored ones; that of another version where it is served no more."""
        served = self.served_version(have)
        return (
            served.to_stored
            if served is not None
            else next(filter(None, (v.to_stored for v in self._versions())), None)
        )
