"""`keplab explain`: why is it so; asked of the scheduler that decided it."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from services.cli.output import (
    EXIT_FAILED,
    EXIT_OK,
    data_option,
    fail,
    output_option,
    print_json,
    print_table,
    refusing,
)
from services.runtime.mesh_directory import read_state

if TYPE_CHECKING:
    from services.scenarios.simulation.simulated_mesh import SimMesh

TIMEOUT_S = 10.0
BEST_NODES = 5
DEVICES_NAMED = 3
POD_KINDS = ("pod", "pods", "po")
EPILOG = """\
\b
Examples:
  keplab explain pod/web-7d4b9c-x2x5k -n shop       (a mesh started by `keplab up`)
  keplab explain pod/web-7d4b9c-x2x5k -o json | jq .would_fit_if
  keplab explain scheduler/queue                    every pool, who waits there, and for what
  keplab explain pod/p --run experiments/unbinding/no-alternative.txt
"""


@click.command("explain", epilog=EPILOG)
@click.argument("target", metavar="KIND/NAME")
@click.option("-n", "--namespace", default="default", show_default=True, help="the pod's")
@data_option
@click.option("--run", "scenario", type=click.Path(path_type=Path), help="simulate this scenario and ask at its end")
@click.option("--seed", type=int, default=0, show_default=True)
@output_option
def COMMAND(target: str, namespace: str, data: Path, scenario: Path | None, seed: int, output: str) -> int:  # noqa: N802
    """Say why a pod is where it is, or nowhere.

    Of one without a node it names the smallest change that would help. The answer comes from the scheduler's record of
    its last decision, its queue, and from filtering again; of a pod with a node whose claims are not prepared, from its
    kubelet.
    """
    kind, _, name = target.rpartition("/")
    if target == "scheduler/queue":
        path = "/explain/queue"
    elif kind in POD_KINDS and name:
        path = f"/explain/{namespace}/{name}"
    else:
        fail(f"{target!r}: want pod/NAME or scheduler/queue")
    found = _simulated(scenario, seed, path) if scenario is not None else _explained(data, path)
    if found is None:
        fail(f"no scheduler knows pod {namespace}/{name}", EXIT_FAILED)
    if output == "json":
        print_json(found)
    elif path == "/explain/queue":
        _show_queue(found)
    else:
        _show_pod(found)
    return EXIT_OK


def _explained(data: Path, path: str) -> dict[str, Any] | None:
    """Return what the schedulers of the mesh say: the answer of the one that decided last, or waits for it; with what
    the pod's kubelet says."""
    answers = _asked(data, path, "scheduler")
    if path == "/explain/queue" and len(answers) > 1:
        return max(answers, key=lambda a: len(a["pods"]))
    found = _latest(answers)
    if found is None or not found.get("node"):
        return found
    return found | {"kubelet": next(iter(_asked(data, path, "kubelet")), None)}


def _asked(data: Path, path: str, component: str) -> list[dict[str, Any]]:
    """Return what the mesh's processes of a component answer."""
    state = read_state(data)
    if state is None:
        fail(f"no mesh runs on {data}; start one with `keplab up`, or give --run FILE", EXIT_FAILED)
    from services.runtime.credentials import admin_headers

    answers: list[dict[str, Any]] = []
    headers = admin_headers(data)
    for process in state["processes"]:
        if process["name"].startswith(component) and process["port"]:
            try:
                asked = urllib.request.Request(f"http://127.0.0.1:{process['port']}{path}", headers=headers)
                with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as reply:
                    answers.append({component: process["name"], **msgspec.json.decode(reply.read())})
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    fail(f"{process['name']} answers {error.code} to {path}", EXIT_FAILED)
            except OSError as error:
                fail(f"{process['name']} on port {process['port']} does not answer: {error}", EXIT_FAILED)
    return answers


def _simulated(scenario: Path, seed: int, path: str) -> dict[str, Any] | None:
    from services.api.meta import Key
    from services.scenarios.run import load_scenario, simulate
    from services.scenarios.script.scenario import ScriptError

    found: list[dict[str, Any] | None] = []

    def ask(mesh: SimMesh) -> None:
        components: list[Any] = [mesh.instance(name) for name in mesh.components() if name.startswith("scheduler")]
        explainers = [found.explainer for found in components if found is not None]
        if path == "/explain/queue":
            found.extend(explainer.queue() for explainer in explainers)
        else:
            _, _, namespace, name = path.split("/")
            key = Key(namespace, name)
            kubelets: list[Any] = [mesh.instance(each) for each in mesh.components() if each.startswith("kubelet/")]
            waits = (kubelet.explain(key) for kubelet in kubelets if kubelet is not None)
            on_node = {"kubelet": next((wait for wait in waits if wait is not None), None)}
            answers = (explainer.pod(key) for explainer in explainers)
            found.extend(each and each | (on_node if each["node"] else {}) for each in answers)

    with refusing(ScriptError):
        simulate(load_scenario(scenario), seed=seed, afterwards=ask)
    return _latest([answer for answer in found if answer is not None])


def _latest(answers: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the answer of the scheduler that has the pod in its queue, or tried most often."""
    return max(answers, key=lambda a: (bool(a.get("pool")), a.get("attempts") or 0), default=None)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _by_time(found: dict[str, Any]) -> str:
    if found["next_attempt_in_s"] is not None:
        return f"next by time alone in {_seconds(found['next_attempt_in_s'])}"
    return "never by time alone" if found["pool"] == "gated" else "its turn is to come"


def _show_pod(found: dict[str, Any]) -> None:
    pool, node = found["pool"], found["node"]
    if node:
        click.echo(f"pod {found['pod']} is on node {node} ({found['phase'] or 'gone'}), attempt {found['attempts']}")
    elif pool:
        click.echo(
            f"pod {found['pod']} has no node: {pool} for {_seconds(found['pool_since_s'])}, "
            f"{found['attempts']} attempts, {_by_time(found)}"
        )
    else:
        gone = "has no node and waits nowhere" if found["exists"] else "is gone"
        click.echo(f"pod {found['pod']} {gone}; last attempt {found['attempts']}: {found['outcome'] or 'never tried'}")
    for label, key in (
        ("message", "message"),
        ("gated by", "gated_by"),
        ("nominated to", "nominated_node"),
        ("preempted by", "preempted_by"),
    ):
        if found.get(key):
            click.echo(f"{label}: {found[key]}")
    if found.get("kubelet"):
        click.echo(f"waits for: {_claim_wait(found['kubelet'])}")
    if found["victims"]:
        click.echo(f"preempts: {', '.join(found['victims'])}")
    if found["excluded"]:
        click.echo("stays away from: " + ", ".join(f"{n} ({why})" for n, why in sorted(found["excluded"].items())))
    _show_nodes(found)
    if found.get("devices"):
        click.echo("\nDevices for its claims, each request alone:")
        rows = [row for short in found["devices"] for row in _device_rows(short)]
        print_table(("claim", "request", "node", "wants", "usable", "the others"), rows, texts=6)
    if found["would_fit_if"]:
        click.echo("\nIt would fit with any one of these changes (each was filtered again):")
        rows = [(c["dimension"], c["change"], _named(c)) for c in found["would_fit_if"]]
        print_table(("dimension", "change", "then on"), rows)
    if found["wakes_on"]:
        click.echo("\nTried again after:")
        for event in found["wakes_on"]:
            click.echo(f"  {event}")


def _claim_wait(wait: dict[str, Any]) -> str:
    """Return what a pod's claims wait for on its node, with the tries that failed."""
    parts = []
    if wait["since_s"] is not None:
        parts.append(f"for {_seconds(wait['since_s'])}")
    if wait["failures"]:
        parts.append(f"FailedPrepareDynamicResources {wait['failures']} times")
    if wait["next_try_in_s"] is not None:
        parts.append(f"next try in {_seconds(wait['next_try_in_s'])}")
    return str(wait["waits_for"]) + (f" ({', '.join(parts)})" if parts else "")


def _device_rows(short: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return a row for each reason against devices, at least one."""
    head = (short["claim"], short["request"], short["node"], short["wanted"], short["usable"])
    said = []
    for reason, devices in short["refused"].items():
        more = len(devices) - DEVICES_NAMED
        said.append(", ".join(devices[:DEVICES_NAMED]) + (f" and {more} more" if more > 0 else "") + f": {reason}")
    return [(*head, text) for text in said or ["-" if short["usable"] else "there are no devices"]]


def _named(change: dict[str, Any]) -> str:
    more = change["node_count"] - len(change["nodes"])
    return ", ".join(change["nodes"]) + (f" and {more} more" if more > 0 else "")


def _show_nodes(found: dict[str, Any]) -> None:
    if found["rejected"]:
        click.echo(f"\n{found['evaluated']} nodes were looked at; refused by:")
        by_plugin = found["rejected"].items()
        rows = [(plugin, *counted) for plugin, reasons in by_plugin for counted in sorted(reasons.items())]
        print_table(("plugin", "reason", "nodes"), rows, texts=2)
    if found["final"]:
        best = sorted(found["final"], key=lambda n: (-found["final"][n], n))[:BEST_NODES]
        click.echo(f"\n{found['feasible_count']} of {found['evaluated']} nodes fitted; scores of the best, 0 to 100:")
        plugins = sorted(found["scores"])
        weights = found["weights"]
        columns = ("node", *(f"{plugin} ×{weights[plugin]}" for plugin in plugins), "sum")
        rows = [(n, *(found["scores"][p].get(n, "-") for p in plugins), found["final"][n]) for n in best]
        print_table(columns, rows, texts=1)


def _show_queue(found: dict[str, Any]) -> None:
    click.echo(", ".join(f"{count} {pool}" for pool, count in found["counts"].items()))
    if not found["pods"]:
        click.echo("no pod waits")
        return
    click.echo()
    print_table(
        ("POOL", "POD", "PRIORITY", "ATTEMPTS", "IN POOL", "NEXT BY TIME", "MOVED BY", "REJECTED BY", "NOMINATED"),
        [
            (
                pod["pool"],
                pod["pod"],
                pod["priority"],
                pod["attempts"],
                _seconds(pod["pool_since_s"]),
                _seconds(pod["next_attempt_in_s"]),
                pod["moved_by"],
                pod["gated_by"] or ", ".join(pod["rejected_by"]),
                pod["nominated_node"],
            )
            for pod in found["pods"]
        ],
    )
