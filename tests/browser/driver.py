"""The one place that knows the driver (Playwright): a browser that is Debian's Chromium, and pages that are watched.

Another driver would fill the same few methods. Playwright promises nothing for builds that are not its own, so no
more of it is used than this. While a browser is open its loop runs in this thread: `asyncio.run` belongs into another one."""

import os
import re
import shutil
from pathlib import Path

from playwright.sync_api import Page as _Page
from playwright.sync_api import sync_playwright

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars",
)  # fmt: skip
WAIT_MS = 45_000
"""How long anything is waited for: a bound for what never comes, far above what a busy machine takes."""
TASK = "ThreadControllerImpl::RunTask"
"""How Chromium calls one task of a thread."""


def chromium():
    """Return where a Chromium is, or ""; KEPLAB_CHROMIUM names another one."""
    named = os.environ.get("KEPLAB_CHROMIUM")
    return named or next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), ""
    )


class Browser:
    """One browser, a context of its own for each page."""

    def __init__(self, path):
        self._playwright = sync_playwright().start()
        self._browser = self._playwright.chromium.launch(executable_path=path, args=list(FLAGS))

    def page(self, *, width=1400, height=800, scheme="light", motion="no-preference", offline=False, scripts=True):
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion=motion,
            offline=offline,
            java_script_enabled=scripts,
        )
        return Page(context.new_page())

    def version(self):
        return self._browser.version

    def close(self):
        self._browser.close()
        self._playwright.stop()


class Page:
    """One page. `problems`: what its console, its scripts and its policy complained of; `requests`: addresses asked."""

    def __init__(self, page: _Page):
        self.raw = page
        self.problems, self.requests = [], []
        self._network = None
        page.on(
            "console",
            lambda message: self.problems.append(message.text) if message.type in ("error", "warning") else None,
        )
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.set_default_timeout(WAIT_MS)

    def goto(self, address):
        """Open an address."""
        self.raw.goto(str(address) if "://" in str(address) else Path(address).resolve().as_uri())

    def open(self, address, *, shows="__keplab.state.rv.value > 0"):
        """Open an address, and wait until the shell is drawn and a state is shown."""
        self.goto(address)
        self.until(f"() => window.__keplab && document.querySelector('header.top') && {shows}")
        # Keys are listened to once the effects of the first drawing have run, which is after the frame that shows it.
        frame = "new Promise((then) => requestAnimationFrame(() => setTimeout(then)))"
        return self.ask(f"async () => {{ await {frame}; await {frame}; return true; }}")

    def until(self, script, argument=None):
        """Wait until a function of the page says true; returns its value."""
        return self.raw.wait_for_function(script, arg=argument).json_value()

    def ask(self, script, argument=None):
        """Return the value of a function of the page, awaited."""
        return self.raw.evaluate(script, argument)

    def keys(self, *strokes):
        for stroke in strokes:
            self.raw.keyboard.press(stroke)

    def type(self, text):
        self.raw.keyboard.type(text)

    def click(self, selector):
        self.raw.click(selector)

    def text(self, selector):
        return self.raw.inner_text(selector)

    def throughput(self, bytes_s):
        """Have the page receive so many bytes a second; 0: as many as there are."""
        if self._network is None:
            self._network = self.raw.context.new_cdp_session(self.raw)
            self._network.send("Network.enable")
        limits = {"offline": False, "latency": 0, "downloadThroughput": bytes_s or -1, "uploadThroughput": -1}
        self._network.send("Network.emulateNetworkConditions", limits)

    def kept(self):
        """Collect garbage; return how many DOM nodes and listeners there are, and the bytes of the heap."""
        session = self.raw.context.new_cdp_session(self.raw)
        session.send("Performance.enable")
        session.send("HeapProfiler.collectGarbage")
        found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        session.detach()
        return int(found["Nodes"]), int(found["JSEventListeners"]), int(found["JSHeapUsedSize"])

    def begin_tasks(self):
        """Begin to note what the main thread does; `end_tasks` returns it."""
        self._tracing, self._traced = self.raw.context.new_cdp_session(self.raw), []
        self._tracing.on("Tracing.dataCollected", lambda event: self._traced.extend(event["value"]))
        how = {"traceConfig": {"includedCategories": ["toplevel"]}, "transferMode": "ReportEvents"}
        self._tracing.send("Tracing.start", how)

    def end_tasks(self):
        """Return the tasks since `begin_tasks`: milliseconds each took, and of these the thread's own CPU time."""
        ended = []
        self._tracing.on("Tracing.tracingComplete", lambda event: ended.append(event))
        self._tracing.send("Tracing.end")
        while not ended:
            self.raw.wait_for_timeout(50)
        self._tracing.detach()
        names = {
            (each["pid"], each["tid"]): each["args"]["name"] for each in self._traced if each["name"] == "thread_name"
        }
        return [
            (each["dur"] / 1000, each.get("tdur", 0) / 1000)
            for each in self._traced
            if each.get("ph") == "X"
            and each["name"] == TASK
            and names.get((each["pid"], each["tid"])) == "CrRendererMain"
        ]

    def script_share(self, seconds):
        """Return the share of the main thread's time that the page's own scripts take, of so many seconds."""
        session = self.raw.context.new_cdp_session(self.raw)
        session.send("Profiler.enable")
        session.send("Profiler.start")
        self.raw.wait_for_timeout(seconds * 1000)
        profile = session.send("Profiler.stop")["profile"]
        session.detach()
        others = {
            each["id"]
            for each in profile["nodes"]
            if each["callFrame"]["functionName"] in ("(idle)", "(program)", "(root)")
        }
        pairs = list(zip(profile["samples"], profile["timeDeltas"], strict=True))
        return sum(delta for sample, delta in pairs if sample not in others) / sum(delta for _, delta in pairs)

    def sheets(self):
        """Return how many sheets of paper the page is, printed on A4."""
        return len(re.findall(rb"/Type\s*/Page\b(?!s)", self.raw.pdf(format="A4", prefer_css_page_size=True)))

    def seek(self, rv):
        """Show a version; returns the one that is shown."""
        return self.ask("(rv) => __keplab.seek(rv)", rv)

    def close(self):
        self.raw.context.close()
