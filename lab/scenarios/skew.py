"""Version skew between kubelets and an API server, checked before a scenario runs. Pure.

Source: node-declared-features 6.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from lab.scenarios.mesh import MeshPlan
from lab.scenarios.script.scenario import Scenario, ScriptError
from services.api.release import skew
from services.api.switches import EMULATED


def check_skew(plan: MeshPlan, scenario: Scenario) -> None:
    """Raise ScriptError with line and both releases for the first kubelet whose release does not work with its
    API server.

    Lines that restart a component with another release are applied in their order.
    """
    lines = {name: declared.line for declared in scenario.nodes for name in declared.names}
    apiserver = plan.switches_of("apiserver").choice(EMULATED)
    own = {str(node["name"]): str(node["version"]) for node in plan.nodes if node.get("version")}
    releases = {node: plan.switches_of(host).choice(EMULATED) for node, host in _hosts(plan).items()} | own
    for node, release in releases.items():
        if why := skew(release, apiserver):
            where = f"{scenario.path}:{lines[node]}" if node in lines else scenario.path
            raise ScriptError(f"{where}: node {node}: {why}")
    for step in scenario.steps:
        release = step.options.get(EMULATED, "") if step.verb == "restart" else ""
        if not release:
            continue
        component = step.args[0]
        if fnmatchcase("apiserver", component):
            apiserver = release
        hosts = {host for node, host in _hosts(plan).items() if _means(component, host, node)}
        releases |= {node: release for node, host in _hosts(plan).items() if host in hosts and node not in own}
        for node, node_release in releases.items():
            if why := skew(node_release, apiserver):
                raise ScriptError(f"{scenario.path}:{step.line}: restart {component}: node {node}: {why}")


def _hosts(plan: MeshPlan) -> dict[str, str]:
    """Return by node the process that hosts its kubelet."""
    return dict(_host_pairs(plan))


def _host_pairs(plan: MeshPlan) -> Iterator[tuple[str, str]]:
    for host, nodes in plan.deal().items():
        yield from ((str(node["name"]), f"kubelet/{host}") for node in nodes)


def _means(component: str, host: str, node: str) -> bool:
    return fnmatchcase(host, component) or fnmatchcase(f"kubelet/{node}", component)
