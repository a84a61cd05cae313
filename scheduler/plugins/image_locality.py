"""Score: prefer nodes that have the pod's images; large and widespread images count more.

Source: scheduler-queue-and-cycles 6.
"""

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
"""Maximal bytes that count per init or main container; images of volumes count in the sum only."""


def with_tag(name: str) -> str:
    """Return the image's name with the tag `latest` if it has neither tag nor digest."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"


class ImageLocality:
    """The plugin: it scores nodes by their images.

    A score depends on how many nodes have the image: the cache drops its answers when that changes.
    """

    name = "ImageLocality"

    def __init__(self, args: Args, handle: Handle) -> None:
        self._cache = handle.cache

    def row_signature(self, pod: PodInfo) -> Hashable:
        """Return the images and the number of containers."""
        return (len(pod.spec.init_containers) + len(pod.spec.containers), *_images(pod))

    def score(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> int:
        """Return the score of the present images' sizes, each weighted by the share of nodes that have it."""
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
        yield with_tag(container.image)
    for volume in spec.volumes:
        if volume.image is not None:
            yield with_tag(volume.image.reference)


PLUGIN = PluginEntry("ImageLocality", ImageLocality)
