"""The options of the CPU manager's and topology manager's policies, as in a kubelet's configuration. Pure.

Options with which Kubernetes refuses to start are refused here, in its words. Source: kubelet 5.3, 5.4;
KEP-2625, KEP-2902, KEP-3545, KEP-4540, KEP-4176, KEP-4800; upstream
`pkg/kubelet/cm/cpumanager/policy_options.go`, `pkg/kubelet/cm/topologymanager/policy_options.go`.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

NUMA_NODES_MAX: Final = 8
"""Maximal number of NUMA nodes for a kubelet with a topology policy.

With more it refuses to start, unless it is configured to go on.
"""

ALPHA_GATE: Final = "CPUManagerPolicyAlphaOptions"
BETA_GATE: Final = "CPUManagerPolicyBetaOptions"
_ALPHA: Final = ("align-by-socket", "distribute-cpus-across-cores")
_BETA: Final = ("distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache")
_STABLE: Final = ("full-pcpus-only", "strict-cpu-reservation")
_EXCLUSIVE: Final = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)
_TRUE: Final = ("1", "t", "T", "true", "TRUE", "True")
_FALSE: Final = ("0", "f", "F", "false", "FALSE", "False")


class CpuOptions(msgspec.Struct, frozen=True):
    """The static CPU policy's options, each as upstream names it."""

    full_pcpus_only: bool = False
    distribute_cpus_across_numa: bool = False
    align_by_socket: bool = False
    distribute_cpus_across_cores: bool = False
    strict_cpu_reservation: bool = False
    prefer_align_cpus_by_uncorecache: bool = False


NO_CPU_OPTIONS: Final = CpuOptions()


class TopologyOptions(msgspec.Struct, frozen=True):
    """The topology manager's options."""

    prefer_closest_numa_nodes: bool = False
    max_allowable_numa_nodes: int = NUMA_NODES_MAX


def parse_cpu_options(given: Mapping[str, str]) -> CpuOptions:
    """Return the CPU options.

    Raises: ValueError for one that is unknown, has a bad value, or contradicts another.
    """
    chosen: dict[str, bool] = {}
    for name, value in given.items():
        if name not in _ALPHA + _BETA + _STABLE:
            raise ValueError(f'unknown CPU Manager Policy option: "{name}"')
        chosen[name] = _bool(name, value)
    for one, other in _EXCLUSIVE:
        if chosen.get(one) and chosen.get(other):
            raise ValueError(f"static policy options {one} and {other} can not be used at the same time")
    return CpuOptions(**{name.replace("-", "_"): value for name, value in chosen.items()})


def check_gates(given: Mapping[str, str], *, alpha: bool, beta: bool) -> None:
    """Raise ValueError for a CPU option whose feature gate is off."""
    for name in given:
        if name in _ALPHA and not alpha:
            raise ValueError(f'CPU Manager Policy Alpha-level Options not enabled, but option "{name}" provided')
        if name in _BETA and not beta:
            raise ValueError(f'CPU Manager Policy Beta-level Options not enabled, but option "{name}" provided')


def check_hardware(options: CpuOptions, *, topology_policy: str, sockets: int, numa_nodes: int) -> None:
    """Raise ValueError when the CPU options do not fit the machine or the topology policy."""
    if not options.align_by_socket:
        return
    if topology_policy == "single-numa-node":
        # Upstream writes it so.
        raise ValueError(
            "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option"
        )
    if sockets > numa_nodes:
        raise ValueError(
            "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA: "
            f"{sockets} sockets, {numa_nodes} NUMA nodes"
        )


def parse_topology_options(given: Mapping[str, str]) -> TopologyOptions:
    """Return the topology options. Raises: ValueError for one that is unknown or has a bad value."""
    prefers_closest, most = False, NUMA_NODES_MAX
    for name, value in given.items():
        match name:
            case "prefer-closest-numa-nodes":
                prefers_closest = _bool(name, value)
            case "max-allowable-numa-nodes":
                most = _count(name, value)
            case _:
                raise ValueError(f'unknown Topology Manager Policy option: "{name}"')
    return TopologyOptions(prefers_closest, most)


def _bool(name: str, value: str) -> bool:
    if value in _TRUE or value in _FALSE:
        return value in _TRUE
    raise ValueError(f'bad value for option "{name}": "{value}", want true or false')


def _count(name: str, value: str) -> int:
    if not value.lstrip("-").isdigit():
        raise ValueError(f'unable to convert policy option to integer "{name}": "{value}"')
    if int(value) < NUMA_NODES_MAX:
        raise ValueError(f'the minimum value of "{name}" should not be less than {NUMA_NODES_MAX}, it is {value}')
    return int(value)
