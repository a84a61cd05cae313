"""Cost of a scrape of `/metrics` for an API server that has answered requests of many sorts:
`python -m lab.benchmarks.server.scrape`.

40,000 requests of 775 sorts are counted, then the metrics are read and written three times, as a server
does it. A hold is the CPU time of one piece; the loop does other work between two pieces. The first
scrape is measured without the import of the client library.
"""

import random
import time
from collections.abc import Iterator

from apiserver_fake.requests import Requests
from services.api.wire import Request
from services.telemetry.exposition import Exposition, exposition

REQUESTS, KINDS, SORTS, SCRAPES = 40_000, 68, 775, 3
ON_COLLECTIONS, ON_OBJECTS = ("list", "watch", "deletecollection", "create"), ("get", "update", "patch", "delete")


def sorts() -> Iterator[Request]:
    """Yield one request of each sort, kind by kind."""
    for kind in range(KINDS):
        name = f"kind{kind}.example.com"
        for verb in ON_COLLECTIONS:
            yield Request(verb=verb, resource=name, namespace="default")
        for verb in ON_OBJECTS:
            yield Request(verb=verb, resource=name, namespace="default", name="x")
        for verb in ("get", "update", "patch"):
            yield Request(verb=verb, resource=name, namespace="default", name="x", subresource="status")
        yield Request(verb="create", resource=name, namespace="default", dry_run=True)


def main() -> None:
    """Print a line of figures for each scrape."""
    dice, requests, of = random.Random(1), Requests(lambda _: "v1"), list(sorts())[:SORTS]
    for _ in range(REQUESTS):
        requests.on_ended(dice.choice(of), dice.choice((200, 200, 200, 404, 409, 422)), dice.random() / 5, "")
    exposition({})
    written = Exposition()
    for _ in range(SCRAPES):
        began = time.process_time()
        samples = requests.metrics()
        holds, parts = [time.process_time() - began], []
        _, pieces = written.pieces(samples)
        while True:
            began = time.process_time()
            piece = next(pieces, None)
            holds.append(time.process_time() - began)
            if piece is None:
                break
            parts.append(piece)
        body = b"".join(parts)
        lines, longest, all_ms = body.count(b"\n"), 1000 * max(holds), 1000 * sum(holds)
        print(f"{lines:,} lines  {len(body) / 1e6:.1f} MB  {all_ms:.0f} ms in all, longest hold {longest:.1f} ms")  # noqa: T201
        for request in of[:50]:
            requests.on_ended(request, 200, 0.01, "")


if __name__ == "__main__":
    main()
