"""Files that describe drivers: fields of a definition, ResourceSlices to publish, or both. Pure but for reading.

A file is YAML or JSON. A document without `kind` has the fields of `DriverDefinition`. ResourceSlices, one
by one or as the List that `kubectl get resourceslices -o yaml` prints, are published by the driver, slice
by slice: their driver is its name, their pools are its pools, and the pool with the name of their node
becomes that of the node it runs on. Every error names file, field and the values that disagree. Source:
dra-core 1.1, 7.1.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import msgspec

from kubelet.dra.emulated.definition import NODE_NAME, DriverDefinition, parse_drivers, parse_options, read_definition
from services.api.documents import yaml_text
from services.api.meta import Document

SUFFIXES: Final = (".yaml", ".yml", ".json")
API_VERSION: Final = "resource.k8s.io/v1"
_ELSEWHERE: Final = ("nodeSelector", "allNodes", "perDeviceNodeSelection")
_OFFERED: Final = ("devices", "sharedCounters", "pools", "slices", "generation")
_SPEC: Final = ("driver", "pool", "nodeName", "devices", "sharedCounters")
_POOL: Final = ("name", "generation", "resourceSliceCount")


def read_driver(path: Path, options: Mapping[str, Any] | None = None, text: str | None = None) -> DriverDefinition:
    """Return the driver that a file describes. Raises: ValueError.

    `options`: fields that win over the file's. `text`: the file's content, if it does not have to be read.
    """
    fields = {**(fields_of(path) if text is None else _fields(text)), **(options or {})}
    try:
        return read_definition(fields)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def read_drivers(text: str, folder: Path, inside: Mapping[str, str] = MappingProxyType({})) -> list[dict[str, Any]]:
    """Return the drivers in a text such as `cards.yaml:prepare=2+nic.example.com:1`. Raises: ValueError.

    Each driver is returned as the fields of a definition. Files are read from `folder`; `inside`: texts by name
    of files that are not in it.
    """
    drivers: list[dict[str, Any]] = []
    for part in text.split("+"):
        name, *options = part.split(":")
        if name.endswith(SUFFIXES):
            definition = read_driver(folder / name, parse_options(options), inside.get(name))
            drivers.append(msgspec.to_builtins(definition, builtin_types=()))
        else:
            drivers += parse_drivers(part)
    return drivers


def fields_of(path: Path) -> dict[str, Any]:
    """Return the file's content as the fields of a definition. Raises: ValueError."""
    try:
        return _fields(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _fields(text: str) -> dict[str, Any]:
    fields: dict[str, Any] | None = None
    slices: list[Document] = []
    for document in yaml_text.load_all(text):
        if document is None:
            continue
        if not isinstance(document, dict):
            what = type(document).__name__
            raise ValueError(f"want an object with the fields of a driver, or a ResourceSlice, not {what}")
        if "kind" in document:
            slices += _slices(document)
        elif fields is not None:
            raise ValueError("two documents have the fields of a driver; want one driver")
        else:
            fields = document
    if fields is None and not slices:
        raise ValueError("want the fields of a driver, or ResourceSlices; there is nothing")
    return driver_fields(slices, fields or {}) if slices else fields or {}


def _slices(document: Document) -> list[Document]:
    """Return the ResourceSlices that a document is. Raises: ValueError."""
    if document["kind"] in ("List", "ResourceSliceList"):
        return [each for item in document.get("items") or () for each in _slices({"kind": "ResourceSlice", **item})]
    if document["kind"] != "ResourceSlice":
        raise ValueError(f"kind: {document['kind']!r}, want ResourceSlice, or no kind with the fields of a driver")
    if document.get("apiVersion", API_VERSION) != API_VERSION:
        raise ValueError(f"apiVersion: {document['apiVersion']!r} of a ResourceSlice, want {API_VERSION!r}")
    return [document]


def driver_fields(slices: Sequence[Document], fields: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
    """Return the fields of a driver that publishes these ResourceSlices. Raises: ValueError."""
    if both := next(
        (name for name in ("devices", "sharedCounters", "pools", "slices", "generation") if name in fields), ""
    ):
        raise ValueError(f"{both}: want that or ResourceSlices, not both")
    specs = [(_name(each, number), each.get("spec") or {}) for number, each in enumerate(slices)]
    for at, spec in specs:
        _check_spec(at, spec)
    (first, head), *_ = specs
    name = fields.get("name") or head["driver"]
    pools: dict[str, list[tuple[str, Document]]] = {}
    for at, spec in specs:
        if spec["driver"] != name:
            of = "name" if "name" in fields else f"{first}: spec.driver"
            raise ValueError(f"{at}: spec.driver: {spec['driver']!r}, but {of} is {name!r}")
        if spec.get("nodeName", "") != head.get("nodeName", ""):
            raise ValueError(
                f"{at}: spec.nodeName: {spec.get('nodeName', '')!r}, but {first} has {head.get('nodeName', '')!r}; "
                "a driver has the devices of one node"
            )
        pools.setdefault(str(spec["pool"]["name"]), []).append((at, spec))
    pool_fields = [_pool(NODE_NAME if pool == head.get("nodeName") else pool, of) for pool, of in pools.items()]
    return {
        **fields,
        "name": name,
        "pools": pool_fields,
        "generation": max(int(s["pool"]["generation"]) for _, s in specs),
    }


def _name(document: Document, number: int) -> str:
    name = (document.get("metadata") or {}).get("name")
    return f"ResourceSlice {name!r}" if name else f"ResourceSlice {number}"


def _check_spec(at: str, spec: Any) -> None:
    """Raise ValueError where a slice does not say what is needed, or says what a driver of one node cannot."""
    if not isinstance(spec, dict) or not isinstance(spec.get("pool"), dict):
        raise ValueError(f"{at}: spec.pool: want an object with name, generation and resourceSliceCount")
    if elsewhere := next((field for field in _ELSEWHERE if spec.get(field)), ""):
        raise ValueError(f"{at}: spec.{elsewhere}: a driver of a node publishes devices of that node only (nodeName)")
    for where, fields, known in (("spec", spec, _SPEC), ("spec.pool", spec["pool"], _POOL)):
        if unknown := next((field for field in fields if field not in known), ""):
            raise ValueError(f"{at}: {where}: no field {unknown!r}; there are: {', '.join(known)}")
    if not isinstance(spec.get("driver"), str) or not isinstance(spec["pool"].get("name"), str):
        raise ValueError(f"{at}: spec.driver and spec.pool.name: want texts")
    generation = spec["pool"].setdefault("generation", 0)
    if not isinstance(generation, int) or generation < 0:
        raise ValueError(f"{at}: spec.pool.generation: {generation!r}, want 0 or more")
    for field in ("devices", "sharedCounters"):
        if not isinstance(spec.get(field) or [], list):
            raise ValueError(f"{at}: spec.{field}: want a list")


def _pool(name: str, of: list[tuple[str, Document]]) -> dict[str, Any]:
    """Return the pool that some slices are. Raises: ValueError where they disagree: such a pool is never complete."""
    first, head = of[0]
    for at, spec in of:
        mine, its = spec["pool"]["generation"], head["pool"]["generation"]
        if mine != its:
            pool = spec["pool"]["name"]
            raise ValueError(f"{at}: spec.pool.generation: {mine}, but {first} of pool {pool!r} has {its}")
        count = spec["pool"].get("resourceSliceCount", len(of))
        if count != len(of):
            raise ValueError(
                f"{at}: spec.pool.resourceSliceCount: {count}, but there are {len(of)} slices of pool "
                f"{spec['pool']['name']!r} here"
            )
        if spec.get("devices") and spec.get("sharedCounters"):
            raise ValueError(f"{at}: spec: only one of `sharedCounters` or `devices` is allowed")
    devices = [list(spec.get("devices") or ()) for _, spec in of]
    return {
        "name": name,
        "devices": [device for each in devices for device in each],
        "sharedCounters": [each for _, spec in of for each in spec.get("sharedCounters") or ()],
        "sliceSizes": [len(each) for each in devices if each],
    }
