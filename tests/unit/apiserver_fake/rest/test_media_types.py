import msgspec
import pytest

from apiserver_fake.rest.media_types import Form, NotAcceptable, json_from_yaml, json_of, negotiate, patch_type_of
from services.api.errors import BadRequest, UnsupportedMediaType

_METADATA = "as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
METADATA = f"application/vnd.kubernetes.protobuf;{_METADATA},application/json;{_METADATA},application/json"
TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", Form()),
        ("*/*", Form()),
        ("application/json, */*", Form()),
        ("application/vnd.kubernetes.protobuf,application/json", Form()),
        (METADATA, Form("application/vnd.kubernetes.protobuf", "PartialObjectMetadata", "v1")),
        (TABLE, Form("application/json", "Table", "v1")),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", Form()),
        ("application/yaml", Form("application/yaml")),
    ],
)
def test_the_first_form_that_can_be_made_wins(accept, expected):
    assert negotiate(accept, ("Table", "PartialObjectMetadata")) == expected


def test_a_client_that_takes_no_form_that_can_be_made_is_refused():
    with pytest.raises(NotAcceptable):
        negotiate("text/html", ())


def test_parameters_of_a_content_type_are_ignored_and_a_missing_one_is_json():
    assert json_of(b"{}", "application/json; charset=utf-8") == b"{}" == json_of(b"{}", "")


def test_a_form_body_is_an_unsupported_media_type():
    with pytest.raises(UnsupportedMediaType, match="accepted media types include"):
        json_of(b"a=b", "application/x-www-form-urlencoded")


def test_a_patch_without_content_type_is_unsupported():
    with pytest.raises(UnsupportedMediaType):
        patch_type_of("")


def test_yaml_dates_stay_text():
    assert msgspec.json.decode(json_from_yaml(b"a: 2020-01-01T00:00:00Z\nb: [1, x]\n")) == {
        "a": "2020-01-01T00:00:00Z",
        "b": [1, "x"],
    }


@pytest.mark.parametrize(
    "body", [b"a: &x 1\nb: *x\n", b"a: [", b"\xff", b"? [1]\n: 2\n", b"[" * 100, b"a: 1\n---\nb: 2\n"]
)
def test_guarantees_v3_yaml_with_aliases_or_faults_is_a_bad_request(body):
    with pytest.raises(BadRequest):
        json_from_yaml(body)
