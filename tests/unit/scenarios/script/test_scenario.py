"""Reading a scenario: what it means, and what it says when it means nothing."""

import pytest

from lab.scenarios.run import load_scenario, plan_of
from lab.scenarios.script.scenario import ScriptError, parse_scenario
from lab.scenarios.script.value_types import parse_duration, parse_names
from lab.scenarios.script.verbs import VERBS

SCENARIO = """# The title
# and why.
set kubelet.on_reject=unbind
limit 90s
nodes n1..n3 cpu=4 labels=zone:a
pod web cpu=1 run="exit 0 after 5s"
kill kubelet/n1 down=2s
expect within 5s count pods phase=Running|Failed == 1
"""


def test_a_scenario_is_read_into_setting_and_steps():
    scenario = parse_scenario(SCENARIO, "dir/tale.txt", VERBS)

    assert ("tale", "The title", "and why.", 90.0) == (scenario.name, scenario.title, scenario.about, scenario.limit_s)
    assert ("kubelet.on_reject=unbind",) == scenario.switches
    assert ("n1", "n2", "n3") == scenario.nodes[0].names
    assert {"cpu": "1", "run": "exit 0 after 5s"} == scenario.steps[0].options
    assert ("kubelet/n1",) == scenario.steps[1].args
    assert ("within", 5.0, "count", "pods") == (
        scenario.steps[2].expectation.mode,
        scenario.steps[2].expectation.duration_s,
        scenario.steps[2].expectation.what,
        scenario.steps[2].expectation.resource,
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("dance", "no verb 'dance'"),
        ("pod web cpu=1 cpu=2", "option cpu is given twice"),
        ("expect count nothings == 1", "no resource is called 'nothings'"),
        ("expect count pods phase == x", "compares with a whole number"),
        ("expect within soon count pods == 1", "'soon' is no duration"),
        ("expect each pods == 1", "wants a path"),
        ("expect count pods ~~ 1", "'~~' is no comparison"),
        ("nodes n4..m9 cpu=1", "is no range"),
        ("nodes n1..2 cpu=1", "is no range"),
        ("schedulers two", "want for example schedulers 2"),
        ("schedulers 0", "want at least one scheduler"),
        ("schedulers 2 elect=maybe", "elect=maybe"),
        ("scheduler default-scheduler", "want names of their own"),
        ("window long", "'long' is no duration"),
    ],
)
def test_a_line_that_means_nothing_is_named_with_its_place(line, message):
    with pytest.raises(ScriptError, match=r"t\.txt:2: .*") as caught:
        parse_scenario(f"# t\n{line}\npod x\n", "t.txt", VERBS)

    assert message in str(caught.value)


def test_setting_belongs_before_the_first_act():
    with pytest.raises(ScriptError, match="belongs before the first act"):
        parse_scenario("pod x\nset a=b\n", "t.txt", VERBS)


def test_a_scenario_without_acts_is_refused():
    with pytest.raises(ScriptError, match="nothing happens"):
        parse_scenario("# only words\nnodes n1 cpu=1\n", "t.txt", VERBS)


def test_a_node_declared_twice_is_refused_with_both_places():
    with pytest.raises(ScriptError, match=r"t.txt:2: node n1 is already declared on line 1"):
        parse_scenario("node n1 cpu=1\nnodes n1..n2 cpu=1\npod x\n", "t.txt", VERBS)


def test_names_and_durations_are_spelled_briefly():
    assert ("n08", "n09", "n10", "x") == parse_names("n08..n10,x")
    assert [0.2, 5.0, 120.0] == [parse_duration(text) for text in ("200ms", "5s", "2m")]


def test_one_process_may_have_switches_of_its_own(tmp_path):
    path = tmp_path / "t.txt"
    path.write_text(
        "# T\nset PodUnbinding=true\nset scheduler-1: PodUnbinding=false\nschedulers 2\nwindow 5s\nwait 1s\n"
    )

    plan = plan_of(load_scenario(path), seed=1)

    assert plan.window_s == 5.0
    have = {name: plan.switches_of(name).flag("PodUnbinding") for name in ("scheduler-1", "scheduler-2", "apiserver")}
    assert have == {"scheduler-1": False, "scheduler-2": True, "apiserver": True}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("set absent: PodUnbinding=false", "t.txt: set absent: no process or component is called so; want apiserver"),
        ("set scheduler: PodUnbindin=false", "t.txt:2: no switch is called 'PodUnbindin'; did you mean PodUnbinding"),
        ("set scheduler: PodUnbinding", "t.txt:2: 'PodUnbinding': want NAME=VALUE"),
        ("set PodUnbinding=off", "t.txt:2: switch PodUnbinding='off': want true or false"),
        ("set scheduler:", "t.txt:2: want: set scheduler: SWITCH=VALUE …"),
        ("set", "t.txt:2: want: set [COMPONENT:] SWITCH=VALUE …"),
        (
            "set scheduler-second reserved_for.mode=pods",
            "t.txt:2: set 'scheduler-second': want SWITCH=VALUE; to set it in one component or process, write",
        ),
    ],
)
def test_a_switch_for_no_component_or_of_no_name_is_refused_before_anything_starts(tmp_path, line, message):
    path = tmp_path / "t.txt"
    path.write_text(f"# T\n{line}\nwait 1s\n")

    with pytest.raises(ScriptError) as caught:
        plan_of(load_scenario(path), seed=1)

    assert message in str(caught.value)


def test_replicas_elect_a_leader_and_other_schedulers_stand_beside_them():
    scenario = parse_scenario("schedulers 2\nscheduler second\npod x\n", "t.txt", VERBS)
    unelected = parse_scenario("schedulers 2 elect=off\npod x\n", "t.txt", VERBS)

    assert [(p.name, p.scheduler_name, p.is_elected) for p in scenario.schedulers.processes()] == [
        ("scheduler-1", "default-scheduler", True),
        ("scheduler-2", "default-scheduler", True),
        ("scheduler-second", "second", False),
    ]
    assert [p.is_elected for p in unelected.schedulers.processes()] == [False, False]
    assert [p.name for p in parse_scenario("pod x\n", "t.txt", VERBS).schedulers.processes()] == ["scheduler"]
