"""Score: prefer nodes that have the pod's images already, the more so the larger and the more widespread they are.
Source: scheduler-queue-and-cycles 6."""

from collections.abc import Hashable, Iterator
from typing import Final

import numpy as np

from scheduler.cache.columns import Columns, Scores
from scheduler.cache.node_info import NodeInfo, PodInfo
from scheduler.entry import Args, Handle, PluginEntry
from scheduler.framework.cycle_state import CycleState

MIB: Final = 2**20
LEAST_BYTES: Final = 23 * MIB
MOST_BYTES: Final = 1000 * MIB
"""Per init or main container; images of volumes count in the sum only."""


def tagged(name: str) -> str:
    """Return the image's name with the tag `latest` if it has neither tag nor digest."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


class ImageLocality:
    """What one node is worth depends on how many have the image: the cache forgets its answers when that changes."""

    name = "ImageLocality"

    def __init__(self, args: Args, handle: Handle) -> None:
        self._cache = handle.cache

    def row_signature(self, pod: PodInfo) -> Hashable:
        """The images and the number of containers."""
        return (len(pod.spec.init_containers) + len(pod.spec.containers), *_images(pod))

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Sum the sizes of the images that are there, each by the share of nodes that have it."""
        columns = self._cache.columns
        if node.node is None or not columns.images:
            return 0
        there = {name for image in node.node.status.images for name in image.names}
        total = 0
        for name in _images(pod):
            image = columns.images.get(name)
            if image is not None and name in there:
                total += int(image.size_bytes * (len(image.rows) / columns.count))
        most = MOST_BYTES * _containers(pod)
        return 100 * (min(max(total, LEAST_BYTES), most) - LEAST_BYTES) // (most - LEAST_BYTES)

    def score_all(self, state: CycleState, pod: PodInfo, columns: Columns) -> Scores | int:
        """Return the same for every row."""
        if not columns.images:
            return 0
        total = np.zeros(columns.capacity)
        for name in _images(pod):
            image = columns.images.get(name)
            if image is not None:
                total[list(image.rows)] += int(image.size_bytes * (len(image.rows) / columns.count))
        most = MOST_BYTES * _containers(pod)
        scores: Scores = np.floor((total.clip(LEAST_BYTES, most) - LEAST_BYTES) * 100 / (most - LEAST_BYTES))
        return scores


def _containers(pod: PodInfo) -> int:
    return max(len(pod.spec.init_containers) + len(pod.spec.containers), 1)


def _images(pod: PodInfo) -> Iterator[str]:
    spec = pod.spec
    for container in (*spec.init_containers, *spec.containers):
        yield tagged(container.image)
    for volume in spec.volumes:
        if volume.image is not None:
            yield tagged(volume.image.reference)


PLUGIN = PluginEntry("ImageLocality", ImageLocality)
