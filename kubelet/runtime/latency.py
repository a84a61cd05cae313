"""The duration of each stage of a pod's life on a node: distributions, seeded by node and pod.

A draw depends on the seed, the node, the pod and the stage alone, never on how many draws came before; so
adding a pod to an experiment does not change the draws of the others. Pure. Source: kubelet 8.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass

DEFAULTS = {
    "worker": "lognormal:0.005,0.25",
    "mount": "lognormal:0.1,0.25",
    "sandbox": "lognormal:0.3,0.25",
    "image": "lognormal:0.005,0.25",
    "create": "lognormal:0.15,0.25",
    "stop": "lognormal:0.1,0.25",
    "resize": "lognormal:0.1,0.25",
    "relist": "lognormal:0.02,0.25",
    "attach": "lognormal:3,0.25",
    "mount-claim": "lognormal:0.5,0.25",
}
"""Default distributions, by stage.

They are: from the watch event to a worker; volumes; sandbox and network; image check; container create and
start; from SIGTERM to the exit of a container whose script does not say; one call that resizes a container;
a query for all containers of a node, drawn once per node; the attachment, then the mount of a claim's
volume.
"""
STAGES = tuple(DEFAULTS)
_PLACES = {stage: place if place < 6 else 1 << (26 + place) for place, stage in enumerate(STAGES)}
"""Start of each stage in the sequence of draws, so that one stage does not change the draws of the others."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(value: int) -> int:
    """Return splitmix64's finaliser: 64 well mixed bits."""
    value &= _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _unit(bits: int) -> float:
    """Return a number in (0, 1)."""
    return ((bits >> 11) + 0.5) / (1 << 53)


def pod_seed(seed: int, node: str, uid: str) -> int:
    """Return the 64-bit seed of one pod on one node."""
    text = f"{seed}\0{node}\0{uid}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


@dataclass(frozen=True)
class Distribution:
    """A distribution: `kind` with its parameters, all in seconds.

    The kinds are constant:S, uniform:MIN,MAX, normal:MEAN,SD, lognormal:MEDIAN,SIGMA, pareto:MINIMUM,ALPHA,
    empirical:S,S,… (each as likely).
    """

    kind: str
    parameters: tuple[float, ...]

    @classmethod
    def parse(cls, text: str) -> Distribution:
        """Return the distribution that `text` describes. Raises: ValueError."""
        kind, _, rest = text.partition(":")
        wants = {"constant": 1, "uniform": 2, "normal": 2, "lognormal": 2, "pareto": 2, "empirical": 0}
        if kind not in wants:
            raise ValueError(f"{text!r}: no distribution {kind!r}; there are: {', '.join(wants)}")
        try:
            parameters = tuple(float(part) for part in rest.split(","))
        except ValueError:
            raise ValueError(f"{text!r}: parameters must be numbers of seconds") from None
        if any(not math.isfinite(p) or p < 0 for p in parameters):
            raise ValueError(f"{text!r}: parameters must be finite and not negative")
        if wants[kind] and len(parameters) != wants[kind]:
            raise ValueError(f"{text!r}: {kind} takes {wants[kind]} parameters, not {len(parameters)}")
        if kind == "pareto" and parameters[1] == 0:
            raise ValueError(f"{text!r}: alpha must be above 0")
        return cls(kind, parameters)

    def draw(self, bits: int) -> float:
        """Return seconds, never negative, from 64 random bits."""
        p = self.parameters
        match self.kind:
            case "constant":
                return p[0]
            case "uniform":
                return p[0] + (p[1] - p[0]) * _unit(bits)
            case "normal":
                return max(0.0, p[0] + p[1] * _gauss(bits))
            case "lognormal":
                return p[0] * math.exp(p[1] * _gauss(bits))
            case "pareto":
                return float(p[0] / _unit(bits) ** (1.0 / p[1]))
            case _:
                return p[bits % len(p)]


def _gauss(bits: int) -> float:
    """Return a standard normal number (Box and Muller)."""
    first, second = bits >> 11, _mix(bits + _GOLDEN) >> 11  # each as `_unit` makes a number of it
    radius = math.sqrt(-2.0 * math.log((first + 0.5) / (1 << 53)))
    return radius * math.cos(2.0 * math.pi * ((second + 0.5) / (1 << 53)))


class LatencyModel:
    """One distribution per stage, and the seed of all draws."""

    def __init__(self, stages: dict[str, Distribution], seed: int) -> None:
        self._stages = stages
        self._seed = seed

    @classmethod
    def parse(cls, texts: Iterable[str], seed: int) -> LatencyModel:
        """Return the model with these `STAGE=DISTRIBUTION` texts over the defaults. Raises: ValueError.

        The stage `all` stands for every stage.
        """
        stages = {stage: Distribution.parse(text) for stage, text in DEFAULTS.items()}
        for text in texts:
            stage, sign, rest = text.partition("=")
            if not sign or (stage != "all" and stage not in STAGES):
                raise ValueError(f"{text!r}: want STAGE=DISTRIBUTION with a stage of {', '.join(STAGES)} or all")
            distribution = Distribution.parse(rest)
            for name in STAGES if stage == "all" else (stage,):
                stages[name] = distribution
        return cls(stages, seed)

    def for_pod(self, node: str, uid: str) -> PodLatency:
        """Return the draws of one pod on one node."""
        return PodLatency(self._stages, self._seed, node, uid)


class PodLatency:
    """The durations of one pod's stages on one node; asking twice gives the same answer."""

    __slots__ = ("_node", "_seed", "_stages", "_start", "_uid")

    def __init__(self, stages: dict[str, Distribution], seed: int, node: str, uid: str) -> None:
        self._stages, self._seed, self._node, self._uid = stages, seed, node, uid
        self._start: int | None = None

    def share(self, what: str, nth: int) -> float:
        """Return a number in (0, 1) for the `nth` random choice about `what`."""
        if self._start is None:
            self._start = pod_seed(self._seed, self._node, self._uid)
        return _unit(pod_seed(self._start, what, str(nth)))

    def of(self, stage: str, nth: int = 0) -> float:
        """Return the seconds that the `nth` occurrence of a stage takes."""
        distribution = self._stages[stage]
        if distribution.kind == "constant":
            return distribution.parameters[0]
        if self._start is None:
            self._start = pod_seed(self._seed, self._node, self._uid)
        return distribution.draw(_mix(self._start + _GOLDEN * (1 + _PLACES[stage] + 6 * nth)))
