"""Readers of figures: from the kernel's files on each process, its metrics, the mesh's directory and leases."""

import asyncio
import os
import time
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import aiohttp
import msgspec

from lab.benchmarks.running_mesh import rss_mib
from lab.benchmarks.soak.figures import Sample, of_metrics
from services.api.errors import ApiError, UnknownOutcome
from services.api.wire import Api, Request

METRICS_TIMEOUT_S: Final = 5.0


def of_process(at_s: float, name: str, pid: int) -> Iterator[Sample]:
    """Yield the kernel's figures of a process; nothing if it has exited."""
    try:
        files = len(os.listdir(f"/proc/{pid}/fd"))
        threads = len(os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return
    for figure, value in (("memory", rss_mib(pid)), ("files", float(files)), ("threads", float(threads))):
        yield Sample(at_s, figure, name, pid, value)


def of_directory(at_s: float, data: Path) -> list[Sample]:
    """Return the sizes of the mesh's folders and of the store."""
    sizes = {folder.name: _size_mib(folder) for folder in sorted(data.iterdir()) if folder.is_dir()}
    store = [Sample(at_s, "store", "", 0, sizes["apiserver"])] if "apiserver" in sizes else []
    return [*(Sample(at_s, "directory", name, 0, size) for name, size in sizes.items()), *store]


def _size_mib(folder: Path) -> float:
    size = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size += os.stat(os.path.join(place, name), follow_symlinks=False).st_size
            except OSError:
                continue
    return size / 2**20


async def read_metrics(processes: Mapping[str, tuple[int, int]], token: str, begun_s: float) -> list[Sample]:
    """Scrape the metrics of each process, given by name as (pid, port); processes that do not answer are left out."""
    limit = aiohttp.ClientTimeout(total=METRICS_TIMEOUT_S)

    async with aiohttp.ClientSession(timeout=limit, headers={"Authorization": f"Bearer {token}"}) as session:

        async def ask(name: str, pid: int, port: int) -> list[Sample]:
            try:
                async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                    text = await answer.text() if answer.status == 200 else ""
            except (aiohttp.ClientError, TimeoutError, OSError):
                return []
            return list(of_metrics(time.monotonic() - begun_s, name, pid, text))

        sample_lists = await asyncio.gather(
            *(ask(name, pid, port) for name, (pid, port) in processes.items() if pid and port)
        )
    return [sample for samples in sample_lists for sample in samples]


async def read_leases(api: Api, begun_s: float) -> list[Sample]:
    """Return the age of the node lease with the oldest renewal; nothing when the server does not answer."""
    try:
        answer = await api.call(
            Request(verb="list", resource="leases.coordination.k8s.io", namespace="kube-node-lease")
        )
        items = msgspec.json.decode(answer.unwrap().body).get("items") or ()
    except (ApiError, UnknownOutcome):
        return []
    renewed = [datetime.fromisoformat(item["spec"]["renewTime"]).timestamp() for item in items]
    age_s = time.time() - min(renewed, default=time.time())
    return [Sample(time.monotonic() - begun_s, "lease", "", 0, age_s)]
