"""What `keplab trace` says of a simulated run is what the API server's own log says."""

from pathlib import Path

import pytest

from services.scenarios.run import load_scenario, plan_of, simulate
from services.scenarios.runner import run_scenario
from services.scenarios.script.scenario import parse_scenario
from services.scenarios.script.verbs import VERBS
from services.scenarios.simulation import simloop
from services.scenarios.simulation.simulated_mesh import SimMesh
from services.scenarios.traces.waterfall import pods_in, waterfall
from services.telemetry import logs
from tests.scenarios.plants import claims

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
LIFE = EXPERIMENTS / "first-life" / "a-pods-first-life.txt"
FAIL = """# One node, six aligned CPUs asked of four and four: refused, and Failed for good.
nodes n1 numa=2x8 policy=single-numa-node
pod a cpu=4 node=n1
expect within 10s each pods name=a phase == Running
pod spacer cpu=4 node=n1
expect within 10s each pods name=spacer phase == Running
pod b cpu=4 node=n1
expect within 10s count pods phase=Running == 3
delete pod/spacer grace=0
expect within 10s count pods == 2
pod web-1 cpu=6
expect within 10s each pods name=web-1 phase == Failed
wait 1s
"""
UNBIND = EXPERIMENTS / "runaway" / "runaway-unbind.txt"


def a_traced_run(path, seed):
    """Run a scenario; return its spans and its event lines."""
    scenario = parse_scenario(path, "refused.txt", VERBS) if isinstance(path, str) else load_scenario(path)
    plan = plan_of(scenario, seed=seed, traced=True)
    logs.set_up("simulation", "error")
    lines, meshes = [], []

    async def observe():
        meshes.append(SimMesh(plan))
        meshes[0].on_line(lines.append)
        return await run_scenario(scenario, meshes[0])

    assert simloop.run(observe(), seed=seed).passed
    return meshes[0].spans.spans, lines


def logged_ns(lines, uid):
    """Return when the request that created a pod came in and when Running was committed, or None."""
    commits = [line for line in lines if line.ev == "store.commit" and line.obj["uid"] == uid]
    running = [line.mono_ns for line in commits if line.data.get("phase") == "Running"]
    requests = [line for line in lines if line.ev == "api.request" and line.data["verb"] == "create"]
    created = commits[0]
    came = [
        line.mono_ns for line in requests
        if line.data["path"].startswith("pods/") and line.trace_id == created.trace_id
        and line.req_id == created.req_id and line.identity == created.identity and line.mono_ns <= created.mono_ns
    ]  # fmt: skip
    return (came, running[0]) if running else None


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("path", [LIFE, UNBIND], ids=lambda path: path.stem)
def test_the_critical_path_adds_up_to_what_the_api_server_logged(path, seed):
    spans, lines = a_traced_run(path, seed)

    seen = 0
    for pod in pods_in(spans, "*"):
        fall = waterfall([s for s in spans if s.attributes.get("k8s.pod.uid", pod.uid) == pod.uid], pod.name)
        logged = logged_ns(lines, pod.uid)
        assert fall.is_running == (logged is not None)
        assert fall.is_connected
        if logged is None:
            continue
        came, running = logged
        seen += 1
        assert any(abs(fall.end_ns - fall.begin_ns - (running - start)) <= 1 for start in came)
        assert fall.end_ns - fall.begin_ns == sum(p.end_ns - p.start_ns for p in fall.critical_path)
        assert "apiserver: mesh.v1.ApiServer/Create" == fall.critical_path[0].what
        assert not any(
            s.span_id == p.span_id and s.attributes.get("resource") == "events"
            for p in fall.critical_path for s in fall.spans
        )  # fmt: skip
    assert seen


def test_an_unbound_pods_path_goes_through_refusal_and_both_rounds():
    spans, _ = a_traced_run(UNBIND, 0)

    fall = waterfall(spans, "web-*")

    names = [row.span.name.removeprefix("mesh.v1.ApiServer/") for row in fall.rows if row.is_critical]
    rounds = ["schedule pod", "bind pod", "Bind", "sync pod"]
    assert ["Create", *rounds] == names[:5]
    assert [
        *rounds,
        "start worker",
        "mount volumes",
        "create sandbox",
        "start containers",
        "write status",
        "Patch",
    ] == (names[-10:])
    assert ["unbind pod", "Unbind"] == [name for name in names if "nbind" in name]
    refusal = next(row.span for row in fall.rows if row.span.name == "reject pod")
    assert "TopologyAffinityError" == refusal.attributes["keplab.reason"]
    assert "reconcile replicaset" in [row.span.name for row in fall.rows]
    assert 1 == len({span.trace_id for span in fall.spans})


def test_a_refused_pods_failure_is_a_child_of_the_sync_that_refused_it():
    spans, _ = a_traced_run(FAIL, 0)

    fall = waterfall(spans, "web-*")

    names = [row.span.name.removeprefix("mesh.v1.ApiServer/") for row in fall.rows if row.is_critical]
    assert ["Create", "schedule pod", "bind pod", "Bind", "sync pod", "reject pod", "Patch"] == names
    assert "Failed" == fall.phase


def test_a_driver_logs_the_trace_of_the_pod_whose_kubelet_calls():
    _, lines = a_traced_run(EXPERIMENTS / "claims" / "one-for-each.txt", 1)

    created = {
        line.obj["name"]: line.trace_id
        for line in lines
        if line.ev == "store.commit" and line.obj["kind"] == "Pod" and line.data["type"] == "ADDED"
    }
    for event in ("driver.prepare", "driver.unprepare"):
        logged = [line for line in lines if line.ev == event]
        assert logged
        # A claim that was made for a pod is called POD-CLAIM-…
        assert [line.trace_id for line in logged] == [created[line.obj["name"][0]] for line in logged]


def test_a_violation_of_i7_names_the_trace_of_the_pod_that_got_the_device(monkeypatch):
    claims.never_unprepares(monkeypatch)
    scenario = load_scenario(EXPERIMENTS / "claims" / "one-for-each.txt")
    lines = []

    result = simulate(scenario, seed=1, traced=True, on_line=lines.append)

    found = [violation for violation in result.violations if violation.invariant == "I7"]
    created = [line.trace_id for line in lines if line.ev == "store.commit" and line.obj["kind"] == "Pod"]
    assert found
    assert all(violation.trace_id and violation.trace_id in created for violation in found)


@pytest.mark.parametrize("act", ["kill kubelet/n1 down=2s", "kill dra-driver/n1/gpu.example.com down=2s"])
def test_an_unprepare_names_claim_pod_driver_and_trace_whichever_side_was_restarted_meanwhile(act, tmp_path):
    (tmp_path / "gpus.yaml").write_text((EXPERIMENTS / "claims" / "gpus.yaml").read_text())
    path = tmp_path / "restarted.txt"
    path.write_text(f"""
nodes n1 cpu=4 drivers=gpu.example.com:1
apply gpus.yaml
pod p claim-templates=gpu grace=1
expect within 20s each pods name=p phase == Running
{act}
wait 10s
delete pod/p
gone pod/p
""")

    _, lines = a_traced_run(path, 1)

    pod = next(line for line in lines if line.ev == "store.commit" and line.obj["kind"] == "Pod")
    (prepared,) = (line for line in lines if line.ev == "driver.prepare")
    (unprepared,) = (line for line in lines if line.ev == "driver.unprepare")
    (answered,) = (line for line in lines if line.ev == "kubelet.unprepared" and not line.data.get("error"))
    assert (unprepared.obj, unprepared.data, unprepared.trace_id) == (prepared.obj, prepared.data, pod.trace_id)
    assert unprepared.data["pods"] == ["p"]
    assert (answered.obj, answered.data["names"]) == (
        {"kind": "Pod", "ns": "default", "name": "p", "uid": pod.obj["uid"]},
        [prepared.obj["name"]],
    )
