"""A leader that was replaced while it was stopped: what it still sends does not count (FM-S2)."""

from pathlib import Path

from lab.scenarios.run import load_scenario, simulate

FOLDER = Path(__file__).parents[2] / "experiments" / "high-availability"


def _observed(name, seed):
    """Run a scenario; return its result and the event log."""
    lines = []

    async def listen(mesh, observer, observed):
        mesh.on_line(lines.append)
        await observed.wait()

    return simulate(
        load_scenario(FOLDER / f"{name}.txt"), seed=seed, disturb=lambda auditor, *rest: listen(*rest)
    ), lines


def test_fm_s2_the_late_binding_of_a_stopped_leader_is_refused_and_the_standby_led_in_time():
    result, lines = _observed("stopped-mid-bind", seed=3)
    (stopped_at,) = [line.mono_ns / 1e9 for line in lines if line.ev == "fault.inject"]
    led_at = [line.mono_ns / 1e9 for line in lines if line.ev == "lease.acquire" and line.mono_ns / 1e9 > stopped_at]
    late = [
        line.data["path"]
        for line in lines
        if line.ev == "api.response" and line.data.get("reason") == "StaleLeaseEpoch" and "binding" in line.data["path"]
    ]

    assert result.passed
    assert result.failures == [], "a leader that was replaced ends in good order"
    assert led_at[0] - stopped_at < 20
    assert len(late) == 1


def test_fm_s2_a_stopped_leader_is_the_same_run_for_the_same_seed():
    assert _observed("paused-leader", seed=5)[0].digest == _observed("paused-leader", seed=5)[0].digest
