"""One device, two claims, two pods, one scheduler, as processes with delays and kills between the claim's writes (AS-31).

`--repeats 200` runs them as often as guarantees 13 asks for; one after the other takes about an hour.
"""

import random

from lab.scenarios.run import run_as_processes
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS
from tests.scenarios.test_one_device import CLAIMS, SITES, findings

SCENARIO = """
limit 240s
nodes n1 cpu=16 drivers=gpu.example.com:1
apply gpus.yaml
wait 1s
link scheduler watch-delay={watch}ms slow={slow}ms
kill scheduler at={site}
pod a claim-templates=gpu run="exit 0 after 1s" restart=Never grace=1
wait {gap}ms
pod b claim-templates=gpu run="exit 0 after 1s" restart=Never grace=1
expect within 60s each pods phase == Succeeded
expect within 30s count resourceclaims == 0
"""


def test_as_31_one_scheduler_that_is_killed_never_gives_a_device_twice(repeat, tmp_path):
    chance = random.Random(f"as-31/processes/{repeat}")
    text = SCENARIO.format(
        watch=chance.randrange(200),
        slow=chance.randrange(20),
        site=SITES[repeat % len(SITES)],
        gap=chance.randrange(200),
    )
    scenario = parse_scenario(text, str(CLAIMS / "one-device.txt"), VERBS)
    lines = []

    result = run_as_processes(scenario, seed=repeat, engine="memory", data_dir=tmp_path / "mesh", on_line=lines.append)

    assert [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed] == []
    assert (result.violations, result.error) == ([], "")
    assert findings(lines) == (0, 0)
    assert len([line for line in lines if line.ev == "driver.prepare"]) >= 2
    assert len([line for line in lines if line.ev == "proc.start" and line.comp == "scheduler"]) == 2
