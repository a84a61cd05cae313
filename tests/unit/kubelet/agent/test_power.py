"""What a node's power keeps alive."""

import asyncio

from kubelet.agent.journal import Journal
from kubelet.agent.power import Power
from services.runtime.real import MemoryDisk


class ANode:
    is_off = False
    name = "n1"


def test_a_process_that_is_ending_begins_no_work():
    begun = []

    async def work():
        begun.append("work")

    async def fail():
        raise ValueError

    async def life():
        disk = MemoryDisk()
        power = Power(
            [],
            lambda place: ANode(),
            journal=Journal(disk, frozenset()),
            disk=disk,
            clock=None,
            on_new=lambda node: None,
        )
        try:
            async with asyncio.TaskGroup() as group:
                power.begin(group)
                group.create_task(fail())
                try:
                    await asyncio.Event().wait()
                finally:
                    power.start(ANode(), work())  # a timer that is due before the process is over
        except* ValueError:
            pass

    asyncio.run(life())

    assert begun == []
