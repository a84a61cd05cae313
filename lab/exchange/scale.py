"""kwokctl's scale: keep a number of numbered objects of a template; which to make and which to remove. Pure.

A template is a `KwokctlResource`: parameters, and a text that is filled with them for each object.
Source: simulator 5.3; kubernetes-sigs/kwok, `pkg/kwokctl/scale/scale.go`.
"""

from __future__ import annotations

import copy
import ipaddress
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, NamedTuple

from lab.exchange.reading import Source, yaml_documents
from lab.exchange.stream import Refused
from services.api.documents import yaml_text
from services.api.meta import Document, metadata_of
from services.kwok.stages.template_functions import Context, Function
from services.kwok.stages.templates import Template, TemplateError

API_VERSION: Final = "config.kwok.x-k8s.io/v1alpha1"
KIND: Final = "KwokctlResource"
LABEL: Final = "kwok.x-k8s.io/kwokctl-scale"
BUILT_IN: Final = ("node", "pod")
_PATH = re.compile(r"\.?([A-Za-z_][\w-]*)|\.?\[(\d{1,6})\]|\.?\[\"([^\"]+)\"\]")


class ScaleContext(Context, frozen=True):
    """Values that the template of an object may use: its name, namespace and number."""

    name: str = ""
    namespace: str = ""
    index: int = 0

    def functions(self) -> dict[str, Function]:
        """Return the template functions of this context."""
        return {
            **super().functions(),
            "Name": lambda: self.name,
            "Namespace": lambda: self.namespace,
            "Index": lambda: self.index,
            "AddCIDR": add_cidr,
            "AddIP": add_ip,
        }


_NAMES: Final = frozenset(("Name", "Namespace", "Index", "AddCIDR", "AddIP"))


def add_cidr(text: str, number: int) -> str:
    """Return the network `number` networks further on, with the same host: `10.0.0.1/24` and 2 give `10.0.2.1/24`."""
    found = ipaddress.ip_interface(text)
    return f"{found.ip + number * found.network.num_addresses}/{found.network.prefixlen}"


def add_ip(text: str, number: int) -> str:
    """Return the address that is `number` further on."""
    return str(ipaddress.ip_address(text) + number)


@dataclass(frozen=True)
class ScaledResource:
    """A template as read: its name, its parameters, and its text."""

    name: str
    parameters: Any
    template: Template

    def object(self, name: str, namespace: str, index: int) -> Document:
        """Return the object with that name. Raises: Refused, if the template cannot be filled, or gives no object."""
        context = ScaleContext(now="", name=name, namespace=namespace, index=index)
        try:
            document = self.template.fill_yaml(self.parameters, context)
        except TemplateError as error:
            raise Refused(f"{KIND} {self.name}: template: {error}") from None
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise Refused(f"{KIND} {self.name}: template: it gives no object with a kind")
        metadata = {**metadata_of(document), "name": name}
        metadata["labels"] = {**(metadata.get("labels") or {}), LABEL: self.name}
        if namespace:
            metadata["namespace"] = namespace
        return {**document, "metadata": metadata}


def read_resources(path: Path) -> dict[str, Document]:
    """Return the KwokctlResource documents of a file by name; documents of other kinds are ignored.

    Raises: Refused.
    """
    documents: dict[str, Document] = {}
    for placed in yaml_documents(Source(path)):
        document = placed.document
        if document.get("kind") != KIND:
            continue
        if document.get("apiVersion") != API_VERSION:
            raise Refused(f"{placed.where}: {KIND}: apiVersion {document.get('apiVersion')!r}: want {API_VERSION}")
        name = metadata_of(document).get("name")
        if not isinstance(name, str) or not name:
            raise Refused(f"{placed.where}: {KIND}: metadata.name: want a text")
        if not isinstance(document.get("template"), str):
            raise Refused(f"{placed.where}: {KIND} {name}: template: want a text")
        documents[name] = document
    return documents


def resource_named(name: str, own: dict[str, Document], params: Sequence[str]) -> ScaledResource:
    """Return the template of that name, from a file or built in, with its parameters set. Raises: Refused."""
    document = own.get(name)
    if document is None:
        if name not in BUILT_IN:
            known = ", ".join(sorted({*own, *BUILT_IN}))
            raise Refused(f"no {KIND} {name!r}; there are {known}; --config FILE has more")
        text = files("lab.exchange").joinpath("templates", f"{name}.yaml").read_text("utf-8")
        document = yaml_text.load(text)
    assert isinstance(document, dict), "it was read as one"
    parameters = copy.deepcopy(document.get("parameters") or {})
    for param in params:
        parameters = _with(parameters, param)
    try:
        template = Template(document["template"], _NAMES)
    except TemplateError as error:
        raise Refused(f"{KIND} {name}: template: {error}") from None
    return ScaledResource(name, parameters, template)


def _with(parameters: Any, param: str) -> Any:
    """Return the parameters with `.path.to=value` set. Raises: Refused."""
    path, sign, text = param.partition("=")
    steps: list[str | int] = []
    at = 0
    while at < len(path):
        part = _PATH.match(path, at)
        if part is None or part.end() == at:
            break
        steps.append(int(part[2]) if part[2] else part[1] or part[3])
        at = part.end()
    if not sign or not steps or at < len(path):
        raise Refused(f"--param {param!r}: want .path=value, such as .allocatable.cpu=64")
    try:
        value = yaml_text.load(text)
    except ValueError as error:
        raise Refused(f"--param {param!r}: {error}") from None
    place = parameters
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        is_last = following is None
        if isinstance(step, int):
            if not isinstance(place, list) or step > len(place):
                raise Refused(f"--param {param!r}: there is no element {step}")
            if step == len(place):
                place.append({})
            place[step] = value if is_last else place[step]
        elif not isinstance(place, dict):
            raise Refused(f"--param {param!r}: {step} is no member of a {type(place).__name__}")
        elif is_last:
            place[step] = value
        else:
            place.setdefault(step, [] if isinstance(following, int) else {})
        place = place[step]
    return parameters


class Plan(NamedTuple):
    """What to do: names and numbers of objects to make, and names of those to delete."""

    make: tuple[tuple[str, int], ...] = ()
    delete: tuple[str, ...] = ()


def plan_objects(name: str, there: Iterable[Document], replicas: int, serial_length: int) -> Plan:
    """Return the plan that leads to `replicas` objects: gaps are filled, the newest are deleted.

    `there`: existing objects with the label. Raises: Refused, for several objects without a serial number.
    """
    if serial_length == 0 and replicas > 1:
        raise Refused(f"--serial-length 0 with --replicas {replicas}: want a serial number for more than one object")
    ages = sorted((str(metadata_of(each).get("creationTimestamp") or ""), metadata_of(each)["name"]) for each in there)
    if len(ages) > replicas:
        return Plan(delete=tuple(each for _, each in ages[replicas:]))
    names = {each for _, each in ages}
    make: list[tuple[str, int]] = []
    index = 0
    while len(make) < replicas - len(ages):
        new_name = f"{name}-{index:0{serial_length}d}" if serial_length else name
        if new_name not in names:
            make.append((new_name, index))
        index += 1
    return Plan(make=tuple(make))
