"""What a scenario may break, and how it is refused when it asks for what cannot be."""

import pytest

from lab.scenarios.run import load_scenario, simulate
from lab.scenarios.script.scenario import ScriptError
from lab.scenarios.switch_readers import switches_read_by
from services.api.switches import REGISTER

COMPONENTS = ("apiserver", "claim-controller", "controllers", "kubelet/h0", "kubelet/h1", "scheduler")


def scenario(tmp_path, line):
    path = tmp_path / "t.txt"
    path.write_text(f"# T\nnodes n1..n2 cpu=4\n{line}\n")
    return path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("link node/n1 cut=up", "cut=up: want requests, replies or both"),
        ("link node/n1 drop=pods", "drop=pods: want of lease"),
        ("link node/n1 speed=1s", "link has no option 'speed'; there are: cut, drop"),
        ("link node/n1 late=pods:1s", "late=pods: want of lease"),
        ("link node/n1 late=unbind", "'unbind': want key:value"),
        ("link kubelet/n1 late=unbind:1s", "late=unbind: kubelet/n1 has many callers, want link node/NAME late=…"),
        ("ended scheduler", "ended wants code=INTEGER: the exit code"),
        ("ended scheduler code=one", "code=one: want a whole number"),
        ("clock kubelet/n1 by=soon", "'soon' is no duration"),
        ("disk kubelet/n1 error=EBUSY", "error=EBUSY: want ENOSPC or EIO"),
        ("kill kubelet/n1 at=kubelet.start count=0", "count=0: want a number from 1"),
        ("kill", "kill wants COMPONENT, a component, a process or a glob"),
        ("pause kubelet/n1", "pause wants for=DURATION: how long"),
        ("starve * share=2 for=5s", "share=2: want more than 0 and less than 1"),
        ("corrupt kubelet/n1 how=away", "how=away: want missing, truncated or foreign"),
        ("restart", "restart wants COMPONENT, a component, a process or a glob"),
        ("restart scheduler with", "want: restart COMPONENT, or restart COMPONENT with SWITCH=VALUE …"),
        ("restart scheduler PodUnbinding=false", "want: restart COMPONENT, or restart COMPONENT with SWITCH=VALUE …"),
        ("restart node/n1 with PodUnbinding=false", "want: restart COMPONENT, or restart"),
        ("restart etcd with PodUnbinding=false", "no component 'etcd'; there are: apiserver, claim-controller,"),
        ("restart scheduler with PodUnbindin=false", "PodUnbindin"),
        ("restart scheduler with PodUnbinding=off", "switch PodUnbinding='off': want true or false"),
        ("restart kubelet/n1 with scheduler.reserve_fence=get",
         "switch scheduler.reserve_fence is not read by kubelet/n1; it is by scheduler"),
        ("hosts none", "'none': want a number from 1"),
        ("kill scheduler at=before:bind", "at=before:bind: no call is named 'bind'; want RESOURCE or RESOURCE/SUBRESOURCE"),
        ("kill scheduler at=after:pods/bindings", "no call is named 'pods/bindings' (did you mean pods/binding?)"),
        ("kill scheduler at=during:pods", "at=during:pods: want before: or after: and a call, not during:"),
        ("kill scheduler at=sched.bindcall", "scheduler never logs 'sched.bindcall' (did you mean sched.bind_call?)"),
        ("pause kubelet/n1 for=1s at=sched.assume", "at=sched.assume: kubelet never logs 'sched.assume'; want one of proc."),
        ("kill * at=started", "at=started: no component logs 'started'"),
    ],
)  # fmt: skip
def test_a_fault_that_cannot_be_is_refused_before_anything_starts(tmp_path, line, message):
    with pytest.raises(ScriptError, match=r"t\.txt:3: .*") as caught:
        load_scenario(scenario(tmp_path, line))

    assert message in str(caught.value)


@pytest.mark.parametrize(
    "site",
    [
        "before:pods/binding",
        "after:resourceclaims.resource.k8s.io/status",
        "before:widgets.example.com",
        "sched.assume",
    ],
)
def test_a_site_that_the_component_passes_or_may_pass_is_taken(tmp_path, site):
    assert load_scenario(scenario(tmp_path, f"kill scheduler at={site}")).steps[0].values["at"] == site


def started_with(result_lines, component):
    return [line.data["switches"] for line in result_lines if line.ev == "proc.start" and line.comp == component]


def played(tmp_path, *lines):
    path, log = tmp_path / "t.txt", []
    path.write_text("\n".join(("# T", "set reserved_for.mode=kep5194", "nodes n1..n2 cpu=4", *lines, "")))
    return simulate(load_scenario(path), seed=1, on_line=log.append), log


def test_a_restart_changes_the_switches_of_that_process_alone_and_for_its_later_lives(tmp_path):
    result, log = played(
        tmp_path,
        "restart kubelet/n1 with reserved_for.mode=pods",
        "restart kubelet/n1 with kubelet.recheck_on_restart=always",
        "kill kubelet/n1",
        "restart scheduler",
        "wait 5s",
    )

    assert result.error == ""
    assert result.failures == []
    off = ["kubelet.recheck_on_restart=always", "reserved_for.mode=pods"]
    assert started_with(log, "kubelet/h0") == [["reserved_for.mode=kep5194"], off[1:], off, off]
    for component, lives in (("kubelet/h1", 1), ("scheduler", 2), ("claim-controller", 1)):
        assert started_with(log, component) == [["reserved_for.mode=kep5194"]] * lives


def test_a_restart_goes_on_when_the_successor_is_ready_and_ends_a_pause_or_an_absence(tmp_path):
    result, _ = played(
        tmp_path,
        "pause scheduler for=300s",
        "restart scheduler",
        "kill claim-controller down=300s",
        "restart claim-controller",
        "restart apiserver",
        "pod p",
        "expect within 5s each pods name=p phase == Running",
    )

    assert (result.error, [j.text for j in result.expectations if not j.passed]) == ("", [])
    assert result.virtual_s < 10


def test_a_process_that_cannot_start_with_its_new_switches_is_one_line(tmp_path):
    result, _ = played(tmp_path, "restart kubelet/n1 with cpu.options=align-by-socket")

    assert result.is_mistake
    assert "t.txt:4: kubelet/h0 cannot start: " in result.error
    assert "\n" not in result.error


def test_a_component_that_the_scenario_does_not_have_is_one_line(tmp_path):
    result, _ = played(tmp_path, "restart scheduler-9 with reserved_for.mode=pods")

    assert result.error == f"{tmp_path}/t.txt:4: no component 'scheduler-9'; there are: {', '.join(COMPONENTS)}"


def test_every_switch_of_the_register_is_read_by_some_component():
    read = {name for component in ("apiserver", "scheduler", "controllers", "claim-controller", "kubelet")
            for name in switches_read_by(component)}  # fmt: skip

    assert {switch.name for switch in REGISTER} == read
    assert switches_read_by("dra-driver") == {"dra.double_allocation_guard", "emulate.version"}
    assert "dra.double_allocation_guard" not in switches_read_by("kubelet")
    assert "release.design" in switches_read_by("controllers")
