"""Shared parts of the public traces: selection of a part, and the pods and classes that rows become. Pure.

A part is a window of time, a share of the collections by a seed, and a compression of time: arrivals and run
times alike. Source: simulator 10.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from lab.exchange.stream import Change, Refused
from lab.exchange.traces.runs import seconds_text
from services.api.kinds.pod import RUN
from services.api.meta import Document
from services.api.quantity import units

PART_OPTIONS: Final = ("from", "to", "sample", "seed", "compress")
NAMESPACE: Final = "default"
_UNITS_S: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(ms|s|m|h|d)?")
_NAME_SIGNS: Final = re.compile(r"[^a-z0-9.-]+")
_LABEL_SIGNS: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class Part:
    """Selected part of a trace: seconds of the trace's clock, a share of its collections, a compression."""

    begin_s: float = 0.0
    end_s: float = math.inf
    share: float = 1.0
    seed: int = 0
    compress: float = 1.0

    @staticmethod
    def of(options: Mapping[str, str], file: str) -> Part:
        """Return the part that the options select. Raises: Refused naming the option and its value."""
        try:
            part = Part(
                _duration("from", options.get("from", "0s")),
                _duration("to", options["to"]) if options.get("to") else math.inf,
                _share(options.get("sample", "1")),
                _integer("seed", options.get("seed", "0")),
                _factor(options.get("compress", "1x")),
            )
        except ValueError as error:
            raise Refused(f"{file}: {error}") from None
        if part.end_s <= part.begin_s:
            raise Refused(f"{file}: --to {options['to']}: want more than --from {options.get('from', '0s')}")
        return part

    def has(self, collection: str) -> bool:
        """Return whether a collection is in the sample: decided by seed and name alone, for all its rows alike."""
        if self.share >= 1.0:
            return True
        digest = hashlib.sha256(f"{self.seed}/{collection}".encode()).digest()
        return int.from_bytes(digest[:8], "big") / 2**64 < self.share

    def place_run(
        self, submitted_s: float, started_s: float, ended_s: float | None
    ) -> tuple[float, float | None] | None:
        """Return the start of a run in the stream and its length; None if it is not in the window.

        A run that was submitted before the window and ends within or after it gets its remaining time.
        """
        if submitted_s >= self.end_s or (ended_s is not None and ended_s <= self.begin_s):
            return None
        begins = max(submitted_s, self.begin_s)
        length = None if ended_s is None else ended_s - max(started_s, self.begin_s)
        at_s = (begins - self.begin_s) / self.compress
        return at_s, None if length is None else max(length, 0.0) / self.compress


def _duration(name: str, text: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"--{name} {text}: want for example 90s, 12h or 2d")
    return float(found[1]) * _UNITS_S[found[2] or "s"]


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share <= 1:
        raise ValueError(f"--sample {text}: want a share above 0 and up to 1")
    return share


def _integer(name: str, text: str) -> int:
    if not re.fullmatch(r"-?\d{1,18}", text):
        raise ValueError(f"--{name} {text}: want a whole number")
    return int(text)


def _factor(text: str) -> float:
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)x?", text)
    if found is None or not float(found[1]) > 0:
        raise ValueError(f"--compress {text}: want a factor above 0 such as 24x")
    return float(found[1])


def scale_of(text: str, file: str) -> tuple[float, float]:
    """Return cores and bytes of a machine of size 1.0.

    Raises: Refused, if the text is not like `cpu=64,memory=256Gi`.
    """
    scale: dict[str, float] = {}
    # In a line of a scenario a comma parts options.
    for part in filter(None, re.split("[,;]", text)):
        name, _, value = part.partition("=")
        try:
            scale[name] = float(units(value))
        except ValueError:
            scale[name] = math.nan
    if set(scale) != {"cpu", "memory"} or not all(value > 0 for value in scale.values()):
        problem = f"--scale {text}" if text else "resources are shares of the greatest machine; --scale is not given"
        raise Refused(f"{file}: {problem}: want for example cpu=64,memory=256Gi, a machine of 1.0")
    return scale["cpu"], scale["memory"]


def name_of(*words: object) -> str:
    """Return an object name made from a trace's identifiers."""
    text = _NAME_SIGNS.sub("-", "-".join(map(str, words)).lower()).strip("-.")
    return text[:200] or "x"


def label_of(text: str) -> str:
    """Return a label value for a text: the text itself if it is a valid one, else 16 characters of its hash."""
    return text if not text or _LABEL_SIGNS.fullmatch(text) else hashlib.sha256(text.encode()).hexdigest()[:16]


def node(name: str, resources: Mapping[str, str], labels: Mapping[str, str]) -> Document:
    """Return a node that offers these resources."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
        "status": {"capacity": dict(resources), "allocatable": dict(resources)},
    }


def priority_class(name: str, value: int) -> Document:
    """Return a PriorityClass."""
    metadata = {"name": name}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value}


def pod(
    name: str,
    run_s: float | None,
    requests: Mapping[str, str],
    *,
    labels: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    exit_code: int = 0,
    priority_class_name: str = "",
    terms: list[Document] | None = None,
    anti_affinity: Mapping[str, str] | None = None,
) -> Document:
    """Return a pod that runs once, for `run_s` seconds; None: for ever. `terms`: requirements on its node's labels."""
    does = "forever" if run_s is None else f"exit {exit_code} after {seconds_text(run_s)}"
    resources: Document = {"requests": {**requests, **(limits or {})}}
    if limits:
        resources["limits"] = dict(limits)
    spec: Document = {
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "trace", "resources": resources}],
    }
    if priority_class_name:
        spec["priorityClassName"] = priority_class_name
    affinity: Document = {}
    if terms:
        required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    if anti_affinity:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": dict(anti_affinity)}}
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    if affinity:
        spec["affinity"] = affinity
    metadata: Document = {"name": name, "namespace": NAMESPACE, "annotations": {RUN: does}}
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def pod_creation(at_s: float, document: Document, where: str) -> Change:
    """Return the change that creates a pod."""
    return Change(at_s, "create", "pods", NAMESPACE, document["metadata"]["name"], document, "", where)


def number(row: Mapping[str, Any], field: str, where: str, *, default: float | None = None) -> float:
    """Return the number in a row's field. Raises: Refused naming the field and its value."""
    text = row.get(field)
    if is_none(text) and default is not None:
        return default
    try:
        parsed_number = float(str(text))
    except ValueError:
        parsed_number = math.nan
    if not math.isfinite(parsed_number):
        raise Refused(f"{where}: {field}: {'nothing' if text is None else repr(text)}: want a number")
    return parsed_number


AMOUNT_MAX: Final = float(1 << 53)
"""Largest amount of a resource: more than any machine has, and small enough for exact counting."""


def amount(
    row: Mapping[str, Any],
    field: str,
    where: str,
    *,
    default: float | None = None,
    most: float = AMOUNT_MAX,
    is_whole: bool = False,
) -> float:
    """Return the amount of a resource in a row's field. Raises: Refused naming the field and its value."""
    parsed_amount = number(row, field, where, default=default)
    if not 0 <= parsed_amount <= most or (is_whole and parsed_amount != int(parsed_amount)):
        want = "a whole number" if is_whole else "a number"
        raise Refused(f"{where}: {field} {str(row[field]).strip()}: want {want} from 0 to {most:,.0f}")
    return parsed_amount


def is_none(text: Any) -> bool:
    """Return whether a cell is empty or says none."""
    return text is None or str(text).strip().lower() in ("", "nan", "none", "null")


def quantity(value: float, *, milli: bool = False) -> str:
    """Return a resource quantity: whole bytes, or thousandths of cores."""
    return f"{round(value)}m" if milli else str(round(value))
