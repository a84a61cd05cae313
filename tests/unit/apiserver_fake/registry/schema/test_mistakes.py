"""What Go's decoder and converter say of documents, word for word.

The rows are what `k8s.io/apimachinery` 0.36 answered: `UniversalDeserializer().Decode` and
`DefaultUnstructuredConverter.FromUnstructured` of the same document.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from apiserver_fake.registry.schema.mistakes import _time_mistake, wrong_time
from apiserver_fake.registry.schema.schemas import Mistyped, conform, shape_of

ROWS = json.loads((Path(__file__).parent / "go_decoder.json").read_text())


def said(document, *, is_converted):
    shape = shape_of(document["apiVersion"], document["kind"])
    try:
        conform(shape, document["apiVersion"], document["kind"], document, is_converted=is_converted)
    except Mistyped as refusal:
        return refusal.mistake
    return "ok"


@pytest.mark.parametrize("row", ROWS, ids=lambda row: json.dumps(row[0].get("spec") or row[0]["metadata"])[:80])
def test_a_document_of_wrong_types_is_refused_in_the_words_of_go(row):
    document, decoded, converted = row
    assert said(document, is_converted=False) == decoded
    assert said(document, is_converted=True) == converted


def test_a_conversion_cuts_integers_to_their_width_and_takes_whole_floats():
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {}, "spec": {"replicas": 10_000_000_000}}
    shape = shape_of("apps/v1", "Deployment")
    assert conform(shape, "apps/v1", "Deployment", document, is_converted=True)["spec"] == {"replicas": 1410065408}
    document["spec"] = {"replicas": 3.0}
    made = conform(shape, "apps/v1", "Deployment", document, is_converted=True)["spec"]["replicas"]
    assert (made, type(made)) == (3, int)


def test_null_items_are_zero_values_and_quantities_lose_their_blanks():
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {"containers": [None, {"command": [None]}]}}
    document["spec"]["overhead"] = {"cpu": " 1 "}
    made = conform(shape_of("v1", "Pod"), "v1", "Pod", document)
    assert made["spec"] == {"containers": [{}, {"command": [""]}], "overhead": {"cpu": "1"}}


NEARLY_TIMES = st.builds(
    "{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}{}{}".format,
    st.integers(0, 2100),
    st.integers(0, 13),
    st.integers(0, 32),
    st.sampled_from("TTTt "),
    st.integers(0, 24),
    st.integers(0, 60),
    st.integers(0, 60),
    st.sampled_from(("", ".5", ",5", ".000001", ".0000001")),
    st.sampled_from(("Z", "Z", "z", "", "+01:00", "-25:00", "Z\n", "ZZ")),
)


@given(NEARLY_TIMES, st.booleans())
@example("2026-11-28T23:59:59Z", True)
@example("2026-11-28T23:59:59.000001Z", True)
@example("2026-11-28T23:59:59.000001Z", False)
@example("2026-11-28T23:59:59Z\n", False)
@example("2026-13-28T23:59:59Z", False)
@example("٢026-11-28T23:59:59Z", False)
def test_the_time_that_clients_write_is_read_at_once_as_it_is_part_by_part(text, is_micro):
    assert _time_mistake(text, is_micro=is_micro) == wrong_time(text, is_micro=is_micro)
