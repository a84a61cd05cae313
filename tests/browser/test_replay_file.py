"""The page in one file, from disk, without a network (check 21)."""

import json
import re

import pytest

from lab.ui import page as ui_page
from tests.browser import recorded
from tests.unit.recordings.histories import History, node, pod


def test_it_opens_from_disk_and_asks_no_server_for_anything(replay, new_page):
    page = new_page(offline=True)
    page.open(replay)
    page.keys("t")
    page.until("() => document.querySelector('.time-canvas.full')")

    assert [replay.as_uri()] == [each for each in page.requests if not each.startswith(("data:", "blob:"))]
    policy = page.ask("() => document.querySelector('meta[http-equiv]').content")
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe" not in policy


def test_nothing_can_be_changed_in_it(replay, new_page):
    page = new_page()
    page.open(replay)
    refused = page.ask(
        "() => Promise.all(['breakIt', 'apply', 'put', 'remove', 'job'].map((name) => __keplab.source()[name]().then(() => 'done', (error) => error.code)))"
    )

    assert [405] * 5 == refused
    assert {"write": False, "break": False} == page.ask("() => __keplab.state.flags.value")


def test_the_time_line_seeks_by_pointer_wheel_and_keys(replay, history, new_page):
    page = new_page()
    page.open(replay)
    box = page.raw.locator(".strip canvas").bounding_box()
    middle = box["y"] + 8
    page.raw.mouse.click(box["x"] + box["width"] / 2, middle)
    page.until("(last) => __keplab.state.rv.value > last * 0.4 && __keplab.state.rv.value < last * 0.6", history.rv)
    page.raw.mouse.click(box["x"] + 2, middle)
    page.until("() => __keplab.state.rv.value < 10")
    before = page.ask("() => __keplab.state.time.value")
    page.keys(".")
    page.until("(t) => __keplab.state.time.value > t", before)
    label = page.ask(
        """async (t) => { const {STOPS} = await import('keplab/marks.js');
        const mark = __keplab.state.marks.value.find((each) => STOPS.has(each.kind) && each.time > t); return `${mark.kind}: ${mark.label}`; }""",
        before,
    )
    assert label == page.ask("() => __keplab.state.notice.value.text")
    page.keys("P", "Home", ".")
    page.keys("End")
    page.until("(rv) => __keplab.state.rv.value === rv", history.rv)
    page.ask("() => document.querySelector('.strip canvas').focus()")
    ticks = "() => document.querySelector('.strip canvas').getAttribute('aria-valuetext')"
    at_end = page.ask(ticks)
    page.keys("ArrowLeft")
    page.until("(rv) => __keplab.state.rv.value < rv", history.rv)
    assert at_end != page.ask(ticks)


def test_keys_for_marks_stop_at_each_of_them_however_quickly_they_follow(replay, new_page):
    """A mark may be later than the version that its moment shows, and several may be of one version."""
    page = new_page()
    page.open(replay)
    page.until("() => __keplab.state.marks.value.length > 3")
    page.keys("Home")
    page.until("() => __keplab.state.rv.value === 1")
    stops = page.ask(
        """async () => { const {STOPS} = await import('keplab/marks.js'), now = __keplab.state.time.value;
        return __keplab.state.marks.value.filter((each) => STOPS.has(each.kind) && each.time > now).map((mark) => `${mark.kind}: ${mark.label}`); }"""
    )
    said = "() => __keplab.state.notice.value.text"
    seen = []
    for _ in stops:
        page.keys(".")
        seen.append(page.ask(said))
    page.keys(".")

    assert len(stops) > 2
    assert stops == seen
    assert page.ask(said) == "No mark after this moment."
    for _ in stops[1:]:
        page.keys(",")
    assert page.ask(said) == stops[0]


def test_the_arrow_keys_of_the_time_line_go_over_times_in_which_nothing_was_committed(replay, new_page):
    page = new_page()
    page.open(replay)
    page.seek(10)
    page.ask("() => document.querySelector('.strip canvas').focus()")
    page.keys(*"w" * 24)
    at = "() => __keplab.state.rv.value"
    for direction, sign in (("ArrowRight", 1), ("ArrowLeft", -1)):
        for _ in range(3):
            before = page.ask(at)
            page.keys(direction)
            assert page.until(
                "([before, sign]) => Math.sign(__keplab.state.rv.value - before) === sign", [before, sign]
            )


def test_a_moment_is_copied_by_its_name(replay, new_page):
    page = new_page()
    page.open(replay)
    page.seek(20)
    page.keys("c")
    page.until("() => /made-up/.test(__keplab.state.notice.value.text)")

    assert page.ask("() => __keplab.state.notice.value.text").endswith("made-up/7@rv20")


def test_decisions_alone_leave_objects_out_and_say_so(tmp_path, history, new_page):
    recording = recorded.record(tmp_path / "a.keprec", history)
    everything, decisions = (
        recorded.page_of(tmp_path, recording, detail=detail).stat().st_size for detail in ui_page.DETAILS
    )
    assert decisions < everything
    page = new_page()
    page.open(f"{(tmp_path / 'page.html').as_uri()}#/objects/pods")
    page.until("() => document.querySelector('.error')")

    assert "--detail decisions" in page.text(".error")


def test_two_recordings_are_two_runs_and_their_difference_is_in_the_file(tmp_path, new_page):
    one, other = recorded.some_history(), recorded.some_history()
    paths = [
        recorded.record(tmp_path / "fail.keprec", one, arm="fail"),
        recorded.record(tmp_path / "none.keprec", other, arm="unbind", attempts=False),
    ]
    page = new_page()
    page.open(recorded.page_of(tmp_path, *paths))
    titles = page.ask(
        "() => [...document.querySelectorAll('header select option')].map((option) => option.textContent)"
    )
    assert ["fail · seed 7", "unbind · seed 7"] == titles
    assert page.ask("() => __keplab.source().diff('0', '1').then((found) => found.difference_count)") > 0
    page.raw.select_option("header select", "1")
    page.until("() => __keplab.state.run.value === '1' && __keplab.state.rv.value > 0")


def test_runs_without_arms_are_called_by_their_files(tmp_path, new_page):
    paths = [recorded.record(tmp_path / f"{name}.keprec", recorded.some_history()) for name in ("first", "second")]
    page = new_page()
    page.open(recorded.page_of(tmp_path, *paths))
    titles = page.ask(
        "() => [...document.querySelectorAll('header select option')].map((option) => option.textContent)"
    )

    assert ["first", "second"] == titles
    assert "made up" == page.text("header .run .title")


def test_why_a_pod_waits_is_in_the_file(replay, new_page):
    page = new_page()
    page.open(replay)
    found = page.ask("() => __keplab.source().explain('shop', 'web-33')")

    assert ("shop/web-33", "unschedulable", ["NodeResourcesFit"]) == (
        found["pod"],
        found["outcome"],
        found["rejected_by"],
    )


def test_a_large_file_says_what_to_leave_out(tmp_path, history, monkeypatch):
    monkeypatch.setattr(ui_page, "LARGE", 1000)
    recording = recorded.record(tmp_path / "a.keprec", history)

    assert "--detail decisions" in ui_page.write_page([recording], tmp_path / "a.html").advice
    assert "fewer recordings" in ui_page.write_page([recording], tmp_path / "b.html", "decisions").advice


def test_bad_input_is_one_line(tmp_path):
    with pytest.raises(ValueError, match=r"detail: want everything or decisions, not 'all'"):
        ui_page.write_page([], tmp_path / "a.html", "all")
    with pytest.raises(ValueError, match="name a recording"):
        ui_page.write_page([], tmp_path / "a.html")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"there is no recording in .*empty"):
        ui_page.write_page([tmp_path / "empty"], tmp_path / "a.html")
    (tmp_path / "x.keprec").write_text("no")
    with pytest.raises(ValueError, match=r"x\.keprec: no recording"):
        ui_page.write_page([tmp_path / "x.keprec"], tmp_path / "a.html")


def test_the_same_recording_gives_the_same_file(tmp_path, history):
    recording = recorded.record(tmp_path / "a.keprec", history)
    first = recorded.page_of(tmp_path, recording).read_bytes()

    assert first == recorded.page_of(tmp_path, recording).read_bytes()


def test_a_name_cannot_end_the_element_that_holds_it(tmp_path):
    history = recorded.History()
    history.commit("nodes", recorded.node("n0", "node-0"))
    recording = recorded.record(tmp_path / "a.keprec", history, arm="</script><script>alert(1)</script>")
    text = recorded.page_of(tmp_path, recording).read_text(encoding="utf-8")
    index = re.search(r'id="replay-index">(.*?)</script>', text, re.DOTALL)[1]

    assert "</script><script>alert(1)</script>" == json.loads(index)["meta"]["runs"][0]["arm"]
    assert "alert(1)</script>" not in text


def test_pods_that_no_scheduler_tried_say_so_and_what_they_wait_for(tmp_path, new_page):
    blocked = "Scheduling is blocked due to non-empty scheduling gates"
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": blocked}
    history = History()
    history.commit("nodes", node("n1", "node-1"))
    history.commit("pods", pod("gated", "u-gated", conditions=[gated]))
    history.move("u-gated", "gated")
    history.commit("pods", pod("for-n1", "u-for-n1", node="n1", phase="Running"))
    path = recorded.record(tmp_path / "a.keprec", history, attempts=False)
    page = new_page()
    page.open(recorded.page_of(tmp_path, path))
    page.ask("() => __keplab.select({kind: 'pods', ns: 'shop', name: 'gated'})")
    page.keys("x")
    page.until("() => document.querySelector('.overlay .facts')")
    waiting = page.text(".overlay")
    page.ask("() => __keplab.select({kind: 'pods', ns: 'shop', name: 'for-n1'})")
    page.until("() => document.querySelector('.overlay h2').textContent === 'shop/for-n1'")
    page.until("() => document.querySelector('.overlay .facts')?.textContent.includes('Running')")
    placed = page.text(".overlay")

    assert ["gated", blocked] == [page_line for page_line in waiting.splitlines() if page_line in ("gated", blocked)]
    assert "No scheduler has tried it." in waiting
    assert "No scheduler has tried it: it came with its node." in placed
    assert "would_fit_if" in placed
