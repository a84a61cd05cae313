"""One device, two claims, two pods: who gives it twice, by how many schedulers there are and what guards it (AS-31).

`--repeats 10` runs what guarantees 13 asks for: 10,000 seeds with one scheduler, 200 with two.
"""

import random
from pathlib import Path

from lab.scenarios.run import simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS

CLAIMS = Path(__file__).parents[2] / "experiments" / "claims"
SEEDS, SEEDS_IN_FULL = 20, 1000
"""Seeds a repeat; in full those with one scheduler, when there are several repeats."""
CLAIM = "resourceclaims.resource.k8s.io"
SITES = (f"before:{CLAIM}", f"after:{CLAIM}", f"before:{CLAIM}/status", f"after:{CLAIM}/status", "before:pods/binding")
SCENARIO = """
limit 120s
{second}
nodes n1 cpu=16 drivers=gpu.example.com:1
apply gpus.yaml
wait 1s
{faults}
pod a claim-templates=gpu grace=1
wait {gap}ms
pod b claim-templates=gpu grace=1 {scheduler}
wait 20s
delete pod/a
gone pod/a
wait 20s
"""


def scenario_of(seed, *, is_alone):
    """Return the scenario with the delays, and in every second seed the kill, that this seed draws."""
    chance = random.Random(f"as-31/{seed}")
    schedulers = ["scheduler"] if is_alone else ["scheduler", "scheduler-second"]
    faults = [f"link {name} watch-delay={chance.randrange(200)}ms slow={chance.randrange(20)}ms" for name in schedulers]
    if seed % 2:
        faults.append(f"kill {chance.choice(schedulers)} at={chance.choice(SITES)}")
    text = SCENARIO.format(
        second="" if is_alone else "scheduler second",
        scheduler="" if is_alone else "scheduler=second",
        faults="\n".join(faults),
        gap=chance.randrange(200),
    )
    return parse_scenario(text, str(CLAIMS / "one-device.txt"), VERBS)


def findings(lines):
    """Return how often the device was granted, and prepared, for a claim while another had it. Not by I6 and I7, which
    only count where several schedulers run unguarded."""
    granted, prepared, grants, prepares = {}, {}, 0, 0
    for line in lines:
        if line.ev == "store.commit" and line.obj["kind"] == "ResourceClaim":
            uid, devices = line.obj["uid"], line.data.get("granted") or ()
            gone = line.data["type"] == "DELETED"
            grants += bool(devices and uid not in granted and granted and not gone)
            granted.pop(uid, None)
            granted |= {uid: None} if devices and not gone else {}
        elif line.ev == "driver.prepare":
            prepares += bool(line.data["claim"] not in prepared and prepared)
            prepared[line.data["claim"]] = None
        elif line.ev == "driver.unprepare":
            prepared.pop(line.data["claim"], None)
    return grants, prepares


def count(repeat, *, is_alone, guard="none", seeds=SEEDS):
    """Return the double grants and prepares of this repeat's seeds, and what invariants found."""
    grants, prepares, kills, broken = 0, 0, 0, []
    for seed in range(repeat * seeds, (repeat + 1) * seeds):
        lines = []
        scenario = scenario_of(seed, is_alone=is_alone)
        overrides = {"dra.double_allocation_guard": guard}
        result = simulate(scenario, seed=seed, overrides=overrides, on_line=lines.append)
        assert result.error == ""
        assert any(line.ev == "driver.prepare" for line in lines)
        starts = len([line for line in lines if line.ev == "proc.start" and line.comp.startswith("scheduler")])
        kills += starts - (1 if is_alone else 2)
        found = findings(lines)
        grants, prepares = grants + found[0], prepares + found[1]
        broken += [f"seed {seed}: {violation.invariant} {violation.detail}" for violation in result.violations]
    # Of two schedulers, the one that is refused comes to none of its later writes.
    assert (kills == seeds // 2) if is_alone else (kills > seeds // 4), f"{kills} kills came in {seeds} runs"
    return grants, prepares, broken


def test_as_31_one_scheduler_never_gives_a_device_twice(repeat, pytestconfig):
    seeds = SEEDS_IN_FULL if pytestconfig.getoption("repeats") > 1 else SEEDS

    assert count(repeat, is_alone=True, seeds=seeds) == (0, 0, [])


def test_as_31_two_schedulers_without_a_guard_give_it_twice(repeat):
    grants, prepares, broken = count(repeat, is_alone=False)

    assert (grants > 0, prepares > 0, broken) == (True, True, [])


def test_as_31_a_driver_that_guards_prepares_nothing_twice(repeat):
    grants, prepares, broken = count(repeat, is_alone=False, guard="driver")

    assert (grants > 0, prepares, broken) == (True, 0, [])


def test_as_31_an_api_server_that_guards_leaves_no_finding(repeat):
    assert count(repeat, is_alone=False, guard="apiserver") == (0, 0, [])
