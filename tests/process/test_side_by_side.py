"""`keplab bench side-by-side` with a second mesh in the place of the other control plane."""

import asyncio
import os
import shlex
import subprocess
import sys
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest

from lab.benchmarks.bench import Reporter
from lab.benchmarks.running_mesh import follow, quiet_arguments, running_mesh
from lab.benchmarks.side_by_side import objects
from lab.benchmarks.side_by_side.figures import rows_of
from lab.benchmarks.side_by_side.planes import NamedProcesses
from lab.benchmarks.side_by_side.run import SideBySideOptions, bench_side_by_side, measure
from lab.benchmarks.workloads import templates
from lab.exchange.stream import Refused
from services.api.wire import Request

OPTIONS = SideBySideOptions(nodes="3,4", pods=20, listed=40, calls=10, watchers="1,3", rounds=2)
OWN_NODE = "the-users"
KINDS = ("nodes", "namespaces", "pods", "events")


@asynccontextmanager
async def other_plane():
    """Run a mesh without a scheduler and without a namespace controller; yield it and the options for it."""
    without = frozenset(("scheduler", "controllers", "claim-controller"))
    async with running_mesh(engine="memory", without=without, serves_clients=True, arguments=quiet_arguments()) as mesh:
        credentials = mesh.supervisor.data_dir / "credentials"
        words = [sys.executable, "-P", "-m", "scheduler", "--name", "scheduler", "--health-port", "0"]
        words += ["--token-file", str(credentials / "scheduler.json"), "--server", mesh.supervisor.grpc_target]
        words += ["--events-dir", "", "--spans-dir", ""]
        options = replace(
            OPTIONS,
            kubeconfig=str(mesh.supervisor.kubeconfig),
            processes=(f"apiserver={mesh.pids['apiserver']}",),
            scheduler=shlex.join(words),
        )
        yield mesh, options


async def names(mesh):
    listed = {}
    for kind in KINDS:
        body = (await mesh.api.call(Request(verb="list", resource=kind))).unwrap().body
        listed[kind] = sorted(item["metadata"]["name"] for item in msgspec.json.decode(body)["items"])
    return listed


async def create_node(mesh, name):
    body = msgspec.json.encode({**templates.node(), "metadata": {"name": name}})
    (await mesh.api.call(Request(verb="create", resource="nodes", body=body))).unwrap()


def silent(said=None, progress=lambda what, done, total: None):
    return Reporter((said if said is not None else []).append, progress)


@pytest.mark.timeout(300)
def test_every_row_is_measured_on_every_plane_and_what_was_created_is_gone(monkeypatch):
    monkeypatch.setattr(objects, "CONTROLLER_MAX_S", 0.3)

    async def run():
        async with other_plane() as (mesh, options):
            await create_node(mesh, OWN_NODE)
            before = await names(mesh)
            nodes_of_pods = set()

            def note(event, _):
                if event.type != "BOOKMARK":
                    nodes_of_pods.add(msgspec.json.decode(event.body)["spec"].get("nodeName"))

            following = asyncio.create_task(follow(mesh.api, "pods", note, lambda: None))
            with pytest.raises(Refused, match="has nodes"):
                await measure(options, silent())
            result = await measure(replace(options, with_nodes_present=True), silent())
            following.cancel()
            assert await names(mesh) == before
            assert OWN_NODE not in nodes_of_pods
            assert len(nodes_of_pods) > 4, "pods were bound to the benchmark's nodes"
            return result

    result = asyncio.run(run())

    sizes = replace(OPTIONS, with_nodes_present=True).sizes()
    assert [row.name for row in rows_of(sizes)] == [row.name for row in result.rows]
    for row in result.rows:
        rounds = 1 if row.name.startswith("memory.") else 2
        assert {plane: len(values) for plane, values in row.values.items()} == dict.fromkeys(
            ("other", "sqlite", "memory"), rounds
        ), row.name
    assert {"real.live.4.rate", "real.backlog.3.rate", "real.memory.4", "real.rest.watch.3"} < set(result.figures)
    assert (result.left_out, result.left_behind, result.is_interrupted) == ({}, "", False)
    assert msgspec.json.encode(result.document())


@pytest.mark.timeout(300)
def test_without_a_scheduler_nothing_is_scheduled_on_any_plane(monkeypatch):
    monkeypatch.setattr(objects, "CONTROLLER_MAX_S", 0.3)

    async def run():
        async with other_plane() as (_, options):
            return await measure(replace(options, scheduler="", nodes="3", watchers="1", rounds=1), silent())

    result = asyncio.run(run())

    rows = {row.name.partition(".")[0] for row in result.rows}
    assert rows == {"memory", "create", "get", "post", "watch", "list", "list_again"}
    assert all(ahead is not None for row in result.rows for ahead in row.times_ahead.values() if ".cpu" not in row.name)
    assert set(result.left_out) == {"live", "backlog"}


@pytest.mark.timeout(300)
def test_an_interrupt_in_the_middle_leaves_nothing(monkeypatch):
    monkeypatch.setattr(objects, "CONTROLLER_MAX_S", 0.3)

    async def run():
        async with other_plane() as (mesh, options):
            before, said = await names(mesh), []
            measuring = asyncio.create_task(measure(options, silent(said)))

            def note(event, _):
                if event.name.startswith("l-") and not measuring.cancelling():  # pods are being scheduled
                    measuring.cancel()

            following = asyncio.create_task(follow(mesh.api, "pods", note, lambda: None))
            result = await measuring
            following.cancel()
            assert await names(mesh) == before
            return result, said

    result, said = asyncio.run(run())

    assert (result.is_interrupted, result.left_behind) == (True, "")
    assert "memory.empty" in [row.name for row in result.rows]
    assert "deleting what was created" in said[-1]


@pytest.mark.timeout(300)
def test_missing_rights_an_ended_scheduler_a_silent_server_and_swept_nodes_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(objects, "CONTROLLER_MAX_S", 0.3)

    async def run():
        async with other_plane() as (mesh, options):
            before = await names(mesh)
            kubeconfig = mesh.supervisor.kubeconfig.read_text()
            token = (mesh.supervisor.data_dir / "credentials" / "monitor.token").read_text().strip()
            admin = kubeconfig.partition("token: ")[2].split()[0]
            (tmp_path / "reader").write_text(kubeconfig.replace(admin, token))
            (tmp_path / "silent").write_text(kubeconfig.replace(mesh.supervisor.rest_url, "https://127.0.0.1:1"))
            with pytest.raises(Refused, match="may not create namespaces"):
                await measure(replace(options, kubeconfig=str(tmp_path / "reader")), silent())
            with pytest.raises(Refused, match="does not answer"):
                await measure(replace(options, kubeconfig=str(tmp_path / "silent")), silent())
            with pytest.raises(Refused, match="false ended with 1"):
                await measure(replace(options, scheduler="false"), silent())
            sweeping = asyncio.create_task(sweep(mesh.api))
            with pytest.raises(Refused, match="a controller deleted 1 of the 3 nodes"):
                await measure(options, silent())
            sweeping.cancel()
            assert await names(mesh) == before

    asyncio.run(run())


async def sweep(api):
    """Delete a node of the benchmark as soon as a pod has been scheduled, as a controller of nodes without machines would."""
    nodes, is_time = [], asyncio.Event()

    def note(event, _):
        nodes.extend([event.name] if event.type == "ADDED" else [])

    def note_pod(event, _):
        if event.name.startswith("l-"):
            is_time.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(follow(api, "nodes", note, lambda: None))
        group.create_task(follow(api, "pods", note_pod, lambda: None))
        await is_time.wait()
        (await api.call(Request(verb="delete", resource="nodes", name=nodes[0]))).unwrap()


def test_a_refusal_of_the_check_comes_before_anything_is_started(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text(
        'clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]\nusers: [{name: u, user: {token: t}}]\n'
        "contexts: [{name: k, context: {cluster: c, user: u}}]\ncurrent-context: k\n"
    )
    said = []

    with pytest.raises(Refused, match="does not answer"):
        bench_side_by_side(
            replace(OPTIONS, kubeconfig=str(path), processes=(f"apiserver={os.getpid()}",)), silent(said)
        )
    assert said == []


def test_a_process_that_has_ended_is_named():
    process = subprocess.Popen(["sleep", "60"])
    processes = NamedProcesses({"etcd": process.pid})
    try:
        assert processes.pids() == {"etcd": process.pid}
    finally:
        process.kill()

    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(Refused, match=f"etcd, process {process.pid}, has ended"):
        processes.pids()
    process.wait()
