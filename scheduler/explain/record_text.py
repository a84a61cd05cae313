"""The texts of a decision record: JSON as Go writes it, cut to the API server's limit for one object. Pure.

Source: simulator 2.1; kubernetes-sigs/kube-scheduler-simulator,
`simulator/scheduler/storereflector/storereflector.go`; upstream `TotalAnnotationSizeLimitB`
(`staging/src/k8s.io/apimachinery/pkg/api/validation/objectmeta.go`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

PREFIX: Final = "kube-scheduler-simulator.sigs.k8s.io/"
HISTORY: Final = PREFIX + "result-history"
TRUNCATED: Final = PREFIX + "truncated"
SELECTED: Final = PREFIX + "selected-node"
ANNOTATIONS_MAX_BYTES: Final = 256 * 1024
"""The API server's limit of annotation keys and values together, in bytes."""
NODES_KEPT: Final = (50, 20, 10, 5, 2, 1)
"""Numbers of nodes to keep in each group with the same answer.

The next number is used if the record is still too large.
"""
NODES_IN_ALL: Final = (1000, 300, 100, 30, 10, 3, 1)
"""Numbers of nodes to keep in all, when scores make nearly every node a group of its own."""
LARGE: Final = 32 * 1024
"""Bytes from which on a text that is not by node, such as the whole nodes of an extender, is dropped first."""
_BY_NODE: Final = ("filter-result", "postfilter-result", "score-result", "finalscore-result")
_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    (chr(0x2028).encode(), b"\\u2028"),
    (chr(0x2029).encode(), b"\\u2029"),
)
Texts = Mapping[str, str]


def go_json(value: Any) -> str:
    """Return the value as Go's `json.Marshal` writes it: keys of maps sorted, fields of structs in their order."""
    text = msgspec.json.encode(value, order="deterministic")
    for character, escape in _ESCAPES:
        if character in text:
            text = text.replace(character, escape)
    return text.decode()


def size_of(annotations: Texts) -> int:
    """Return the bytes that the annotations take of the API server's limit."""
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


def annotations(attempts: Sequence[Texts]) -> dict[str, str]:
    """Return the newest attempt's texts and the history of all, however large."""
    return {**attempts[-1], HISTORY: go_json(list(attempts))} if attempts else {}


def fitting(newest: Texts, older: Iterable[Texts], count: int, budget: int) -> dict[str, str]:
    """Return the annotations that fit into `budget` bytes; `…/truncated` says what was left out.

    First the oldest attempts leave the history. Then each answer by node keeps a few nodes of each group with
    the same answer. Then a few nodes are kept in all: the chosen one and those with the best scores.

    `older`: the attempts before the newest, the latest first; no more of them are read than fit. `count`: the
    number of all attempts.
    """
    left_out: dict[str, Any] = {"result-history": {"attempts": count, "kept": count}}
    spare = budget - size_of(newest) - len(HISTORY) - len(TRUNCATED) - len(go_json(left_out))
    entries = [go_json(newest)]
    size = len(entries[0].encode()) + 2
    has_history = size <= spare
    for texts in older if has_history else ():
        entry = go_json(texts)
        size += len(entry.encode()) + 1
        if size > min(spare, ANNOTATIONS_MAX_BYTES):
            break
        entries.append(entry)
    if has_history:
        history = f"[{','.join(reversed(entries))}]"
        left_out["result-history"]["kept"] = len(entries)
        is_whole = len(entries) == count
        return {**newest, HISTORY: history, **({} if is_whole else {TRUNCATED: go_json(left_out)})}
    annotations: dict[str, str] = {}
    large = [k for k, v in newest.items() if len(v) > LARGE and k.removeprefix(PREFIX) not in _BY_NODE]
    if large:
        newest, left_out["gone"] = {k: v for k, v in newest.items() if k not in large}, sorted(large)
    for few, nodes in _thin_out(newest):
        left_out.update(nodes)
        for kept in ([few], []):
            left_out["result-history"]["kept"] = len(kept)
            annotations = {**few, HISTORY: go_json(kept), TRUNCATED: go_json(left_out)}
            if size_of(annotations) <= budget:
                return annotations
    return _without_the_largest(annotations, budget)


def _thin_out(texts: Texts) -> Iterable[tuple[dict[str, str], dict[str, Any]]]:
    """Return the attempt with ever fewer nodes, each time with what was left out."""
    whole = {name: msgspec.json.decode(texts[PREFIX + name]) for name in _BY_NODE if PREFIX + name in texts}
    chosen = texts.get(SELECTED, "")
    order = _by_rank(whole.get("finalscore-result", {}), chosen)
    for most in NODES_KEPT:
        yield _cut(texts, whole, {name: _few_of_each(nodes, most, chosen) for name, nodes in whole.items()})
    for in_all in NODES_IN_ALL:
        cut = {}
        for name, nodes in whole.items():
            few = _few_of_each(nodes, NODES_KEPT[-1], chosen)
            ranked = [node for node in order if node in nodes] or [n for n in (chosen, *few) if n in few]
            cut[name] = {node: nodes[node] for node in ranked[:in_all]}
        yield _cut(texts, whole, cut)


def _by_rank(final: Mapping[str, Mapping[str, str]], chosen: str) -> list[str]:
    """Return the scored nodes, the chosen one first, then by their sum."""
    return sorted(final, key=lambda node: (node != chosen, -sum(map(int, final[node].values())), node))


def _few_of_each(nodes: Mapping[str, Any], most: int, chosen: str) -> dict[str, Any]:
    """Return some nodes of each group with equal answers, always the chosen one and those with a victim."""
    seen: dict[str, int] = {}
    kept: dict[str, Any] = {}
    for node, answers in nodes.items():
        group = go_json(answers)
        seen[group] = seen.get(group, 0) + 1
        if seen[group] <= most or node == chosen:
            kept[node] = answers
    return kept


def _cut(texts: Texts, whole: Mapping[str, Any], kept: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    shortened_texts = dict(texts)
    left_out: dict[str, Any] = {}
    for name, nodes in kept.items():
        if len(nodes) < len(whole[name]):
            shortened_texts[PREFIX + name] = go_json(nodes)
            left_out[name] = {"nodes": len(whole[name]), "kept": len(nodes)}
    return shortened_texts, left_out


def _without_the_largest(annotations: dict[str, str], budget: int) -> dict[str, str]:
    """Return what is left when the largest values go; their keys are named. Nothing when not even that fits."""
    while size_of(annotations) > budget:
        others = [key for key in annotations if key not in (SELECTED, TRUNCATED)]
        largest = max(others, key=lambda key: len(annotations[key]), default="")
        if not largest:
            return {}
        del annotations[largest]
        left_out = msgspec.json.decode(annotations[TRUNCATED])
        annotations[TRUNCATED] = go_json({**left_out, "gone": sorted([*left_out.get("gone", ()), largest])})
    return annotations
