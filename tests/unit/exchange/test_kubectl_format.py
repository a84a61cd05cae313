"""What users of kubectl pipe in: Lists, objects and lists of objects in JSON, however they follow each other."""

import json
from pathlib import Path

import pytest

from lab.exchange.format import Reading, open_stream
from lab.exchange.reading import Source
from lab.exchange.stream import Refused


def pod(name):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}}


def read(text, cut=None):
    data = text if isinstance(text, bytes) else text.encode()
    found, stream = open_stream(Source(Path("f.json"), data=data), Reading())
    return found.name, list(stream.objects)


A, B, C = (json.dumps(pod(name)) for name in "abc")
LIST = json.dumps({"kind": "List", "apiVersion": "v1", "items": [pod("b"), pod("c")]})
PODS = json.dumps({"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": n}} for n in "bc"]})


@pytest.mark.parametrize(
    "text",
    [
        f"{A}\n{B}\n{C}\n",
        f"{A}{B}{C}",
        f"---\n{A}\n---\n{B}\n---\n{C}\n---\n",
        f"--- {A}\n--- {B}\n\n---\n\n{C}\n---",
        "\n".join(json.dumps(pod(name), indent=2) for name in "abc"),
        f"[{A}, {B},\n {C}]",
        f"[{A}]\n[{B}, {C}]",
        f"{A}\n{LIST}",
        f"[{A}, {LIST}]",
        f"{LIST}\n---\n{A}",
        f"{A}\n{PODS}",
        f"[{PODS}, {A}]",
        b"\xef\xbb\xbf" + f"{A}\n{B}\n{C}".encode(),
        json.dumps({"spec": {}, **pod("a")}) + f"\n{LIST}",
    ],
)
def test_objects_of_json_are_read_however_they_follow_each_other(text):
    found, objects = read(text)

    assert (found, sorted(each.name for each in objects)) == (
        "kubectl",
        sorted(f"Pod default/{name}" if "PodList" not in str(text) or name == "a" else f"Pod {name}" for name in "abc"),
    )


def test_an_empty_list_is_no_objects():
    assert [read(text) for text in ("[]", " [ ]\n", "---\n[]\n")] == [("kubectl", [])] * 3


def test_objects_are_placed_by_their_lines():
    _, objects = read(f"{A}\n\n---\n[{B},\n{C}]")

    assert [each.where for each in objects] == [
        "f.json:document 1 (line 1)",
        "f.json:document 4 (line 4) [0]",
        "f.json:document 5 (line 5) [1]",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            f'{A}\n{{"apiVersion": "v1", "kind": tru}}',
            "f.json:document 5 (line 2): line 2, column 33: it ends too early",
        ),
        (f"{A}\n{B[:-9]}", "f.json: line 2, column 49: the file ends within a value"),
        (f'[{A},\n {{"a"\n  : }}]', "f.json:document 2 (line 2): line 3, column 5: invalid character"),
        (f"[{A}\n{B}]", "f.json: line 2, column 1: want ',', not '{'"),
        (f"{A}\n{B}, {C}", "f.json: line 2, column 87: want an object or a list of objects, not ','"),
        (f"{A}\n---\nkind: Pod\n", "f.json: line 3, column 1: want an object or a list of objects, not 'k'"),
        (f"{A}\n[1]", "f.json:document 4 (line 2): want an object with apiVersion and kind, not int"),
        (f'{A}\n{{"kind": "Pod"}}', "f.json:document 2 (line 2): Pod: apiVersion: want a text, not nothing"),
        (f'{A[:-1]}, "spec": {{"a": 1e400}}}}', "f.json:document 4 (line 1): Number out of range"),
        (
            '{"apiVersion": "v1", "kind": "List", "items": [[1]]}',
            "f.json:document 3 (line 1): want an object with apiVersion and kind, not list",
        ),
    ],
)
def test_a_broken_one_is_refused_with_line_and_column(text, message):
    with pytest.raises(Refused) as refused:
        read(text)

    assert str(refused.value).startswith(message), str(refused.value)


def test_an_object_that_is_nested_twenty_thousand_levels_deep_is_refused():
    text = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": ' + '{"a":' * 20_000 + "1"

    with pytest.raises(Refused, match=r"f.json:document \d \(line 1\): nested deeper than 64 levels"):
        read(text + "}" * 20_001)
