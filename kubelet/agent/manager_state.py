"""The host's record of its nodes' static policies, and the check whether a node may start with it. Pure.

Exclusive CPUs and memory outlive a kubelet (they are in the pods' records). A policy, a machine or a
reservation that has changed meanwhile would not know what they mean, so Kubernetes refuses to start, and so
does the host. Only nodes with a static policy are recorded; another node that holds pods had none.
Source: kubelet 5.4; upstream `pkg/kubelet/cm/cpumanager/state/state_checkpoint.go`, `validateState` of both
managers.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from kubelet.managers.allocation import Allocation
from kubelet.managers.cpu_manager import CpuManager
from kubelet.managers.cpu_topology import format_cpus, parse_cpus
from kubelet.node.definition import NodeDefinition
from services.api.errors import UNREADABLE
from services.api.podresources import Amounts

FILE: Final = "managers.state"


class _State(msgspec.Struct, frozen=True, array_like=True):
    """The static policies of one node.

    `pool`: the CPUs that are shared as long as none is exclusive; `memory`: what pods may have, by NUMA node.
    """

    cpu_policy: str = "none"
    memory_policy: str = "None"
    pool: str = ""
    memory: tuple[Amounts, ...] = ()


_NOTHING = _State()


def is_readable(data: bytes | None) -> bool:
    """Whether the file can be decoded; an unreadable file counts as lost (FM-K5)."""
    try:
        msgspec.json.decode(data or b"{}", type=dict[str, _State])
    except UNREADABLE:
        return False
    return True


def restore_state(
    data: bytes | None,
    nodes: Sequence[NodeDefinition],
    held: Mapping[str, Sequence[Allocation]],
    *,
    lost: Collection[str] = (),
) -> bytes:
    """Return the new content of the file; b"" when there is nothing to record.

    `held`: the allocations of each node's pods. `lost`: nodes whose checkpoint is lost; for these, a missing
    entry does not mean that the node had no static policy. Raises: ValueError naming the node, and the
    configured and the old value.
    """
    can_read = is_readable(data)
    old = msgspec.json.decode(data or b"{}", type=dict[str, _State]) if can_read else {}
    new: dict[str, _State] = {}
    for node in nodes:
        allocations = held.get(node.name, ())
        had_none = bool(allocations) and can_read and node.name not in lost
        before = old.get(node.name, _NOTHING if had_none else None)
        try:
            now = _state(node)
            if before is not None:
                _check(node, before, now, allocations)
        except ValueError as error:
            raise ValueError(f"node {node.name}: {error}") from None
        if now != _NOTHING:
            new[node.name] = now
    gone = {name: state for name, state in old.items() if name not in {node.name for node in nodes}}
    kept = new | gone
    return msgspec.json.encode(dict(sorted(kept.items()))) if kept else b""


def _state(node: NodeDefinition) -> _State:
    has_memory = node.memory_policy == "Static"
    return _State(
        "static" if node.has_static_cpus else "none",
        node.memory_policy,
        format_cpus(_cpus(node).shared_cpus) if node.has_static_cpus else "",
        node.memory_by_numa().allocatable if has_memory else (),
    )


def _cpus(node: NodeDefinition) -> CpuManager:
    return CpuManager(node.machine(), options=node.cpu_choices, reserved=node.effective_reserved_cpus)


def _check(node: NodeDefinition, old: _State, new: _State, allocations: Sequence[Allocation]) -> None:
    if old.cpu_policy != new.cpu_policy:
        _refuse("CPU", f"could not restore state from checkpoint: {_differ(new.cpu_policy, old.cpu_policy)}")
    exclusive = {cpu for each in allocations for cpu in each.cpus}
    if node.has_static_cpus and (problem := _cpus_problem(_cpus(node), node, old, exclusive)):
        _refuse("CPU", problem)
    if old.memory_policy != new.memory_policy:
        text = _differ(new.memory_policy, old.memory_policy)
        _refuse("memory", f"could not restore state from checkpoint: [memorymanager] {text}")
    if old.memory != new.memory:
        text = f"[memorymanager] the expected machine state {_memory_text(new.memory)} is different from the real one"
        _refuse("memory", f"{text} {_memory_text(old.memory)}")


def _memory_text(memory: Sequence[Amounts]) -> str:
    """Return amounts by NUMA node as Go prints maps: `map[0:map[memory:1024] 1:map[memory:1024]]`."""
    kinds = (" ".join(f"{kind}:{amounts[kind]}" for kind in sorted(amounts)) for amounts in memory)
    return f"map[{' '.join(f'{numa}:map[{shown}]' for numa, shown in enumerate(kinds))}]"


def _cpus_problem(cpus: CpuManager, node: NodeDefinition, old: _State, exclusive: set[int]) -> str:
    shared = set(parse_cpus(old.pool)) - exclusive
    reserved, strict, pool = cpus.reserved, node.cpu_choices.strict_cpu_reservation, format_cpus(shared)
    if strict and (both := shared & reserved):
        return f'some of strictly reserved cpus: "{format_cpus(both)}" are present in defaultCpuSet: "{pool}"'
    if not strict and not reserved <= shared:
        return f'not all reserved cpus: "{format_cpus(reserved)}" are present in defaultCpuSet: "{pool}"'
    known = shared | exclusive | (reserved if strict else set())
    if known != set(cpus.machine.cpus):
        there = format_cpus(cpus.machine.cpus)
        return f'current set of available CPUs "{there}" doesn\'t match with CPUs in state "{format_cpus(known)}"'
    return ""


def _differ(configured: str, old: str) -> str:
    return f'configured policy "{configured}" differs from state checkpoint policy "{old}"'


def _refuse(manager: str, text: str) -> None:
    raise ValueError(
        f'{text}, please drain this node and delete the {manager} manager checkpoint file "{FILE}" '
        "before restarting Kubelet"
    )
