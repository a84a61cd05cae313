"""What a recording shows as JSON: rows, objects and decisions at a version, with what is not recorded said so (checks 8, 9)."""

import msgspec
import pytest

from lab.recordings.format import Meta
from lab.recordings.reader import Recording
from lab.recordings.recorded_api import NOT_RECORDED, RecordedApi
from lab.recordings.writer import Writer
from lab.scenarios.recording_summary import decisions_of
from lab.ui import documents
from services.api.errors import Expired, NotFound
from tests.unit.recordings.histories import History, node, pod


@pytest.fixture
def recording(tmp_path):
    history = History()
    history.commit("nodes", node("n1", "u-n1"))
    history.commit("pods", pod("old", "u-old", phase="Running"))
    history.commit("pods", pod("web", "u-web"))
    history.lines.append(history.line("sched.attempt", obj={"kind": "Pod", "ns": "shop", "name": "web", "uid": "u-web"}, data={"outcome": "unschedulable", "attempt": 1, "message": "0/1 nodes", "plugins": ["NodeResourcesFit"]}))  # fmt: skip
    history.commit("nodes", node("n1", "u-n1", cpu="16"))
    history.commit("nodes", node("n2", "u-n2"))
    history.lines.append(history.line("sched.attempt", obj={"kind": "Pod", "ns": "shop", "name": "web", "uid": "u-web"}, node="n1", data={"outcome": "scheduled", "attempt": 2}))  # fmt: skip
    history.commit("pods", pod("web", "u-web", node="n1", phase="Running"))
    history.commit("pods", pod("old", "u-old"), "DELETED")
    writer = Writer(tmp_path / "a.keprec", Meta(title="a", scenario="s", arm="fail", seed=1, ended="now"))
    writer.begin(0.0, 1_800_000_000.0)
    for number, event in enumerate(history.events):
        if number != 1:  # the body of `old` was not seen
            writer.event(event)
    for line in history.lines:
        writer.line(line)
    writer.close()
    with Recording.open(tmp_path / "a.keprec") as found:
        yield found


def test_a_run_says_where_it_begins_and_ends(recording):
    found = documents.run_document("a", recording)

    assert ("a", "fail", 1, 1, 7, "recording") == tuple(
        found[name] for name in ("title", "arm", "seed", "from_rv", "to_rv", "kind")
    )


def test_rows_are_those_of_kubectl_and_say_what_is_not_recorded(recording):
    found = documents.rows(recording, "pods", "", "", 6, 10, "")

    assert ["Name", "Ready", "Status"] == [column["name"] for column in found["columns"]][:3]
    assert [("old", False), ("web", True)] == [(row["name"], row["recorded"]) for row in found["rows"]]
    assert {"old", NOT_RECORDED} == set(found["rows"][0]["cells"])
    assert not found["recorded"]
    assert all(cell != "" for row in found["rows"] for cell in row["cells"]), "nothing is blank"


def test_rows_are_searched_and_come_in_pages(recording):
    assert ["web"] == [
        row["name"] for row in documents.rows(recording, "pods", "shop", "WEB running", 0, 10, "")["rows"]
    ]
    first = documents.rows(recording, "pods", "", "", 6, 1, "")
    second = documents.rows(recording, "pods", "", "", 6, 1, first["continue"])
    assert (["old"], "shop/old", ["web"], "") == (
        [row["name"] for row in first["rows"]], first["continue"], [row["name"] for row in second["rows"]], second["continue"],
    )  # fmt: skip


def test_an_object_is_as_it_was(recording):
    assert "16" == documents.one(recording, "nodes", "", "n1", 0)["status"]["allocatable"]["cpu"]
    assert "8" == documents.one(recording, "nodes", "", "n1", 3)["status"]["allocatable"]["cpu"]
    with pytest.raises(Expired, match="body not recorded: pods old at version 2"):
        documents.one(recording, "pods", "shop", "old", 4)
    with pytest.raises(NotFound, match='pods "shop/old" not found at version 7'):
        documents.one(recording, "pods", "shop", "old", 7)


def test_versions_name_their_writers(recording):
    found = documents.versions(recording, "pods", "shop", "old")["items"]

    assert [(2, "ADDED", "alice", False), (7, "DELETED", "alice", True)] == [
        (each["rv"], each["type"], each["writer"], each["recorded"]) for each in found
    ]


def test_the_past_is_explained_from_decisions_and_says_what_it_leaves_out(recording):
    then = documents.explain(recording, "shop", "web", 3)
    now = documents.explain(recording, "shop", "web", 0)

    assert ("", "unschedulable", "0/1 nodes", ["NodeResourcesFit"]) == (
        then["node"],
        then["outcome"],
        then["message"],
        then["rejected_by"],
    )
    assert ("n1", "scheduled", 2) == (now["node"], now["outcome"], now["attempts"])
    assert "would_fit_if" not in then
    assert "would_fit_if" in then["left_out"][0]
    with pytest.raises(NotFound, match="no pod shop/none"):
        documents.explain(recording, "shop", "none", 0)


def test_a_run_differs_from_itself_in_nothing(recording):
    decisions = decisions_of(recording)
    found = documents.difference(decisions, decisions)

    assert (None, [], f"no difference in {len(decisions)} decisions") == (
        found["first"],
        found["differences"],
        found["text"],
    )


def test_the_first_difference_names_the_fields_that_differ(recording):
    decisions = decisions_of(recording)
    other = [msgspec.structs.replace(each, node="n2") if each.node == "n1" else each for each in decisions]

    assert ["node"] == documents.difference(decisions, other)["first"]["fields"]


@pytest.mark.parametrize("name", ["po", "pod", "Pods", "pods"])
def test_a_kind_is_meant_by_any_of_its_names(recording, name):
    assert "pods" == RecordedApi(recording).kind_named(name).title
    with pytest.raises(NotFound):
        RecordedApi(recording).kind_named("none")
