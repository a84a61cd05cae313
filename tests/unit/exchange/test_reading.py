"""Files are read document by document, within bounds, whatever they are called."""

import gzip
from pathlib import Path

import pytest

from lab.exchange.reading import Limits, Source, json_elements, lines, yaml_documents
from lab.exchange.stream import Refused


def source(text, name="f.yaml"):
    return Source(Path(name), data=text if isinstance(text, bytes) else text.encode())


def read(text, **limits):
    return [(each.document, each.where) for each in yaml_documents(source(text), Limits(**limits))]


def test_documents_are_numbered_and_have_their_lines():
    found = read("# head\n---\n\n# more\na: 1\n---\n# nothing\n---\nb: 2\n...\n--- {c: 3}\n")

    assert found == [
        ({"a": 1}, "f.yaml:document 1 (line 5)"),
        ({"b": 2}, "f.yaml:document 2 (line 9)"),
        ({"c": 3}, "f.yaml:document 3 (line 11)"),
    ]


def test_three_dashes_in_a_text_do_not_end_a_document():
    assert read("a: |\n  x\n  ---\n  y\n")[0][0] == {"a": "x\n---\ny\n"}


@pytest.mark.parametrize(
    ("text", "limits", "message"),
    [
        ("a: " + "x" * 200, {"bytes": 100}, "f.yaml:document 1 (line 1): longer than 0 MiB"),
        ("a: " + "[" * 5 + "]" * 5, {"nesting": 3}, "f.yaml:document 1 (line 1): nested deeper than 3 levels"),
        ("a: &x 1\nb: [*x, *x]", {"aliases": 1}, "f.yaml:document 1 (line 1): more than 1 aliases"),
        ("\n\na: [1\nb: 2", {}, "f.yaml:document 1 (line 3): line 4: did not find expected ',' or ']'"),
        ("- a", {}, "f.yaml:document 1 (line 1): want an object with apiVersion and kind, not list"),
        (b"a: \xff", {}, "f.yaml:document 1 (line 1): byte 3 is no UTF-8: invalid start byte"),
    ],
)
def test_what_is_beyond_the_limits_or_malformed_is_refused_with_its_place(text, limits, message):
    with pytest.raises(Refused) as refused:
        read(text, **limits)

    assert str(refused.value) == message


def test_a_million_brackets_do_not_end_the_process():
    with pytest.raises(Refused, match="nested deeper than 64 levels"):
        read("a: " + "[" * 1_000_000)


def test_aliases_that_stand_for_too_much_are_refused():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]

    with pytest.raises(Refused, match="its aliases stand for more than 1,000,000 values"):
        read("\n".join(lines))


def test_compression_is_known_by_its_first_bytes():
    assert [each.document for each in yaml_documents(source(gzip.compress(b"a: 1")))] == [{"a": 1}]


@pytest.mark.parametrize("cut", [1, 9])
def test_a_torn_compressed_file_is_refused(cut):
    with pytest.raises(Refused, match=r"^f\.yaml: torn or damaged compression"):
        list(yaml_documents(source(gzip.compress(b"a: 1\n" * 1000)[:-cut])))


def test_zstd_without_a_library_says_so(monkeypatch):
    monkeypatch.setattr("importlib.import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))

    with pytest.raises(Refused, match="compressed by zstd, for which no library is installed"):
        source(b"\x28\xb5\x2f\xfd....").head()


def test_a_file_that_is_not_there_is_one_line():
    with pytest.raises(Refused, match=r"^nowhere\.yaml: No such file or directory$"):
        Source(Path("nowhere.yaml")).head()


def test_lines_are_placed_and_a_torn_last_one_is_known():
    found = [
        (each.text, str(each.place), each.is_torn)
        for each in lines(source(b'\xef\xbb\xbf{"a": 1}\n\n{"b": 2}\n{"c": '))
    ]

    assert found == [
        (b'{"a": 1}\n', "f.yaml:document 1 (line 1)", False),
        (b'{"b": 2}\n', "f.yaml:document 2 (line 3)", False),
        (b'{"c": ', "f.yaml:document 3 (line 4)", True),
    ]
    with pytest.raises(Refused, match=r"^f\.yaml:document 2 \(line 2\): longer than 0 MiB$"):
        list(lines(source("a\nbcdefghijklmnop\n"), Limits(bytes=8)))


def test_the_parts_of_one_great_object_come_one_by_one():
    text = ' {"kind": "List",\n "items": [{"a": "}]\\"{,"},\n 2, []], "n": null, "o": {"p": [1, {}]}, "e": []}\n'
    whole = [(e.member, e.number, e.text, e.place.line) for e in json_elements(source(text))]

    assert whole == [
        ("kind", 0, b'"List"', 1),
        ("items", 1, b'{"a": "}]\\"{,"}', 2),
        ("items", 2, b"2", 3),
        ("items", 3, b"[]", 3),
        ("n", 0, b"null", 3),
        ("o", 0, b'{"p": [1, {}]}', 3),
    ]


def test_parts_that_are_longer_than_a_block_are_whole():
    text = '{"items": [' + ", ".join(f'{{"name": "{"x" * 70_000}{i}"}}' for i in range(5)) + "]}"

    assert [len(e.text) for e in json_elements(source(text))] == [70_013] * 5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1]", "f.yaml: line 1, column 1: want '{', not '['"),
        ('{"a": [1,\n', "f.yaml: line 2, column 1: the file ends within a value"),
        ('{"a": 1} x', "f.yaml: line 1, column 10: more follows the object"),
        ('{"a" 1}', "f.yaml: line 1, column 6: want ':', not '1'"),
    ],
)
def test_one_object_that_is_none_is_refused_with_its_line(text, message):
    with pytest.raises(Refused) as refused:
        list(json_elements(source(text)))

    assert str(refused.value) == message
