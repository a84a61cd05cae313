"""A contract for import-linter: every module that is not named a shell is pure, whatever it imports in turn."""

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output
from importlinter.application import contract_utils
from importlinter.domain.helpers import module_expressions_to_modules


class OnlyShells(Contract):
    """Only the modules named as shells may reach the world, directly or through what they import.

    world: the packages that wait, read a clock, roll dice or do I/O.
    shells: who may; `name.*` and `name.**` as elsewhere. One that reaches nothing is reported as well.
    ignore_imports: what is waived, each by name.
    """

    type_name = "only_shells"

    world = fields.SetField(subfield=fields.StringField())
    shells = fields.SetField(subfield=fields.ModuleExpressionField())
    ignore_imports = fields.SetField(subfield=fields.ImportExpressionField(), required=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare what reaches the world with what is named."""
        contract_utils.remove_ignored_imports(graph, self.ignore_imports or (), contract_utils.AlertLevel.ERROR)
        allowed = {module.name for module in module_expressions_to_modules(graph, self.shells)}
        tops = {expression.expression.split(".")[0] for expression in self.shells}
        reaching = reach(graph, self.world)
        unnamed = {name for name in reaching - allowed if name.split(".")[0] in tops}
        idle = [str(shell) for shell in self.shells if not _named(graph, shell) & reaching]
        how = {name: _shortest(graph, name, self.world) for name in sorted(unnamed)}
        return ContractCheck(kept=not (unnamed or idle), metadata={"how": how, "idle": sorted(idle)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Name each module, and the imports by which it gets there."""
        for name, chain in check.metadata["how"].items():
            output.print_error(f"{name} is not named a shell and reaches the world: {' -> '.join(chain)}", bold=False)
        for shell in check.metadata["idle"]:
            output.print_error(f"{shell} is named a shell and reaches nothing outside", bold=False)


def reach(graph: ImportGraph, world: set[str]) -> set[str]:
    """Return the modules from which some import leads to one of those packages."""
    return {
        name
        for outside in world & graph.modules
        for name in graph.find_downstream_modules(outside, as_package=not graph.is_module_squashed(outside))
    }


def _named(graph: ImportGraph, shell: object) -> set[str]:
    return {module.name for module in module_expressions_to_modules(graph, {shell})}


def _shortest(graph: ImportGraph, name: str, world: set[str]) -> tuple[str, ...]:
    ends = sorted(module for module in graph.modules if module.split(".")[0] in world)
    chains = (graph.find_shortest_chain(name, end) for end in ends)
    return min((chain for chain in chains if chain), key=len)
