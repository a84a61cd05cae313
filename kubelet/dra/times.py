"""How long a pod's claims take to be prepared and unprepared, and single calls of drivers, by upstream's names. Pure.

Source: dra-core 7; upstream `pkg/kubelet/metrics` (names without `kubelet_`, the whole path of a method).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kubelet.effects import Outbox
from kubelet.view import WorkerKey

OPERATION: Final = "dra_operations_duration_seconds"
CALL: Final = "dra_grpc_operations_duration_seconds"
IN_USE: Final = "dra_resource_claims_in_use"
_PATH: Final = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/"
_OPERATIONS: Final = {"prepare": "PrepareResources", "unprepare": "UnprepareResources"}


class ClaimTimes:
    """Invariant: `_begun_s` has the pods whose claims are being prepared or unprepared, by what is being done."""

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self._begun_s: dict[tuple[WorkerKey, str], float] = {}

    def begin(self, key: WorkerKey, what: str, now: float) -> None:
        """All of the pod's claims are to be prepared, or unprepared; said twice it counts from the first time."""
        self._begun_s.setdefault((key, what), now)

    def end(self, key: WorkerKey, what: str, error: str, now: float) -> None:
        """They are, or why not."""
        took_s = now - self._begun_s.pop((key, what), now)
        labels = f'{{is_error="{str(bool(error)).lower()}",operation_name="{_OPERATIONS[what]}"}}'
        self._observe(OPERATION, labels, took_s)

    def forget(self, key: WorkerKey) -> None:
        """The pod left before its claims were prepared."""
        self._begun_s.pop((key, "prepare"), None)

    def called(self, driver: str, method: str, code: str, took_s: float) -> None:
        """A driver answered a call with this status code, or did not."""
        labels = f'{{driver_name="{driver}",grpc_status_code="{code}",method_name="{_PATH}{method}"}}'
        self._observe(CALL, labels, took_s)

    def _observe(self, name: str, labels: str, seconds: float) -> None:
        self._out.add(f"{name}_sum{labels}", seconds)
        self._out.count(f"{name}_count{labels}")


def claims_in_use(drivers_of_claims: Iterable[Iterable[str]]) -> dict[str, float]:
    """Return how many claims each driver's devices are in use for, and all together; one entry a claim is given."""
    found: dict[str, float] = {}
    for drivers in drivers_of_claims:
        for driver in ("<any>", *drivers):
            name = f'{IN_USE}{{driver_name="{driver}"}}'
            found[name] = found.get(name, 0.0) + 1
    return found
