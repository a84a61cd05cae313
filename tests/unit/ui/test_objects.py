"""What the page sends to be stored is read as Kubernetes reads YAML, and refused in one line."""

import pytest

from lab.ui.objects import as_yaml, limit_of, read_document, read_documents, version_of
from services.api.errors import BadRequest


def test_a_date_stays_the_text_it_is():
    assert {"kind": "A", "at": "2026-01-01"} == read_document(b"kind: A\nat: 2026-01-01\n")


def test_empty_documents_are_left_out():
    assert [{"a": 1}, {"b": 2}] == read_documents(b"---\na: 1\n---\n\n---\nb: 2\n---\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "there is no object in it"),
        (b"a: b: c", "line 1, column 5: mapping values are not allowed here"),
        (b"- 1", "document 1: want an object with apiVersion and kind, not list"),
        (b"a: 1\n---\nb: 2", "want one object, not 2"),
        (b"\xff\xfe\xff", "that is neither JSON nor YAML"),
        (b"[" * 5000, "that is neither JSON nor YAML"),
    ],
)
def test_what_is_no_object_is_refused_in_one_line(text, why):
    with pytest.raises(BadRequest) as refusal:
        read_document(text)
    assert refusal.value.message.startswith(why)
    assert "\n" not in refusal.value.message


@pytest.mark.parametrize("text", ["0", "-1", "5001", "x", "1e3", "¹"])
def test_a_limit_that_is_none_is_named(text):
    with pytest.raises(BadRequest, match="limit: want 1 to 5000"):
        limit_of(text)
    assert (500, 7) == (limit_of(""), limit_of("7"))


def test_a_version_that_is_none_is_named():
    with pytest.raises(BadRequest, match="rv: want a resource version, not 'newest'"):
        version_of("newest")


def test_yaml_keeps_the_order_and_the_signs():
    assert "b: ••• 12 bytes\na: 1\n" == as_yaml({"b": "••• 12 bytes", "a": 1})
