"""Links to the sources of switches: pages of docs/spec, KEPs and upstream's files.

A source is written as `kubelet-unbinding 4.6`, `kep-5836 6.2`, `kubelet 6, 11`, upstream with a path in
backticks, or a repository.
"""

import re
from dataclasses import dataclass

from services.api.release import FOLLOWED

SPECIFICATIONS = (
    "controllers",
    "dra-core",
    "guarantees",
    "kep-1287-in-place-resize",
    "kep-5194-reservedfor-workloads",
    "kep-5229-async-api-calls",
    "kep-5501-preenqueue-status",
    "kep-5836-resize-preemption",
    "kubectl-requests",
    "kubelet",
    "kubelet-unbinding",
    "node-declared-features",
    "preemption",
    "scheduler-queue-and-cycles",
    "simulator",
)
"""The pages of docs/spec. A page about a KEP can also be cited by the KEP's number alone."""
_CITED = re.compile(r"([a-z][a-z0-9-]*) ([A-Z]?\d[\w.]*(?:, ?[A-Z]?\d[\w.]*)*)")
_KEP = re.compile(r"kep-(\d{4})")
_UPSTREAM = re.compile(r"upstream `([\w./-]+)`")
_REPOSITORY = re.compile(r"kubernetes(?:-sigs)?/[\w-]+")


@dataclass(frozen=True)
class Reference:
    """One source: a page of this repository with the cited sections, or an address elsewhere."""

    page: str = ""
    places: tuple[str, ...] = ()
    url: str = ""

    def __str__(self) -> str:
        """Return the reference as text for people: the address, or the page with its sections."""
        return self.url or f"{self.page} {', '.join(self.places)}"

    def document(self) -> dict[str, str]:
        """Return the reference as an element of a JSON document: its text and its address, for a page its path in this
        repository.
        """
        return {"text": str(self).partition("://")[2] or str(self), "url": self.url or self.page}


def references(source: str) -> tuple[Reference, ...]:
    """Return the references in the text of a source, in order; after a page about a KEP, the KEP itself."""
    cited_references: list[Reference] = []
    for clause in source.split(";"):
        if cited := _CITED.fullmatch(clause.strip()):
            name, places = cited[1], tuple(place.strip() for place in cited[2].split(","))
            page = next((each for each in SPECIFICATIONS if name in (each, each[:8])), "")
            cited_references += [Reference(f"docs/spec/{page}.md", places)] if page else []
            if page and (kep := _KEP.match(page)):
                cited_references.append(Reference(url=f"https://kep.k8s.io/{kep[1]}"))
        elif path := _UPSTREAM.search(clause):
            cited_references.append(
                Reference(url=f"https://github.com/kubernetes/kubernetes/blob/release-{FOLLOWED}/{path[1]}")
            )
        elif repository := _REPOSITORY.search(clause):
            cited_references.append(Reference(url=f"https://github.com/{repository[0]}"))
    return tuple(cited_references)
