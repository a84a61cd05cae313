"""Node definitions from the options of a scenario's `nodes` line. Pure."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from lab.scenarios.script.declaration import Option, check_known, fields, read_options
from lab.scenarios.script.value_types import (
    COUNT,
    DURATION,
    FLAG,
    INTEGER,
    NAME,
    PAIRS,
    QUANTITIES,
    QUANTITY,
    TEXT,
    ValueType,
    as_type,
    choice,
    parse_duration,
    parse_pairs,
)
from services.api.meta import Document
from services.api.release import RELEASES

Options = Mapping[str, str]


def _taint(text: str) -> Document:
    key, _, effect = text.rpartition(":")
    name, _, value = key.partition("=")
    if not name or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise ValueError("want KEY[=VALUE]:EFFECT, the effect NoSchedule, PreferNoSchedule or NoExecute")
    return {"key": name, "effect": effect, **({"value": value} if value else {})}


def _images(text: str) -> dict[str, str]:
    parts = [(each, *each.rpartition("=")) for each in text.split(",")]
    for each, _, sign, _ in parts:
        if not sign:
            raise ValueError(f"images={each}: want NAME=SIZE, for example shop:2=500Mi")
    return {name: size for _, name, _, size in parts}


def _numa(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d+)x(\d+)", text)
    if match is None:
        raise ValueError("want COUNTxCPUS, for example 2x8")
    return int(match[1]), int(match[2])


def _reserved_memory(text: str) -> list[dict[str, Any]]:
    sizes = enumerate(text.split(","))
    return [{"numaNode": numa, "limits": {"memory": size}} for numa, size in sizes if size != "0"]


def _option_values(text: str) -> dict[str, str]:
    """Return `A,B:VALUE` as {A: true, B: VALUE}."""
    return {name: value or "true" for name, _, value in (part.partition(":") for part in text.split(","))}


def _image_gc(text: str) -> Document:
    high, sign, low = text.partition("/")
    if not (sign and high.isdigit() and low.isdigit()):
        raise ValueError("want HIGH/LOW in percent of the disk, for example 85/80")
    return {"imageGCHighThresholdPercent": int(high), "imageGCLowThresholdPercent": int(low)}


def _pulls(text: str) -> Document:
    if text == "serial":
        return {}
    if text != "parallel" and not text.isdigit():
        raise ValueError("want serial, parallel or a number of pulls at once")
    return {"serializeImagePulls": False, "maxParallelImagePulls": int(text) if text.isdigit() else 0}


def _shutdown(text: str) -> Document:
    total, _, critical = text.partition("/")
    return {
        "shutdownGracePeriod": parse_duration(total),
        "shutdownGracePeriodCriticalPods": parse_duration(critical) if critical else 0.0,
    }


def _reserved_cpus(text: str) -> Document:
    return {"reservedCpus": int(text)} if text.isdigit() else {"reservedSystemCpus": text}


def _plugin_options(text: str) -> Document:
    known: dict[str, Document] = {
        "pairs": {"preferred": "pairs"},
        "spread": {"preferred": "spread"},
        "pre-start": {"preStart": True},
    }
    chosen = text.split("+")
    if unknown := [option for option in chosen if option not in known]:
        raise ValueError(f"{unknown[0]}, want {', '.join(known)}")
    return {name: value for option in reversed(chosen) for name, value in known[option].items()}


def _topology(text: str) -> list[int]:
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise ValueError("want NUMA nodes such as 0,0,1,1")
    return [int(numa) for numa in text.split(",")]


def _counts(text: str) -> dict[str, int]:
    counts = parse_pairs(text)
    for resource, count in counts.items():
        if not count.isdigit():
            raise ValueError(f"{resource}:{count}: want a number of devices")
    return {resource: int(count) for resource, count in counts.items()}


_COUNTS = as_type("RESOURCE:COUNT,…", _counts)


def _features(text: str) -> list[str]:
    return [] if text == "none" else [part for part in text.split(",") if part]


def _with(name: str, read: Callable[[str], Any]) -> ValueType:
    return as_type(name, read)


_FIELDS = (
    Option("extended", QUANTITIES, "extended resources that belong to no NUMA node", field="extended"),
    Option("labels", PAIRS, "its labels", field="labels"),
    Option(
        "taints",
        _with("KEY[=VALUE]:EFFECT,…", lambda text: [_taint(each) for each in text.split(",")]),
        "its taints",
        field="taints",
    ),
    Option("zone", NAME, "the label topology.kubernetes.io/zone", field="zone"),
    Option("region", NAME, "the label topology.kubernetes.io/region", field="region"),
    Option("kube-reserved", QUANTITIES, "withheld from pods for Kubernetes", field="kubeReserved"),
    Option("system-reserved", QUANTITIES, "withheld from pods for the system", field="systemReserved"),
    Option("app-armor", FLAG, "whether it has AppArmor", otherwise="true", field="appArmor"),
    Option(
        "groups-policy",
        FLAG,
        "whether its runtime knows a pod's supplementalGroupsPolicy",
        otherwise="true",
        field="supplementalGroupsPolicy",
    ),
    Option("disk", QUANTITY, "its ephemeral storage", otherwise="100Gi", field="ephemeralStorage"),
    Option(
        "attachable-volumes",
        INTEGER,
        "how many claims' volumes can be attached",
        otherwise="any",
        field="attachableVolumes",
    ),
    Option(
        "restart-max",
        DURATION,
        "the longest crash-loop back-off (KEP-4603)",
        otherwise="5m",
        field="maxContainerRestartPeriod",
    ),
    Option("feature-gates", PAIRS, "feature gates of this node alone: `PodLevelResources:false`", field="featureGates"),
    Option(
        "version",
        choice(*RELEASES),
        "the release of its kubelet: what it is called, its gates, and what it declares",
        otherwise="as emulate.version says",
        field="version",
    ),
    Option(
        "declared-features",
        _with("NAME,…|none", _features),
        "the features that it declares (KEP-5328)",
        otherwise="what its release and gates give",
        field="declaredFeatures",
    ),
    Option(
        "evict-below",
        _with("SIGNAL:QUANTITY,…", lambda text: {"hard": parse_pairs(text)}),
        "hard eviction thresholds: `memory.available:500Mi`",
        field="eviction",
    ),
    Option("images", _with("IMAGE=SIZE,…", _images), "images that are there from the beginning", field="images"),
    Option(
        "faults",
        TEXT,
        'what goes wrong when pods start: `"prepare fails 2 times"` (docs/how-to/faults.md)',
        field="startFaults",
    ),
    Option(
        "drivers",
        _with("DRIVER:DEVICES|FILE+…", str),
        "emulated DRA drivers (docs/how-to/devices-claims.md)",
        field="drivers",
    ),
    Option("device-socket", FLAG, "whether other device plugins and drivers may register", field="deviceSocket"),
    Option(
        "scope",
        choice("container", "pod"),
        "the topology manager's scope",
        otherwise="container",
        field="topologyScope",
    ),
    Option(
        "cpu-policy",
        choice("none", "static"),
        "the CPU manager's policy",
        otherwise="static with a topology policy, else none",
        field="cpuPolicy",
    ),
    Option(
        "cpu-ids",
        choice("split", "adjacent"),
        "whether second threads are numbered after all first ones",
        otherwise="split",
        field="cpuIds",
    ),
    Option(
        "memory-policy", choice("None", "Static"), "the memory manager's policy", otherwise="None", field="memoryPolicy"
    ),
    Option("threads", COUNT, "hardware threads of a core", otherwise="1", field="threadsPerCore"),
    Option("sockets", COUNT, "sockets", otherwise="one for each NUMA node", field="sockets"),
    Option(
        "cache-cores",
        COUNT,
        "cores that share an uncore cache",
        otherwise="those of a NUMA node",
        field="coresPerCache",
    ),
    Option(
        "cpu-options",
        _with("OPTION[:VALUE],…", _option_values),
        "options of the static CPU manager: `full-pcpus-only`",
        field="cpuOptions",
    ),
    Option(
        "topology-options",
        _with("OPTION[:VALUE],…", _option_values),
        "options of the topology manager: `prefer-closest-numa-nodes`",
        field="topologyOptions",
    ),
    Option("full-pcpus", FLAG, "short for cpu-options=full-pcpus-only", field="fullPcpusOnly"),
    Option(
        "reserved-memory",
        _with("QUANTITY,…", _reserved_memory),
        "what the system keeps of NUMA nodes 0, 1 and so on",
        field="reservedMemory",
    ),
    Option("hugepages", QUANTITIES, "huge pages, shared evenly by the NUMA nodes", field="hugepages"),
)
_SEVERAL_FIELDS = (
    Option(
        "image-gc",
        _with("HIGH/LOW", _image_gc),
        "percent of the disk at which unused images leave, and until when",
        otherwise="85/80",
        field="imageGC…ThresholdPercent",
    ),
    Option(
        "pulls",
        _with("serial|parallel|COUNT", _pulls),
        "how many images are pulled at once",
        default="serial",
        field="serializeImagePulls, maxParallelImagePulls",
    ),
    Option(
        "shutdown",
        _with("DURATION[/DURATION]", _shutdown),
        "time to end pods when it shuts down, the last of it for critical ones (KEP-2000)",
        otherwise="none",
        field="shutdownGracePeriod…",
    ),
    Option(
        "reserved",
        _with("COUNT|CPUS", _reserved_cpus),
        "how many CPUs the system keeps, or which: `0-1,8`",
        field="reservedCpus, reservedSystemCpus",
    ),
)
_PLUGINS = (
    Option(
        "plugins", _COUNTS, "emulated device plugins: `example.com/gpu:4` has dev-0 to dev-3", field="devicePlugins"
    ),
    Option(
        "plugin-topology", _with("NUMA,…", _topology), "the NUMA node of each device", field="devicePlugins.topology"
    ),
    Option(
        "plugin-options",
        _with("OPTION+…", _plugin_options),
        "what plugins prefer and want: pairs, spread, pre-start",
        field="devicePlugins.preferred, .preStart",
    ),
    Option(
        "plugin-delay", DURATION, "how long a plugin takes to register", otherwise="0s", field="devicePlugins.delayS"
    ),
)
NODE_OPTIONS = (
    Option("cpu", QUANTITY, "its CPUs", otherwise="those of numa=, else 8", field="cpu"),
    Option("memory", QUANTITY, "its memory", default="64Gi", field="memory"),
    Option("pods", INTEGER, "how many pods it runs", default="110", field="pods"),
    Option("numa", _with("COUNTxCPUS", _numa), "NUMA nodes and the CPUs of each: `2x8`", field="numa"),
    Option("devices", _COUNTS, "devices of every NUMA node that need no plugin", field="numa.devices"),
    Option(
        "policy",
        choice("none", "best-effort", "restricted", "single-numa-node"),
        "the topology manager's policy",
        default="none",
        field="topologyPolicy",
    ),
    *_FIELDS,
    *_SEVERAL_FIELDS,
    *_PLUGINS,
)
NODE_NOTES = """\
A topology policy other than none implies the static CPU manager unless `cpu-policy` says otherwise.

A block of the line has further fields of the node's definition, as `keplab up --nodes-file FILE` takes them \
(docs/reference/pods-on-nodes.md); they win over the line's options."""


def node_definition(name: str, options: Options) -> Document:
    """Return a node definition as `kubelet/node/definition.py` reads it.

    `numa=2x8` is two NUMA nodes of 8 CPUs each; `cpu` defaults to their sum. `devices=example.com/gpu:2` puts two
    devices on every NUMA node. Raises: ValueError, also for an unknown option.
    """
    check_known(options, NODE_OPTIONS, "node")
    values = read_options(options, NODE_OPTIONS, "node")
    definition: Document = {
        "name": name,
        "memory": values["memory"],
        "pods": values["pods"],
        "cpu": values["cpu"] or "8",
    }
    if values["numa"] is not None:
        count, cpus = values["numa"]
        definition["numa"] = [{"cpus": cpus, "devices": values["devices"] or {}} for _ in range(count)]
        definition["cpu"] = values["cpu"] or str(count * cpus)
    elif values["devices"] is not None:
        raise ValueError(f"devices={options['devices']}: devices of NUMA nodes need numa=")
    definition["topologyPolicy"] = values["policy"]
    definition |= fields(values, _FIELDS)
    for option in _SEVERAL_FIELDS:
        definition |= values[option.name] or {}
    return definition | _device_plugins(options, values)


def _device_plugins(options: Options, values: dict[str, Any]) -> Document:
    """Return what a node definition says of device plugins: the same for all of the node's."""
    shared: Document = dict(values["plugin-options"] or {})
    if values["plugin-topology"] is not None:
        shared["topology"] = values["plugin-topology"]
    if values["plugin-delay"] is not None:
        shared["delayS"] = values["plugin-delay"]
    if values["plugins"] is not None:
        return {"devicePlugins": [{"resource": name, "devices": n, **shared} for name, n in values["plugins"].items()]}
    if shared:
        raise ValueError(f"{', '.join(o for o in options if o.startswith('plugin-'))}: these options need plugins=")
    return {}
