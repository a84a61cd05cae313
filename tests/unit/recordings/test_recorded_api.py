"""A recording that is asked as an API server: kinds with their definitions, and what it has no body of."""

import pytest

from lab.recordings.format import Meta
from lab.recordings.reader import Recording
from lab.recordings.recorded_api import RecordedApi
from lab.recordings.writer import Writer
from services.api.errors import BadRequest, Expired, NotFound
from services.client.discovery import ObjectQuery
from tests.unit.recordings.histories import History, pod

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "geese.example.com", "uid": "d"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"kind": "Goose", "plural": "geese", "singular": "goose", "shortNames": ["gs"]},
        "versions": [
            {
                "name": "v2",
                "storage": True,
                "additionalPrinterColumns": [{"name": "Colour", "type": "string", "jsonPath": ".spec.colour"}],
            }
        ],
    },
}
GOOSE = {
    "apiVersion": "example.com/v2",
    "kind": "Goose",
    "metadata": {"name": "g", "namespace": "shop", "uid": "g"},
    "spec": {"colour": "grey"},
}


@pytest.fixture
def recording(tmp_path):
    history = History()
    history.commit("customresourcedefinitions.apiextensions.k8s.io", DEFINITION)
    history.commit("geese.example.com", GOOSE)
    history.commit("pods", pod("old", "u-old", phase="Running"))
    history.commit("pods", pod("web", "u-web"))
    history.commit("pods", pod("old", "u-old"), "DELETED")
    writer = Writer(tmp_path / "a.keprec", Meta(ended="now"))
    writer.begin(0.0, 1_800_000_000.0)
    for number, event in enumerate(history.events):
        if number != 2:  # the body of `old` was not seen
            writer.event(event)
    for line in history.lines:
        writer.line(line)
    writer.close()
    with Recording.open(tmp_path / "a.keprec") as recording:
        yield recording


@pytest.fixture
def remarks():
    return []


@pytest.fixture
def api(recording, remarks):
    return RecordedApi(recording, remarks.append)


@pytest.mark.parametrize("name", ["gs", "Goose", "geese", "geese.example.com"])
def test_a_custom_kind_is_called_and_shown_as_its_definition_says(api, name):
    kind = api.kind_named(name)
    table = api.objects(ObjectQuery(kind, is_table=True))

    assert (kind.kind, kind.title, kind.path) == ("Goose", "geese.example.com", "/apis/example.com/v2")
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Colour"]
    assert [row["cells"] for row in table["rows"]] == [["g", "grey"]]


def test_an_object_without_a_body_is_said_and_what_is_known_of_it(api, remarks):
    pods = api.kind_named("pods")
    with pytest.raises(Expired, match=r'body not recorded: pods old at version 3; known are {.*"Running"') as error:
        api.objects(ObjectQuery(pods, "shop", "old", at="4"))
    assert error.value.details["rv"] == 3

    table = api.objects(ObjectQuery(pods, is_table=True, at="4"))
    assert {"old", "-"} == set(table["rows"][0]["cells"])
    assert ["web"] == [each["metadata"]["name"] for each in api.objects(ObjectQuery(pods, at="4"))["items"]]
    assert ["body not recorded of 1 pods: old"] * 2 == remarks
    assert ["web"] == [each["metadata"]["name"] for each in api.items(pods, "4")]


def test_a_version_that_deletes_misses_no_body(api):
    changes = api.history(api.kind_named("pods"), "shop", "old", None)["items"]

    assert [("ADDED", False), ("DELETED", True)] == [(each["type"], each["recorded"]) for each in changes]


def test_what_is_not_there_is_named(api):
    pods = api.kind_named("pods")
    with pytest.raises(NotFound, match="no resource type 'ducks'"):
        api.kind_named("ducks")
    with pytest.raises(NotFound, match='pods "shop/old" not found at version 5'):
        api.objects(ObjectQuery(pods, "shop", "old"))
    with pytest.raises(NotFound, match='nodes "n" not found in the recording'):
        api.history(api.kind_named("nodes"), "shop", "n", None)
    with pytest.raises(BadRequest, match=r"field label not supported: spec\.magic"):
        api.objects(ObjectQuery(pods, fields="spec.magic=1"))
