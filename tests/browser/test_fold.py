"""The worker's fold is that of Python, live and in a recording; seeking is exact (dashboard 5.2, check 8)."""

import random

import pytest

from lab.recordings.reader import Recording
from tests.browser import frames, recorded

DERIVED_FROM_RECORDING = ("nodes", "pods")


def columns_of(model):
    """A model's columns as the page gives them: lists, strings spelled."""
    return {
        table: {name: array.reshape(-1).tolist() for name, array in model.columns(table).items()}
        for table in DERIVED_FROM_RECORDING
    }


def shown(page):
    """What the worker holds, and that the page's copy is the same."""
    state = page.ask("() => __keplab.workerState()")
    copy = page.ask(
        """() => { const out = {}, now = __keplab.state.columns.value;
        for (const table of ['nodes', 'pods']) { const {rows, columns, width} = now[table]; out[table] = {};
          for (const name in columns) out[table][name] = Array.from(columns[name].subarray(0, rows * width[name])); }
        return {tables: out, strings: now.strings}; }"""
    )
    worker = {table: found["columns"] for table, found in state["tables"].items()}
    assert copy["tables"] == worker
    assert copy["strings"] == state["strings"]
    return {"rv": state["rv"], "strings": state["strings"], **worker}


def test_a_recording_is_folded_as_python_folds_it_and_seeking_back_gives_the_same(tmp_path, new_page):
    path = recorded.record(tmp_path / "a.keprec", recorded.long_history(), attempts=False)
    page = new_page()
    page.open(recorded.page_of(tmp_path, path))
    with Recording.open(path) as recording:
        last = recording.rv_range[1]
        places = random.Random(5).sample(range(1, last + 1), 14)
        before = {}
        for rv in (*places, *reversed(places)):
            stop = page.seek(rv)
            assert stop == recording.stop_at(rv)
            found = shown(page)
            if rv in before:
                assert found == before[rv]
                continue
            before[rv] = found
            model = recording.model_at(rv)
            # Numbers of strings are the recording's, whatever was seen before.
            assert {table: found[table] for table in DERIVED_FROM_RECORDING} == columns_of(model)
            assert found["strings"][: len(model.strings)] == model.strings
    assert {0, 2, 5} <= {pool for found in before.values() for pool in found["pods"]["pool"]}, (
        "moves in the queue count"
    )


def test_a_version_inside_of_a_group_is_passed_back_to_the_end_of_the_one_before(replay, history, new_page):
    page = new_page()
    page.open(replay)
    inside = next(rv for rv in range(1, history.rv) if rv not in history.stops and rv - 1 in history.stops)

    assert inside - 1 == page.seek(inside)
    assert inside + 1 == page.seek(inside + 1)


def test_playing_ends_where_seeking_does(tmp_path, new_page):
    page = new_page()
    page.open(
        recorded.page_of(tmp_path, recorded.record(tmp_path / "a.keprec", recorded.long_history(), attempts=False))
    )
    end = shown(page)
    page.ask("() => __keplab.run('time.start')")
    page.until("() => __keplab.state.rv.value < 5")
    page.ask("() => __keplab.run('time.play')")
    page.ask("() => { for (let i = 0; i < 3; i++) __keplab.run('time.faster'); }")
    page.until("() => __keplab.state.playing.value === 0 && __keplab.state.rv.value > 2000")

    assert end == shown(page)


def test_deltas_are_folded_into_what_a_server_has(serve, new_page):
    served = serve()
    cluster = served.feed.cluster
    page = new_page()
    page.open(served.address)
    for _ in range(25):
        served.send(cluster.changes(40, 0.05))
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv)
    found = shown(page)

    for table, columns in (("nodes", frames.NODE_COLUMNS), ("pods", frames.POD_COLUMNS)):
        for name, kind, _ in columns:
            expected = getattr(cluster, table)[name].astype(frames.TYPES[kind]).reshape(-1).tolist()
            assert found[table][name] == expected, (table, name)
    assert found["strings"] == cluster.strings


def test_what_is_stopped_stays_while_the_mesh_goes_on_and_space_catches_up(serve, new_page):
    served = serve()
    cluster = served.feed.cluster
    page = new_page()
    page.open(served.address)
    served.send(cluster.changes(40, 0.05))
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv)
    page.keys("Space")
    page.until("() => !__keplab.state.live.value")
    before = shown(page)
    served.send(cluster.changes(40, 0.05))
    page.until("(rv) => __keplab.state.head.value.rv === rv", cluster.rv)
    assert before == shown(page)
    page.click("button:text('go live')")
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv)

    assert shown(page)["pods"]["phase"] == cluster.pods["phase"].tolist()


def test_rows_beyond_the_end_make_a_table_grow(serve, new_page):
    served = serve(nodes=2, pods=3)
    cluster = served.feed.cluster
    page = new_page()
    page.open(served.address)
    row = {name: values[:1].copy() for name, values in cluster.pods.items()}
    row["priority"][0] = 77
    served.send([frames.delta("pods", [500], row, frames.POD_COLUMNS, rv=float(cluster.rv + 1), time=1.0)])
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv + 1)
    found = shown(page)

    assert len(found["pods"]["priority"]) == 501
    assert found["pods"]["priority"][500] == 77
    assert found["pods"]["name"][3:500] == [0] * 497


@pytest.mark.parametrize(
    "bad",
    [
        b"\x04\x02" + bytes(30),
        b"\x04\x01",
        frames.frame(frames.DELTA, {"table": "pods", "columns": [["x", "i9", 1, 0]]}, rows=1, data=bytes(8)),
    ],
)
def test_a_frame_that_cannot_be_read_is_reported_and_does_no_harm(serve, browser, bad):
    served = serve(nodes=2, pods=3)
    page = browser.page()
    page.open(served.address)
    before = shown(page)
    served.send([bad if len(bad) >= 28 else bad + bytes(28)])
    page.until("() => __keplab.state.notice.value.kind === 'bad'")

    assert before == shown(page)
    page.close()


def test_what_was_not_sent_is_fetched_again(serve, new_page):
    served = serve()
    cluster = served.feed.cluster
    page = new_page()
    page.open(served.address)
    lost = cluster.changes(50, 0.05)
    assert lost
    served.send([frames.frame(frames.GAP, {"from": cluster.rv - 50, "to": cluster.rv}, rv=float(cluster.rv))])
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv)

    assert shown(page)["pods"]["phase"] == cluster.pods["phase"].tolist()
    assert "were not sent" in page.text(".banner")


def test_a_server_that_comes_back_is_found_again_and_no_mark_is_doubled(serve, browser):
    served = serve(nodes=3, pods=10)
    feed = served.feed
    page = browser.page()
    page.open(served.address)
    line = {
        "seq": 1,
        "mono_ns": 5,
        "comp": "supervisor",
        "inc": "1",
        "ev": "fault.inject",
        "rv": feed.cluster.rv,
        "data": {"what": "kill", "target": "scheduler-0", "for_s": 0},
    }
    lines = frames.frame(frames.LINES, {"lines": [line]}, rv=float(feed.cluster.rv))
    served.send([lines])
    page.until("() => __keplab.state.marks.value.length === 1")
    served.stop()
    page.until("() => document.querySelector('.dot.stale')")
    served.start()
    page.until("() => document.querySelector('.dot.live')")
    served.send([lines, *feed.cluster.changes(1, 0.05)])
    page.until("(rv) => __keplab.state.rv.value === rv", feed.cluster.rv)

    assert 1 == page.ask("() => __keplab.state.marks.value.length")
    page.close()


def test_a_mesh_that_is_not_recorded_says_so_and_has_its_versions_from_the_event_log(serve, new_page):
    served = serve(nodes=3, pods=10)
    served.feed.recording_error = "the disk is full"
    head = served.feed.cluster.rv
    page = new_page()
    page.open(served.address)
    assert page.text(".banner").startswith(
        "The past of this mesh cannot be shown, because it is not recorded: the disk is full."
    )

    def commits(*versions):
        lines = [
            {"seq": rv, "mono_ns": rv * 10**6, "comp": "apiserver", "inc": "1", "ev": "store.commit", "rv": rv}
            for rv in versions
        ]
        return frames.frame(frames.LINES, {"lines": lines}, rv=float(head))

    served.send([commits(2, 3, 5), commits(8, 9), commits(9, 10, head + 7)])
    page.until("() => __keplab.state.lines.value.length === 7")
    assert [2, 3, 5, 8, 9, 10, head] == page.ask("() => __keplab.view.peek().history.value.rv")
    page.click(".banner button")
    page.until("() => !document.querySelector('.banner')")


LOOKED_AT = """(is) => {
    Object.defineProperty(document, 'hidden', {value: !is, configurable: true});
    document.dispatchEvent(new Event('visibilitychange'));
}"""


def test_a_page_in_a_hidden_tab_is_handed_no_changes_and_shows_all_of_them_when_it_is_seen(serve, new_page):
    served, page = serve(nodes=20, pods=300), new_page()
    page.open(served.address)
    cluster = served.feed.cluster
    first = cluster.rv
    page.ask(LOOKED_AT, False)
    before = page.ask("() => __keplab.counters")
    for _ in range(20):
        served.send(cluster.changes(30, 0.05))
    page.until("(rv) => __keplab.workerState().then((state) => state.rv === rv)", cluster.rv)

    assert first == page.ask("() => __keplab.state.rv.value")
    now = page.ask("() => __keplab.counters")
    assert (before["patches"], before["fulls"]) == (now["patches"], now["fulls"])

    page.ask(LOOKED_AT, True)
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv)
    assert before["fulls"] + 1 == page.ask("() => __keplab.counters.fulls")
    assert cluster.rv == shown(page)["rv"]
    served.send(cluster.changes(30, 0.05))
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv)
    assert cluster.rv == shown(page)["rv"]
