"""The headline of a comparison: one or more sentences. Pure.

It is chosen by this rule. First come the measures that the scenario states, whether they differ or not,
for that is its question. If no measure, decision or pod differs, the headline says so, and what was
compared. Otherwise, unless one of the scenario's own measures differs *clearly* (`Comparison.is_clear`),
it names the first measure that does. The order is that of `RANKS`: the fate of pods and Jobs, then
waiting times, then costs; then the order of tables. With the measure come the medians, the difference
within a seed with its interval, and the number of seeds with that sign. If measures differ but none
clearly, the headline says that. Few runs of real processes, and arms with the same switches, are not
judged: their figures have no direction. Limitations come last: one seed shows no spread, fewer than
`SEEDS_MIN` have no interval, many measures differ by chance, runs that did not finish count nowhere.
"""

from typing import Final

from lab.experiments.document import Comparison, Measure
from lab.experiments.figures import Scale, scale_of
from lab.experiments.statistics import LEVEL, SEEDS_MIN, Paired
from lab.experiments.wording import count_text

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
"""Sentence for each measure when every run of an arm has 0."""
ARMS_MAX: Final = 4
STATED_MAX: Final = 3
NUMBERS: Final = {3: "three", 4: "four", 5: "five", 6: "six"}
CHANCE: Final = 1.0 - LEVEL


def headline(made: Comparison) -> str:
    """Return the headline, as sentences."""
    parts = [_interruption_text(made), _result(made), *_limits(made)]
    return " ".join(part for part in parts if part)


def _interruption_text(made: Comparison) -> str:
    if not made.is_interrupted:
        return ""
    return f"Interrupted after {made.runs_made:,} of {count_text(made.runs_planned, 'run')}."


def _result(comparison: Comparison) -> str:
    common = comparison.common_runs
    seeds = len(common[0]) if common else 0
    if not seeds:
        return "There is nothing to compare: no seed came to its end in every arm."
    if len(comparison.arms) == 1:
        return f"One arm, {count_text(seeds, 'seed')}: there is nothing to compare it with."
    if comparison.is_equal:
        return _join_sentences(_answers(comparison), _no_difference(comparison, seeds))
    return _difference(comparison, seeds)


def _no_difference(comparison: Comparison, seeds: int) -> str:
    names = _join_names([arm.name for arm in comparison.arms])
    runs = comparison.common_runs[0]
    measures = sum(measure.state == "equal" for measure in comparison.measures)
    pods, decisions = sum(run.pods for run in runs), sum(run.decisions for run in runs)
    equal = f"{count_text(measures, 'measure')} and {count_text(pods, 'pod')}"
    if comparison.is_simulated:
        equal = f"{count_text(decisions, 'decision')}, {equal}"
        has_equal_digests = all(
            len({run.digest for run in each}) == 1 for each in zip(*comparison.common_runs, strict=True)
        )
        equal += " are equal, and so are the digests of the event logs" if has_equal_digests else " are equal"
    else:
        equal += " are equal"
    first = f"No difference between {names}: in {count_text(seeds, 'seed')} {equal}."
    if comparison.is_same and comparison.is_simulated:
        return (
            f"{first} The arms have the same switches and the same seeds, and the simulation is deterministic: "
            "whatever two arms of this scenario differ in comes from their switches, not from chance."
        )
    if comparison.is_same:
        return f"{first} The arms have the same switches, and processes add no scatter to what is measured here."
    if not any(row.differs for row in comparison.switches):
        same = "The arms come to the same switches: what one sets, the others have from the scenario or by default."
        return f"{first} {same}"
    return f"{first} Nothing in this scenario depends on {_switches(comparison)} with the values compared."


def _difference(comparison: Comparison, seeds: int) -> str:
    differing = comparison.differing()
    if comparison.is_undeterministic:
        changed = [each for each in comparison.measures if each.state in ("differs", "small")]
        what = f"{count_text(len(changed), 'measure')} and {count_text(comparison.difference_count, 'pod')} differ"
        return (
            f"The arms have the same switches, and yet {what}: the simulation is not deterministic, a defect of keplab."
        )
    if comparison.why_not_judged:
        return _join_sentences(_answers(comparison), _unjudged_text(comparison, differing, seeds))
    judged = [m for m in rank_measures(differing) if any(comparison.is_clear(m, d) for d in m.differences)]
    named = [each for each in differing if each.is_stated]
    if not judged:
        others = [each for each in differing if not each.is_stated]
        return _join_sentences(_answers(comparison), _unclear(comparison, others, seeds) if others or not named else "")
    if not judged[0].is_stated:
        named.append(judged[0])
    first = "" if judged[0].is_stated else _sentence(comparison, judged[0])
    return _join_sentences(_answers(comparison), first, _others(comparison, len(differing) - len(named)))


def _join_sentences(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _others(made: Comparison, rest: int) -> str:
    """Return how many measures differ that the sentence does not name, and how many do not."""
    equal = sum(m.state in ("equal", "small") for m in made.measures)
    return f"{count_text(rest, 'other measure differs', 'other measures differ')}, {equal} do not." if rest > 0 else ""


def _answers(made: Comparison) -> str:
    """Return what became of the measures that the scenario states: its question, whether they differ or not."""
    texts = [_answer(made, each) for each in made.measures if each.is_stated and each.state != "empty"]
    left = len(texts) - STATED_MAX
    more = f"{count_text(left, 'more measure')} of the scenario in the table." if left > 0 else ""
    return _join_sentences(*texts[:STATED_MAX], more)


def _answer(comparison: Comparison, measure: Measure) -> str:
    if measure.state == "differs":
        if any(comparison.is_clear(measure, each) for each in measure.differences):
            return _sentence(comparison, measure)
        return _without_direction(comparison, measure)
    scale = scale_of(measure.unit, [value for each in measure.arms for value in (each.low, each.median, each.high)])
    low, high = min(each.low or 0.0 for each in measure.arms), max(each.high or 0.0 for each in measure.arms)
    value = scale.text(measure.arms[0].median) + (f" ({scale.between(low, high)})" if low != high else "")
    arms = "both" if len(comparison.arms) == 2 else f"all {NUMBERS.get(len(comparison.arms), len(comparison.arms))}"
    by = f" by {scale.text(measure.relevant)} or more" if measure.state == "small" else ""
    return f"{measure.label} does not differ{by}: {value} in {arms} arms."


def _without_direction(comparison: Comparison, measure: Measure) -> str:
    """Return the figures of all arms, which are not judged."""
    scale = scale_of(measure.unit, [value for each in measure.arms for value in (each.low, each.median, each.high)])
    texts = []
    for arm, own in list(zip(comparison.arms, measure.arms, strict=True))[:ARMS_MAX]:
        spread = "" if own.low == own.high else f" ({scale.between(own.low or 0.0, own.high or 0.0)})"
        texts.append(f"{scale.text(own.median)}{spread} with {arm.name}" if own.seeds else f"no value with {arm.name}")
    left = len(comparison.arms) - len(texts)
    more = f" and {count_text(left, 'more arm')} in the table" if left else ""
    return f"{measure.label}: {_join_names(texts)}{more}."


def _unjudged_text(comparison: Comparison, differing: list[Measure], seeds: int) -> str:
    """Return what differs between runs of real processes of which nothing can be said."""
    runs = "One run" if seeds == 1 else f"{seeds} runs"
    others = [each for each in rank_measures(differing) if not each.is_stated]
    figures = _without_direction(comparison, others[0]) if others else ""
    why = f"{runs} of real processes an arm, no verdict: {comparison.why_not_judged}"
    size = " of this size" if comparison.has_same_switches and figures else ""
    return _join_sentences(f"{why}{size}.", figures, _others(comparison, len(others) - 1))


def rank_measures(measures: list[Measure]) -> list[Measure]:
    """Return measures in the order of importance to a reader, by the module's rule."""

    def rank(measure: Measure) -> int:
        if measure.is_stated:
            return -1
        return RANKS.index(measure.name) if measure.name in RANKS else len(RANKS)

    return sorted(measures, key=rank)


def _unclear(comparison: Comparison, differing: list[Measure], seeds: int) -> str:
    names = _join_names([arm.name for arm in comparison.arms])
    if not differing:
        if comparison.difference_count:
            how = f"but {count_text(comparison.difference_count, 'pod')} fared differently"
        else:
            how = "but the decisions on the way differ"
        return f"Between {names} no measure differs in {count_text(seeds, 'seed')}, {how}."
    measure = rank_measures(differing)[0]
    arm_difference = next((d for d in measure.differences if d.higher + d.lower), measure.differences[0])
    scale = scale_of(measure.unit, [arm_difference.low, arm_difference.high])
    where = f"{_inline_label(measure)} is higher with {arm_difference.arm} in {arm_difference.higher}"
    where += f" and lower in {arm_difference.lower} of {count_text(arm_difference.seeds, 'seed')}"
    if arm_difference.interval is not None:
        where += (
            f" (median difference {scale.text(arm_difference.median, signed=True)}, {_interval(arm_difference, scale)})"
        )
    if not arm_difference.seeds:
        where = f"{_inline_label(measure)} has a value in one arm alone"
    more = f"; {count_text(len(differing) - 1, 'other measure')} differ as little" if len(differing) > 1 else ""
    return f"No clear difference between {names}: {where}{more}."


def _sentence(comparison: Comparison, measure: Measure) -> str:
    first = comparison.arms[0].name
    scale = scale_of(measure.unit, [value for each in measure.arms for value in (each.low, each.median, each.high)])
    base = scale.text(measure.arms[0].median)
    clear = sorted(measure.differences, key=lambda d: not comparison.is_clear(measure, d))[:ARMS_MAX]
    middle = "" if max(each.seeds for each in measure.arms) == 1 else "median "
    texts = []
    for number, arm_difference in enumerate(clear):
        own = measure.arms[[arm.name for arm in comparison.arms].index(arm_difference.arm)]
        if not number:
            is_none = own.low == own.high == 0 and measure.name in NONE_OF
            what = f"{NONE_OF[measure.name]}: " if is_none else f"{_inline_label(measure)}: "
            texts.append(
                f"With {arm_difference.arm}, {what}{middle}{scale.text(own.median)} instead of {base} with {first}"
            )
        else:
            texts.append(f"with {arm_difference.arm}, {scale.text(own.median)}")
        texts[-1] += f" ({_evidence(arm_difference, scale, comparison)})"
    left = len(measure.differences) - len(clear)
    more = f"; {count_text(left, 'more arm')} in the table" if left else ""
    return "; ".join(texts) + more + "."


def _evidence(arm_difference: Paired, scale: Scale, comparison: Comparison) -> str:
    difference = f"difference {scale.text(arm_difference.median, signed=True)}"
    if arm_difference.seeds == 1:
        return f"{difference}, seed {comparison.common_runs[0][0].seed}"
    if arm_difference.is_constant:
        return f"{difference} in each of {count_text(arm_difference.seeds, 'seed')}"
    if arm_difference.interval is None:
        assert arm_difference.low is not None
        assert arm_difference.high is not None
        interval = scale.between(arm_difference.low, arm_difference.high, signed=True)
    else:
        interval = _interval(arm_difference, scale)
    way = "higher" if arm_difference.sign > 0 else "lower"
    return f"{difference}, {interval}, {way} in {arm_difference.holds_in} of {count_text(arm_difference.seeds, 'seed')}"


def _interval(found: Paired, scale: Scale) -> str:
    assert found.interval is not None
    return f"{LEVEL:.0%} interval {scale.between(*found.interval, signed=True)}".replace("%", " %")


def _limits(comparison: Comparison) -> list[str]:
    limits = []
    common = comparison.common_runs
    seeds = len(common[0]) if common else 0
    if len(comparison.arms) > 1 and seeds and not comparison.is_equal and not comparison.why_not_judged:
        if seeds == 1:
            limits.append("One seed shows no spread: --seeds 20 does.")
        elif seeds < SEEDS_MIN:
            limits.append(f"{seeds} seeds are too few for an interval: {SEEDS_MIN} or more have one.")
        limits += _by_chance(comparison, seeds)
    for arm in comparison.arms:
        ended = [run.error for run in arm.runs if run.error]
        if ended:
            which = "All" if len(ended) == len(arm.runs) else f"{len(ended)} of {len(arm.runs)}"
            count = "counts" if len(ended) == 1 else "count"
            limits.append(f"{which} runs of {arm.name} did not come to the end and {count} nowhere: {ended[0]}")
        if broken := sum(run.violations for run in arm.runs):
            limits.append(f"{count_text(broken, 'violation')} of invariants in {arm.name}.")
    return limits


def _by_chance(comparison: Comparison, seeds: int) -> list[str]:
    """Return how many of the differences would look clear by chance alone, where that is one or more."""
    compared = [d for m in comparison.differing() for d in m.differences if d.seeds > 1 and not d.is_constant]
    share = CHANCE if seeds >= SEEDS_MIN else 2 * 0.5**seeds
    if seeds == 1 or (count := round(share * len(compared))) < 1:
        return []
    would = count_text(count, "would look clear", "would look clear")
    return [f"Of {count_text(len(compared), 'difference')} about {would} by chance alone."]


def _switches(made: Comparison) -> str:
    differing = [row.name for row in made.switches if row.differs]
    return _join_names(differing) if differing else "what the arms set"


def _inline_label(measure: Measure) -> str:
    return measure.label[:1].lower() + measure.label[1:] if measure.label[1:2].islower() else measure.label


def _join_names(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
