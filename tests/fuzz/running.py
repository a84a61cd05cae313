"""Runs generated cases: so many, from one seed; what fails is shrunk, and shown with the command that repeats it."""

import sys
from collections.abc import Callable
from contextlib import suppress

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz import expressions, frames, parsers, rest

PARTS = ("rest", "grpc", "parsers", "expressions")
FRAME_GROUPS = 20
"""Frames are run in so many groups, so that one finding does not end all."""


def findings(strategy, check: Callable, cases: int, number: int, *, shrinks: bool = True) -> list[str]:
    """Check so many examples of the strategy; return a text for each of the smallest ones that fail, or of the first
    ones where they are not shrunk."""

    @seed(number)
    @settings(
        max_examples=cases,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        phases=[Phase.generate, *([Phase.shrink] if shrinks else [])],
    )
    @given(strategy)
    def one(example):
        check(example)

    try:
        one()
    except BaseExceptionGroup as group:
        return [shown(each) for each in group.exceptions]
    except Exception as error:
        return [shown(error)]
    return []


def shown(error: BaseException) -> str:
    """Return what went wrong and where, and the example."""
    at = ""
    step = error.__traceback__
    while step is not None:
        code = step.tb_frame.f_code
        if "/tests/" not in code.co_filename and "hypothesis" not in code.co_filename:
            at = f" ({code.co_filename.rpartition('/')[2]}:{step.tb_lineno})"
        step = step.tb_next
    notes = "\n".join(getattr(error, "__notes__", ()))
    return f"{type(error).__name__}{at}: {error}\n{notes}"[:6_000]


def jobs(part, target):
    """Yield, for each thing that is fuzzed, its name, its strategy, and its check."""
    if part == "parsers":
        for name, parser in parsers.PARSERS.items():
            yield name, parsers.texts_for(parser), lambda text, name=name: parsers.check(name, text), None
        return
    if part == "expressions":
        for name, surface in expressions.SURFACES.items():
            seeds = st.integers(0, 2**63).map(surface.write)
            yield name, seeds, lambda text, name=name: expressions.check(name, text), None
        return
    schemas = rest.schemas_of(target)
    if part == "grpc":
        oracle = frames.Frames(target)
        for number in range(FRAME_GROUPS):
            strategy = frames.frames(target.server.catalogue, schemas)
            yield f"frames-{number}", strategy, lambda case: oracle.check(*case), oracle
        return
    oracle = rest.Rest(target)
    for place in rest.places(target.server.catalogue):

        def check(case, place=place):
            oracle.restore(place)
            oracle.check(case)

        yield str(place), rest.cases(schemas, place), check, oracle


def say(text):
    """Show a line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def go(part, target, cases, number, only="", report=say):
    """Run a part and return its findings; `only`: the one thing of it. `cases`: how many in all."""
    found = []
    named = [each for each in jobs(part, target) if only in ("", each[0])]
    ran = 0
    if only and not named:
        raise ValueError(
            f"{only}: there is no such place; there are {', '.join(each[0] for each in jobs(part, target))}"
        )
    oracle = named[0][3] if named else None
    for position, (name, strategy, check, _) in enumerate(named):
        here = cases * (position + 1) // len(named) - cases * position // len(named)
        if not here:
            continue
        ran += here
        # Each with a seed of its own that follows from the one given, whatever else is run.
        for text in findings(strategy, check, here, number * 1_000 + sum(map(ord, name)) % 1_000):
            command = f"make fuzz ONLY={part} PLACE={name} N={here} SEED={number}"
            found.append(f"{part} {name}\n{text}\nrepeat it: {command}")
            report(found[-1] + "\n")
    with suppress(AttributeError):
        report(f"{part}: answers by code {dict(sorted((str(code), count) for code, count in oracle.codes.items()))}")
        for taken_s, case in sorted(oracle.slow, reverse=True)[:3]:
            report(f"{part}: {taken_s:.1f} s without a turn for others: {case[:800]}")
    report(f"{part}: {ran} cases, seed {number}, {len(found)} findings")
    return found
