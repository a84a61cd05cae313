"""The schedulers of a mesh and the flags each of them gets."""

import pytest

from services.runtime.components import SchedulerProcess


@pytest.mark.parametrize(
    ("process", "flags"),
    [
        (SchedulerProcess("scheduler"), ["--scheduler-name", "default-scheduler"]),
        (SchedulerProcess("scheduler-1", is_elected=True), ["--scheduler-name", "default-scheduler", "--leader-elect"]),
        (SchedulerProcess("scheduler-b", "b", config="c.yaml"), ["--scheduler-name", "b", "--config", "c.yaml"]),
    ],
)
def test_a_scheduler_is_elected_and_configured_only_where_it_is_asked_for(process, flags):
    assert flags == process.arguments
