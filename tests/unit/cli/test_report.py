"""`keplab report`: the page of a run or comparison again, from the record or from a document that was saved."""

import json
from pathlib import Path

import pytest

from lab.runs.folder import PAGE_FILE


def test_the_page_of_a_run_lies_in_its_record_and_its_path_is_printed(at_home, ended):
    _, out, _ = ended("run", "passes.txt", "--seed", 4, "-o", "json")
    (made,) = json.loads(out)

    code, out, _ = ended("report")

    assert (code, out) == (0, f"runs/{made['run']}/{PAGE_FILE}\n")
    page = Path(out.strip()).read_text()
    assert "Passed: 1 of 1 expectations are met" in page
    assert made["digest"] in page
    assert "keplab run passes.txt --seed 4" in page
    assert "pod/p" in page
    assert '"result":"Run"' in page


def test_the_page_of_a_comparison_is_the_one_that_compare_wrote(at_home, ended):
    ended("compare", "passes.txt", "--arm", "a", "--arm", "b", "--workers", 1, "--report", "first.html")

    ended("report", "latest", "--report", "again.html")
    _, out, _ = ended("report", "first.json", "-o", "json")

    assert json.loads(out) == {"report": "first.html"}
    assert Path("again.html").read_text() == Path("first.html").read_text()
    _, _, err = ended("report", "latest/a/0")
    assert "the page shows the whole comparison" in err


def test_what_run_printed_gives_a_page_too(at_home, ended):
    _, out, _ = ended("run", "passes.txt", "-o", "json", "--runs", "none")
    Path("saved.json").write_text(out)

    assert ended("report", "saved.json")[:2] == (0, "saved.html\n")
    assert "Passed: 1 of 1" in Path("saved.html").read_text()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot read x.json: No such file or directory"),
        ("{", "x.json: "),
        ("[]", "there is no run in it"),
        ('{"a": 1}', "element 0 has no scenario, mode, seed"),
        ('{"schema": "keplab.other"}', "x.json"),
    ],
)
def test_a_file_that_is_no_document_is_refused_in_one_line(at_home, ended, content, says):
    if content is not None:
        Path("x.json").write_text(content)

    code, out, err = ended("report", "x.json")

    assert (code, out) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 1


def test_runs_without_a_page_and_places_that_cannot_be_written_are_one_line(at_home, ended):
    _, _, nothing = ended("report")
    ended("run", "passes.txt", "--workers", 1)
    _, _, sweep = ended("report", "latest")
    ended("run", "passes.txt")
    _, _, unwritable = ended("report", "--report", "passes.txt/page.html")

    assert "there are no runs in runs" in nothing
    assert "is a sweep, which has no page; repeat it with keplab run passes.txt" in sweep
    assert "cannot write the report passes.txt/page.html" in unwritable
