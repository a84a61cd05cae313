"""The sentence on top of a comparison. Pure.

The rule by which it is chosen: where no measure, decision or pod differs, that is said, and what was compared. Else the
first measure that differs *clearly* (`Paired.is_clear`) is named, in the order of what a scenario measures by itself,
then `RANKS`: what became of pods and Jobs, then how long they waited, then what it cost; then the order of tables. With
it stand the medians, the difference within a seed with its interval, and in how many seeds it has that sign. Where
measures differ and none does clearly, that is the sentence. What limits all of it comes last: one seed shows no spread,
fewer than `SEEDS_MIN` have no interval, runs that did not end count nowhere."""

from typing import Final

from services.experiments.document import Comparison, Measure
from services.experiments.figures import Scale, is_registered, scale_of
from services.experiments.statistics import LEVEL, SEEDS_MIN, Paired
from services.experiments.words import counted

RANKS: Final = (
    "pods_failed",
    "jobs_failed",
    "pods_disturbed",
    "pods_running_at_end",
    "jobs_complete",
    "resizes_met",
    "victims",
    "evicted_cpu",
    "evicted_memory_gib",
    "rejected_to_running_p50_s",
    "time_to_running_p50_s",
    "time_to_running_p99_s",
    "time_to_resized_p50_s",
    "job_duration_p50_s",
    "first_running_s",
    "claim_unused_p50_s",
    "status_misleading_min",
    "status_missing_min",
    "status_stale_min",
    "gate_reason_seen_p50_s",
)
NONE_OF: Final = {
    "pods_failed": "no pod failed",
    "jobs_failed": "no Job failed",
    "pods_disturbed": "no pod that ran failed",
    "pods_running_at_end": "no pod runs at the end",
    "jobs_complete": "no Job is complete",
    "victims": "no pod was preempted",
    "unbinds": "no pod was unbound",
}
"""What it means when every run of an arm has 0."""
ARMS_MAX: Final = 4


def headline(made: Comparison) -> str:
    """Return the result, as sentences."""
    parts = [_interrupted(made), _result(made), *_limits(made)]
    return " ".join(part for part in parts if part)


def _interrupted(made: Comparison) -> str:
    if not made.is_interrupted:
        return ""
    return f"Interrupted after {made.runs_made:,} of {counted(made.runs_planned, 'run')}."


def _result(made: Comparison) -> str:
    common = made.common_runs
    seeds = len(common[0]) if common else 0
    if not seeds:
        return "There is nothing to compare: no seed came to its end in every arm."
    if len(made.arms) == 1:
        return f"One arm, {counted(seeds, 'seed')}: there is nothing to compare it with."
    if made.is_equal:
        return _no_difference(made, seeds)
    return _difference(made, seeds)


def _no_difference(made: Comparison, seeds: int) -> str:
    names = _listed([arm.name for arm in made.arms])
    runs = made.common_runs[0]
    measures = sum(measure.state == "equal" for measure in made.measures)
    pods, decisions = sum(run.pods for run in runs), sum(run.decisions for run in runs)
    equal = f"{counted(measures, 'measure')} and {counted(pods, 'pod')}"
    if made.is_simulated:
        equal = f"{counted(decisions, 'decision')}, {equal}"
        has_equal_digests = all(len({run.digest for run in each}) == 1 for each in zip(*made.common_runs, strict=True))
        equal += " are equal, and so are the digests of the event logs" if has_equal_digests else " are equal"
    else:
        equal += " are equal"
    first = f"No difference between {names}: in {counted(seeds, 'seed')} {equal}."
    if made.is_same and made.is_simulated:
        return (
            f"{first} The arms have the same switches and the same seeds, and the simulation is deterministic: "
            "whatever two arms of this scenario differ in comes from their switches, not from chance."
        )
    if made.is_same:
        return f"{first} The arms have the same switches, and processes add no scatter to what is measured here."
    if not any(row.differs for row in made.switches):
        same = "The arms come to the same switches: what one sets, the others have from the scenario or by default."
        return f"{first} {same}"
    return f"{first} Nothing in this scenario depends on {_switches(made)} with the values compared."


def _difference(made: Comparison, seeds: int) -> str:
    differing = made.differing()
    if made.is_undeterministic:
        what = f"{counted(len(differing), 'measure')} and {counted(made.difference_count, 'pod')} differ"
        return (
            f"The arms have the same switches, and yet {what}: the simulation is not deterministic, a defect of keplab."
        )
    clear = next((m for m in ranked(differing) if any(d.is_clear for d in m.differences)), None)
    if clear is None:
        return _unclear(made, differing, seeds)
    rest = len(differing) - 1
    equal = sum(m.state == "equal" for m in made.measures)
    more = counted(rest, "other measure differs", "other measures differ")
    others = f" {more}, {equal} do not." if rest else ""
    return f"{_sentence(made, clear)}{others}"


def ranked(measures: list[Measure]) -> list[Measure]:
    """Return measures in the order in which a reader cares: the rule is the module's."""

    def rank(measure: Measure) -> int:
        if not is_registered(measure.name):
            return -1
        return RANKS.index(measure.name) if measure.name in RANKS else len(RANKS)

    return sorted(measures, key=rank)


def _unclear(made: Comparison, differing: list[Measure], seeds: int) -> str:
    names = _listed([arm.name for arm in made.arms])
    if not differing:
        if made.difference_count:
            how = f"but {counted(made.difference_count, 'pod')} fared differently"
        else:
            how = "but the decisions on the way differ"
        return f"Between {names} no measure differs in {counted(seeds, 'seed')}, {how}."
    measure = ranked(differing)[0]
    found = next((d for d in measure.differences if d.higher + d.lower), measure.differences[0])
    scale = scale_of(measure.unit, [found.low, found.high])
    where = f"{_quoted(measure)} is higher with {found.arm} in {found.higher}"
    where += f" and lower in {found.lower} of {counted(found.seeds, 'seed')}"
    if found.interval is not None:
        where += f" (median difference {scale.text(found.median, signed=True)}, {_interval(found, scale)})"
    if not found.seeds:
        where = f"{_quoted(measure)} has a value in one arm alone"
    more = f"; {counted(len(differing) - 1, 'other measure')} differ as little" if len(differing) > 1 else ""
    return f"No clear difference between {names}: {where}{more}."


def _sentence(made: Comparison, measure: Measure) -> str:
    first = made.arms[0].name
    scale = scale_of(measure.unit, [value for each in measure.arms for value in (each.low, each.median, each.high)])
    base = scale.text(measure.arms[0].median)
    clear = sorted(measure.differences, key=lambda d: not d.is_clear)[:ARMS_MAX]
    texts = []
    for number, found in enumerate(clear):
        own = measure.arms[[arm.name for arm in made.arms].index(found.arm)]
        if not number:
            is_none = own.low == own.high == 0 and measure.name in NONE_OF
            what = f"{NONE_OF[measure.name]}: median" if is_none else f"{_quoted(measure)}: median"
            texts.append(f"With {found.arm}, {what} {scale.text(own.median)} instead of {base} with {first}")
        else:
            texts.append(f"with {found.arm}, {scale.text(own.median)}")
        texts[-1] += f" ({_evidence(found, scale, made)})"
    left = len(measure.differences) - len(clear)
    more = f"; {counted(left, 'more arm')} in the table" if left else ""
    return "; ".join(texts) + more + "."


def _evidence(found: Paired, scale: Scale, made: Comparison) -> str:
    difference = f"difference {scale.text(found.median, signed=True)}"
    if found.seeds == 1:
        return f"{difference}, seed {made.common_runs[0][0].seed}"
    if found.is_constant:
        return f"{difference} in each of {counted(found.seeds, 'seed')}"
    if found.interval is None:
        assert found.low is not None
        assert found.high is not None
        interval = scale.between(found.low, found.high, signed=True)
    else:
        interval = _interval(found, scale)
    way = "higher" if found.sign > 0 else "lower"
    return f"{difference}, {interval}, {way} in {found.holds_in} of {counted(found.seeds, 'seed')}"


def _interval(found: Paired, scale: Scale) -> str:
    assert found.interval is not None
    return f"{LEVEL:.0%} interval {scale.between(*found.interval, signed=True)}".replace("%", " %")


def _limits(made: Comparison) -> list[str]:
    found = []
    common = made.common_runs
    seeds = len(common[0]) if common else 0
    if len(made.arms) > 1 and seeds and not made.is_equal:
        if seeds == 1:
            found.append("One seed shows no spread: --seeds 20 does.")
        elif seeds < SEEDS_MIN:
            found.append(f"{seeds} seeds are too few for an interval: {SEEDS_MIN} or more have one.")
    for arm in made.arms:
        ended = [run.error for run in arm.runs if run.error]
        if ended:
            which = "All" if len(ended) == len(arm.runs) else f"{len(ended)} of {len(arm.runs)}"
            count = "counts" if len(ended) == 1 else "count"
            found.append(f"{which} runs of {arm.name} did not come to the end and {count} nowhere: {ended[0]}")
        if broken := sum(run.violations for run in arm.runs):
            found.append(f"{counted(broken, 'violation')} of invariants in {arm.name}.")
    return found


def _switches(made: Comparison) -> str:
    differing = [row.name for row in made.switches if row.differs]
    return _listed(differing) if differing else "what the arms set"


def _quoted(measure: Measure) -> str:
    return measure.label[:1].lower() + measure.label[1:] if measure.label[1:2].islower() else measure.label


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
