"""What a run showed, for people."""

from services.cli.live import console
from services.scenarios.result import RunResult


def show_result(result: RunResult, title: str, run: str = "") -> None:
    """Print the judgements, violations and figures of a run; `run`: its id, if there is a record of it."""
    mark = "[green]passed[/]" if result.passed else "[red]failed[/]"
    console.print(f"{mark}  {result.scenario}: {title}")
    for judgement in result.expectations:
        sign = "[green]✓[/]" if judgement.passed else "[red]✗[/]"
        console.print(f"  {sign} {judgement.at_s:8.3f} s  ", end="")
        console.print(f"{judgement.text}   ({judgement.seen})", markup=False)
    for violation in result.violations[:20]:
        what = f"{violation.invariant} at {violation.at:.3f} s {', '.join(violation.objects)}: {violation.detail}"
        console.print("  [red]✗[/] ", end="")
        console.print(what, markup=False)
    if result.violation_count > 20:
        console.print(f"  … {result.violation_count - 20} more violations")
    if result.error:
        console.print(f"  {result.error}", style="red" if console.is_terminal else None, markup=False)
    for failure in result.failures[:10]:
        console.print(f"  process: {failure}", markup=False)
    speed = ""
    if result.mode == "simulated" and result.wall_s:
        speed = f", {result.virtual_s / result.wall_s:.3g} × real time"
    console.print(
        f"  {result.mode}, seed {result.seed}, {result.virtual_s:.1f} s simulated in {result.wall_s:.1f} s{speed}, "
        f"{result.lines} event lines, digest {result.digest[:16]}" + (f", run {run}" if run else ""),
        markup=False,
    )
