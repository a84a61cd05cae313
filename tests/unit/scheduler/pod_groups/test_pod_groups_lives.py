"""Random lives of groups and pods: the queue stays whole, and a gang is never placed below its minimum."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler.cycle.result import ScheduleResult
from scheduler.pod_groups.queue import GroupInfo
from tests.unit.scheduler.pod_groups.test_pod_groups import Scene, a, group, member


class Life:
    """One world of three groups; every step something comes, goes or is tried."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.groups = {
            f"g{i}": group(f"g{i}", count=chance.choice([None, 1, 2, 3]), priority=chance.choice([0, 10, 50]))
            for i in range(3)
        }
        self.scene = Scene(
            *self.groups.values(),
            gang__generation=chance.choice(["W1", "W2", "W3"]),
            gang__group_preemption=chance.choice(["off", "cluster"]),
            gang__retry=chance.choice(["hints", "backoffOnly"]),
        ).nodes(*(f"n{i}" for i in range(chance.randint(1, 4))))
        self.pods: dict[str, Any] = {}
        self.now, self.made = 0.0, 0

    def step(self) -> None:
        self.now += self.chance.random()
        luck = self.chance.random()
        if luck < 0.35:
            self._come()
        elif luck < 0.5 and self.pods:
            self.scene.gone(self.pods.pop(self.chance.choice(sorted(self.pods))), now=self.now)
        else:
            queued = self.scene.pop(self.now)
            if queued is not None:
                (self._try_group if isinstance(queued.info, GroupInfo) else self._try_pod)(queued)

    def _come(self) -> None:
        self.made += 1
        name, cpu = f"p{self.made}", str(self.chance.randint(1, 3))
        of = self.groups[self.chance.choice(sorted(self.groups))]
        if self.chance.random() < 0.3:
            self.pods[name] = a.pod(name, cpu=cpu, priority=self.chance.choice([0, 5, 60]))
        else:
            self.pods[name] = member(name, of=of.metadata.name, cpu=cpu, priority=of.spec.priority)
        self.scene.see(self.pods[name], now=self.now)

    def _try_pod(self, queued: Any) -> None:
        result = self.scene.core.profiles.of(queued.info).cycle.schedule(queued.info, self.now)
        if isinstance(result, ScheduleResult):
            self.scene.cache.assume(queued.info, result.node_name, result.state)
            self._bound(queued, result.node_name)
        else:
            self.scene.queue.add_unschedulable(queued, self.now, rejectors=("NodeResourcesFit",))

    def _try_group(self, entity: Any) -> None:
        scene, placed_before = self.scene, len(self.scene.cache.pods)
        assert scene.core.group_cycle is not None
        result = scene.core.group_cycle.run(entity.info, self.now)
        placed = {uid for uid in scene.handle.groups.uids(entity.info.group) if uid in scene.cache.pods}
        assert len(scene.cache.pods) - placed_before == len(result.placed), "something was left of a failed placement"
        assert not result.placed or len(placed) >= self.groups[entity.info.group.name].spec.min_count
        scene.settle(entity, result, self.now)
        for each in result.placed:
            if self.chance.random() < 0.2:
                scene.cache.forget(each.member.uid)
                scene.queue.add_unschedulable(each.member, self.now)
            else:
                self._bound(each.member, each.node_name)

    def _bound(self, queued: Any, node: str) -> None:
        old = queued.info.pod
        self.pods[queued.key.name] = new = replace(old, spec=replace(old.spec, node_name=node))
        self.scene.core.handlers.on_pod(old, new, self.now)
        self.scene.queue.on_bound(queued)

    def problems(self) -> list[str]:
        """Return what is wrong with the queue."""
        queue, seen, found = self.scene.queue, set(), []
        for entity in queue.entities():
            if not entity.info.members:
                found.append(f"{entity.key} is queued without members")
            for uid, each in entity.info.members.items():
                if uid in seen:
                    found.append(f"{uid} is in two groups")
                if uid in self.scene.cache.pods:
                    found.append(f"{uid} waits and has a node")
                if queue.get(each.key) is not each:
                    found.append(f"{each.key} is not found by its key")
                seen.add(uid)
        inside = [entry for entry in (*queue.entities(), *(q for q in queue.all() if q.uid not in seen)) if entry.pool]
        if sum(queue.pools.values()) != len(inside):
            found.append(f"{queue.pools} are counted, and {len(inside)} are in pools")
        waiting = {name for name, pod in self.pods.items() if not pod.spec.node_name}
        if waiting != (queued := {q.key.name for q in queue.all()}):
            found.append(f"{waiting} wait, and {queued} are queued")
        return found


@pytest.mark.parametrize("seed", range(40))
def test_in_any_life_the_queue_is_whole_and_no_gang_is_placed_in_part(seed):
    life = Life(seed)
    for _ in range(100):
        life.step()
        assert [] == life.problems()
