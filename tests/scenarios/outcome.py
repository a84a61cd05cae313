"""Whether a scenario came true: what is held of each one that is shipped, by `test_experiments` or by a test that runs it anyway."""


def wrong_in(scenario, result):
    """Return what it expected in vain, the invariants that broke, its error, and failures other than those that it says will come."""
    unmet = [f"line {j.line}: {j.text} ({j.seen})" for j in result.expectations if not j.passed]
    broken = [f"{v.invariant} at {v.at}: {v.objects} {v.detail}" for v in result.violations]
    ends = sum(step.verb == "ended" for step in scenario.steps)
    failures = [] if len(result.failures) == ends else [f"{ends} of these were to end: {result.failures}"]
    return [*unmet, *broken, *([result.error] if result.error else []), *failures]
