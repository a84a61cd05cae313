"""Server of `kubectl logs`: finds the node that has the pod, and sends a followed log as it grows.

If a document of KWOK's Logs applies to the container, its log is a file.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from kubelet.interaction.log_files import asked_lines
from kubelet.pod.logs import LogOptions, Run
from services.api.seams import Clock
from services.runtime.health import HttpRequest, HttpResponse

FindRun = Callable[[str, str, str, bool], Run | str | None]
"""Finds a run by namespace, pod and container; the flag asks for the run before the present one."""
FindFile = Callable[[str, str, str, bool], str | None]
"""Finds a log file in the same way: its path, "" when only the other run has one; None: the log is no file."""
FOLLOW_S = 1.0
"""Seconds between two sends of a followed log's new lines."""


class ContainerLogs:
    """The logs of all nodes of a host.

    `find` returns a run of a container, why there is none, or None: no pod.
    """

    def __init__(self, find: FindRun, clock: Clock, find_file: FindFile = lambda *_: None) -> None:
        self._find, self._clock, self._find_file = find, clock, find_file

    def answer(self, request: HttpRequest) -> HttpResponse:
        """Return the log of `namespace`, `pod` and `container`, or why there is none: 404 without pod, else 400."""
        asked = LogOptions.of(request.query, self._clock.wall())
        if isinstance(asked, str):
            return 400, "text/plain", f"{asked}\n".encode()
        given = request.params
        path = self._find_file(given["namespace"], given["pod"], given["container"], asked.previous)
        if path is not None:
            return self._of_file(path, asked, given)
        run = self._run_of(request.params, previous=asked.previous)
        if run is None:
            return 404, "text/plain", f'pod "{request.params["pod"]}" does not exist\n'.encode()
        if isinstance(run, str):
            return 400, "text/plain", f"{run}\n".encode()
        if asked.follow and not run.is_over:
            return 200, "text/plain", self._follow(request.params, asked, run)
        return 200, "text/plain", asked.cut(run.lines)

    def _of_file(self, path: str, asked: LogOptions, params: dict[str, str]) -> HttpResponse:
        if not path:
            which = "previous terminated container" if asked.previous else "log of container"
            return 400, "text/plain", f'{which} "{params["container"]}" in pod "{params["pod"]}" not found\n'.encode()
        try:
            with Path(path).open("rb"):
                pass
        except OSError as error:
            return 400, "text/plain", f"log file {path}: {error.strerror}\n".encode()
        return 200, "text/plain", asked_lines(path, asked)

    def _run_of(self, params: dict[str, str], *, previous: bool) -> Run | str | None:
        return self._find(params["namespace"], params["pod"], params["container"], previous)

    async def _follow(self, params: dict[str, str], asked: LogOptions, run: Run) -> AsyncIterator[bytes]:
        """Give what a run has written, then what it writes, until it ends; an empty piece when there is nothing new."""
        restart, seen, left = run.restart, -1, asked.limit_bytes
        piece = asked.cut(run.lines)
        while left is None or left > 0:
            if left is not None:
                left -= len(piece)
            yield piece
            seen = run.lines[-1].place if run.lines else seen
            if run.is_over:
                return
            await asyncio.sleep(FOLLOW_S)
            now = self._run_of(params, previous=False)
            if not isinstance(now, Run) or now.restart != restart:
                now = self._run_of(params, previous=True)  # it has been started anew meanwhile
            if not isinstance(now, Run) or now.restart != restart:
                return
            run = now
            piece = asked._replace(tail=None, limit_bytes=left).cut([line for line in run.lines if line.place > seen])
