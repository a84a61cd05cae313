"""`keplab explain`: ask the scheduler that decided it why a pod is where it is."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import msgspec

from lab.cli.output import EXIT_FAILED, EXIT_OK, fail, no_mesh, output_option, print_json, print_table, refusing
from lab.cli.scenario_files import SCENARIO
from lab.cli.sources import open_recording, recording_of, source_options
from lab.experiments.wording import count_text
from services.runtime.mesh_directory import read_state

if TYPE_CHECKING:
    from lab.scenarios.simulation.simulated_mesh import SimMesh

TIMEOUT_S = 10.0
BEST_NODES = 5
DEVICES_NAMED = 3
NAMES_SHOWN = 10
POD_KINDS = ("pod", "pods", "po")
EPILOG = """\
\b
Examples:
  keplab explain pod/web-7d4b9c-x2x5k -n shop       (a mesh started by `keplab up`)
  keplab explain pod/web-7d4b9c-x2x5k -o json | jq .would_fit_if
  keplab explain pod/web-0 --recording unbind.keprec --at 1234      why it was there
  keplab explain scheduler/queue                    every pool, who waits there, and for what
  keplab explain pod/wide --run experiments/unbinding/no-alternative.txt
  keplab explain 'pod/web-*' --run experiments/runaway/runaway-unbind.txt
"""


@click.command("explain", epilog=EPILOG)
@click.argument("target", metavar="KIND/NAME")
@click.option("-n", "--namespace", default="default", show_default=True, help="namespace of the pod")
@source_options
@click.option(
    "--at", type=click.IntRange(1), metavar="RV", help="resource version in the recording; without it, its end"
)
@click.option("--run", "scenario", type=SCENARIO, help="scenario to simulate; the pod is explained at its end")
@click.option("--seed", type=int, default=0, show_default=True, help="seed of the simulation")
@output_option
def explain(
    target: str,
    namespace: str,
    data: Path,
    recording: Path | None,
    at: int | None,
    scenario: Path | None,
    seed: int,
    output: str,
) -> int:
    """Explain why a pod is on its node, or on none.

    NAME may be a glob: every pod that it matches is explained. For a pod without a node the answer names the smallest
    change that would help. The answer comes from the scheduler's record of its last decision, from its queue, and from
    filtering again. For a pod with a node whose claims are not prepared it comes from the kubelet. With a recording it
    comes from the decisions that were recorded until the version.
    """
    kind, _, name = target.rpartition("/")
    if target != "scheduler/queue" and (kind not in POD_KINDS or not name):
        fail(f"{target!r}: want pod/NAME or scheduler/queue")
    asked = ExplainTarget(target, namespace, name)
    path = recording_of(data, recording)
    if at is not None and path is None:
        fail("--at needs a recording: a running scheduler knows only its newest decision about a pod")
    if scenario is not None:
        answers = _simulated_answers(scenario, seed, asked)
    else:
        answers = _recorded_answers(path, at, asked) if path is not None else _mesh_answers(data, asked)
    if output == "json":
        print_json(answers if asked.is_glob else answers[0])
    elif asked.is_queue:
        _show_queue(answers[0]) if path is None or scenario is not None else _show_past_queue(answers[0])
    elif path is not None and scenario is None:
        for i, answer in enumerate(answers):
            click.echo("\n" if i else "", nl=False)
            _show_past(answer)
    else:
        for i, answer in enumerate(answers):
            click.echo("\n" if i else "", nl=False)
            _show_pod(answer)
    return EXIT_OK


@dataclass(frozen=True)
class ExplainTarget:
    """Target of the question: the queue, or pods of a namespace by name or glob."""

    target: str
    namespace: str
    name: str

    @property
    def is_queue(self) -> bool:
        """Whether the target is the queue."""
        return self.target == "scheduler/queue"

    @property
    def is_glob(self) -> bool:
        """Whether the name is a glob, which may match several pods."""
        return not self.is_queue and any(sign in self.name for sign in "*?[")

    def names(self, known: Sequence[str]) -> list[str]:
        """Return the names of the targeted pods."""
        if not self.is_glob:
            return [self.name]
        here = [name for space, _, name in (pod.partition("/") for pod in known) if space == self.namespace]
        return fnmatch.filter(here, self.name)

    def refuse(self, known: Sequence[str]) -> NoReturn:
        """End the command because no scheduler knows a targeted pod; name the pods that are known."""
        close = difflib.get_close_matches(f"{self.namespace}/{self.name}", known, n=NAMES_SHOWN, cutoff=0.5)
        named = [*close, *(pod for pod in known if pod not in close)]
        shown = [pod.removeprefix(f"{self.namespace}/") for pod in sorted(named[:NAMES_SHOWN])]
        more = f" and {len(named) - len(shown)} more" if len(named) > len(shown) else ""
        has = f"; there {'is' if len(named) == 1 else 'are'} {', '.join(shown)}{more}" if named else ""
        fail(f"no scheduler knows pod {self.namespace}/{self.name}{has}", EXIT_FAILED)


def _mesh_answers(data: Path, asked: ExplainTarget) -> list[dict[str, Any]]:
    """Return what the schedulers of the mesh say of each pod: the answer of the one that decided last, or waits for it;
    with what the pod's kubelet says."""
    if asked.is_queue:
        return [max(_answers(data, "/explain/queue", "scheduler"), key=lambda answer: len(answer["pods"]))]

    def pod_names() -> list[str]:
        return sorted({pod for each in _answers(data, "/explain/pods", "scheduler") for pod in each["pods"]})

    answers: list[dict[str, Any]] = []
    for name in asked.names(pod_names() if asked.is_glob else ()):
        path = f"/explain/{asked.namespace}/{name}"
        answer = _latest(_answers(data, path, "scheduler"))
        if answer is not None and answer.get("node"):
            answer |= {"kubelet": next(iter(_answers(data, path, "kubelet")), None)}
        answers += [answer] if answer is not None else []
    return answers or asked.refuse(pod_names())


def _recorded_answers(path: Path, at: int | None, asked: ExplainTarget) -> list[dict[str, Any]]:
    """Return what a recording says of each pod, or of the queue, at a version."""
    from lab.scenarios.recording_summary import explanation_at, known_pods, queue_at

    with open_recording(path) as recording:
        first, last = recording.rv_range
        rv = at or last
        if not first <= rv <= last:
            fail(f"{path}: has versions {first} to {last}, not {rv}", EXIT_FAILED)
        if asked.is_queue:
            return [queue_at(recording, rv)]
        known = known_pods(recording, rv)
        names = asked.names(known)
        answers = [
            answer for name in names if (answer := explanation_at(recording, asked.namespace, name, rv)) is not None
        ]
    return answers or asked.refuse(known)


def _show_past(answer: dict[str, Any]) -> None:
    """Print why a pod was where it was, and what is not known of the past."""
    since = "" if answer["since_s"] is None else f", attempt {answer['attempts']} {_seconds(answer['since_s'])} before"
    where = f"was on node {answer['node']}" if answer["node"] else "had no node" if answer["exists"] else "was gone"
    pool = f", {answer['pool']}" if answer["pool"] else ""
    click.echo(f"pod {answer['pod']} {where} ({answer['phase'] or 'gone'}{pool}) at version {answer['rv']}{since}")
    for label in ("message", "preempted_by", "nominated_node"):
        if answer[label]:
            click.echo(f"{label.replace('_', ' ')}: {answer[label]}")
    if answer["victims"]:
        click.echo(f"preempts: {', '.join(answer['victims'])}")
    if answer["rejected_by"] and not answer["rejected"]:
        click.echo(f"rejected by: {', '.join(answer['rejected_by'])}")
    _show_nodes(answer)
    for text in answer["left_out"]:
        click.echo(f"not known: {text}")


def _show_past_queue(found: dict[str, Any]) -> None:
    click.echo(f"version {found['rv']}: " + ", ".join(f"{count} {pool}" for pool, count in found["counts"].items()))
    if found["pods"]:
        click.echo()
        print_table(
            ("POOL", "POD", "PRIORITY"), [(each["pool"], each["pod"], each["priority"]) for each in found["pods"]]
        )


def _answers(data: Path, path: str, component: str) -> list[dict[str, Any]]:
    """Return what the mesh's processes of a component answer."""
    state = read_state(data)
    if state is None:
        no_mesh(data, ", or give --run FILE")
    import urllib.error
    import urllib.request

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


def _simulated_answers(scenario: Path, seed: int, asked: ExplainTarget) -> list[dict[str, Any]]:
    from lab.scenarios.loading import load_scenario
    from lab.scenarios.run import simulate
    from lab.scenarios.script.scenario import ScriptError
    from services.api.meta import Key

    answers: list[dict[str, Any]] = []
    known: set[str] = set()

    def ask(mesh: SimMesh) -> None:
        components: list[Any] = [mesh.instance(name) for name in mesh.components() if name.startswith("scheduler")]
        explainers = [each.explainer for each in components if each is not None]
        if asked.is_queue:
            answers.append(max((each.queue() for each in explainers), key=lambda answer: len(answer["pods"])))
            return
        known.update(pod for each in explainers for pod in each.pods())
        kubelets: list[Any] = [mesh.instance(each) for each in mesh.components() if each.startswith("kubelet/")]
        for name in asked.names(sorted(known)):
            key = Key(asked.namespace, name)
            answer = _latest([each for each in (explainer.pod(key) for explainer in explainers) if each is not None])
            if answer is not None and answer["node"]:
                waits = (kubelet.explain(key) for kubelet in kubelets if kubelet is not None)
                answer["kubelet"] = next((wait for wait in waits if wait is not None), None)
            answers.extend([answer] if answer is not None else [])

    with refusing(ScriptError):
        simulate(load_scenario(scenario), seed=seed, afterwards=ask)
    return answers or asked.refuse(sorted(known))


def _latest(answers: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the answer of the scheduler that has the pod in its queue, or tried most often."""
    return max(answers, key=lambda a: (bool(a.get("pool")), a.get("attempts") or 0), default=None)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _by_time(found: dict[str, Any]) -> str:
    if found["next_attempt_in_s"] is not None:
        return f"next by time alone in {_seconds(found['next_attempt_in_s'])}"
    return "never by time alone" if found["pool"] == "gated" else "its turn is to come"


def _show_pod(answer: dict[str, Any]) -> None:
    pool, node = answer["pool"], answer["node"]
    if node:
        click.echo(f"pod {answer['pod']} is on node {node} ({answer['phase'] or 'gone'}), attempt {answer['attempts']}")
    elif pool:
        click.echo(
            f"pod {answer['pod']} has no node: {pool} for {_seconds(answer['pool_since_s'])}, "
            f"{count_text(answer['attempts'], 'attempt')}, {_by_time(answer)}"
        )
    else:
        gone = "has no node and waits nowhere" if answer["exists"] else "is gone"
        click.echo(
            f"pod {answer['pod']} {gone}; last attempt {answer['attempts']}: {answer['outcome'] or 'never tried'}"
        )
    for label, key in (
        ("message", "message"),
        ("gated by", "gated_by"),
        ("nominated to", "nominated_node"),
        ("preempted by", "preempted_by"),
    ):
        if answer.get(key):
            click.echo(f"{label}: {answer[key]}")
    if answer.get("kubelet"):
        click.echo(f"waits for: {_claim_wait(answer['kubelet'])}")
    if answer["victims"]:
        click.echo(f"preempts: {', '.join(answer['victims'])}")
    if answer["excluded"]:
        click.echo("stays away from: " + ", ".join(f"{n} ({why})" for n, why in sorted(answer["excluded"].items())))
    _show_nodes(answer)
    if answer.get("devices"):
        click.echo("\nDevices for its claims, each request alone:")
        rows = [row for short in answer["devices"] for row in _device_rows(short)]
        print_table(("claim", "request", "node", "wants", "usable", "the others"), rows, texts=6)
    if answer.get("features"):
        click.echo("\nFeatures that it needs and nodes do not declare:")
        rows = [(each["node"], ", ".join(each["missing"])) for each in answer["features"]]
        print_table(("node", "missing"), rows, texts=2)
    if answer["would_fit_if"]:
        click.echo("\nIt would fit with any one of these changes (each was filtered again):")
        rows = [(c["dimension"], c["change"], _node_names(c)) for c in answer["would_fit_if"]]
        print_table(("dimension", "change", "then on"), rows)
    if answer["wakes_on"]:
        click.echo("\nTried again after:")
        for event in answer["wakes_on"]:
            click.echo(f"  {event}")


def _claim_wait(wait: dict[str, Any]) -> str:
    """Return what a pod's claims wait for on its node, with the tries that failed."""
    parts = []
    if wait["since_s"] is not None:
        parts.append(f"for {_seconds(wait['since_s'])}")
    if wait["failures"]:
        parts.append(f"FailedPrepareDynamicResources {count_text(wait['failures'], 'time')}")
    if wait["next_try_in_s"] is not None:
        parts.append(f"next try in {_seconds(wait['next_try_in_s'])}")
    return str(wait["waits_for"]) + (f" ({', '.join(parts)})" if parts else "")


def _device_rows(short: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return a row for each reason against devices, at least one."""
    head = (short["claim"], short["request"], short["node"], short["wanted"], short["usable"])
    texts = []
    for reason, devices in short["refused"].items():
        more = len(devices) - DEVICES_NAMED
        texts.append(", ".join(devices[:DEVICES_NAMED]) + (f" and {more} more" if more > 0 else "") + f": {reason}")
    return [(*head, text) for text in texts or ["-" if short["usable"] else "there are no devices"]]


def _node_names(change: dict[str, Any]) -> str:
    more = change["node_count"] - len(change["nodes"])
    return ", ".join(change["nodes"]) + (f" and {more} more" if more > 0 else "")


def _show_nodes(answer: dict[str, Any]) -> None:
    if answer["rejected"]:
        click.echo(f"\n{count_text(answer['evaluated'], 'node was', 'nodes were')} looked at; refused by:")
        by_plugin = answer["rejected"].items()
        rows = [(plugin, *row) for plugin, reasons in by_plugin for row in sorted(reasons.items())]
        print_table(("plugin", "reason", "nodes"), rows, texts=2)
    if answer["final"]:
        best = sorted(answer["final"], key=lambda n: (-answer["final"][n], n))[:BEST_NODES]
        looked_at = count_text(answer["evaluated"], "node")
        click.echo(f"\n{answer['feasible_count']} of {looked_at} fitted; scores of the best, 0 to 100:")
        plugins = sorted(answer["scores"])
        weights = answer["weights"]
        columns = ("node", *(f"{plugin} ×{weights[plugin]}" for plugin in plugins), "sum")
        rows = [(n, *(answer["scores"][p].get(n, "-") for p in plugins), answer["final"][n]) for n in best]
        print_table(columns, rows, texts=1)


def _show_queue(queue: dict[str, Any]) -> None:
    click.echo(", ".join(f"{count} {pool}" for pool, count in queue["counts"].items()))
    if not queue["pods"]:
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
            for pod in queue["pods"]
        ],
    )
