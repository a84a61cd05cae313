"""The pages of a mesh of processes in a browser: break, queue, explain, launch, edit (checks 2, 3, 6, 7, 13, 14, 19, 20)."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from axe_playwright_python.sync_playwright import Axe

from services.runtime.mesh.options import MeshOptions
from services.runtime.supervisor import Supervisor
from tests.process.page_server import ROOT, PageServer

SCENARIO = "# Two pods\nlimit 20s\nnodes n1..n2 cpu=4\npod a cpu=1\npod b cpu=2\nwait 2s\n"


def pod(name, **spec):
    spec = {"containers": [{"name": "c", "image": "i"}]} | spec
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}, "spec": spec}


BIG = pod("big", containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100"}}}])
GATED = pod("gated", schedulingGates=[{"name": "example.com/wait"}])
DEPLOYMENT = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    data = tmp_path_factory.mktemp("mesh")
    options = MeshOptions(
        data_dir=data, nodes=4, hosts=1, serves_clients=True, has_faults=True, engine="memory",
        switches=("node.grace_s=8", "node.lease_duration_s=8", "GenericWorkload=true"),
    )  # fmt: skip
    supervisor, loop = Supervisor(options), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    asyncio.run_coroutine_threadsafe(supervisor.start(), loop).result(90)
    try:
        yield SimpleNamespace(data=data)
    finally:
        asyncio.run_coroutine_threadsafe(supervisor.stop(), loop).result(60)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


TWO_ARMS = "keplab compare small/in-two-arms.txt --arm fail --arm unbind:kubelet.on_reject=unbind"


@pytest.fixture(scope="module")
def server(mesh, tmp_path_factory):
    """`keplab ui` that may do everything."""
    folder = tmp_path_factory.mktemp("cwd")
    (folder / "small").mkdir()
    for name in ("two-pods", "in-two-arms"):
        (folder / "small" / f"{name}.txt").write_text(SCENARIO)
    (folder / "small" / "README.md").write_text(f"`{TWO_ARMS} --seeds 5`")
    words = ("--data", mesh.data, "--allow-write", "--allow-break", "--scenarios", folder / "small")
    with PageServer(*words, cwd=folder) as found:
        found.folder = folder
        text = "\n---\n".join(json.dumps(each) for each in (BIG, GATED, DEPLOYMENT))
        assert 3 == found.ask("POST", "apply", {"yaml": text}).json["applied"]
        found.eventually("queue", lambda queue: queue["counts"]["unschedulable"] == 1 == queue["counts"]["gated"])
        yield found


@pytest.fixture
def page(server, new_page):
    made = new_page()
    made.open(f"{server.base}/ui/#t={server.token}")
    return made


def cli(mesh, *words):
    done = subprocess.run(
        [sys.executable, "-m", "lab.cli", *words, "--data", str(mesh.data), "-o", "json"],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    return json.loads(done.stdout)


def cells(page, process):
    return page.ask(
        "(name) => [...document.querySelectorAll(`[data-process='${name}'] td, [data-process='${name}'] th`)].map((cell) => cell.innerText)",
        process,
    )


def choose(page, process):
    page.keys("g", "m")
    page.until("(name) => document.querySelector(`[data-process='${name}']`)", process)
    page.ask("(name) => document.querySelector(`[data-process='${name}']`).focus()", process)
    page.keys("Enter")
    page.until("(name) => document.querySelector('.side h2')?.textContent.trim() === name", process)


def test_1_every_process_of_the_status_is_there_and_ready_and_one_origin_is_asked(mesh, server, page):
    page.keys("g", "m")
    processes = [each["name"] for each in cli(mesh, "status")["processes"]]
    page.until("(n) => document.querySelectorAll('[data-process]').length === n", len(processes))
    page.until(
        "() => [...document.querySelectorAll('[data-process] .state')].every((each) => each.innerText === 'ready')"
    )
    shown = page.ask("() => [...document.querySelectorAll('[data-process]')].map((each) => each.dataset.process)")

    assert sorted(processes) == sorted(shown)
    page.until("() => document.querySelector(\"[data-process='kubelet/h0'] .nodes\")?.innerText === '4 nodes'")
    assert page.requests
    assert [] == [each for each in page.requests if not each.startswith((server.base, "data:"))]


@pytest.mark.parametrize(("motion", "drawn", "moves"), [("no-preference", ".flow", True), ("reduce", ".arrow", False)])
def test_20_a_link_with_traffic_moves_or_has_an_arrow_where_motion_is_not_wanted(
    server, new_page, motion, drawn, moves
):
    page = new_page(motion=motion)
    page.open(f"{server.base}/ui/#t={server.token}")
    page.keys("g", "m")
    page.until("(drawn) => document.querySelector(`.link ${drawn}`)", drawn)

    # Which links have traffic changes while it is looked at: what is asked for is asked at one moment.
    found = "() => [document.querySelectorAll('.link .flow').length, document.querySelectorAll('.link .arrow').length, document.getAnimations().length]"
    flows, arrows, animations = page.ask(found)
    assert (moves, moves, not moves) == (flows > 0, animations > 0, arrows > 0)


def test_25_where_a_process_is_out_of_reach_the_command_is_shown_to_copy(page):
    choose(page, "scheduler")
    page.ask(
        """() => { const status = {details: {command: 'docker compose kill scheduler'}};
        __keplab.source().breakIt = () => Promise.reject(Object.assign(new Error('it runs in a container'), {status})); }"""
    )
    page.raw.click(".break button >> nth=0")
    page.until("() => document.activeElement?.closest('dialog')?.textContent.includes('Kill scheduler?')")
    page.keys("Enter")
    page.until("() => document.querySelector('dialog pre')")

    assert ("docker compose kill scheduler", "copy") == (
        page.text("dialog pre"),
        page.ask("() => document.activeElement.textContent"),
    )
    page.keys("Escape")
    page.until("() => !document.querySelector('dialog')")


def test_6_a_gang_at_the_gate_says_how_many_members_it_has_and_wants(server, page):
    metadata = {"name": "gang", "namespace": "default"}
    group = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata}
    policy = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    for made in (group | {"spec": policy}, pod("of-gang", schedulingGroup={"podGroupName": "gang"})):
        assert 200 == server.ask("POST", "apply", {"yaml": json.dumps(made)}).code
    page.keys("g", "q")
    page.until("() => document.querySelector('[data-quorum=\"default/gang\"]')")

    assert "PodGroup default/gang quorum 1/3" == " ".join(page.text("[data-quorum='default/gang']").split())
    assert 200 == server.ask("DELETE", "objects/pods/default/of-gang").code
    page.until("() => !document.querySelector('[data-quorum]')")


def test_7_a_pending_pod_has_one_row_for_all_nodes_and_what_would_help_as_the_command_says(mesh, page):
    """Check 19 as well: no pointer is used."""
    page.keys("/")
    page.type("big")
    page.until("() => document.querySelector('[role=option]')?.textContent.includes('big')")
    page.keys("Enter", "x")
    page.until("() => document.querySelector('.overlay .matrix tbody tr')")
    expected = cli(mesh, "explain", "pod/big")

    rows = page.ask(
        "() => [...document.querySelectorAll('.overlay .matrix tbody tr')].map((row) => [row.dataset.count, row.innerText])"
    )
    assert 1 == len(rows)
    assert "4" == rows[0][0]
    assert "Insufficient cpu" in rows[0][1]
    changes = page.ask("() => [...document.querySelectorAll('[aria-label=\"changes that would make it fit\"] tbody tr')].map((row) => row.innerText)")  # fmt: skip
    assert len(expected["would_fit_if"]) == len(changes)
    for each, shown in zip(expected["would_fit_if"], changes, strict=True):
        assert each["change"] in shown
        assert each["nodes"][0] in shown
    page.raw.select_option(".overlay .toolbar select", "node")
    page.until("() => document.querySelectorAll('.overlay .matrix tbody tr').length === 4")
    page.keys("x")
    page.until("() => !document.querySelector('.overlay')")


def test_7_a_pod_that_was_placed_shows_scores_winner_and_ties(mesh, server, page):
    name = next(row["name"] for row in server.get("objects/pods?ns=default")["rows"] if row["name"].startswith("web-"))
    expected = cli(mesh, "explain", f"pod/{name}")
    page.ask("(name) => __keplab.select({kind: 'pods', ns: 'default', name})", name)
    page.keys("x")
    page.until("() => document.querySelector('.overlay table.final tbody tr')")
    rows = page.ask(
        "() => [...document.querySelectorAll('table.final tbody tr')].map((row) => ({winner: row.classList.contains('winner'), text: row.innerText, cells: [...row.querySelectorAll('td.num')].map((cell) => cell.innerText)}))"
    )
    final, most = expected["final"], max(expected["final"].values())
    best = [node for node, sum_of in final.items() if sum_of == most]

    assert rows[0]["winner"]
    assert expected["node"] in rows[0]["text"]
    assert (len(best) > 1) == ("tie" in rows[0]["text"])
    assert len(final) == sum(int(row["cells"][0]) for row in rows)
    assert set(final.values()) == {int(row["cells"][1]) for row in rows}
    assert all(
        row["cells"][2] == (str(most - int(row["cells"][1])) if int(row["cells"][1]) < most else "–") for row in rows
    )

    page.ask("() => document.querySelector('[role=tab][aria-selected=true]').focus()")
    page.keys("ArrowLeft")
    page.until(
        "() => document.activeElement.matches('[role=tab][aria-selected=true]') && document.querySelector('table.scores')"
    )
    shown = page.ask(
        "() => [...document.querySelectorAll('.scores thead th')].map((cell) => cell.innerText.split(' ')[0])"
    )
    assert ["Score", ["nodes", *expected["scores"]]] == [page.text("[role=tab][aria-selected=true]"), shown]
    page.keys("ArrowLeft", "ArrowLeft")
    assert "Final" == page.text("[role=tab][aria-selected=true]")


def test_6_a_gated_pod_stands_in_gated_and_leaves_it_with_its_gate(mesh, server, page):
    page.keys("g", "q")
    page.until("() => document.querySelector('[data-pool=gated]')?.textContent === '1'")
    counts = cli(mesh, "explain", "scheduler/queue")["counts"]
    shown = page.ask(
        "() => Object.fromEntries([...document.querySelectorAll('[data-pool]')].map((pool) => [pool.dataset.pool, Number(pool.textContent)]))"
    )
    assert counts == {pool: number for pool, number in shown.items() if pool != "bound"}
    assert "gated" in page.text(".vbody")

    found = server.get("objects/pods/default/gated")
    found["spec"].pop("schedulingGates")
    assert 200 == server.ask("PUT", "objects/pods/default/gated", found).code
    page.until("() => document.querySelector('[data-pool=gated]').textContent === '0'")


def test_14_an_edit_is_tried_shows_one_line_and_is_applied(server, page):
    page.ask("() => __keplab.go('objects', ['deployments', 'default', 'web'])")
    page.until("() => document.querySelector('pre.yaml')")
    page.keys("e")
    page.until("() => document.querySelector('.editor textarea')?.value.includes('replicas: 2')")
    text = page.raw.input_value(".editor textarea")
    page.raw.fill(".editor textarea", text.replace("\n  replicas: 2", "\n  replicas: 3", 1))
    page.keys("Control+Enter")
    page.until("() => document.querySelector('.overlay .diff')")
    changed = page.ask("() => [...document.querySelectorAll('.overlay .diff-row.added, .overlay .diff-row.removed')].map((row) => row.innerText.replace(/\\s+/g, ' ').trim())")  # fmt: skip
    assert ["replicas: 2", "replicas: 3"] == [" ".join(text.split()[-2:]) for text in changed]
    assert 2 == server.get("objects/deployments/default/web")["spec"]["replicas"]
    page.keys("Control+Enter")
    page.until("() => !document.querySelector('.overlay')")
    assert 3 == server.get("objects/deployments/default/web")["spec"]["replicas"]
    page.until("() => document.querySelector('pre.yaml').textContent.includes('replicas: 3')")
    # Check 15: managers are folded, in the document and in the difference of two versions.
    assert server.get("objects/deployments/default/web")["metadata"]["managedFields"]
    assert "managedFields:" not in page.text("pre.yaml")
    page.keys("v")
    page.until("() => document.querySelector('.diff')")
    page.click("button:text('whole document')")
    page.until("() => document.querySelectorAll('.diff-row').length > 20")
    assert "managedFields:" not in page.text(".diff")


def test_14_a_stale_edit_shows_theirs_and_yours(server, page):
    page.ask("() => __keplab.go('objects', ['deployments', 'default', 'web'])")
    page.until("() => document.querySelector('pre.yaml')")
    page.keys("e")
    page.until("() => document.querySelector('.editor textarea')?.value.includes('kind: Deployment')")
    found = server.get("objects/deployments/default/web")
    found["spec"]["replicas"] = 1
    assert 200 == server.ask("PUT", "objects/deployments/default/web", found).code
    text = page.raw.input_value(".editor textarea")
    page.raw.fill(".editor textarea", text.replace("revisionHistoryLimit: 10", "revisionHistoryLimit: 4"))
    page.keys("Control+Enter")
    page.until("() => document.querySelector('.conflict')")
    theirs, yours = (page.text(f".conflict section[aria-label={side}]") for side in ("theirs", "yours"))
    assert "replicas: 1" in theirs
    assert "revisionHistoryLimit: 4" in yours
    assert any("409" in problem for problem in page.problems)
    page.problems.clear()


def test_14_without_the_flag_the_key_says_why(mesh, server, new_page, tmp_path):
    """Check 2 as well: the buttons of faults are disabled and say how to enable them. The objects are those of `server`."""
    with PageServer("--data", mesh.data, "--recording", "none", cwd=tmp_path) as reader:
        page = new_page()
        page.open(f"{reader.base}/ui/#t={reader.token}")
        page.ask("() => __keplab.go('objects', ['deployments', 'default', 'web'])")
        page.until("() => document.querySelector('pre.yaml')")
        page.keys("e")
        page.until("() => document.querySelector('.notice').textContent.includes('--allow-write')")
        assert not page.ask("() => Boolean(document.querySelector('.overlay'))")
        choose(page, "scheduler")
        assert [True] == page.ask("() => [...new Set([...document.querySelectorAll('.break button, .break select')].map((each) => each.disabled))]")  # fmt: skip
        assert "--allow-break" in page.text("#why-not")
        assert 403 == reader.ask("POST", "break", {"target": "scheduler", "action": "kill"}).code


def test_2_a_process_that_is_killed_comes_back_and_the_fault_is_counted_and_marked(page):
    choose(page, "claim-controller")
    before = int(cells(page, "claim-controller")[-1])
    page.raw.click(".break button >> nth=0")
    page.until("() => document.activeElement?.closest('dialog')?.textContent.includes('Kill claim-controller?')")
    page.keys("Enter")
    page.until("(n) => Number(document.querySelector('[data-process=claim-controller] td:last-child').textContent) === n", before + 1)  # fmt: skip
    page.until("() => document.querySelector('[data-process=claim-controller] .state.fine')")
    page.until("() => /kill claim-controller/.test(document.querySelector('.counter')?.innerText) && !/not yet/.test(document.querySelector('.counter').innerText)")  # fmt: skip
    assert page.ask("() => __keplab.state.marks.value.some((mark) => mark.kind === 'fault' && mark.process === 'claim-controller')")  # fmt: skip


def test_3_a_pause_is_shown_with_its_word_and_heals_early(page):
    choose(page, "controllers")
    page.raw.click(".break button >> nth=1")
    page.until("() => Boolean(document.activeElement?.closest('dialog'))")
    page.keys("Enter")
    page.until("() => /paused, \\d+ s more/.test(document.querySelector('[data-process=controllers]').innerText)")
    page.raw.click(".break button:has-text('heal')")
    page.until("() => !document.querySelector('[data-process=controllers] .state.broken')")
    assert "paused" not in " ".join(cells(page, "controllers"))
    mark = page.until(
        "() => __keplab.state.marks.value.find((mark) => mark.kind === 'fault' && mark.what === 'pause' && !mark.open && mark.end < mark.time + 10)"
    )
    assert ("controllers", "pause controllers") == (mark["process"], mark["label"])
    assert 0 < mark["end"] - mark["time"] < 10, "it is as long as it lasted"
    assert "ready" in cells(page, "controllers")


def test_3_a_link_that_is_cut_says_so_until_it_is_healed(page):
    choose(page, "controllers")
    page.raw.select_option(".break select >> nth=0", "both")
    page.until("() => document.activeElement?.closest('dialog')?.textContent.includes('both ways')")
    page.keys("Enter")
    page.until("() => document.querySelector('[data-process=controllers] .link.cut')")
    assert "✂ cut" in " ".join(cells(page, "controllers"))
    assert "✂" == page.ask("() => document.querySelector('[data-process=controllers] .link text').textContent")
    assert "1 fault in force" == page.text("main .toolbar .state.broken")
    page.raw.click(".toolbar button:has-text('heal all')")
    page.until("() => !document.querySelector('.link.cut')")


def test_3_nodes_of_a_kubelet_that_is_cut_off_are_not_ready_after_the_grace(page):
    page.raw.set_default_timeout(60_000)
    choose(page, "kubelet/h0")
    page.raw.select_option(".break select >> nth=0", "both")
    page.until("() => document.activeElement?.closest('dialog')?.textContent.includes('both ways')")
    page.keys("Enter")
    page.until("() => document.querySelector(\"[data-process='kubelet/h0'] .link.cut\")")
    page.keys("g", "c")
    page.until("() => document.querySelector('.legend')?.innerText.includes('not ready 4')")
    unknown = page.ask("() => [...__keplab.state.columns.value.nodes.columns.ready.subarray(0, 4)]")
    page.keys("g", "m")
    page.raw.click(".toolbar button:has-text('heal all')")
    page.until("() => !document.querySelector('.link.cut')")
    page.keys("g", "c")
    page.until("() => document.querySelector('.legend')?.innerText.includes('not ready 0')")

    assert [2, 2, 2, 2] == unknown


def test_13_a_comparison_is_launched_followed_and_its_runs_are_opened(server, page):
    page.keys("g", "e")
    page.until("() => document.querySelector('.launcher')")
    page.raw.fill("input[list=scenarios]", "small/two-pods.txt")
    page.raw.fill(".launcher input[type=number]", "2")
    page.raw.click(".arm >> nth=0 >> text=+ switch")
    page.until("() => document.activeElement?.closest('.picker')")
    page.type("on_reject")
    page.until("() => document.querySelectorAll('.switches li').length < 10")
    page.raw.click(".switches li:has-text('kubelet.on_reject') button >> nth=1")
    shown = page.text(".launcher .command code")
    assert shown.startswith("keplab compare small/two-pods.txt --arm a:kubelet.on_reject=")
    before = len(server.get("jobs")["jobs"])
    page.ask("() => { for (let i = 0; i < 2; i++) __keplab.run('experiments.run'); }")  # as a double click does
    page.raw.set_default_timeout(60_000)
    page.until("() => document.querySelector('[data-job]')?.dataset.state === 'Succeeded'")
    assert len(server.get("jobs")["jobs"]) == before + 1
    assert "4/4" in page.text("[data-job]")
    page.until("() => document.querySelector('.comparison .runs-table .vrow')")
    job = server.get("jobs")["jobs"][-1]
    result = server.get(f"jobs/{job['id']}/result")
    assert result["result"] == page.text(".comparison .result")
    digests = page.ask("() => [...document.querySelectorAll('.runs-table .vrow code')].map((code) => code.textContent)")
    assert [run["digest"][:12] for arm in result["arms"] for run in arm["runs"]] == digests
    page.raw.click(".runs-table .vrow >> nth=0 >> text=open")
    page.until("() => __keplab.state.run.value !== 'live'")


def test_13_a_scenario_is_found_by_what_it_shows_and_comes_with_its_arms(server, page):
    page.keys("g", "e")
    page.until("() => document.querySelector('.launcher')")
    page.raw.fill("input[list=scenarios]", "TWO ar")
    page.raw.click("[aria-label=scenarios] .vrow >> text=small/in-two-arms.txt")
    page.until("() => document.querySelectorAll('.arm .chip').length === 1")

    assert page.text(".launcher .command code").startswith(TWO_ARMS)
    assert not page.ask("() => document.querySelector('[aria-label=scenarios]')")


def test_12_the_pods_that_were_decided_about_are_offered_and_one_is_traced(server, page):
    page.keys("g", "t")
    first = page.until("() => document.querySelector('main .vrow')?.textContent")
    page.raw.click("main .vrow >> nth=0")
    title = page.until("() => document.querySelector('.fall h2')?.textContent")

    assert title.startswith("default/")
    assert title in first


def test_13_cancelled_after_the_first_run_nothing_is_left(server, page):
    request = {
        "scenario": "small/two-pods.txt",
        "arms": [{"name": "a"}, {"name": "b"}],
        "seeds": 100,
        "recording": False,
    }
    job = server.ask("POST", "jobs", request).json
    page.raw.set_default_timeout(60_000)
    page.keys("g", "e")
    page.until("(id) => document.querySelector(`[data-job='${id}']`)", job["id"])
    page.until("(id) => document.querySelector(`[data-job='${id}']`).querySelector('progress').value >= 1", job["id"])
    page.raw.click(f"[data-job='{job['id']}'] >> text=cancel")
    page.until("(id) => document.querySelector(`[data-job='${id}']`).dataset.state === 'Cancelled'", job["id"])
    server.eventually(f"jobs/{job['id']}", lambda found: found["exit_code"] is not None)
    words = shlex.split(job["command"])
    report = words[words.index("--report") + 1]
    left = subprocess.run(["pgrep", "-f", "--", re.escape(report)], capture_output=True, text=True, check=False)
    assert "" == left.stdout


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_20_axe_finds_nothing_on_the_pages_of_a_mesh(server, new_page, scheme):
    page = new_page(scheme=scheme, motion="reduce")
    page.open(f"{server.base}/ui/#t={server.token}")
    found = {}

    def look(name):
        found[name] = [
            (each["id"], each["nodes"][0]["html"][:160]) for each in Axe().run(page.raw).response["violations"]
        ]

    choose(page, "scheduler")
    look("mesh")
    assert 0 == page.ask("() => document.getAnimations().length")
    for key, name, waits in (("q", "queue", ".vrow"), ("e", "experiments", ".launcher")):
        page.keys("g", key)
        page.until("(selector) => document.querySelector(selector)", waits)
        look(name)
    page.ask("() => __keplab.select({kind: 'pods', ns: 'default', name: 'big'})")
    page.keys("x")
    page.until("() => document.querySelector('.overlay .matrix')")
    look("explain")
    page.keys("x")
    page.ask("() => __keplab.go('objects', ['deployments', 'default', 'web'])")
    page.until("() => document.querySelector('pre.yaml')")
    page.keys("e")
    page.until("() => document.querySelector('.editor textarea')")
    look("edit")

    assert {name: [] for name in ("mesh", "queue", "experiments", "explain", "edit")} == found
