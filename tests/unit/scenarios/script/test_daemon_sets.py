"""What a scenario may say of DaemonSets, and when one is at rest."""

import pytest

import lab.scenarios.script.workload as workload
from lab.scenarios.invariants import unrest_of


def stored(kind="RollingUpdate", **status):
    document = workload.daemon_set("agent", {"strategy": kind})
    return {
        **document,
        "status": {"desiredNumberScheduled": 2, "numberReady": 2, "updatedNumberScheduled": 2, **status},
    }


def test_with_surge_no_node_may_be_without_unless_said():
    spec = workload.daemon_set("agent", {"surge": "10%", "history": "3", "host-network": "true"})["spec"]

    assert spec["updateStrategy"] == {"rollingUpdate": {"maxSurge": "10%", "maxUnavailable": 0}}
    assert spec["revisionHistoryLimit"] == 3
    assert spec["template"]["spec"]["hostNetwork"] is True
    assert workload.daemon_set("agent", {"unavailable": "2"})["spec"]["updateStrategy"] == {
        "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 2}}  # fmt: skip
    with pytest.raises(ValueError, match="daemonset has no option 'replicas'"):
        workload.daemon_set("agent", {"replicas": "2"})


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (stored(), []),
        (stored(numberReady=1), ["1 of 2 nodes are ready at rest"]),
        (stored(updatedNumberScheduled=0), ["0 of 2 nodes are up to date at rest"]),
        (stored("OnDelete", updatedNumberScheduled=0), []),
    ],
)
def test_a_daemon_set_is_at_rest_when_every_node_is_ready_and_up_to_date_if_it_rolls(document, why):
    assert [detail for _, detail in unrest_of({"daemonsets.apps": [document]})] == why
