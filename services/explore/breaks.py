"""What a run broke, in a form that two runs can be compared by. Pure."""

import re

import msgspec

from services.api.resources import resources
from services.scenarios.result import RunResult
from services.scenarios.script.scenario import Scenario

_PROCESS = re.compile(r"^[\d.]+ s: (\S+) ended: (\w*)")


class Break(msgspec.Struct, frozen=True):
    """One thing that must not be. `broke` is its name: the same fault has the same name in every run.

    `broke`: an invariant (`I3`), an expectation (`line 12`), a process, or `the context`. `objects` are `Kind ns/name`.
    `at_s`: seconds of the event log's clock.
    """

    broke: str
    objects: tuple[str, ...]
    at_s: float
    detail: str


def breaks_of(result: RunResult, scenario: Scenario) -> list[Break]:
    """Return what the run broke in order of time, each name once."""
    found = [Break(v.invariant, v.objects, v.at, v.detail) for v in result.violations]
    for judgement in result.expectations:
        if not judgement.passed:
            at_s = judgement.at_s + result.started_s
            objects = _expected(scenario, judgement.line)
            found.append(Break(f"line {judgement.line}", objects, at_s, f"{judgement.text}   ({judgement.seen})"))
    ended_s = result.started_s + result.virtual_s
    for failure in result.failures:
        match = _PROCESS.match(failure)
        what = f"process {match[1]} ({match[2]})" if match else "a process"
        found.append(Break(what, (), ended_s, failure))
    if result.error:
        found.append(Break("the run", (), ended_s, result.error))
    return _each_once(sorted(found, key=lambda b: b.at_s))


def _expected(scenario: Scenario, line: int) -> tuple[str, ...]:
    """Return the objects that an expectation names, as far as it does: `Pod default/p`."""
    expectation = next((step.expectation for step in scenario.steps if step.line == line), None)
    resource = resources().get(expectation.resource) if expectation is not None else None
    if expectation is None or resource is None:
        return ()
    named = {filter_.path: filter_.values for filter_ in expectation.filters}
    names = [name for name in named.get("name", ()) if "*" not in name and "?" not in name]
    namespace = f"{named.get('namespace', ('default',))[0]}/" if resource.namespaced else ""
    return tuple(f"{resource.kind} {namespace}{name}" for name in names)


def _each_once(found: list[Break]) -> list[Break]:
    by_name: dict[str, Break] = {}
    for each in found:
        known = by_name.get(each.broke)
        if known is None:
            by_name[each.broke] = each
        else:
            objects = tuple(dict.fromkeys((*known.objects, *each.objects)))
            by_name[each.broke] = msgspec.structs.replace(known, objects=objects)
    return list(by_name.values())
