"""What a page holds does not grow with the time that it is open (budget: 5 % in ten minutes; `python -m tests.browser.bench --seconds 600` measures them)."""

import numpy as np

from tests.browser import frames

SETTLE = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
ROUNDS = 4
"""An even number: a round turns between picture and table once."""
GROWTH_BYTES = 1_000_000
"""What the engine itself still learns; a round has megabytes of frames, or a state that is sought six times."""


def grown(page, use):
    """Use the page until it knows all, and then as much again; return by how many nodes, listeners and bytes it grew."""
    for _ in range(ROUNDS):
        use()
    before = page.kept()
    for _ in range(ROUNDS):
        use()
    return [now - then for now, then in zip(page.kept(), before, strict=True)]


def test_changes_of_a_mesh_leave_nothing_behind(serve, new_page):
    served = serve(nodes=100, pods=2000)
    cluster = served.feed.cluster
    page = new_page()
    page.open(served.address)

    def use():
        for name in ("timeline", "cluster"):
            page.ask("(id) => __keplab.go(id)", name)
            page.ask(SETTLE)
            served.send([each for _ in range(50) for each in cluster.changes(200, 0.05)])
            page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv)
            page.ask("() => __keplab.run('cluster.table')")
            page.ask("(name) => __keplab.select({kind: 'nodes', ns: '', name})", "n-0001")
            page.ask(SETTLE)
            page.ask("() => __keplab.select(null)")
            page.ask(SETTLE)

    nodes, listeners, size = grown(page, use)
    assert (nodes, listeners) == (0, 0)
    assert size < GROWTH_BYTES


def test_pages_that_come_and_go_leave_nothing_behind(replay, history, new_page):
    page = new_page()
    page.open(replay)

    def use():
        for at, name in enumerate(("mesh", "queue", "trace", "objects", "timeline", "cluster")):
            page.ask("(id) => __keplab.go(id)", name)
            page.seek(history.rv - 10 * at)
            page.ask(SETTLE)
            page.ask("() => __keplab.run('explain.toggle')")
            page.ask(SETTLE)
            page.ask("() => __keplab.run('explain.toggle')")
            page.ask(SETTLE)

    nodes, listeners, size = grown(page, use)
    assert (nodes, listeners) == (0, 0)
    assert size < GROWTH_BYTES


def line(seq, ev="sched.attempt", **data):
    obj = {"kind": "Pod", "ns": "shop", "name": f"web-{seq}", "uid": f"u{seq}"}
    return {"seq": seq, "mono_ns": seq * 1_000_000, "comp": "scheduler-0", "inc": "1", "ev": ev, "rv": seq, "obj": obj, "data": data}  # fmt: skip


def document(kind, about):
    return frames.frame(kind, about, rv=1, time=1.0)


def test_lists_of_a_mesh_end_at_their_bounds_and_what_was_broken_stays(serve, new_page):
    served, page = serve(nodes=3, pods=10), new_page()
    page.open(served.address)
    many = [line(seq, node="n-1", outcome="scheduled") for seq in range(2, 13_000)]
    fault = line(1, "fault.inject", what="kill", target="scheduler-0")
    served.send([document(frames.LINES, {"lines": [fault]})])
    for begin in range(0, len(many), 1_000):
        served.send([document(frames.LINES, {"lines": many[begin : begin + 1_000]})])
    served.send([document(frames.ALARM, {"alarm": "violation", "invariant": "I1", "at": at}) for at in range(300)])
    served.send([document(frames.JOB, {"id": f"job-{number % 300}", "done": number}) for number in range(600)])
    page.until("() => (__keplab.state.jobs.value['job-299'] || {}).done === 599")

    kept = page.ask(
        """() => { const {lines, marks, alarms, jobs} = __keplab.state;
        return {lines: lines.value.length, first: lines.value[0].seq, kinds: marks.value.map((mark) => mark.kind), alarms: alarms.value.length, jobs: Object.keys(jobs.value).length}; }"""
    )
    assert (5_000, 8_000, 200, 200) == (kept["lines"], kept["first"], kept["alarms"], kept["jobs"])
    assert 5_000 <= kept["kinds"].count("bind") <= 5_100
    assert 1 == kept["kinds"].count("fault")


def test_strings_that_the_server_forgot_are_forgotten(serve, new_page):
    served, page = serve(nodes=3, pods=10), new_page()
    page.open(served.address)
    cluster = served.feed.cluster
    known = len(cluster.strings)
    about = {"rv": 1, "time": 1.0}
    served.send([frames.frame(frames.DICT, {"strings": [f"gone-{i}" for i in range(2_000)], "from": known}, **about)])
    served.send(cluster.changes(5, 0.05))
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv)
    assert known + 2_000 == page.ask("() => __keplab.state.columns.value.strings.length")

    # The same rows, whose strings have other numbers.
    cluster.rv += 1
    turned = [cluster.strings[0], *reversed(cluster.strings[1:])]
    numbered = {"nodes": ("name", "zone", "taints"), "pods": ("name", "ns", "owner", "role", "reason")}
    tables = {"nodes": dict(cluster.nodes), "pods": dict(cluster.pods)}
    for table, names in numbered.items():
        for name in names:
            values = tables[table][name]
            tables[table][name] = np.where(values > 0, known - values, 0)
    about = {"rv": float(cluster.rv), "time": cluster.time, "flags": frames.REPLACES}
    names = "() => { const {strings, pods} = __keplab.state.columns.value; return Array.from(pods.columns.name, (number) => strings[number]); }"  # fmt: skip
    before = page.ask(names)
    served.send(
        [
            frames.frame(frames.DICT, {"strings": turned[1:], "from": 1}, **about),
            frames.columns(frames.NODES, tables["nodes"], frames.NODE_COLUMNS, **about),
            frames.columns(frames.PODS, tables["pods"], frames.POD_COLUMNS, **about),
        ]
    )
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv)

    assert turned == page.ask("() => __keplab.state.columns.value.strings")
    assert turned == page.ask("() => __keplab.workerState().then((state) => state.strings)")
    assert before == page.ask(names)
