"""Cost of CEL: compilations and evaluations per second of device selectors as drivers document them."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from lab.benchmarks.bench import Bench, NoOptions, Reporter, Table
from lab.benchmarks.result import Result
from services.api.kinds.resourceslice import Device, DeviceAttribute, DeviceCapacity
from services.cel.device_selectors import compile_selector, environment, variables

DRIVER: Final = "gpu.example.com"
_OWN: Final = f'device.attributes["{DRIVER}"]'
EXPRESSIONS: Final = {
    "driver": f'device.driver == "{DRIVER}"',
    "comparisons": f'device.driver == "{DRIVER}" && {_OWN}.model == "a100" && {_OWN}.index >= 3',
    "quantity": f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("39Gi"))',
    "version": f'{_OWN}.driverVersion.isGreaterThan(semver("550.54.14")) && {_OWN}.model.matches("^[ah]100$")',
    "macro": f'cel.bind(own, {_OWN}, ["a100", "h100"].exists(model, own.model == model) && own.?nvlink.orValue(true))',
}
_DEVICE: Final = Device(
    name="gpu-0",
    attributes={
        "model": DeviceAttribute(string="a100"),
        "index": DeviceAttribute(int_value=3),
        "driverVersion": DeviceAttribute(version="560.1.0"),
    },
    capacity={"memory": DeviceCapacity(value="40Gi")},
)
ROUNDS: Final = 5
"""Rounds of each measurement. The fastest counts, because other work on the machine only slows a round down."""


@dataclass
class CelBench(Result):
    """Rates by expression: `evaluations` of a selector, `counted` for evaluations with cost counting,
    `compilations`.
    """

    workload: str
    evaluations_per_s: dict[str, float]
    counted_per_s: dict[str, float]
    compilations_per_s: dict[str, float]
    cost: dict[str, int]


def bench_cel(*, evaluations: int = 20_000, compilations: int = 100) -> CelBench:
    """Measure every expression in this process; takes a few seconds."""
    bench = CelBench("Cel", {}, {}, {}, {})
    for name, expression in EXPRESSIONS.items():
        selects, program = compile_selector(expression), environment().compile(expression)
        known = (variables(DRIVER, _DEVICE),)
        bench.evaluations_per_s[name] = _rate(partial(selects, DRIVER, _DEVICE), evaluations)
        bench.counted_per_s[name] = _rate(partial(program.evaluate_with_cost, known), evaluations // 4)
        bench.compilations_per_s[name] = _rate(partial(environment().compile_anew, expression), compilations)
        bench.cost[name] = program.cost.most
    return bench


def _rate(call: Callable[[], object], times: int) -> float:
    fastest = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for _ in range(times):
            call()
        fastest = min(fastest, time.perf_counter() - begun)
    return round(times / fastest)


def _run(_: NoOptions, __: Reporter) -> CelBench:
    return bench_cel()


def _table(_: NoOptions, result: CelBench) -> Iterator[Table]:
    yield Table(
        ("SELECTOR", "EVALUATIONS/s", "COSTS COUNTED/s", "COMPILATIONS/s", "COST", "EXPRESSION"),
        [
            (
                name,
                f"{result.evaluations_per_s[name]:,.0f}",
                f"{result.counted_per_s[name]:,.0f}",
                f"{result.compilations_per_s[name]:,.0f}",
                f"{result.cost[name]:,}",
                expression,
            )
            for name, expression in EXPRESSIONS.items()
        ],
    )


BENCH: Final = Bench(
    name="cel",
    help="Compile and evaluate device selectors, and show the rate of both and the cost by Kubernetes' estimate.",
    options=NoOptions,
    run=_run,
    table=_table,
    document=CelBench.document,
)
