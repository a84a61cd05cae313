"""Node definitions from the words of a scenario's node line. Pure.

    nodes n1 numa=4x8 threads=2 sockets=2 policy=restricted scope=pod reserved=2
          cpu-options=full-pcpus-only,distribute-cpus-across-numa topology-options=prefer-closest-numa-nodes
          memory-policy=Static reserved-memory=1Gi,512Mi hugepages=hugepages-2Mi:64Mi

`reserved` is a number of CPUs, or which ones (`0-1,8`); `reserved-memory` is what the system keeps of NUMA nodes 0, 1
and so on; `cache-cores` is how many cores share an uncore cache. A topology policy other than none implies the static
CPU manager unless `cpu-policy` says otherwise.
"""

from collections.abc import Callable, Mapping
from typing import Any

from services.api.meta import Document
from services.scenarios.script.scenario import parse_duration
from services.scenarios.script.workload import Fields, Options, check, fields, is_true, pairs


def _taint(text: str) -> Document:
    key, _, effect = text.rpartition(":")
    name, _, value = key.partition("=")
    if not name or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
        raise ValueError(f"taints={text}: want KEY[=VALUE]:EFFECT")
    return {"key": name, "effect": effect, **({"value": value} if value else {})}


def _images(text: str) -> dict[str, str]:
    parts = [(each, *each.rpartition("=")) for each in text.split(",")]
    for each, _, sign, _ in parts:
        if not sign:
            raise ValueError(f"images={each}: want NAME=SIZE, for example shop:2=500Mi")
    return {name: size for _, name, _, size in parts}


def _reserved_memory(text: str) -> list[dict[str, Any]]:
    sizes = enumerate(text.split(","))
    return [{"numaNode": numa, "limits": {"memory": size}} for numa, size in sizes if size != "0"]


def _chosen(text: str) -> dict[str, str]:
    """Return `A,B:VALUE` as {A: true, B: VALUE}."""
    return {name: value or "true" for name, _, value in (part.partition(":") for part in text.split(","))}


def _hugepages(text: str) -> dict[str, str]:
    return {kind: size for kind, _, size in (part.partition(":") for part in text.split(","))}


def _image_gc(text: str) -> Document:
    high, sign, low = text.partition("/")
    if not (sign and high.isdigit() and low.isdigit()):
        raise ValueError(f"image-gc={text}: want HIGH/LOW in percent of the disk, for example 85/80")
    return {"imageGCHighThresholdPercent": int(high), "imageGCLowThresholdPercent": int(low)}


def _pulls(text: str) -> Document:
    if text == "serial":
        return {}
    if text != "parallel" and not text.isdigit():
        raise ValueError(f"pulls={text}: want serial, parallel or a number of pulls at once")
    return {"serializeImagePulls": False, "maxParallelImagePulls": int(text) if text.isdigit() else 0}


def _shutdown(text: str) -> Document:
    total, _, critical = text.partition("/")
    grace_s, critical_s = (float(part.removesuffix("s")) for part in (total, critical or "0"))
    return {"shutdownGracePeriod": grace_s, "shutdownGracePeriodCriticalPods": critical_s}


_FIELDS: Fields = {
    "extended": ("extended", pairs),
    "labels": ("labels", pairs),
    "taints": ("taints", lambda text: [_taint(each) for each in text.split(",")]),
    "zone": ("zone", str),
    "region": ("region", str),
    "kube-reserved": ("kubeReserved", pairs),
    "system-reserved": ("systemReserved", pairs),
    "app-armor": ("appArmor", str),
    "groups-policy": ("supplementalGroupsPolicy", str),
    "disk": ("ephemeralStorage", str),
    "attachable-volumes": ("attachableVolumes", str),
    "restart-max": ("maxContainerRestartPeriod", parse_duration),
    "feature-gates": ("featureGates", pairs),
    "declared-features": ("declaredFeatures", lambda text: text.split(",")),
    "evict-below": ("eviction", lambda text: {"hard": pairs(text)}),
    "images": ("images", _images),
    "faults": ("startFaults", str),
    "drivers": ("drivers", str),
    "device-socket": ("deviceSocket", is_true),
    "scope": ("topologyScope", str),
    "cpu-policy": ("cpuPolicy", str),
    "cpu-ids": ("cpuIds", str),
    "memory-policy": ("memoryPolicy", str),
    "threads": ("threadsPerCore", int),
    "sockets": ("sockets", int),
    "cache-cores": ("coresPerCache", int),
    "cpu-options": ("cpuOptions", _chosen),
    "topology-options": ("topologyOptions", _chosen),
    "full-pcpus": ("fullPcpusOnly", is_true),
    "reserved-memory": ("reservedMemory", _reserved_memory),
    "hugepages": ("hugepages", _hugepages),
}
_SEVERAL_FIELDS: Mapping[str, Callable[[str], Document]] = {
    "image-gc": _image_gc,
    "pulls": _pulls,
    "shutdown": _shutdown,
    "reserved": lambda text: {"reservedCpus": int(text)} if text.isdigit() else {"reservedSystemCpus": text},
}
_PLUGINS = ("plugins", "plugin-topology", "plugin-options", "plugin-delay")
_OTHERS = ("cpu", "memory", "pods", "numa", "devices", "policy", *_PLUGINS)
_OPTIONS = frozenset((*_FIELDS, *_SEVERAL_FIELDS, *_OTHERS))
_PLUGIN_OPTIONS = ("pairs", "spread", "pre-start")


def node_definition(name: str, options: Options) -> Document:
    """Return a node definition as `kubelet/node/definition.py` reads it.

    `numa=2x8` is two NUMA nodes of 8 CPUs each; `cpu` defaults to their sum. `devices=example.com/gpu:2` puts two
    devices on every NUMA node.
    `plugins=example.com/gpu:4` gives the node an emulated device plugin with four devices, `plugin-topology=0,0,1,1`
    says where they are, `plugin-options=pairs+pre-start` what it wants, `plugin-delay=20s` how long it takes to
    register again; `device-socket=true` lets others register. `restart-max=5s` is the longest crash-loop back-off.
    Raises: ValueError for an unknown option.
    """
    check(options, _OPTIONS, "a node")
    made: Document = {"name": name, "memory": options.get("memory", "64Gi"), "pods": int(options.get("pods", "110"))}
    made["cpu"] = options.get("cpu", "8")
    if "numa" in options:
        count, sign, cpus = options["numa"].partition("x")
        if not sign or not count.isdigit() or not cpus.isdigit():
            raise ValueError(f"numa={options['numa']}: want COUNTxCPUS, for example 2x8")
        devices = {k: int(v) for k, v in pairs(options.get("devices", "")).items()}
        made["numa"] = [{"cpus": int(cpus), "devices": devices} for _ in range(int(count))]
        made["cpu"] = options.get("cpu", str(int(count) * int(cpus)))
    made["topologyPolicy"] = options.get("policy", "none")
    made |= fields(options, _FIELDS)
    for option, read in _SEVERAL_FIELDS.items():
        made |= read(options[option]) if option in options else {}
    return made | _device_plugins(options)


def _device_plugins(options: Options) -> Document:
    """Return what a node definition says of device plugins: the same for all of the node's."""
    chosen = [option for option in options.get("plugin-options", "").split("+") if option]
    if unknown := [option for option in chosen if option not in _PLUGIN_OPTIONS]:
        raise ValueError(f"plugin-options={options['plugin-options']}: {unknown[0]}, want {', '.join(_PLUGIN_OPTIONS)}")
    shared: Document = {}
    if topology := options.get("plugin-topology", ""):
        shared["topology"] = [int(numa) for numa in topology.split(",")]
    if preferred := [option for option in chosen if option != "pre-start"]:
        shared["preferred"] = preferred[0]
    if "pre-start" in chosen:
        shared["preStart"] = True
    if "plugin-delay" in options:
        shared["delayS"] = parse_duration(options["plugin-delay"])
    if "plugins" in options:
        counts = pairs(options["plugins"]).items()
        return {"devicePlugins": [{"resource": name, "devices": int(count), **shared} for name, count in counts]}
    if shared:
        raise ValueError(f"{', '.join(o for o in options if o.startswith('plugin-'))}: there are no plugins=")
    return {}
