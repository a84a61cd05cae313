"""Scenario files into scenarios. What runs them is not imported, so that a mistake in a file is reported at once."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lab.scenarios.observer import RESOURCES
from lab.scenarios.script.operations import Operation, as_scenario, is_operations, mistaken_object, read_operations
from lab.scenarios.script.scenario import Scenario, ScriptError
from lab.scenarios.script.verbs import read_scenario

if TYPE_CHECKING:
    from lab.scenarios.measures.scenario_measures import ScenarioMeasure


def load_scenario(path: str | Path) -> Scenario:
    """Read a scenario file. Raises: ScriptError, also when the file cannot be read."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ScriptError(f"{path}: a scenario is text in UTF-8, byte {error.start} is not: {error.reason}") from None
    except OSError as error:
        raise ScriptError(f"{path}: {error.strerror or error}") from None
    operations: tuple[Operation, ...] = ()
    if is_operations(text):
        try:
            name, operation_list = read_operations(text)
        except ValueError as error:
            raise ScriptError(f"{path}: {error}") from None
        operations, text = tuple(operation_list), as_scenario(name, operation_list)
    elif mistake := mistaken_object(text):
        raise ScriptError(f"{path}: {mistake}")
    scenario = replace(read_scenario(text, str(path)), operations=operations)
    measures_of(scenario)
    return scenario


def measures_of(scenario: Scenario) -> "tuple[ScenarioMeasure, ...]":
    """Return the measures that the scenario states. Raises: ScriptError naming the line."""
    if not scenario.measures:
        return ()
    from lab.scenarios.measures.scenario_measures import stated_measure

    measures: dict[str, ScenarioMeasure] = {}
    for number, text in scenario.measures:
        try:
            scenario_measure = stated_measure(text, lambda resource: resource in RESOURCES)
            if scenario_measure.measure.name in measures:
                raise ValueError(f"measure {scenario_measure.measure.name} is stated twice")
        except ValueError as error:
            raise ScriptError(f"{scenario.path}:{number}: {error}") from None
        measures[scenario_measure.measure.name] = scenario_measure
    return tuple(measures.values())
