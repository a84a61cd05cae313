"""Which event lines a page is given: the same of a mesh, of a recording on a server, and in a file."""

from lab.ui.lines import READ_BYTES_MAX, Entry, LineFeed, Ring, add_in_order, entry_of, is_noise, shown_of
from services.telemetry.eventlog import Line


def line(seq, ev, **data):
    return Line(1, seq, seq * 1000, "2026-01-01T00:00:00Z", "apiserver-0", "1", ev, rv=seq, data=data)


def events(lines):
    return [each.ev for each in lines]


def test_requests_watches_and_commits_that_end_nothing_are_left_out():
    lines = [
        line(1, "api.request"),
        line(2, "store.commit", type="ADDED", phase="Pending"),
        line(3, "api.response"),
        line(4, "sched.attempt"),
        line(5, "store.commit", type="MODIFIED", phase="Failed"),
        line(6, "store.commit", type="DELETED"),
        line(7, "watch.open"),
        line(8, "lease.acquire"),
    ]
    shown, missing = shown_of(lines)

    assert ([4, 5, 6, 8], 0) == ([each.seq for each in shown], missing)


def test_of_a_long_run_the_newest_decisions_are_kept_and_it_is_said_how_many_lines_are_not():
    lines = [line(2 * n + part, ("lease.renew", "kubelet.reject")[part]) for n in range(50) for part in range(2)]
    shown, missing = shown_of(lines, 40)

    assert {"kubelet.reject"} == set(events(shown))
    assert (99, 40, 60) == (shown[-1].seq, len(shown), missing)


def test_noise_does_not_use_up_what_is_shown():
    lines = [line(n, "api.request") for n in range(1000)] + [line(1000, "kubelet.unbind_call")]

    assert (["kubelet.unbind_call"], 0) == (events(shown_of(lines, 10)[0]), shown_of(lines, 10)[1])


def test_with_decisions_alone_other_lines_are_left_out():
    shown, missing = shown_of([line(1, "lease.renew"), line(2, "fault.inject")], only_decisions=True)

    assert (["fault.inject"], 1) == (events(shown), missing)


def test_a_page_that_comes_back_is_given_what_was_written_after_its_version():
    ring = Ring()
    for seq, ev in ((1, "store.commit"), (2, "sched.attempt"), (3, "store.commit"), (4, "kubelet.admit")):
        ring.add(
            entry_of(
                b'{"v":1,"seq":%d,"mono_ns":1,"wall":"a","comp":"c","inc":"1","ev":"%s","rv":%d,"data":{}}'
                % (seq, ev.encode(), seq)
            )
        )

    assert [2, 3, 4] == [entry.line.seq for entry in ring.after(2)]


def test_the_commit_that_renews_a_lease_is_noise_and_the_one_that_makes_it_is_not():
    def commit(kind, type_):
        return Line(
            1,
            1,
            1,
            "",
            "a",
            "1",
            "store.commit",
            obj={"kind": kind, "ns": "", "name": "n", "uid": "u"},
            data={"type": type_},
        )

    assert [True, False, False] == [
        is_noise(each) for each in (commit("Lease", "MODIFIED"), commit("Lease", "ADDED"), commit("Pod", "MODIFIED"))
    ]


def test_what_is_longer_than_any_line_is_passed_over_and_said(tmp_path):
    good = b'{"v":1,"seq":1,"mono_ns":1,"wall":"a","comp":"c","inc":"1","ev":"kubelet.admit","data":{}}\n'
    (tmp_path / "c-1.jsonl").write_bytes(b"x" * (READ_BYTES_MAX + 10) + b"\n" + good)
    feed = LineFeed(tmp_path)

    assert ["kubelet.admit"] == [each.line.ev for each in [*feed.poll(), *feed.poll()]]
    assert "c-1.jsonl has a line that cannot be read" == feed.missing
    assert not feed.is_behind


def written(path, first, count, ev="kubelet.admit"):
    text = b'{"v":1,"seq":%d,"mono_ns":%d,"wall":"a","comp":"c","inc":"1","ev":"%b","data":{}}\n'
    with path.open("ab") as file:
        for seq in range(first, first + count):
            file.write(text % (seq, seq, ev.encode()))


def test_the_past_ends_where_the_files_ended_when_it_was_begun_however_fast_they_grow(tmp_path):
    path = tmp_path / "c-1.jsonl"
    written(path, 1, 3)
    feed = LineFeed(tmp_path)
    history, seqs = feed.history(), []
    for entry in history:
        seqs.append(entry.line.seq)
        written(path, 3 + len(seqs), 1)

    assert [1, 2, 3] == seqs
    assert [4, 5, 6] == [entry.line.seq for entry in feed.poll()]


def test_places_in_files_that_are_gone_are_forgotten(tmp_path):
    feed = LineFeed(tmp_path)
    for number in range(20):
        path = tmp_path / f"c-{number}.jsonl"
        written(path, 1, 1)
        feed.poll()
        path.unlink()
    feed.poll()

    assert not feed._offsets
    assert not feed._numbers


def test_what_is_secret_is_hidden_whatever_was_written_beside_it(tmp_path):
    path = tmp_path / "c-1.jsonl"
    written(path, 1, 2)
    text = '{"v":1,"seq":3,"mono_ns":3,"wall":"a","comp":"c","inc":"1","ev":"api.request","data":{"h":"Bearer hunter2-planted"}}\n'
    with path.open("a") as file:
        file.write(text)
    written(path, 4, 2)
    entries = LineFeed(tmp_path).poll()

    assert [1, 2, 3, 4, 5] == [entry.line.seq for entry in entries]
    assert [number == 3 for number in range(1, 6)] == ["••• 15 bytes" in entry.raw.decode() for entry in entries]
    assert all(b"hunter2" not in entry.raw for entry in entries)


def test_lines_of_another_process_that_come_later_are_put_in_their_time():
    held = []
    for seqs in ((1, 4, 6), (2, 3, 5, 8), (), (7,), (9, 10)):
        add_in_order(held, [Entry(b"", line(seq, "kubelet.admit")) for seq in seqs])

    assert [*range(1, 11)] == [entry.line.seq for entry in held]
