"""Results of a run, printed for people."""

from lab.cli.live import console
from lab.cli.tables import hanging
from lab.experiments.wording import count_text
from lab.scenarios.result import RunResult

SIGN_WIDTH = 4


def show_result(result: RunResult, title: str, run: str = "") -> None:
    """Print the judgements, violations and figures of a run; `run`: its id, empty if it has no record."""
    mark = "[green]passed[/]" if result.passed else "[red]failed[/]"
    for text in result.absent:
        print_judged("[yellow]![/] ", "", text)
    console.print(f"{mark}  {result.scenario}: {title}")
    for judgement in result.expectations:
        sign = "[green]✓[/]" if judgement.passed else "[red]✗[/]"
        print_judged(f"  {sign} ", f"{judgement.at_s:8.3f} s  ", f"{judgement.text}   ({judgement.seen})")
    for violation in result.violations[:20]:
        what = f"{violation.invariant} at {violation.at:.3f} s {', '.join(violation.objects)}: {violation.detail}"
        if violation.by_hand:
            print_judged("  [yellow]![/] ", "", f"by hand: {what}")
        else:
            print_judged("  [red]✗[/] ", "", what)
    if result.violation_count > 20:
        console.print(f"  … {count_text(result.violation_count - 20, 'more violation')}")
    if result.error:
        console.print(f"  {result.error}", style="red" if console.is_terminal else None, markup=False)
    for failure in result.failures[:10]:
        console.print(f"  process: {failure}", markup=False)
    for measure in result.stated:
        value = result.measures[measure.name]
        if (why := result.measure_errors.get(measure.name)) is not None:
            print_judged("  [yellow]![/] ", "", why)
        else:
            shown = "–" if value is None else f"{value:.6g} {measure.unit}".strip()
            print_judged("  = ", "", f"{measure.name} {shown}   ({measure.meaning})")
    for what, count in result.forbidden.items():
        print_judged("  [yellow]![/] ", "", f"Forbidden, {count_text(count, 'time')}: {what}")
    for note in result.seen.notes if result.seen is not None else ():
        print_judged("  [yellow]![/] ", "", note)
    recorded = f", run {run}" if run else ""
    console.print(f"  {_what_it_was(result)}{recorded}", markup=False)


def _what_it_was(result: RunResult) -> str:
    """Return what was run, for how long, and what there is of it."""
    log = count_text(result.lines, "event line")
    if result.mode == "simulated":
        speed = f", {result.virtual_s / result.wall_s:.3g} × real time" if result.wall_s else ""
        took = f"{result.virtual_s:.1f} s simulated in {result.wall_s:.1f} s{speed}"
        return f"simulated, seed {result.seed}, {took}, {log}, digest {result.digest[:16]}"
    took = f"{result.virtual_s:.1f} s in real time"
    if result.mode == "containers":
        return f"containers, seed {result.seed}, {took}, no event log: invariants are not judged"
    whole = f"{result.wall_s:.1f} s with start and end of the mesh"
    return f"real processes, seed {result.seed}, {took}, {whole}, {log}"


def print_judged(sign: str, first: str, text: str) -> None:
    """Print a sign and a text; on a terminal the text is wrapped between words and its lines are aligned."""
    width = SIGN_WIDTH + len(first)
    lines = hanging(" " * SIGN_WIDTH + first, text, console.width, indent=min(width, SIGN_WIDTH + 2))
    shown = lines[SIGN_WIDTH:] if console.is_terminal else first + text
    console.print(sign, end="")
    console.print(shown, markup=False, soft_wrap=True)
