"""Every metric that a process of the mesh may show at `/metrics`, as rows: for the reference and for dashboards."""

import importlib
import pkgutil
from typing import Final, NamedTuple

from prometheus_client import ProcessCollector

from services.telemetry.metrics import TABLES, Kind

_CLIENTS: Final = "scheduler, kubelet, controllers, claim-controller"
_ELECTED: Final = "scheduler, controllers, claim-controller"
COMPONENTS: Final = {
    "apiserver_fake": "apiserver",
    "scheduler": "scheduler",
    "kubelet.deviceplugin.emulated": "device-plugin",
    "kubelet.dra.emulated": "dra-driver",
    "kubelet": "kubelet",
    "claim_controller": "claim-controller",
    "services.controllers": "controllers",
    "services.runtime.manager": "controllers, claim-controller",
    "services.client.leases": _ELECTED,
    "services.client.recorder": _CLIENTS,
    "services.client": f"{_CLIENTS}, dra-driver",
    "services": "all",
}
"""Components that show the metrics of a package or module, by its name; the longest matching name counts."""


class MetricRow(NamedTuple):
    """One metric. `type`: counter, gauge or histogram; `component`: the processes that show it, with commas between,
    or `all`."""

    name: str
    type: Kind
    labels: tuple[str, ...]
    help: str
    component: str


def rows() -> list[MetricRow]:
    """Return the metrics by component and name, with those that the client library shows for every process.

    A metric that several tables of a component declare is one row, with the labels of all.
    """
    for package in ("apiserver_fake", "claim_controller", "kubelet", "scheduler", "services"):
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            if not module.name.endswith(("__main__", ".lean")):  # these are for a process of their own: see the latter
                importlib.import_module(module.name)
    rows_by_name: dict[tuple[str, str], MetricRow] = {}
    for module_name, table in TABLES:
        component = _component_of(module_name)
        for metric in table.metrics if component else ():
            key = component, metric.name
            before = rows_by_name[key].labels if key in rows_by_name else ()
            labels = tuple(dict.fromkeys((*before, *table.labels, *metric.labels)))
            rows_by_name[key] = MetricRow(metric.name, metric.kind, labels, metric.help, component)
    for family in ProcessCollector(registry=None).collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        kind: Kind = "counter" if family.type == "counter" else "gauge"
        rows_by_name["all", name] = MetricRow(name, kind, (), family.documentation, "all")
    return [rows_by_name[key] for key in sorted(rows_by_name)]


def markdown() -> str:
    """Return the rows as a table for each component, with a heading."""
    by_component: dict[str, list[MetricRow]] = {}
    for row in rows():
        by_component.setdefault(row.component, []).append(row)
    lines: list[str] = []
    for component, of_component in by_component.items():
        lines += [f"## {component}", "", "| Name | Type | Labels | Help |", "|---|---|---|---|"]
        for row in of_component:
            labels = ", ".join(f"`{name}`" for name in row.labels)
            text = row.help.replace("|", "\\|").replace("<", "\\<")
            lines.append(f"| `{row.name}` | {row.type} | {labels} | {text} |")
        lines.append("")
    return "\n".join(lines)


def _component_of(module: str) -> str:
    fitting = [name for name in COMPONENTS if module == name or module.startswith(f"{name}.")]
    return COMPONENTS[max(fitting, key=len)] if fitting else ""
