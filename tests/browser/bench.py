"""`make ui-bench`: the page's budgets measured in headless Chromium, over a made-up cluster; writes docs/benchmarks/ui.md.

Times of frames are those of this machine, whose browser draws without a graphics card; nothing is asserted. --seconds and
--seeks make it longer or shorter.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

import msgspec
from aiohttp import web

from lab.recordings.format import Meta
from lab.recordings.writer import Writer
from lab.ui.page import DECISIONS, write_page
from lab.ui.vendor import GOAL, LIMIT, bundle_bytes
from tests.browser import server_bench
from tests.browser.big_cluster import BigCluster
from tests.browser.driver import Browser, chromium
from tests.browser.feed import Feed
from tests.unit.recordings.histories import History, node, pod

OUT = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "ui.md"
NODES, PODS, EVENTS = 5_000, 100_000, 1_000
STAMPS = """(seconds) => new Promise((done) => { const gaps = []; let last = performance.now(), end = last + seconds * 1000, way = 3, moved = 0;
  const pan = %s;
  const next = (now) => { gaps.push(now - last); last = now;
    if (pan) { __keplab.picture.pan(way, way / 2); moved += way; if (Math.abs(moved) > 300) { way = -way; moved = 0; } }
    if (now < end) requestAnimationFrame(next); else done(gaps.slice(2)); };
  requestAnimationFrame(next); })"""


@dataclass
class Row:
    """One line of the table: what, its budget, what was measured."""

    what: str
    budget: str
    measured: str


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class Server:
    """A feed in a thread of its own."""

    def __init__(self, feed):
        self.feed, self.port, self._ready = feed, 0, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._ready.wait(60)

    def _run(self):
        async def begin():
            runner = web.AppRunner(self.feed.app())
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self.port = runner.addresses[0][1]
            self._ready.set()
            await asyncio.Event().wait()

        asyncio.run(begin())

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}/"


def renderers_mib():
    """Resident memory of the browser's renderer processes, in MiB: the page, its worker, and what Chromium needs."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"--type=renderer" in (folder / "cmdline").read_bytes():
                pages = int((folder / "statm").read_text().split()[1])
                found.append(pages * os.sysconf("SC_PAGE_SIZE") / 2**20)
        except OSError:
            continue
    return max(found, default=0.0)


def paint(browser):
    """First paint, and interactive, over an empty mesh: the middle of five."""
    server = Server(Feed(BigCluster(1, 1), 0))
    first, interactive = [], []
    for _ in range(5):
        page = browser.page()
        page.open(server.address)
        first.append(
            page.ask(
                "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? performance.getEntriesByType('paint')[0]?.startTime ?? 0"
            )
        )
        interactive.append(page.ask("() => performance.getEntriesByName('keplab-interactive')[0].startTime"))
        page.close()
    yield Row("first paint, loopback, empty mesh", "< 500 ms", f"{percentile(first, 0.5):.0f} ms")
    yield Row("interactive", "< 1,000 ms", f"{percentile(interactive, 0.5):.0f} ms")


def large(browser, seconds):
    """A cluster of full size under its events: first picture, frames, lag, memory."""
    cluster = BigCluster(NODES, PODS)
    frames = sum(map(len, cluster.first()))
    server = Server(Feed(cluster, EVENTS))
    page = browser.page()
    page.begin_tasks()
    page.open(server.address)
    picture = page.until("() => performance.getEntriesByName('keplab-picture')[0]?.startTime")
    cpu_ms = sum(cpu for _, cpu in page.end_tasks())
    yield Row(f"first picture, {NODES:,} nodes, {PODS:,} pods", "< 1,500 ms", f"{picture:,.0f} ms")
    yield Row("CPU of the main thread until then", "–", f"{cpu_ms:,.0f} ms")
    yield Row("frames 1 to 3", "≤ 8 MB", f"{frames / 1e6:.1f} MB")
    page.ask("() => { __keplab.picture.zoom(2); }")
    page.begin_tasks()
    gaps = page.ask(STAMPS % "true", 10)
    tasks = page.end_tasks()
    yield Row(
        "frame while panning, 10 s, p95 · largest",
        "≤ 16.7 ms · ≤ 50 ms",
        f"{percentile(gaps, 0.95):.1f} ms · {max(gaps):.0f} ms",
    )
    yield Row(
        "the longest task in that time: CPU of the main thread", "≤ 50 ms", f"{max(cpu for _, cpu in tasks):.0f} ms"
    )
    page.ask("() => __keplab.run('cluster.fit')")
    heap_before, before, lags = page.kept()[2], renderers_mib(), []
    page.begin_tasks()
    counted = page.ask(
        "(seconds) => { window.gaps = null; ("
        + STAMPS % "false"
        + ")(seconds).then((gaps) => { window.gaps = gaps; }); return __keplab.counters; }",
        seconds,
    )
    for _ in range(seconds):
        page.raw.wait_for_timeout(1_000)
        shown = page.ask("() => __keplab.state.rv.value")
        lags.append(max(0, cluster.rv - shown) / EVENTS * 1000)
    gaps = page.until("() => window.gaps")
    counters = page.ask("() => __keplab.counters")
    late, tasks = sum(gap > 50 for gap in gaps), page.end_tasks()
    yield Row(
        f"{EVENTS:,} events/s for {seconds} s: tasks that took over 50 ms of the main thread's CPU",
        "0",
        f"{sum(cpu > 50 for _, cpu in tasks)} (largest {max(cpu for _, cpu in tasks):.0f} ms)",
    )
    yield Row(
        "tasks over 50 ms in that time, those that waited for a CPU as well",
        "–",
        f"{sum(wall > 50 for wall, _ in tasks)} (largest {max(wall for wall, _ in tasks):.0f} ms)",
    )
    yield Row(
        "frames over 50 ms in that time, whatever made them wait",
        "–",
        f"{late} of {len(gaps):,} (largest {max(gaps):.0f} ms)",
    )
    yield Row("lag behind the server, p95", "≤ 250 ms", f"{percentile(lags, 0.95):.0f} ms")
    yield Row("gaps", "0", str(counters["gaps"] - counted["gaps"]))
    heap_after, after = page.kept()[2], renderers_mib()
    yield Row(
        "page memory: heap · the whole renderer process", "≤ 400 MB", f"{heap_after / 2**20:.0f} MiB · {after:.0f} MiB"
    )
    yield Row(
        f"growth over {seconds} s: heap, garbage collected · the process",
        "≤ 5 % · –",
        f"{(heap_after - heap_before) / heap_before:+.1%} · {(after - before) / before:+.1%}",
    )
    yield Row("the page's scripts, of the main thread's time", "–", f"{page.script_share(10) * 100:.0f} %")
    page.close()


def recording(path, versions, pods=4_000, nodes=400):
    """A recording of so many versions, without bodies kept twice."""
    history = History()
    history.states = None
    writer = Writer(path, Meta(title="bench", scenario="bench"))
    writer.begin(0.0, 1_800_000_000.0, is_virtual=True)
    phases = ("Pending", "Running", "Succeeded")

    def write(resource, document, rv, type_):
        single = History(rv=rv - 1)
        single.commit(resource, document, type_)
        line = msgspec.structs.replace(
            single.lines[0], mono_ns=rv * 1_000_000, data={**single.lines[0].data, "type": type_}
        )
        writer.line(line)
        writer.event(single.events[0])

    for rv in range(1, versions + 1):
        if rv <= nodes:
            write("nodes", node(f"n{rv}", f"node-{rv}"), rv, "ADDED")
            continue
        which, turn = rv % pods, rv // pods
        phase = phases[turn % 3]
        place = "" if phase == "Pending" else f"n{which % nodes + 1}"
        write("pods", pod(f"p{which}", f"u{which}-{turn // 3}", node=place, phase=phase), rv, "MODIFIED")
    writer.close(msgspec.structs.replace(writer.meta, ended="2026-01-01T00:00:00Z"))


def seeks(browser, folder, versions, count):
    """Seeks to random versions of one file."""
    recording(folder / "a.keprec", versions)
    written = write_page([folder / "a.keprec"], folder / "a.html", DECISIONS)
    page = browser.page()
    page.open(folder / "a.html")
    opened = page.ask("() => performance.getEntriesByName('keplab-interactive')[0].startTime")
    places = [random.Random(4).randrange(1, versions) for _ in range(count)]
    times = page.ask(
        """async (places) => { const times = [];
        for (const rv of places) { const begin = performance.now(); await __keplab.seek(rv); times.push(performance.now() - begin); }
        return times; }""",
        places,
    )
    yield Row(
        f"seek anywhere in {versions:,} versions, {count} random ones, p50 · p95",
        "p95 ≤ 100 ms",
        f"{percentile(times, 0.5):.0f} ms · {percentile(times, 0.95):.0f} ms",
    )
    yield Row("its file (--detail decisions) · opens", "–", f"{written.size / 1e6:.1f} MB · {opened:,.0f} ms")
    page.close()


def served(seconds):
    """The server of the page as a process, over a mesh of full size; and what a page costs a mesh that starts pods."""
    made = asyncio.run(server_bench.measure(NODES, PODS, EVENTS, seconds))
    yield Row(
        f"server, {NODES:,} nodes, {PODS:,} pods: CPU at {made.events_s:,.0f} changes/s, which are three times as many event lines",
        "≤ 15 % of a core",
        f"{made.cores:.0%} ({1e6 * made.cores / made.events_s:.0f} µs a change)",
    )
    yield Row(
        "server: resident memory alone · with a page · at the end",
        "≤ 180 MB",
        " · ".join(f"{mib * 1.048576:.0f} MB" for mib in (made.alone_mib, made.page_mib, made.end_mib)),
    )
    found = asyncio.run(server_bench.cost(server_bench.COST_PODS, server_bench.COST_ROUNDS))
    (without, with_page), (cpu, cpu_with) = found.pods_s, found.cpu_ms
    yield Row(
        f"pods started a second, {server_bench.COST_NODES} nodes: without a page · with one · difference",
        "≥ -3 %",
        f"{without:.0f} · {with_page:.0f} · {with_page / without - 1:+.1%}",
    )
    yield Row(
        "CPU of the mesh's processes a pod: without a page · with one · difference",
        "–",
        f"{cpu:.2f} ms · {cpu_with:.2f} ms · {cpu_with / cpu - 1:+.1%}",
    )


def report(rows, chromium_version, seconds):
    """The page of figures."""
    table = "\n".join(f"| {row.what} | {row.budget} | {row.measured} |" for row in rows)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"""# The live page

What `make ui-bench` measured, in headless Chromium without a graphics card, over a made-up cluster (tests/browser/feed.py) on
the same machine, with `--seconds {seconds}`; the last four rows without a browser. Times of frames are not asserted anywhere; tests assert counts.

| What | Budget | Measured |
|---|---|---|
{table}

Machine: {os.cpu_count()} CPUs, {memory:.0f} GiB, {platform.system()} {platform.release()}, Python {platform.python_version()}; load average
{os.getloadavg()[0]:.1f} at the end, which the browser, the feed and this process have made, and whatever else ran. Chromium: {chromium_version}.

A load above the number of CPUs means that others took part: what the page itself takes is the share of its scripts, and late frames and tasks are
then mostly those that waited for a CPU.

A frame of 16.7 ms is what the browser aims at; what is over it was late by that much. The memory of the renderer process has all
of Chromium's own in it. A seek unpacks one segment of 1,000 versions and folds it; where
that segment was looked at shortly before, only the fold is left.

A mesh on two CPUs that starts pods as fast as it can leaves none to the page: its server and the page itself take what the pods then lack, and rounds of
one kind differ by a tenth among themselves.
"""


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.browser.bench")
    parser.add_argument("--seconds", type=int, default=60, help="how long the events last")
    parser.add_argument("--versions", type=int, default=100_000, help="of the recording that is sought in")
    parser.add_argument("--seeks", type=int, default=200)
    parser.add_argument("--out", type=Path, default=OUT)
    words = parser.parse_args()
    path = chromium()
    if not path:
        sys.stderr.write("no Chromium: apt-get install chromium, or name one in KEPLAB_CHROMIUM\n")
        return 1
    rows = []

    def note(found):
        for row in found:
            rows.append(row)
            sys.stdout.write(json.dumps([row.what, row.budget, row.measured], ensure_ascii=False) + "\n")
            sys.stdout.flush()

    note(
        [Row("the page, compressed", f"≤ {LIMIT // 1024} KiB, goal {GOAL // 1024}", f"{bundle_bytes() / 1024:.0f} KiB")]
    )
    browser = Browser(path)
    try:
        with tempfile.TemporaryDirectory() as folder:
            note(paint(browser))
            note(large(browser, words.seconds))
            note(seeks(browser, Path(folder), words.versions, words.seeks))
        version = browser.version()
    finally:
        browser.close()
    # Without the browser: what drives it runs an event loop in this thread, and it would take part in what is measured.
    note(served(min(words.seconds, 60)))
    words.out.write_text(report(rows, version, words.seconds), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
