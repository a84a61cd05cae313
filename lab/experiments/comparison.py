"""Build the document of a comparison from its runs. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from lab.experiments.bands import bands_of
from lab.experiments.document import SCHEMA, SCHEMA_VERSION, ArmRun, ArmRuns, Comparison, Measure, Provenance, SwitchRow
from lab.experiments.fates import Fate, differences
from lab.experiments.figures import describe_measure, in_order, is_registered, label_of
from lab.experiments.headline import headline
from lab.experiments.statistics import SEEDS_MIN, spread_of, summarize_differences
from lab.experiments.wording import count_text
from lab.scenarios.measures import register


def comparison_of(
    arms: Sequence[tuple[str, Sequence[str]]],
    runs: Sequence[ArmRun],
    *,
    planned: int,
    mode: str,
    scenario: str,
    title: str,
    about: str,
    switches: Sequence[SwitchRow],
    provenance: Provenance,
    is_interrupted: bool = False,
    report: str = "",
    recordings: str = "",
    stated: Sequence[register.Measure] = (),
) -> Comparison:
    """Return the document of these runs. `arms`: names with switches; `planned`: number of planned runs;
    `stated`: the measures that the scenario states.
    """
    of_arms: dict[str, list[ArmRun]] = {name: [] for name, _ in arms}
    for run in sorted(runs, key=lambda each: each.run.seed):
        of_arms[run.arm].append(run)
    shown = [
        ArmRuns(
            name, list(texts), [each.run for each in of_arms[name]], bands_of([each.samples for each in of_arms[name]])
        )
        for name, texts in arms
    ]
    pod_differences, count, groups = differences(_pairs(of_arms))
    comparison = Comparison(
        schema=SCHEMA,
        schema_version=SCHEMA_VERSION,
        scenario=scenario,
        title=title,
        about=about,
        mode=mode,
        result="",
        seeds=sorted({each.run.seed for each in runs}),
        runs_planned=planned,
        runs_made=len(runs),
        is_interrupted=is_interrupted,
        arms=shown,
        measures=measures_of(shown, stated),
        switches=list(switches),
        differences=pod_differences,
        difference_count=count,
        difference_groups=groups,
        report=report,
        provenance=provenance,
        recordings=recordings,
    )
    comparison = msgspec.structs.replace(comparison, why_not_judged=_why_not_judged(comparison))
    return msgspec.structs.replace(comparison, result=headline(comparison))


def _why_not_judged(comparison: Comparison) -> str:
    """Return why nothing is judged: of few runs of real processes all signs are alike by chance alone, measure by
    measure, and what arms with the same switches differ by is scatter."""
    seeds = len(comparison.common_runs[0]) if comparison.common_runs else 0
    if comparison.is_simulated or len(comparison.arms) < 2:
        return ""
    if comparison.has_same_switches:
        return "the arms come to the same switches, so what differs is scatter"
    if seeds < SEEDS_MIN:
        runs = count_text(seeds, "seed")
        return f"real processes never run twice alike, and {runs} of them show no direction: --seeds {SEEDS_MIN} does"
    return ""


def _pairs(of_arms: Mapping[str, Sequence[ArmRun]]) -> list[tuple[int, str, Mapping[str, Fate], Mapping[str, Fate]]]:
    ended = {name: {each.run.seed: each for each in runs if not each.run.error} for name, runs in of_arms.items()}
    (_, firsts), *others = ended.items()
    return [
        (seed, name, firsts[seed].fates, each.fates)
        for name, runs in others
        for seed, each in runs.items()
        if seed in firsts
    ]


def measures_of(arms: Sequence[ArmRuns], stated: Sequence[register.Measure] = ()) -> list[Measure]:
    """Return every measure that occurs in a run, in the order of tables."""
    names = in_order(name for arm in arms for run in arm.runs for name in run.measures)
    return [_measure(describe_measure(name, stated), arms) for name in names]


def _measure(what: register.Measure, arms: Sequence[ArmRuns]) -> Measure:
    columns = [{run.seed: run.measures.get(what.name) for run in arm.runs if not run.error} for arm in arms]
    there = [{seed: value for seed, value in column.items() if value is not None} for column in columns]
    common = set.intersection(*(set(column) for column in columns)) if columns else set()
    is_equal = all(column[seed] == columns[0][seed] for column in columns for seed in common)
    compared = [
        summarize_differences(arm.name, [values[seed] - there[0][seed] for seed in values if seed in there[0]])
        for arm, values in zip(arms[1:], there[1:], strict=True)
    ]
    spreads = [spread_of(list(values.values())) for values in there]
    relevant = register.least_relevant(what, (each.median for each in spreads))
    is_small = bool(compared) and all(
        each.low is not None and each.high is not None and max(abs(each.low), abs(each.high)) < relevant
        for each in compared
    )
    state = "empty" if not any(there) else "equal" if is_equal and common else "small" if is_small else "differs"
    is_stated = not is_registered(what.name)
    return Measure(what.name, label_of(what), what.unit, what.better, state, spreads, compared, relevant, is_stated)
