"""`keplab trace`: an object's life across processes, as a waterfall."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from services.cli.screen import EXIT_FAILED, OUTPUT, console, fail, print_json, print_table
from services.scenarios.run import load_story, simulate
from services.scenarios.script import ScriptError
from services.scenarios.waterfall import Waterfall, bars, waterfall
from services.telemetry.spans import FinishedSpan


@click.command(
    "trace",
    epilog="""\b
Examples:
  keplab trace pod/web-7d4b9c-x2x5k                    (a mesh started by `keplab up`)
  keplab trace pod/hello --run experiments/first-life/a-pods-first-life.txt
  keplab trace pod/hello -o json""",
)
@click.argument("target", metavar="KIND/NAME")
@click.option("--data", type=click.Path(path_type=Path), default=Path(".keplab"), show_default=True, help="the mesh's")
@click.option("--run", "story", type=click.Path(path_type=Path), help="simulate this scenario and trace its pod")
@click.option("--seed", type=int, default=0, show_default=True)
@OUTPUT
def command(target: str, data: Path, story: Path | None, seed: int, output: str) -> None:
    """Print the life of KIND/NAME from REST create to Running, and where the time went."""
    kind, _, name = target.rpartition("/")
    if kind not in ("pod", "pods", "po") or not name:
        fail(f"{target!r}: want pod/NAME")
    spans = _simulated(story, seed) if story else read_spans(data / "spans")
    fall = waterfall(spans, name)
    if fall is None:
        where = f"in {story}" if story else f"below {data / 'spans'}"
        fail(f"no span names pod {name} {where}", EXIT_FAILED)
    if output == "json":
        print_json(document(fall))
    else:
        _show(fall)


def read_spans(folder: Path) -> list[FinishedSpan]:
    """Return all spans of a mesh's files; a torn last line of a killed process is left out."""
    decoder = msgspec.json.Decoder(FinishedSpan)
    spans = []
    if not folder.is_dir():
        fail(f"there is no folder {folder}; start a mesh with `keplab up`, or give --run FILE")
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            try:
                spans.append(decoder.decode(line))
            except msgspec.DecodeError:
                continue
    return spans


def _simulated(story: Path, seed: int) -> list[FinishedSpan]:
    try:
        return simulate(load_story(story), seed=seed, traced=True).spans
    except ScriptError as error:
        fail(str(error))


def document(fall: Waterfall) -> dict[str, object]:
    """Return the JSON document of `keplab trace -o json`."""
    return {
        "trace_id": fall.trace_id,
        "spans": [
            {
                "service": s.service, "name": s.name, "start_ns": s.start_ns, "end_ns": s.end_ns,
                "trace_id": s.trace_id, "span_id": s.span_id, "parent": s.parent, "links": s.links,
                "attributes": s.attributes,
            }
            for s in fall.spans
        ],
        "critical_path": [{"what": piece.what, "ms": round(piece.ms, 6)} for piece in fall.critical_path],
        "total_ms": round(fall.total_ms, 6),
        "is_running": fall.is_running,
    }  # fmt: skip


def _show(fall: Waterfall) -> None:
    width = max(20, min(60, console.width - 70)) if console.is_terminal else 40
    console.print(f"trace {fall.trace_id}, {len(fall.spans)} spans")
    for name, bar, start, length in bars(fall, width):
        console.print(f"{name[:48]:<48} {bar} {start:9.2f} +{length:.2f} ms", markup=False)
    end = "to Running" if fall.is_running else "to the last span seen (not Running)"
    console.print(f"\nCritical path {end}:")
    share = [(p.what, f"{p.ms:.3f}", f"{100 * p.ms / fall.total_ms:.1f} %") for p in fall.critical_path if p.ms]
    print_table(["what", "ms", "share"], [*share, ("total", f"{fall.total_ms:.3f}", "100.0 %")])


COMMAND = command
