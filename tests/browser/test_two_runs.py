"""Two runs of one scenario beside each other, and the trace of a pod, in a file of real simulations (checks 10, 11, 12, 20)."""

import itertools
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe

from lab.recordings.reader import Recording
from lab.scenarios.recording import run_recorder
from lab.scenarios.run import load_scenario, simulate
from lab.ui.documents import decisions_of, difference, trace
from lab.ui.page import write_page

RUNAWAY = "experiments/runaway/runaway.txt"
SHORT_S = "wait 250ms"
"""A rejected pod is replaced at once: a quarter of a second of it is enough to differ in dozens of decisions."""
ARMS = {"fail": {"kubelet.on_reject": "fail"}, "unbind": {"kubelet.on_reject": "unbind"}}


def record(path, scenario, arm, switches, **options):
    def run():
        with run_recorder(path, scenario, seed=1, arm=arm) as recorder:
            simulate(scenario, seed=1, overrides=switches, recorder=recorder, **options)

    # The browser's driver has the loop of this thread.
    with ThreadPoolExecutor(1) as threads:
        threads.submit(run).result()
    return path


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Recordings of both arms of a short runaway, traced."""
    folder = tmp_path_factory.mktemp("runs")
    text = re.sub(r"wait \S+\s*$", SHORT_S, Path(RUNAWAY).read_text())
    assert SHORT_S in text
    file = folder / "runaway.txt"
    file.write_text(text)
    scenario = load_scenario(file)
    return {
        arm: record(folder / f"{arm}.keprec", scenario, arm, switches, traced=True) for arm, switches in ARMS.items()
    }


@pytest.fixture(scope="module")
def both(runs, tmp_path_factory):
    out = tmp_path_factory.mktemp("page") / "both.html"
    write_page(list(runs.values()), out)
    return out


@pytest.fixture(scope="module")
def equal(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("equal")
    out = folder / "equal.html"
    write_page([runs["unbind"], runs["unbind"]], out)
    return out


@pytest.fixture(scope="module")
def expected(runs):
    with Recording.open(runs["fail"]) as fail, Recording.open(runs["unbind"]) as unbind:
        return difference(decisions_of(fail), decisions_of(unbind))


def panes(page):
    return page.ask(
        "() => [...document.querySelectorAll('.pane')].map((pane) => ({time: Number(pane.dataset.time), text: pane.innerText}))"
    )


def opened(new_page, file, **how):
    page = new_page(**how)
    page.open(file)
    page.keys("g", "d")
    page.until("() => document.querySelector('[data-differences]')")
    return page


def test_10_the_first_difference_is_what_follows_the_rejection_and_both_panes_show_that_moment(
    both, expected, new_page
):
    page = opened(new_page, both)
    first = expected["first"]
    at_s = first["at_s"]
    assert ("phase", "Failed", "kubelet.unbind_call") == (first["a"].event, first["a"].outcome, first["b"].event)
    page.until("(at) => [...document.querySelectorAll('.pane')].every((pane) => Math.abs(pane.dataset.time - at) < 0.01)", at_s)  # fmt: skip

    left, right = panes(page)
    assert expected["difference_count"] == int(page.ask("() => document.querySelector('[data-differences]').dataset.differences"))  # fmt: skip
    assert re.search(r"event\s+phase.*outcome\s+Failed", left["text"], re.S)
    assert "kubelet.unbind_call" in right["text"]
    assert "replicaset/web#0" in left["text"]
    marked = "() => [...document.querySelectorAll('.pane')].map((pane) => [...pane.querySelectorAll('dd.differs')].map((each) => [each.previousElementSibling.textContent, each.querySelector('.tag').textContent]))"
    assert ["event", "outcome"] == first["fields"]
    assert 2 * [[[name, "differs"] for name in first["fields"]]] == page.ask(marked)
    assert f"t = {at_s:.3f} s" in page.ask("() => document.querySelector('.lanes .words').textContent")


def test_10_brackets_walk_all_differences_and_end_at_the_ends(both, expected, new_page):
    page = opened(new_page, both)
    number = "() => Number(document.querySelector('[data-difference]').dataset.difference)"
    page.keys("[")
    assert 1 == page.ask(number)
    for place in range(1, 4):
        page.keys("]")
        page.until("(n) => document.querySelector('[data-difference]').dataset.difference === String(n)", place + 1)
        shown = expected["differences"][place]
        page.until("(at) => [...document.querySelectorAll('.pane')].every((pane) => pane.dataset.time - at < 0.001)", shown["at_s"])  # fmt: skip
        decision = shown["a"] or shown["b"]
        assert decision.event in page.text(".panes")
    page.keys("}")
    page.until("(n) => document.querySelector('[data-difference]').dataset.difference === String(n)", min(expected["difference_count"], 1000))  # fmt: skip
    page.keys("]")
    assert min(expected["difference_count"], 1000) == page.ask(number)


def test_10_the_second_difference_is_the_pod_that_replaces_it_in_one_arm(both, expected, new_page):
    page = opened(new_page, both)
    page.keys("]")
    page.until("() => document.querySelector('[data-difference]').dataset.difference === '2'")
    left, right = panes(page)

    second = expected["differences"][1]
    assert ("replicaset/web#1", "sched.attempt", None) == (second["role"], second["a"].event, second["b"])
    assert "replicaset/web#1" in left["text"]
    assert "no such decision" in right["text"]


def test_every_move_in_the_queue_of_a_simulation_is_shown(both, runs, new_page):
    with Recording.open(runs["fail"]) as recording:
        moves = len(list(recording.moves()))
    page = new_page()
    page.open(both)
    page.keys("g", "q")
    page.until("() => document.querySelector('[data-pool=active]')")
    page.until("() => __keplab.state.lines.value.length > 0")

    assert moves > 20
    assert moves == page.ask("() => __keplab.state.lines.value.filter((line) => line.ev === 'sched.moved').length")
    assert "sampled" not in page.text("main .toolbar")


def test_11_equal_arms_have_no_difference_and_nothing_is_marked(equal, new_page):
    page = opened(new_page, equal)
    page.ask("() => __keplab.go('difference', ['0', '1'])")
    page.until("() => document.querySelector('.result')?.textContent.startsWith('no difference in ')")

    assert re.fullmatch(r"no difference in \d+ decisions", page.text(".result"))
    assert 0 == page.ask("() => document.querySelectorAll('.differs, .lanes .mark, .lanes .first').length")


def test_12_the_pieces_of_a_critical_path_add_up_to_the_microsecond(both, runs, new_page):
    with Recording.open(runs["fail"]) as recording:
        spans = list(recording.spans())
        names = sorted({each.name for each in recording.versions() if each.resource == "pods" and "web" in each.name})
        found = {name: trace(spans, "default", name) for name in names}
    page = new_page()
    page.open(both)
    page.keys("g", "t")
    for name in names[:4]:
        page.ask("(name) => __keplab.select({kind: 'pods', ns: 'default', name})", name)
        page.until("(name) => document.querySelector('.fall h2')?.textContent === `default/${name}`", name)
        total, pieces = page.ask(
            "() => [Number(document.querySelector('[data-total-us]').dataset.totalUs), [...document.querySelectorAll('[data-us]')].map((row) => Number(row.dataset.us))]"
        )

        assert total == round(found[name]["total_ms"] * 1000)
        assert total == sum(pieces)
        assert len(found[name]["critical_path"]) == len(pieces)
        shown = page.ask("() => [...document.querySelectorAll('.pieces tbody .num:nth-child(2)')].map((cell) => cell.textContent)")  # fmt: skip
        microseconds = [int(re.sub(r"[ ,.ms]", "", text)) for text in shown]
        assert pieces == microseconds
        assert page.ask("() => document.querySelectorAll('.span').length") == len(found[name]["spans"])


def test_12_the_pod_of_the_same_role_in_the_other_run_is_drawn_below_and_aligned_at_creation(both, runs, new_page):
    def created(arm):
        with Recording.open(runs[arm]) as recording:
            pods = [each for each in recording.versions() if each.resource == "pods" and each.type == "ADDED"]
        return [each.name for each in pods if each.name.startswith("web-")]

    page = new_page()
    page.open(both)
    page.ask(
        "(name) => { __keplab.select({kind: 'pods', ns: 'default', name}); __keplab.go('trace'); }", created("fail")[0]
    )
    page.until("() => document.querySelector('.fall')")
    page.raw.select_option("main .toolbar select", "1")
    page.until("() => document.querySelectorAll('.fall').length === 2")

    second = page.ask("() => document.querySelectorAll('.fall h2')[1].textContent")
    assert f"default/{created('unbind')[0]} · unbind · seed 1" == second
    axes = "() => { const [a, b] = document.querySelectorAll('.fall .axis'); return a.textContent && a.textContent === b.textContent; }"
    assert page.until(axes)
    assert (
        page.ask("() => document.querySelector('main .toolbar input[placeholder=\"a second pod\"]').value")
        == f"default/{created('unbind')[0]}"
    )

    page.ask("() => __keplab.select({kind: 'pods', ns: 'default', name: 'n1-a'})")
    page.raw.select_option("main .toolbar select", "0")
    page.raw.select_option("main .toolbar select", "1")
    page.until("() => document.querySelectorAll('.fall h2')[1]?.textContent.startsWith('default/n1-a · ')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_20_axe_finds_nothing_on_a_difference_and_a_trace(both, new_page, scheme):
    page = opened(new_page, both, scheme=scheme)
    page.until("() => document.querySelectorAll('.pane .decision').length === 2")
    found = {"difference": Axe().run(page.raw).response["violations"]}
    web = page.ask("() => __keplab.state.columns.value.strings.find((text) => /^web-/.test(text))")
    page.ask("(name) => { __keplab.select({kind: 'pods', ns: 'default', name}); __keplab.go('trace'); }", web)
    page.until("() => document.querySelector('.fall')")
    found["trace"] = Axe().run(page.raw).response["violations"]

    assert {"difference": [], "trace": []} == {
        name: [(each["id"], each["nodes"][0]["html"][:200]) for each in listed] for name, listed in found.items()
    }


def test_19_a_difference_is_walked_and_its_pod_explained_by_keys_alone(both, new_page):
    page = opened(new_page, both)
    page.keys("]")
    page.until("() => document.querySelector('.pane .plain.link')")
    page.ask("() => document.querySelector('.pane .plain.link').focus()")
    page.keys("Enter")
    page.until("() => __keplab.state.selected.value?.kind === 'pods'")
    page.keys("x")
    page.until("() => document.querySelector('.overlay h2')")
    assert page.text(".overlay h2").startswith("default/")
    page.keys("x")
    page.until("() => !document.querySelector('.overlay')")


def test_runs_move_together_by_what_was_chosen(both, expected, new_page):
    page = opened(new_page, both)
    place, shown = next(
        (at, each)
        for at, each in itertools.islice(enumerate(expected["differences"]), 1000)
        if each["a"] is not None or each["b"] is not None
    )
    page.raw.select_option(".toolbar select >> nth=-1", "decision")
    page.ask("(n) => { for (let i = 0; i < n; i++) __keplab.run('difference.next'); }", place)
    side, index = ("a", 0) if shown["a"] is not None else ("b", 1)
    is_there = "([index, at]) => Math.abs(document.querySelectorAll('.pane')[index].dataset.time - at) < 0.01"
    assert page.until(is_there, [index, shown[side].at_s])
