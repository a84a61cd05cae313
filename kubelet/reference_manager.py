"""The objects to which one node's pods refer, as they were last read. Pure.

Each object is read when it is needed: a volume's when it is set up, a variable's at each start of its
container. An object that was read a moment ago for another pod is not read again. While the API server
cannot be reached, the last content stays valid, as upstream's watches keep theirs; an object that was never
read is unavailable. Source: decision 0092; upstream `pkg/kubelet/util/manager/watch_based_manager.go`.
"""

from collections.abc import Mapping

from kubelet.effects import Outbox, ReadReferences, ResolveReferences
from kubelet.pod.pod import Pod
from kubelet.pod.table import PodTable
from kubelet.references.references import CONFIG_MAPS, NOTHING, SECRETS, Content, Reference, of_container, unread
from kubelet.view import KubeletContainer, WorkerKey
from services.api.meta import Document

FRESH_S = 1.0
"""Seconds for which a read object counts as current."""
_KEPT = (CONFIG_MAPS, SECRETS)
_Place = tuple[str, Reference]


class ReferenceManager:
    """The known objects of one node's pods.

    Invariant: an object is known only while a pod is here that asked for it.
    """

    def __init__(self, table: PodTable, out: Outbox) -> None:
        self._table, self._out = table, out
        self._known: dict[_Place, tuple[Content, float]] = {}
        """By namespace and object: what was read, and when."""
        self._users: dict[_Place, dict[WorkerKey, None]] = {}
        self._of_pod: dict[WorkerKey, dict[_Place, None]] = {}
        table.on(ResolveReferences, self._resolve)
        table.on_forget = self._forget

    def _resolve(self, pod: Pod, effect: ResolveReferences, now: float) -> None:
        """A pod asks for what it refers to: read what was not read just now."""
        namespace = pod.pod.metadata.namespace
        has_values = bool(effect.container)
        wanted = tuple(each for each in effect.wanted if not self._is_fresh((namespace, each), now, has_values))
        self._out.effects.append(ReadReferences(pod.key, pod.pod, effect.container, wanted, effect.wanted))

    def _is_fresh(self, place: _Place, now: float, has_values: bool) -> bool:
        content, read_s = self._known.get(place, (None, 0.0))
        if content is None or content.problem or (has_values and content.values is None):
            return False
        return now < read_s + FRESH_S

    def objects(self, namespace: str, container: KubeletContainer) -> dict[tuple[str, str], Document]:
        """Return the objects of a container's variables, as its last start read them."""
        known = {each: self._known.get((namespace, each), (NOTHING, 0.0))[0] for each in of_container(container)}
        return {(each.resource, each.name): {"data": read.values} for each, read in known.items() if read.values}

    def references_read(self, done: ReadReferences, contents: Mapping[Reference, Content | str], now: float) -> None:
        """Take the objects, or why they could not be read, and pass them to the pod with the ones known before."""
        if (pod := self._table.pods.get(done.key)) is None:
            return
        namespace, answers = done.pod.metadata.namespace, dict[Reference, Content]()
        for reference in done.all:
            place, read = (namespace, reference), contents.get(reference, "")
            if isinstance(read, str):
                answers[reference] = self._known[place][0] if place in self._known else unread(reference, read)
                continue
            answers[reference] = read
            if reference.resource in _KEPT:
                self._known[place] = read, now
                self._users.setdefault(place, {})[done.key] = None
                self._of_pod.setdefault(done.key, {})[place] = None
        self._table.perform(pod, pod.references_read(done.container, answers, now), now)

    def _forget(self, key: WorkerKey) -> None:
        """The pod is gone, and so are its logs: forget what only it asked for."""
        for place in self._of_pod.pop(key, ()):
            users = self._users[place]
            del users[key]
            if not users:
                del self._users[place], self._known[place]
