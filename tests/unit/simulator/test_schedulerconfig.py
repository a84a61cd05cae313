"""The configuration in force, as `GET /schedulerconfiguration` answers it."""

import pytest

from lab.simulator.schedulerconfig import SchedulerConfiguration
from services.api.switches import Switches


@pytest.mark.parametrize(
    ("given", "schedulers", "elects"),
    [
        ("", ("scheduler",), False),
        ("", ("scheduler-1", "scheduler-2"), None),
        ("leaderElection: {leaderElect: true}", ("scheduler",), True),
    ],
)
def test_leader_election_in_force_is_never_null(tmp_path, given, schedulers, elects):
    path = tmp_path / "scheduler.yaml"
    path.write_text(f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{given}\n")

    election = SchedulerConfiguration(path, tmp_path, schedulers, Switches()).in_force()["leaderElection"]

    assert election.get("leaderElect") is elects
    assert None not in election.values()
    assert "leaseDuration" in election
