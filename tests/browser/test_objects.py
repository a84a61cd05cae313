"""Objects, their versions, and what must not get out of them (checks 15, 16 and 17)."""

import base64
import difflib
import gzip
import re

import yaml

from lab.recordings.reader import Recording
from tests.browser import recorded

LINES = "() => [...document.querySelectorAll('.diff-row')].filter((row) => !row.classList.contains('gap')).map((row) => [row.classList[1], row.lastChild.textContent])"


def test_the_list_has_kubectls_columns_and_the_state_of_the_version(replay, history, new_page):
    page = new_page()
    page.open(f"{replay.as_uri()}#/objects/po")
    page.until("() => document.querySelectorAll('.vrow').length > 5")
    page.until("() => document.querySelectorAll('.vhead button').length > 5")
    titles = page.ask("() => [...document.querySelectorAll('.vhead button')].map((button) => button.textContent)")

    assert ["Namespace", "Name", "Ready", "Status", "Restarts", "Age"] == titles
    for rv in (history.stops[10], history.stops[60]):
        page.seek(rv)
        names = sorted(name for kind, _, name in history.states[rv] if kind == "pods")
        page.until(
            "(n) => document.querySelector('.small-print').textContent.startsWith(`${n} of ${n} pods`)", len(names)
        )
        found = page.ask(
            "(rv) => __keplab.source().objects('pods', {rv}).then((found) => found.rows.map((row) => row.name))", rv
        )
        assert sorted(found) == names


def test_a_kind_that_is_jumped_to_is_walked_and_viewed_by_keys(replay, history, new_page):
    names = sorted(name for kind, space, name in history.states[history.rv] if (kind, space) == ("pods", "shop"))
    page = new_page()
    page.open(replay)
    page.keys(":")
    page.type("pods -n shop")
    page.keys("Enter")
    page.until("() => document.querySelector('.vrow')")
    page.keys("v")
    page.until("() => document.querySelector('.detail table.versions')")
    assert f"shop/{names[0]}" == page.text(".detail h2")
    page.keys("Escape")
    page.keys("ArrowDown", "ArrowDown", "d")
    page.until("() => document.querySelector('.detail dl.pairs')")

    assert f"shop/{names[1]}" == page.text(".detail h2")


def test_a_document_that_may_not_be_copied_is_not_shown_as_a_notice(replay, new_page):
    page = new_page()
    page.open(f"{replay.as_uri()}#/objects/pods/shop/odd")
    page.until("() => document.querySelector('pre.yaml')")
    page.ask("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('not allowed')); }")
    page.click(".tab button:text('copy')")
    page.until("() => __keplab.state.notice.value.text")

    assert page.ask("() => __keplab.state.notice.value.text") == "The browser did not allow copying."


def test_keys_that_are_held_down_go_on_from_row_to_row(replay, history, new_page):
    names = sorted(name for kind, _, name in history.states[history.rv] if kind == "nodes")
    page = new_page()
    page.open(f"{replay.as_uri()}#/objects/nodes")
    page.until("() => document.querySelector('.vrow')")
    # As keys come that were pressed while the page was busy: nothing else is done between them.
    press = "document.querySelector('.vtable').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowDown'}))"
    page.ask(f"async () => {{ for (let i = 0; i < 3; i++) {{ {press}; await Promise.resolve(); }} }}")
    page.until("() => document.querySelector('.detail h2')")

    assert names[2] == page.text(".detail h2")


def test_the_first_of_a_list_is_the_first_as_it_is_sorted(replay, history, new_page):
    names = sorted(name for kind, _, name in history.states[history.rv] if kind == "nodes")
    page = new_page()
    page.open(f"{replay.as_uri()}#/objects/nodes")
    page.until("() => document.querySelector('.vrow')")
    page.click(".vhead button:text('Name')")
    page.click(".vhead button:text('Name')")
    page.until("(last) => document.querySelector('.vrow').firstChild.textContent === last", names[-1])
    page.keys("y")
    page.until("() => document.querySelector('.detail h2')")

    assert names[-1] == page.text(".detail h2")


def test_a_list_without_a_choice_of_its_own_is_walked_by_keys_and_chosen_from_by_enter(replay, new_page):
    page = new_page()
    page.open(f"{replay.as_uri()}#/timeline")
    page.until("() => document.querySelectorAll('.vrow').length > 3")
    before = page.ask("() => __keplab.state.rv.value")
    page.keys("ArrowDown", "ArrowDown", "ArrowDown")
    at = "[...document.querySelectorAll('.vrow')].findIndex((row) => row.ariaSelected === 'true')"

    page.until(f"() => {at} === 2")
    assert page.ask(
        "() => document.querySelector('.vtable').getAttribute('aria-activedescendant') === document.querySelectorAll('.vrow')[2].id"
    )
    assert before == page.ask("() => __keplab.state.rv.value")
    page.keys("Enter")
    page.until("(before) => __keplab.state.rv.value !== before", before)


def test_the_difference_of_two_versions_is_that_of_the_two_documents(replay, history, new_page):
    page = new_page()
    page.open(f"{replay.as_uri()}#/objects/pods/shop/odd?tab=versions")
    page.until("() => document.querySelector('.diff')")
    page.click("button:text('whole document')")
    shown = page.ask(LINES)
    new = history.rv
    old = max(
        rv for rv in range(1, new) if history.states[rv].get(("pods", "shop", "odd")) is not None and rv < new - 1
    )
    documents = [
        page.ask("(rv) => __keplab.source().object('pods', 'shop', 'odd', rv).then((found) => found.document)", rv)
        for rv in (old, new)
    ]
    texts = [
        page.ask("async (document) => (await import('keplab/yaml.js')).yaml(document)", each) for each in documents
    ]
    before, after = (text.splitlines() for text in texts)
    removed = [line for kind, line in shown if kind == "removed"]
    added = [line for kind, line in shown if kind == "added"]
    expected = list(difflib.ndiff(before, after))

    assert [line[2:] for line in expected if line.startswith("- ")] == removed
    assert [line[2:] for line in expected if line.startswith("+ ")] == added
    assert before == [line for kind, line in shown if kind != "added"]
    assert after == [line for kind, line in shown if kind != "removed"]
    assert [yaml.safe_load(text) for text in texts] == documents
    page.click("button:text('side by side')")
    page.until("() => document.querySelectorAll('.diff-pair').length > 10")


def test_what_a_user_wrote_is_text_and_nothing_runs(replay, new_page):
    page = new_page()
    page.open(f"{replay.as_uri()}#/objects/pods/shop/odd")
    page.until("() => document.querySelector('pre.yaml')")
    text = page.text("pre.yaml")

    assert recorded.HOSTILE in yaml.safe_load(text)["metadata"]["labels"].values()
    assert recorded.RIGHT_TO_LEFT == yaml.safe_load(text)["metadata"]["annotations"]["file"]
    assert "\\u202e" in text  # what turns the direction of a text around is spelled
    page.keys("d")
    page.until("() => document.querySelector('.pairs')")
    assert recorded.HOSTILE in page.text(".pairs")
    assert None is page.ask("() => window.pwned ?? null")
    assert 0 == page.ask("() => document.querySelectorAll('#app img').length")


def test_values_of_secrets_are_nowhere_in_the_file(replay):
    text = replay.read_text(encoding="utf-8")
    parts = re.findall(r'<script type="application/octet-stream" id="([^"]*)">([^<]*)</script>', text)
    unpacked = {name: gzip.decompress(base64.b64decode(part)) for name, part in parts}
    planted = recorded.PLANTED.encode()

    assert any(b"secrets" in body for body in unpacked.values())
    for form in (planted, base64.b64encode(planted)):
        assert form.decode() not in text
        assert [name for name, body in unpacked.items() if form in body] == []


def test_a_version_whose_body_was_not_recorded_says_so(tmp_path, history, new_page):
    path = tmp_path / "a.keprec"
    bodiless = recorded.History(rv=history.rv, lines=history.lines, events=list(history.events))
    writer_events = [
        event if event.name != "web-5" else type(event)(type="BOOKMARK", resource=event.resource, rv=event.rv)
        for event in bodiless.events
    ]
    bodiless.events = writer_events
    page = new_page()
    page.open(
        f"{recorded.page_of(tmp_path, recorded.record(path, bodiless)).as_uri()}#/objects/pods/shop/web-5?tab=versions"
    )
    page.until("() => document.querySelector('tr.unrecorded')")

    assert "body not recorded" in page.text("table.versions")
    with Recording.open(path) as recording:
        assert recording.object_at("pods", "shop", "web-5", history.rv) is None


def test_a_kind_that_is_not_there_is_one_line(replay, new_page):
    page = new_page()
    page.open(f"{replay.as_uri()}#/objects/gizmos")
    page.until("() => document.querySelector('.error')")

    assert 'the recording has no resource "gizmos"' == page.text(".error").removeprefix("✕ ")
