"""What a page holds does not grow with the time that it is open (budget: 5 % in ten minutes; `python -m tests.browser.bench --seconds 600` measures them)."""

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
