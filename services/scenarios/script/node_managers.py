"""The words of a scenario's node line that are about its machine and its resource managers. Pure.

    nodes n1 numa=4x8 threads=2 sockets=2 policy=restricted scope=pod reserved=2
          cpu-options=full-pcpus-only,distribute-cpus-across-numa topology-options=prefer-closest-numa-nodes
          memory-policy=Static reserved-memory=1Gi,512Mi hugepages=hugepages-2Mi:64Mi

`reserved` is a number of CPUs, or which ones (`0-1,8`); `reserved-memory` is what the system keeps of NUMA nodes 0, 1
and so on; `cache-cores` is how many cores share an uncore cache. A topology policy other than none implies the static
CPU manager unless `cpu-policy` says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

from services.api.meta import Document

_WORDS = {
    "scope": "topologyScope",
    "cpu-policy": "cpuPolicy",
    "cpu-ids": "cpuIds",
    "memory-policy": "memoryPolicy",
}
_NUMBERS = {"threads": "threadsPerCore", "sockets": "sockets", "cache-cores": "coresPerCache"}
_OPTIONS = {"cpu-options": "cpuOptions", "topology-options": "topologyOptions"}
MANAGER_OPTIONS = frozenset(
    (*_WORDS, *_NUMBERS, *_OPTIONS, "policy", "reserved", "reserved-memory", "hugepages", "full-pcpus")
)


def managers(options: Mapping[str, str]) -> Document:
    """Return these fields of a node definition as `kubelet/managers/node_machine.py` reads them. Raises: ValueError."""
    made: Document = {"topologyPolicy": options.get("policy", "none")}
    made |= {field: options[word] for word, field in _WORDS.items() if word in options}
    made |= {field: int(options[word]) for word, field in _NUMBERS.items() if word in options}
    made |= {field: _chosen(options[word]) for word, field in _OPTIONS.items() if word in options}
    if "reserved" in options:
        is_count = options["reserved"].isdigit()
        made |= {"reservedCpus": int(options["reserved"])} if is_count else {"reservedSystemCpus": options["reserved"]}
    if "full-pcpus" in options:
        made["fullPcpusOnly"] = options["full-pcpus"] == "true"
    if "reserved-memory" in options:
        sizes = enumerate(options["reserved-memory"].split(","))
        made["reservedMemory"] = [{"numaNode": numa, "limits": {"memory": size}} for numa, size in sizes if size != "0"]
    if "hugepages" in options:
        parts = [part.partition(":") for part in options["hugepages"].split(",")]
        made["hugepages"] = {kind: size for kind, _, size in parts}
    return made


def _chosen(text: str) -> dict[str, str]:
    """Return `A,B:VALUE` as {A: true, B: VALUE}."""
    return {name: value or "true" for name, _, value in (part.partition(":") for part in text.split(","))}
