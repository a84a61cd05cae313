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
from lab.experiments.wording import counted

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
        return _joined(_stated(made), _no_difference(made, seeds))
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
        changed = [each for each in made.measures if each.state in ("differs", "small")]
        what = f"{counted(len(changed), 'measure')} and {counted(made.difference_count, 'pod')} differ"
        return (
            f"The arms have the same switches, and yet {what}: the simulation is not deterministic, a defect of keplab."
        )
    if made.why_not_judged:
        return _joined(_stated(made), _unjudged(made, differing, seeds))
    judged = [m for m in ranked(differing) if any(made.is_clear(m, d) for d in m.differences)]
    named = [each for each in differing if each.is_stated]
    if not judged:
        others = [each for each in differing if not each.is_stated]
        return _joined(_stated(made), _unclear(made, others, seeds) if others or not named else "")
    if not judged[0].is_stated:
        named.append(judged[0])
    first = "" if judged[0].is_stated else _sentence(made, judged[0])
    return _joined(_stated(made), first, _others(made, len(differing) - len(named)))


def _joined(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _others(made: Comparison, rest: int) -> str:
    """Return how many measures differ that the sentence does not name, and how many do not."""
    equal = sum(m.state in ("equal", "small") for m in made.measures)
    return f"{counted(rest, 'other measure differs', 'other measures differ')}, {equal} do not." if rest > 0 else ""


def _stated(made: Comparison) -> str:
    """Return what became of the measures that the scenario states: its question, whether they differ or not."""
    texts = [_answer(made, each) for each in made.measures if each.is_stated and each.state != "empty"]
    left = len(texts) - STATED_MAX
    more = f"{counted(left, 'more measure')} of the scenario in the table." if left > 0 else ""
    return _joined(*texts[:STATED_MAX], more)


def _answer(made: Comparison, measure: Measure) -> str:
    if measure.state == "differs":
        if any(made.is_clear(measure, each) for each in measure.differences):
            return _sentence(made, measure)
        return _without_direction(made, measure)
    scale = scale_of(measure.unit, [value for each in measure.arms for value in (each.low, each.median, each.high)])
    low, high = min(each.low or 0.0 for each in measure.arms), max(each.high or 0.0 for each in measure.arms)
    value = scale.text(measure.arms[0].median) + (f" ({scale.between(low, high)})" if low != high else "")
    arms = "both" if len(made.arms) == 2 else f"all {NUMBERS.get(len(made.arms), len(made.arms))}"
    by = f" by {scale.text(measure.relevant)} or more" if measure.state == "small" else ""
    return f"{measure.label} does not differ{by}: {value} in {arms} arms."


def _without_direction(made: Comparison, measure: Measure) -> str:
    """Return the figures of all arms, which are not judged."""
    scale = scale_of(measure.unit, [value for each in measure.arms for value in (each.low, each.median, each.high)])
    texts = []
    for arm, own in list(zip(made.arms, measure.arms, strict=True))[:ARMS_MAX]:
        spread = "" if own.low == own.high else f" ({scale.between(own.low or 0.0, own.high or 0.0)})"
        texts.append(f"{scale.text(own.median)}{spread} with {arm.name}" if own.seeds else f"no value with {arm.name}")
    left = len(made.arms) - len(texts)
    more = f" and {counted(left, 'more arm')} in the table" if left else ""
    return f"{measure.label}: {_listed(texts)}{more}."


def _unjudged(made: Comparison, differing: list[Measure], seeds: int) -> str:
    """Return what differs between runs of real processes of which nothing can be said."""
    runs = "One run" if seeds == 1 else f"{seeds} runs"
    others = [each for each in ranked(differing) if not each.is_stated]
    figures = _without_direction(made, others[0]) if others else ""
    why = f"{runs} of real processes an arm, no verdict: {made.why_not_judged}"
    size = " of this size" if made.has_same_switches and figures else ""
    return _joined(f"{why}{size}.", figures, _others(made, len(others) - 1))


def ranked(measures: list[Measure]) -> list[Measure]:
    """Return measures in the order of importance to a reader, by the module's rule."""

    def rank(measure: Measure) -> int:
        if measure.is_stated:
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
    clear = sorted(measure.differences, key=lambda d: not made.is_clear(measure, d))[:ARMS_MAX]
    middle = "" if max(each.seeds for each in measure.arms) == 1 else "median "
    texts = []
    for number, found in enumerate(clear):
        own = measure.arms[[arm.name for arm in made.arms].index(found.arm)]
        if not number:
            is_none = own.low == own.high == 0 and measure.name in NONE_OF
            what = f"{NONE_OF[measure.name]}: " if is_none else f"{_quoted(measure)}: "
            texts.append(f"With {found.arm}, {what}{middle}{scale.text(own.median)} instead of {base} with {first}")
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
    if len(made.arms) > 1 and seeds and not made.is_equal and not made.why_not_judged:
        if seeds == 1:
            found.append("One seed shows no spread: --seeds 20 does.")
        elif seeds < SEEDS_MIN:
            found.append(f"{seeds} seeds are too few for an interval: {SEEDS_MIN} or more have one.")
        found += _by_chance(made, seeds)
    for arm in made.arms:
        ended = [run.error for run in arm.runs if run.error]
        if ended:
            which = "All" if len(ended) == len(arm.runs) else f"{len(ended)} of {len(arm.runs)}"
            count = "counts" if len(ended) == 1 else "count"
            found.append(f"{which} runs of {arm.name} did not come to the end and {count} nowhere: {ended[0]}")
        if broken := sum(run.violations for run in arm.runs):
            found.append(f"{counted(broken, 'violation')} of invariants in {arm.name}.")
    return found


def _by_chance(made: Comparison, seeds: int) -> list[str]:
    """Return how many of the differences would look clear by chance alone, where that is one or more."""
    compared = [d for m in made.differing() for d in m.differences if d.seeds > 1 and not d.is_constant]
    share = CHANCE if seeds >= SEEDS_MIN else 2 * 0.5**seeds
    if seeds == 1 or (count := round(share * len(compared))) < 1:
        return []
    would = counted(count, "would look clear", "would look clear")
    return [f"Of {counted(len(compared), 'difference')} about {would} by chance alone."]


def _switches(made: Comparison) -> str:
    differing = [row.name for row in made.switches if row.differs]
    return _listed(differing) if differing else "what the arms set"


def _quoted(measure: Measure) -> str:
    return measure.label[:1].lower() + measure.label[1:] if measure.label[1:2].islower() else measure.label


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
