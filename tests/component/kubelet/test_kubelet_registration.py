"""Registration of a host's nodes: so many at once, whatever their number."""

from lab.scenarios.simulation import simloop
from tests.component.kubelet.conftest import World

NODES, AT_ONCE = 12, 3


def test_no_more_nodes_register_at_once_than_the_api_server_answers_soon(monkeypatch):
    monkeypatch.setattr("kubelet.agent.host.REGISTERING_MAX", AT_ONCE)

    async def scenario():
        nodes = [{"name": f"n{number}", "cpu": "4", "memory": "8Gi", "pods": 110} for number in range(NODES)]
        async with World(nodes) as world:
            return [line.data["acked"] for line in world.events.lines if line.ev == "kubelet.session"]

    acked = simloop.run(scenario(), seed=1)

    under_way = [acked[:count].count(False) - acked[:count].count(True) for count in range(len(acked) + 1)]
    assert (NODES, 0) == (acked.count(True), under_way[-1])
    assert AT_ONCE == max(under_way)
