"""Runs and comparisons for the tests of this folder."""

from lab.experiments.comparison import comparison_of
from lab.experiments.document import ArmRun, Provenance, Run, SwitchRow
from lab.experiments.fates import Fate

FAIL, UNBIND = ("fail", ("kubelet.on_reject=fail",)), ("unbind", ("kubelet.on_reject=unbind",))
A, B = ("a", ()), ("b", ())
PROVENANCE = Provenance(
    command="keplab compare s.txt --arm fail --arm unbind",
    scenario_path="experiments/s.txt",
    scenario_sha256="5ca1ab1e" * 8,
    revision="c0ffee" * 6,
    is_dirty=False,
    version="1.2",
    python="3.11.7",
    platform="Linux-6-x86_64",
    cpus=2,
    workers=2,
    started="2026-11-23T13:00:00+00:00",
    wall_s=12.34,
    load_1min=0.5,
)


def a_run(arm, seed=0, fates=(), samples=(), decisions="d", **measures):
    run = Run(
        seed,
        digest="d1g357" * 8,
        measures=measures,
        pods=len(fates),
        decisions=7,
        decisions_digest=decisions,
        virtual_s=10.0,
        wall_s=1.0,
    )
    return ArmRun(arm, run, {role: Fate(*fate) for role, fate in dict(fates).items()}, list(samples))


def a_failed_run(arm, seed=0, error="line 3: no such node"):
    return ArmRun(arm, Run(seed, passed=False, error=error, measures={"pods_failed": 99.0}))


def compared(runs, arms=(FAIL, UNBIND), **more):
    switches = [SwitchRow("kubelet.on_reject", "fail", ["fail", "unbind"], True, "what the kubelet does")]
    given = {
        "planned": len(runs),
        "mode": "simulated",
        "scenario": "s <1>",
        "title": "A & B",
        "about": "about <it>",
        "switches": switches if arms == (FAIL, UNBIND) else [],
        "provenance": PROVENANCE,
        "report": "runs/s.html",
    }
    return comparison_of(arms, runs, **{**given, **more})


def seeds_of(first, other, name="pods_failed", arms=("fail", "unbind")):
    """Return runs whose measure has these values, a seed each."""
    pairs = enumerate(zip(first, other, strict=True))
    return [a_run(arm, seed, **{name: value}) for seed, pair in pairs for arm, value in zip(arms, pair, strict=True)]
