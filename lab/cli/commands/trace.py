"""`keplab trace`: show an object's life across processes, as a waterfall."""

import shlex
from pathlib import Path

import click
from rich.text import Text

from lab.cli.live import console
from lab.cli.output import EXIT_FAILED, fail, no_mesh, output_option, print_json, print_table, refusing, write_file
from lab.cli.scenario_files import SCENARIO
from lab.cli.sources import open_recording, recording_of, source_options
from lab.experiments.trace_page import TracePage, traces_of
from lab.experiments.waterfall_picture import svg_picture
from lab.experiments.wording import count_text
from lab.scenarios.loading import load_scenario
from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import ScriptError
from lab.scenarios.traces.document import document
from lab.scenarios.traces.waterfall import Row, SpanGraph, Waterfall, bar, label, waterfall
from services.telemetry.spans import FinishedSpan
from services.telemetry.traces import read_spans

COLOURS = {
    "apiserver": "cyan",
    "scheduler": "yellow",
    "kubelet": "green",
    "controllers": "magenta",
    "claim-controller": "red",
}
TIMES_WIDTH = 24
PIPED_BAR_WIDTH = 40


@click.command(
    "trace",
    epilog="""\b
Examples:
  keplab trace pod/web-7d4b9c-x2x5k                    (a mesh started by `keplab up`)
  keplab trace pod/hello --run experiments/first-life/a-pods-first-life.txt
  keplab trace 'pod/web-*' --run experiments/runaway/runaway-unbind.txt --svg web.svg
  keplab trace 'pod/web-*' --run experiments/runaway/runaway-unbind.txt --html web.html
  keplab trace pod/hello --recording hello.keprec
  keplab trace pod/hello -o json""",
)
@click.argument("target", metavar="KIND/NAME")
@click.option("-n", "--namespace", default="", help="namespace of the pod; without it, any")
@source_options
@click.option("--run", "scenario", type=SCENARIO, help="scenario to simulate; its pod is traced")
@click.option("--seed", type=int, default=0, show_default=True, help="seed of the simulation")
@click.option("--whole", is_flag=True, help="also show the time after Running")
@click.option("--svg", type=click.Path(path_type=Path), help="file to draw the waterfall into")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    help="file for the live page, with the traces of all pods that NAME matches",
)
@output_option
def trace(
    target: str,
    namespace: str,
    data: Path,
    recording: Path | None,
    scenario: Path | None,
    seed: int,
    whole: bool,
    svg: Path | None,
    html: Path | None,
    output: str,
) -> None:
    """Print the life of a pod from create to Running.

    The output shows where the time went. NAME may be a glob; the first pod that it matches is shown.
    """
    kind, _, name = target.rpartition("/")
    if kind not in ("pod", "pods", "po") or not name:
        fail(f"{target!r}: want pod/NAME")
    path = recording_of(data, recording)
    if scenario is not None:
        spans, where = _simulated_spans(scenario, seed), f"in {scenario}"
    elif path is not None:
        spans, where = _recorded_spans(path), f"in {path}"
    else:
        spans, where = spans_below(data / "spans"), f"below {data / 'spans'}"
    graph = SpanGraph(spans)
    fall = waterfall(graph, name, namespace, whole=whole)
    if fall is None:
        fail(f"no span names pod {name} {where}", EXIT_FAILED)
    if svg is not None:
        write_file(svg, svg_picture(fall))
    if html is not None:
        from lab.ui.result_page import traces_page

        of = ["--run", scenario, "--seed", seed] if scenario else ["--recording", path] if path else ["--data", data]
        words = ["keplab", "trace", target, *(["-n", namespace] * bool(namespace)), *of, *(["--whole"] * whole)]
        falls, left = traces_of(graph, name, namespace, whole=whole)
        write_file(html, traces_page(TracePage(falls, left, [("spans", where)], shlex.join(map(str, words)))))
    if output == "json":
        print_json(document(fall))
    else:
        _show(fall, is_simulated=scenario is not None)


def spans_below(folder: Path) -> list[FinishedSpan]:
    """Return all spans of a mesh's files; a torn last line of a killed process is left out."""
    if not folder.is_dir():
        no_mesh(folder.parent, ", or give --run FILE")
    return [span for path in sorted(folder.glob("*.jsonl")) for span in read_spans(path)]


def _recorded_spans(path: Path) -> list[FinishedSpan]:
    """Return the spans of a recording; one without any ends the command."""
    with open_recording(path) as recording:
        spans = list(recording.spans())
        if not spans:
            again = "; `keplab run FILE --recording … --traced` traces it" if recording.meta.mode == "simulated" else ""
            fail(f"{path}: the run was not traced, so the recording has no spans{again}", EXIT_FAILED)
    return spans


def _simulated_spans(scenario: Path, seed: int) -> list[FinishedSpan]:
    with refusing(ScriptError):
        return simulate(load_scenario(scenario), seed=seed, traced=True).spans


def _show(fall: Waterfall, *, is_simulated: bool) -> None:
    pod = fall.pod
    console.print(
        f"pod {pod.namespace}/{pod.name}, uid {pod.uid}, trace {fall.trace_id}, {count_text(len(fall.rows), 'span')}",
        markup=False,
    )
    names = _names(fall, "  ")
    name_width, bar_width = max(map(len, names)), PIPED_BAR_WIDTH
    if console.is_terminal:
        columns = max(40, console.width - TIMES_WIDTH - 2)
        most = max(20, columns * 2 // 3)
        if name_width > most:
            names = _names(fall, " ")
        name_width = min(max(map(len, names)), most)
        bar_width = max(10, columns - name_width)
    for row, name in zip(fall.rows, names, strict=True):
        cut = name if len(name) <= name_width else name[: name_width - 1] + "…"
        console.print(_line(fall, row, cut.ljust(name_width), bar_width), no_wrap=True, crop=console.is_terminal)
    if fall.later:
        console.print(f"{count_text(fall.later, 'span')} began later; --whole shows them")
    if not fall.is_connected:
        lost = "a process has not written them yet (it takes half a second), or lost them"
        console.print(f"Spans are missing: {'the scenario ended before they did' if is_simulated else lost}.")
    end = f"to {fall.phase}" if fall.phase else "to the last span seen (not Running)"
    console.print(f"\nCritical path from the request that created the pod {end}:")
    total = fall.total_ms
    share = [(p.what, f"{p.ms:.3f}", f"{100 * p.ms / total:.1f} %") for p in fall.critical_path]
    print_table(["what", "ms", "share"], [*share, ("total", f"{total:.3f}", "100.0 %")], texts=1)


def _names(fall: Waterfall, indent: str) -> list[str]:
    return [indent * row.depth + label(row.span) for row in fall.rows]


def _line(fall: Waterfall, row: Row, name: str, bar_width: int) -> Text:
    span = row.span
    colour = COLOURS.get(span.service, "white")
    start, length = (span.start_ns - fall.begin_ns) / 1e6, (span.end_ns - span.start_ns) / 1e6
    drawn = bar(span, fall.begin_ns, fall.end_ns, bar_width, "█" if row.is_critical else "▒")
    line = Text(no_wrap=True)
    line.append(name, style=f"bold {colour}" if row.is_critical else "dim")
    line.append(" ")
    line.append(drawn, style=colour)
    line.append(f" {start:10.2f} {'+' + format(length, '.2f'):>9} ms")
    return line
