"""The page of a comparison in one file: what it holds, what recordings go in, and what is said of those that do not."""

import base64
import gzip
import json
import re

import msgspec
import pytest

from lab.experiments.page_document import page_document
from lab.recordings.format import SUFFIX
from lab.ui import result_page
from lab.ui.page import write_page
from lab.ui.result_page import embed_comparison, sorted_out
from tests.browser import recorded
from tests.unit.experiments.runs import a_run, compared, seeds_of

HOSTILE = "</noscript><script>alert(1)</script><b>&'\""


def part(text, name):
    found = re.search(rf'id="replay-all-{name}">([^<]*)</script>', text)
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def meta(text):
    return json.loads(re.search(r'id="replay-index">(.*?)</script>', text, re.DOTALL)[1])["meta"]


def recorded_comparison(folder, seeds=(0, 1, 2), **more):
    """Three seeds in two arms, of which these are recorded."""
    for seed in seeds:
        for arm in ("fail", "unbind"):
            recorded.record(folder / f"{arm}-{seed}{SUFFIX}", recorded.some_history(), arm=arm, seed=seed)
    return compared(seeds_of([9, 5, 1], [5, 3, 1]), recordings=str(folder), **more)


def test_the_file_has_the_document_that_the_server_answers_with():
    made = compared(seeds_of([9, 5], [5, 3]))
    page = result_page.comparison_page(made)

    assert json.loads(msgspec.json.encode(page_document(made))) == part(page.text, "result")
    assert "" == page.recorded
    assert ([], ["experiments"], "experiments", "A & B") == tuple(
        meta(page.text)[name] for name in ("runs", "pages", "opens", "title")
    )


def test_the_same_document_gives_the_same_file():
    made = compared(seeds_of([9, 5], [5, 3]))

    assert result_page.comparison_page(made) == result_page.comparison_page(made)


def test_what_came_from_a_cluster_ends_no_element_and_makes_none():
    runs = [a_run(arm, 0, {HOSTILE: (HOSTILE + arm,)}, pods_failed=ord(arm[0])) for arm in ("fail", "unbind")]
    text = result_page.comparison_page(compared(runs, title=HOSTILE, scenario=HOSTILE, about=HOSTILE)).text

    assert "alert(1)</script>" not in text
    assert 1 == text.count("</noscript>")
    assert not re.search(r'(?:src|href)="(?!data:)|@import|url\((?!data:)', text.partition("<body>")[2])
    assert HOSTILE == part(text, "result")["title"]


def test_recordings_of_the_seed_nearest_to_the_medians_go_in_and_it_is_said_which(tmp_path):
    page = result_page.comparison_page(recorded_comparison(tmp_path))

    words = (
        "Of 3 seeds, seed 1, whose runs lie nearest to the medians of Pods failed: "
        "a recording of each arm is in this file."
    )
    assert words == page.recorded
    assert {"words": words, "seed": 1} == part(page.text, "result")["recorded"]
    assert [("fail", 1), ("unbind", 1)] == [(run["arm"], run["seed"]) for run in meta(page.text)["runs"]]
    assert "difference" in meta(page.text)["pages"]


def test_a_recording_of_another_run_under_the_same_name_is_not_taken(tmp_path):
    made = recorded_comparison(tmp_path, (1, 2))
    recorded.record(tmp_path / f"fail-1{SUFFIX}", recorded.some_history(), arm="fail", seed=1, digest="0ther")

    assert "seed 2, " in result_page.comparison_page(made).recorded


@pytest.mark.parametrize(
    ("seeds", "torn", "says"),
    [
        ((), "", "There is no seed of which every arm has its recording in "),
        ((1,), "unbind", "There is no seed of which every arm has its recording in "),
    ],
)
def test_without_recordings_of_a_seed_the_page_is_written_and_says_so(tmp_path, seeds, torn, says):
    made = recorded_comparison(tmp_path, seeds)
    if torn:
        (tmp_path / f"{torn}-1{SUFFIX}").write_bytes(b"PK")
    page = result_page.comparison_page(made)

    assert page.recorded.startswith(says)
    assert ([], {"words": page.recorded, "seed": None}) == (
        meta(page.text)["runs"],
        part(page.text, "result")["recorded"],
    )


def test_recordings_that_are_too_large_are_left_out_with_the_command_that_takes_them(tmp_path, monkeypatch):
    made = recorded_comparison(tmp_path, (1,))
    whole = result_page.comparison_page(made).text
    less = result_page.comparison_page(made, large=len(whole.encode()) - 1)
    none = result_page.comparison_page(made, large=1000)
    monkeypatch.setattr(result_page, "RECORDED_MAX", 10)
    unread = result_page.comparison_page(made)

    assert less.recorded.endswith("decisions of each arm, without objects are in this file.")
    assert len(less.text) < len(whole)
    by_hand = f"keplab ui --page FILE.html {tmp_path}/fail-1.keprec {tmp_path}/unbind-1.keprec"
    assert none.recorded.endswith(f"with its recordings the file would be larger than 0 MB; {by_hand}")
    assert unread.recorded.endswith(f"its recordings have 0 MB and are left out; {by_hand}")
    assert [] == meta(none.text)["runs"] == meta(unread.text)["runs"]


def test_files_of_one_page_are_known_by_what_is_in_them(tmp_path):
    recording = recorded.record(tmp_path / "a.json", recorded.some_history())
    document = tmp_path / "b.keprec"
    document.write_bytes(msgspec.json.encode(compared(seeds_of([9], [5]))))
    made, recordings = sorted_out([recording, document])

    assert ("A & B", [recording]) == (made.title, recordings)
    write_page(recordings, tmp_path / "out.html", result=embed_comparison(made, "One."))
    assert 1 == len(meta((tmp_path / "out.html").read_text())["runs"])


def test_two_comparisons_and_documents_of_something_else_are_refused_with_their_names(tmp_path):
    (one := tmp_path / "a.json").write_bytes(msgspec.json.encode(compared(seeds_of([9], [5]))))
    (other := tmp_path / "b.json").write_text('{"schema": "keplab.other"}')

    with pytest.raises(ValueError, match=r"a page holds one comparison; these are two: .*a\.json and .*b\.json"):
        sorted_out([one, other])
    with pytest.raises(ValueError, match=r"b\.json: it has keplab\.other 0, want keplab\.comparison 1"):
        sorted_out([other])
