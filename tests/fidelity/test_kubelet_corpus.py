"""What the kubelet's managers choose, held against upstream's own tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubelet.managers.cpu_assignment import Taking, choose
from kubelet.managers.cpu_topology import Cpu, CpuTopology, format_cpus, parse_cpus
from kubelet.managers.topology import Hint, bits, merge

FOLDER = Path(__file__).parent / "kubelet_cases"
MERGING = yaml.safe_load((FOLDER / "numa_merging.yaml").read_text())
CHOICES = yaml.safe_load((FOLDER / "cpu_choices.yaml").read_text())
OPTIONS = {
    "packed": Taking(),
    "numas": Taking(over_numas=True),
    "whole-cores-over-numas": Taking(over_numas=True, group=2),
    "cores": Taking(over_cores=True),
    "caches": Taking(by_cache=True),
}


def _hint(text: str) -> Hint:
    numas = text.rstrip("*")
    return Hint(None if numas == "any" else sum(1 << int(numa) for numa in numas.split(",")), text.endswith("*"))


def _text(hint: Hint) -> str:
    return ("any" if hint.mask is None else ",".join(map(str, bits(hint.mask)))) + "*" * hint.is_preferred


def _merging() -> list[Any]:
    return [
        pytest.param(table, case, policy, id=f"{policy}: {case['name']}")
        for table in MERGING
        for policy in table["policies"]
        for case in table["cases"]
    ]


@pytest.mark.parametrize(("table", "case", "policy"), _merging())
def test_hints_are_merged_as_upstream_merges_them(table: Any, case: Any, policy: str) -> None:
    providers = [
        {resource: None if hints is None else [_hint(text) for text in hints] for resource, hints in provider.items()}
        for provider in case["providers"]
    ]

    best, is_admitted = merge(providers, table.get("numas", 4), policy=policy, distances=table.get("distances", ()))

    assert (_text(best), is_admitted) == (case["best"], policy == "best-effort" or case["best"].endswith("*"))


def _machine(name: str) -> CpuTopology:
    shape = CHOICES["machines"][name]

    def of(core: int) -> Cpu:
        if every := shape.get("alternate"):
            return Cpu(core, 0, core % every, core % every)
        parts = [
            core // shape[f"cores_per_{part}"] if f"cores_per_{part}" in shape else 0
            for part in ("cache", "numa", "socket")
        ]
        return Cpu(core, *parts)

    return CpuTopology({cpu: of(cpu % shape["cores"]) for cpu in range(shape["cpus"])})


def _choices() -> list[Any]:
    return [
        pytest.param(case, option, id=f"{option}: {case['want']} of {case['free']} on {case['machine']}")
        for table in CHOICES["tables"]
        for option in table["options"]
        for case in table["cases"]
    ]


@pytest.mark.parametrize(("case", "option"), _choices())
def test_cpus_are_chosen_as_upstream_chooses_them(case: Any, option: str) -> None:
    chosen = choose(_machine(case["machine"]), frozenset(parse_cpus(case["free"])), case["want"], OPTIONS[option])

    wanted = case["gets"] if case["gets"].startswith("not") else format_cpus(parse_cpus(case["gets"]))
    assert (chosen if isinstance(chosen, str) else format_cpus(chosen)) == wanted
