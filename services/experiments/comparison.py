"""Make the document of a comparison of its runs. Pure."""

from collections.abc import Mapping, Sequence

import msgspec

from services.experiments.bands import bands_of
from services.experiments.document import (
    SCHEMA,
    SCHEMA_VERSION,
    ArmRun,
    ArmRuns,
    Comparison,
    Measure,
    Provenance,
    SwitchRow,
)
from services.experiments.fates import Fate, differences
from services.experiments.figures import described, in_order, label_of
from services.experiments.headline import headline
from services.experiments.statistics import paired, spread
from services.scenarios.measures import register


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
    """Return the document of these runs. `arms`: names with switches; `planned`: how many runs there were to be;
    `stated`: the measures that the scenario states."""
    of_arms: dict[str, list[ArmRun]] = {name: [] for name, _ in arms}
    for run in sorted(runs, key=lambda each: each.run.seed):
        of_arms[run.arm].append(run)
    shown = [
        ArmRuns(
            name, list(texts), [each.run for each in of_arms[name]], bands_of([each.samples for each in of_arms[name]])
        )
        for name, texts in arms
    ]
    found, count, groups = differences(_pairs(of_arms))
    made = Comparison(
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
        measures=measured(shown, stated),
        switches=list(switches),
        differences=found,
        difference_count=count,
        difference_groups=groups,
        report=report,
        provenance=provenance,
        recordings=recordings,
    )
    return msgspec.structs.replace(made, result=headline(made))


def _pairs(of_arms: Mapping[str, Sequence[ArmRun]]) -> list[tuple[int, str, Mapping[str, Fate], Mapping[str, Fate]]]:
    ended = {name: {each.run.seed: each for each in runs if not each.run.error} for name, runs in of_arms.items()}
    (_, firsts), *others = ended.items()
    return [
        (seed, name, firsts[seed].fates, each.fates)
        for name, runs in others
        for seed, each in runs.items()
        if seed in firsts
    ]


def measured(arms: Sequence[ArmRuns], stated: Sequence[register.Measure] = ()) -> list[Measure]:
    """Return every measure that a run has, in the order of tables."""
    names = in_order(name for arm in arms for run in arm.runs for name in run.measures)
    return [_measure(described(name, stated), arms) for name in names]


def _measure(what: register.Measure, arms: Sequence[ArmRuns]) -> Measure:
    columns = [{run.seed: run.measures.get(what.name) for run in arm.runs if not run.error} for arm in arms]
    there = [{seed: value for seed, value in column.items() if value is not None} for column in columns]
    common = set.intersection(*(set(column) for column in columns)) if columns else set()
    is_equal = all(column[seed] == columns[0][seed] for column in columns for seed in common)
    state = "empty" if not any(there) else "equal" if is_equal and common else "differs"
    compared = [
        paired(arm.name, [values[seed] - there[0][seed] for seed in values if seed in there[0]])
        for arm, values in zip(arms[1:], there[1:], strict=True)
    ]
    spreads = [spread(list(values.values())) for values in there]
    return Measure(what.name, label_of(what), what.unit, what.better, state, spreads, compared)
