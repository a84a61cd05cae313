"""DRA drivers of a scenario's nodes, and a check that the API server would accept what they publish. Pure
but for reading.

    nodes n1..n2 cpu=16 drivers=cards.yaml:prepare=2+nic.example.com:4

A driver is `NAME:DEVICES`, or a file beside the scenario as `keplab dra-driver --config` takes it;
options override the file.
"""

from collections.abc import Mapping
from pathlib import Path

from apiserver_fake.registry.schema.schemas import Mistyped, conform, shape_of, strict_refusal, unknown_fields
from apiserver_fake.registry.validation.devices.slices import SLICE_SPEC
from apiserver_fake.registry.validation.fields import Report
from kubelet.dra.emulated.definition import NODE_NAME, DriverDefinition, read_definition
from kubelet.dra.emulated.files import API_VERSION, SUFFIXES, read_drivers
from lab.scenarios.script.blocks import locate_error
from lab.scenarios.script.scenario import NodeLine, Scenario
from services.api.errors import BadRequest
from services.api.meta import Document

_SLICE = "ResourceSlice"
_LEAD = f'{_SLICE} in version "v1" cannot be handled as a {_SLICE}: '


def drivers_beside(declared: NodeLine, scenario: Scenario) -> Document:
    """Return the drivers that the option `drivers=` names, as a node definition lists them; empty if all are in
    the short form.

    Raises: ValueError, BlockError for a file inside the scenario.
    """
    text = declared.options.get("drivers", "")
    names = [each.partition(":")[0] for each in text.split("+")]
    if not any(name.endswith(SUFFIXES) for name in names):
        return {}
    inside = {name: scenario.files[path] for name in names if (path := scenario.beside(name)) in scenario.files}
    try:
        return _read(declared, text, Path(scenario.path).parent, {name: block.text for name, block in inside.items()})
    except ValueError as error:
        if len(inside) == len(names) == 1:
            raise locate_error(inside[names[0]], error) from None
        raise


def _read(declared: NodeLine, text: str, folder: Path, inside: Mapping[str, str]) -> Document:
    drivers = read_drivers(text, folder, inside)
    for driver in drivers:
        definition = read_definition(driver)
        try:
            check_published(definition)
            if len(declared.names) > 1:
                _check_pools(definition, declared.names)
        except ValueError as error:
            raise ValueError(f"drivers={text}: {definition.name}: {error}") from None
    return {"drivers": drivers}


def _check_pools(definition: DriverDefinition, names: tuple[str, ...]) -> None:
    """Raise ValueError for a pool that several nodes would publish: to the scheduler it would be one."""
    shared = [pool.name for pool in definition.pools if NODE_NAME not in pool.name]
    if shared:
        raise ValueError(
            f"pool {shared[0]!r}: {names[0]} and {names[1]} would publish the same pool; want {NODE_NAME} in its name"
        )


def check_published(definition: DriverDefinition) -> None:
    """Raise ValueError for the first part of the driver's slices that the API server would refuse, in upstream's
    words and with the definition's own paths.
    """
    for pool in definition.all_pools("node"):
        where = "" if pool.name == "node" else f"pool {pool.name!r}: "
        base: Document = {
            "driver": definition.name,
            "nodeName": "node",
            "pool": {"name": pool.name, "generation": definition.generation, "resourceSliceCount": 1},
        }
        for kind, parts in (("devices", definition.devices_of(pool)), ("sharedCounters", pool.shared_counters)):
            for number, part in enumerate(parts):
                _check(base | {kind: [part]}, f"spec.{kind}[0]", f"{where}{kind}[{number}]")


def _check(spec: Document, path: str, shown: str) -> None:
    document: Document = {"apiVersion": API_VERSION, "kind": _SLICE, "metadata": {"name": "driver"}, "spec": spec}
    try:
        shape = shape_of(API_VERSION, _SLICE)
        unknown: list[str] = []
        document = conform(shape, API_VERSION, _SLICE, document, unknown=unknown)
        if unknown:
            raise strict_refusal(API_VERSION, _SLICE, unknown_fields(unknown))
    except Mistyped as error:
        raise ValueError(f"{error.path.replace(path, shown)}: {error.value!r}: {error.mistake}") from None
    except BadRequest as error:
        text = error.message.removeprefix(_LEAD).removeprefix("strict decoding error: ")
        raise ValueError(text.replace(path, shown)) from None
    report = Report()
    SLICE_SPEC.check(document["spec"], "spec.", report)
    if report.causes:
        cause = report.causes[0]
        raise ValueError(f"{cause.path.replace(path, shown)}: {cause.message}")
