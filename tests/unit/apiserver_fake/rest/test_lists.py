"""Lists made of stored bytes are what decoding every object would give."""

from typing import Any

import msgspec
import pytest

from apiserver_fake.registry.read import list_head, with_items
from apiserver_fake.rest import lists, tables
from apiserver_fake.storage.records import Page, Record, record_of
from services.api.meta import AGE, NAME, Column, Document
from services.api.resources import resources

NOW = 1_800_000_000.0
MADE = "2027-01-15T07:00:00Z"


def list_body(resource, page, rv, token):
    return with_items(list_head(resource, page, rv, token), [record.body for record in page.records])


def record(kind: str, name: str, rv: int = 1, **more: Any) -> Record:
    resource = resources()[kind]
    meta = {"name": name, "labels": {'q"': "ü"}, "creationTimestamp": MADE, "resourceVersion": str(rv)}
    document = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": meta, **more}
    return record_of(resource, document, rv, msgspec.json.encode(document))


def a_pod(name: str, rv: int = 1, **status: Any) -> Record:
    return record("pods", name, rv, spec={"containers": [{"name": "c"}], "nodeName": "n1"}, status=status)


OBJECTS = {
    "pods": [
        a_pod(
            "a", phase="Running", podIP="10.0.0.1", containerStatuses=[{"name": "c", "restartCount": 2, "ready": True}]
        ),
        a_pod("b"),
        a_pod(
            "restarted",
            containerStatuses=[{"name": "c", "restartCount": 1, "lastState": {"terminated": {"finishedAt": MADE}}}],
        ),
        a_pod("odd", containerStatuses=3),
        record("pods", "undated", metadata={"name": "undated"}),
        record("pods", "misdated", metadata={"name": "misdated", "creationTimestamp": "yesterday"}),
    ],
    "events": [record("events", "e", lastTimestamp=MADE, involvedObject={"kind": "Pod", "name": "p"}, reason="R")],
    "jobs.batch": [record("jobs.batch", "j", spec={"completions": 1}, status={"startTime": MADE})],
    "configmaps": [],
}


def both(rows: lists.Rows, kind: str, now: float, found: list[Record], **more: Any) -> tuple[bytes, bytes]:
    """Return the Table as it is put together, and as decoded objects make it."""
    resource = resources()[kind]
    head = msgspec.json.decode(list_body(resource, Page([]), 7, "next"))
    whole = msgspec.json.decode(list_body(resource, Page(found), 7, "next"))
    return (
        b"".join(rows.table(resource, head, found, now, **more)),
        msgspec.json.encode(tables.table_of(resource, whole, now, **more)),
    )


@pytest.mark.parametrize("include", ["Metadata", "None"])
@pytest.mark.parametrize("kind", OBJECTS)
def test_a_table_is_the_same_at_first_later_and_in_the_older_version(kind: str, include: str) -> None:
    rows = lists.Rows()

    for now in (NOW, NOW, NOW + 5, NOW + 86_400, NOW - 86_400):
        for version in ("v1", "v1beta1"):
            made, decoded = both(rows, kind, now, OBJECTS[kind], include=include, version=version)
            assert made == decoded


@pytest.mark.parametrize("kind", OBJECTS)
def test_a_list_of_metadata_is_the_same(kind: str) -> None:
    resource, found = resources()[kind], OBJECTS[kind]
    head = msgspec.json.decode(list_body(resource, Page([]), 7, ""))
    whole = msgspec.json.decode(list_body(resource, Page(found), 7, ""))

    assert b"".join(lists.Rows().metadata(head, found)) == msgspec.json.encode(tables.partial_metadata_list(whole))


def test_a_row_is_found_once_for_each_version_of_its_object() -> None:
    asked: list[str] = []

    def shown(document: Document, now_wall_s: float) -> str:
        asked.append(document["metadata"]["resourceVersion"])
        return "x"

    pods = resources()["pods"]
    other = type(pods)(**{**vars(pods), "columns": (NAME, Column("Shown", shown), AGE)})
    rows, head = lists.Rows(most=2), {"metadata": {}}

    list(rows.table(other, head, [a_pod("a"), first := a_pod("b")], NOW))
    list(rows.table(other, head, [first], NOW + 60))
    assert asked == ["1", "1"]
    list(rows.table(other, head, [a_pod("b", 2)], NOW))
    assert asked == ["1", "1", "2"]
    list(rows.table(other, head, [a_pod("c"), a_pod("d")], NOW))
    assert len(rows._rows) == 2, "as many as were allowed"


def test_a_long_list_comes_in_parts_that_make_the_whole() -> None:
    resource, found = resources()["pods"], [a_pod(f"p{number:04d}") for number in range(2 * lists.PART + 1)]
    head = msgspec.json.decode(list_body(resource, Page([]), 7, ""))
    whole = msgspec.json.decode(list_body(resource, Page(found), 7, ""))

    rows, alone = lists.Rows().table(resource, head, found, NOW), lists.Rows().metadata(head, found)

    for parts, decoded in (
        (list(rows), tables.table_of(resource, whole, NOW)),
        (list(alone), tables.partial_metadata_list(whole)),
    ):
        assert len(parts) == 4
        assert b"".join(parts) == msgspec.json.encode(decoded)
