"""The cluster's picture, its card, its filter and its table (checks 4 and 5)."""

import numpy as np
import pytest

from lab.experiments import style
from tests.browser import frames, recorded

PHASES = ("pending", "running", "succeeded", "failed")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_five_thousand_nodes_are_counted_and_each_pod_has_its_phases_colour(serve, new_page, scheme):
    served = serve(nodes=5000, pods=100_000)
    cluster = served.feed.cluster
    page = new_page(scheme=scheme)
    page.open(served.address)

    assert "5,000 nodes, 100,000 pods" == page.text(".counter")
    served.send(cluster.changes(500, 0.05))
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv)
    rows = np.random.default_rng(3).choice(100_000, 20, replace=False)
    pods = [
        (int(row), cluster.strings[cluster.pods["ns"][row]], cluster.strings[cluster.pods["name"][row]]) for row in rows
    ]
    drawn = page.ask(
        """async (pods) => { await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        return pods.map(([, ns, name]) => __keplab.pixel(ns, name)); }""",
        pods,
    )
    leaving = cluster.pods["flags"][rows] & 1
    names = [("unbound" if leaving[i] else PHASES[cluster.pods["phase"][row]]) for i, row in enumerate(rows)]
    assert [getattr(style.GRAPHICS[name], scheme) for name in names] == drawn


def test_one_changed_pod_writes_one_pixel_and_a_patch_asks_for_one_drawing(serve, new_page):
    served = serve(nodes=50, pods=400)
    cluster = served.feed.cluster
    page = new_page()
    page.open(served.address)
    page.ask("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    before = page.ask("() => [__keplab.picture.written, __keplab.picture.draws]")
    row = int(np.flatnonzero(cluster.pods["phase"] == 1)[0])
    cluster.pods["phase"][row] = 3
    about = {name: values[[row]] for name, values in cluster.pods.items()}
    served.send([frames.delta("pods", [row], about, frames.POD_COLUMNS, rv=float(cluster.rv + 1), time=1.0)])
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv + 1)
    page.ask("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    assert 1 == page.ask("(n) => __keplab.picture.written - n", before[0])
    assert page.ask("(n) => __keplab.picture.draws - n", before[1]) <= 2


def test_bars_of_numa_nodes_are_the_figures_of_the_topology(replay, new_page):
    page = new_page()
    page.open(replay)
    page.ask("() => __keplab.run('cluster.colour-numa')")
    page.ask("() => __keplab.select({kind: 'nodes', ns: '', name: 'n0'})")
    page.until("() => document.querySelector('.card')")
    bars = page.ask(
        "() => [...document.querySelectorAll('.meter')].map((bar) => [bar.querySelector('.what').textContent, bar.querySelector('.figure').textContent])"
    )

    assert ["NUMA 0", "3/4"] in bars
    assert ["NUMA 1", "500m/4"] in bars
    assert "torn to 44 %" in page.text(".card")  # 1 and 3.5 cores are free: 1 - 3.5/4.5 of at most one half


def test_a_filter_dims_what_does_not_fit_and_says_which_word_is_wrong(serve, new_page):
    served = serve(nodes=20, pods=300)
    cluster = served.feed.cluster
    page = new_page()
    page.open(served.address)
    page.ask("() => { __keplab.run('cluster.table'); }")
    page.click(".twin button:text('pods')")
    page.keys("F")
    page.type("ns=shop priority>100")
    page.until("() => document.querySelector('.twin .toolbar').textContent.includes('rows')")
    fits = int(((cluster.pods["ns"] == 4) & (cluster.pods["priority"] > 100)).sum())
    page.until("(n) => document.querySelector('.twin .toolbar').textContent.includes(`${n} rows`)", fits)
    page.type(" colour=red")

    assert '"colour" is not a word of filters' in page.text(".error")


def test_the_table_sorts_and_what_it_picks_is_selected(serve, new_page):
    served = serve(nodes=30, pods=300)
    page = new_page()
    page.open(served.address)
    page.keys("T")
    page.until("() => document.querySelector('.vtable')")
    page.click(".vhead button:has-text('Pods')")
    page.click(".vhead button:has-text('Pods')")
    first = page.text(".vrow >> nth=0 >> div >> nth=0")
    counts = served.feed.cluster.nodes["req_pods"]

    assert counts[int(first[2:])] == counts.max()
    page.ask("() => document.querySelector('.vtable').focus()")
    page.keys("ArrowDown")
    assert page.ask("() => __keplab.state.selected.value.kind") == "nodes"


def test_a_node_with_more_pods_than_places_shows_shares(tmp_path, new_page):
    history = recorded.History()
    history.commit("nodes", recorded.node("n0", "node-0"))
    for number in range(150):
        history.commit(
            "pods", recorded.pod(f"p{number}", f"u{number}", node="n0", phase="Running" if number < 75 else "Failed")
        )
    page = new_page()
    page.open(recorded.page_of(tmp_path, recorded.record(tmp_path / "a.keprec", history, attempts=False)))
    page.ask("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    drawn = page.ask(
        """() => { const p = __keplab.picture, seen = {};
        const {data} = p.imagePen.getImageData(p.cornerX[0], p.cornerY[0], 11, 10);
        for (let i = 0; i < data.length; i += 4) { const c = `${data[i]},${data[i + 1]},${data[i + 2]}`; seen[c] = (seen[c] || 0) + 1; }
        return seen; }"""
    )

    assert {"0,114,178": 55, "213,94,0": 55} == drawn


def test_after_many_moves_the_picture_has_as_many_pixels_of_each_colour_as_pods(serve, new_page):
    """No pod leaves a pixel behind where it was."""
    served = serve(nodes=200, pods=3000)
    cluster = served.feed.cluster
    page = new_page()
    page.open(served.address)
    for _ in range(10):
        served.send(cluster.changes(300, 0.05))
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv)
    drawn = page.ask(
        """async () => { await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        const {pixels, colours} = __keplab.picture, seen = new Map(), out = [];
        for (const pixel of pixels) seen.set(pixel, (seen.get(pixel) || 0) + 1);
        for (const pixel of [colours.phases[0], colours.phases[1], colours.phases[2], colours.terminating]) out.push(seen.get(pixel) || 0);
        return out; }"""
    )
    leaving = (cluster.pods["flags"] & 1) == 1
    counts = [int(((cluster.pods["phase"] == phase) & ~leaving).sum()) for phase in range(3)]

    assert [*counts, int(leaving.sum())] == drawn


@pytest.mark.parametrize("mode", ["phase", "cpu", "pending"])
def test_after_many_moves_the_picture_is_as_if_it_was_painted_anew(serve, new_page, mode):
    """Where nodes have one colour, no pod that was bound leaves its own on one."""
    served = serve(nodes=200, pods=3000)
    cluster = served.feed.cluster
    page = new_page()
    page.open(served.address)
    page.raw.select_option("main .toolbar select >> nth=0", mode)
    for _ in range(10):
        served.send(cluster.changes(300, 0.05))
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv)
    differing = page.ask(
        """async () => { await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        const {picture} = __keplab, drawn = picture.pixels.slice();
        picture.paintAll();
        return drawn.filter((pixel, at) => pixel !== picture.pixels[at]).length; }"""
    )

    assert 0 == differing


def test_pods_that_lose_their_nodes_are_given_more_blocks_and_nothing_else_moves(serve, new_page):
    served = serve(nodes=20, pods=900)
    cluster = served.feed.cluster
    page = new_page()
    page.open(served.address)
    page.ask(
        "() => { const {picture} = __keplab; window.rebuilt = 0; picture.rebuild = () => { window.rebuilt += 1; }; window.slots = picture.slotOf.slice(); }"
    )
    before = page.ask("() => __keplab.picture.looseBlocks")
    lost = np.flatnonzero(cluster.pods["node"] >= 0)[:700]
    cluster.pods["node"][lost], cluster.pods["phase"][lost] = -1, 0
    about = {name: values[lost] for name, values in cluster.pods.items()}
    served.send([frames.delta("pods", lost.tolist(), about, frames.POD_COLUMNS, rv=float(cluster.rv + 1), time=1.0)])
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv + 1)
    pods = [
        (cluster.strings[cluster.pods["ns"][row]], cluster.strings[cluster.pods["name"][row]]) for row in range(900)
    ]
    drawn = page.ask(
        """async (pods) => { await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        return pods.map(([ns, name]) => __keplab.pixel(ns, name)); }""",
        pods,
    )
    leaving = (cluster.pods["flags"] & 1) == 1
    names = ["unbound" if leaving[row] else PHASES[cluster.pods["phase"][row]] for row in range(900)]
    moved = page.ask(
        "() => [...window.slots.keys()].filter((row) => window.slots[row] !== __keplab.picture.slotOf[row])"
    )

    assert [style.GRAPHICS[name].light for name in names] == drawn
    assert page.ask("() => __keplab.picture.looseBlocks") >= 2 * before
    assert set(lost.tolist()) >= set(moved)
    assert page.ask("() => window.rebuilt") == 0


def test_who_goes_live_stays_live_whatever_moment_was_asked_for_before(serve, new_page):
    served = serve(nodes=20, pods=300)
    cluster = served.feed.cluster
    served.feed.states[cluster.rv - 1] = frames.stream(cluster.first())
    page = new_page()
    page.open(served.address)
    page.ask("(rv) => __keplab.seek(rv)", cluster.rv - 1)
    page.until("() => !__keplab.state.live.value")
    page.ask(
        "async (rv) => { const sought = __keplab.seek(rv); __keplab.toHead(); await sought; await __keplab.workerState(); }",
        cluster.rv - 1,
    )

    assert page.ask("() => __keplab.state.live.value")
    served.send(cluster.changes(50, 0.05))
    page.until("(rv) => __keplab.state.rv.value === rv", cluster.rv)


def test_a_cluster_without_nodes_and_pods_says_so_in_the_picture_and_in_the_table(serve, new_page):
    page = new_page()
    page.open(serve(nodes=0, pods=0).address)
    page.until("() => document.querySelector('.empty.over')")
    assert "There are no nodes and pods at this version" in page.text(".empty.over")
    page.keys("T")
    page.until("() => document.querySelector('.vtable')")
    assert "There are no nodes at this version." in page.text(".vtable")
    page.raw.fill("input.filter", "zone=a")
    page.until("() => document.querySelector('.vtable').textContent.includes('No nodes fit the filter.')")
