"""What the page's server answers to heads and addresses that no page sends: a refusal that names the fault, no traceback."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest
import structlog
from aiohttp import web

from lab.recordings.format import Meta
from lab.recordings.reader import Recording
from lab.recordings.writer import Writer
from lab.ui.jobs import Jobs
from lab.ui.runs import Run, Runs
from lab.ui.server import V1, Parts, Server, ServerLog, Settings
from lab.ui.session import Sessions
from tests.unit.recordings.histories import History, node, pod

TOKEN, COOKIE, CSRF = "t" * 64, "c" * 64, "x" * 64
BROKEN = (b"\xff", b"\xe9", b"\xed\xa0\x80", b"\xc3\xa9")


def recording(folder):
    history = History()
    history.commit("nodes", node("n", "u-n"))
    history.commit("pods", pod("web", "u-web", node="n"))
    writer = Writer(folder / "a.keprec", Meta(title="a", scenario="s", arm="a", seed=1, ended="now"))
    writer.begin(0.0, 1_800_000_000.0)
    for event in history.events:
        writer.event(event)
    for line in history.lines:
        writer.line(line)
    writer.close()
    return Recording.open(folder / "a.keprec")


@asynccontextmanager
async def a_server(folder):
    """Yield what sends a request, byte for byte, and returns code and body."""
    server = Server(
        Sessions(TOKEN, COOKIE, CSRF),
        Settings("1"),
        Parts(Runs([Run("a", recording(folder))]), Jobs([], folder, lambda job: None)),
    )
    runner = web.AppRunner(server.application(), logger=ServerLog(logging.getLogger(__name__)))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]

    async def ask(method, path, *heads, body=b"{}"):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        sent = [b"Host: 127.0.0.1:%d" % port, b"Connection: close", b"Content-Length: %d" % len(body), *heads]
        writer.write(b"%s %s HTTP/1.1\r\n%s\r\n\r\n" % (method, path, b"\r\n".join(sent)) + body)
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        head, _, content = answer.partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), content

    try:
        yield ask
    finally:
        await runner.cleanup()


@pytest.fixture
def errors():
    """What is logged as an error."""
    found = []

    def keep(logger, method, line):
        if method == "error":
            found.append(line)
        raise structlog.DropEvent

    structlog.configure(processors=[keep], cache_logger_on_first_use=False)
    yield found
    structlog.reset_defaults()


def answers(folder, *asked):
    """Return the answers to requests."""

    async def scenario():
        async with a_server(folder) as ask:
            return [await ask(*each) for each in asked]

    return asyncio.run(scenario())


OWN = b"Cookie: keplab-ui=" + COOKIE.encode()
ORIGINS = (
    b"http://[",
    b"http://[::1",
    b"//",
    b"null",
    b"\xff",
    b"http://127.0.0.1:1/",
    b"http://a\xe9",
    b"http://[::1]:99999",
    b"",
)


def test_an_origin_that_is_no_address_is_foreign(tmp_path, errors):
    asked = [(b"POST", f"{V1}/session".encode(), b"Origin: " + each) for each in ORIGINS]
    assert [403] * len(asked) == [code for code, _ in answers(tmp_path, *asked)]
    assert [] == errors


def test_a_cookie_that_is_no_text_opens_nothing(tmp_path, errors):
    asked = [(b"GET", f"{V1}/meta".encode(), b"Cookie: keplab-ui=" + each) for each in BROKEN]
    assert [401] * len(asked) == [code for code, _ in answers(tmp_path, *asked)]
    assert [] == errors


def test_a_header_of_the_page_that_is_no_text_changes_nothing(tmp_path, errors):
    asked = [(b"POST", f"{V1}/jobs".encode(), OWN, b"X-Keplab-CSRF: " + each) for each in BROKEN]
    assert [403] * len(asked) == [code for code, _ in answers(tmp_path, *asked)]
    assert [] == errors


HEADS = (
    b"Last-Event-ID",
    b"Accept",
    b"User-Agent",
    b"Content-Type",
    b"If-None-Match",
    b"Upgrade",
    b"Sec-WebSocket-Key",
    b"X-Forwarded-For",
)
PATHS = ("meta", "mesh", "state", "objects", "objects/pods", "objects/pods/default/web", "objects/pods/default/web/versions",
         "explain/default/web", "queue", "history", "trace/default/web", "diff", "scenarios", "jobs", "jobs/1", "jobs/1/report",
         "events", "socket", "none")  # fmt: skip


def test_no_head_and_no_path_makes_the_server_stumble(tmp_path, errors):
    asked = [
        (b"GET", f"{V1}/{path}".encode(), OWN, head + b": " + each)
        for path in PATHS
        for head in HEADS
        for each in BROKEN
    ]
    asked += [
        (b"GET", f"{V1}/{path}/".encode() + each, OWN) for path in PATHS for each in (*BROKEN, b"%ff", b"%00", b"%2f..")
    ]
    asked += [(b"GET", b"/ui/" + each) for each in (*BROKEN, b"%ff", b"%00", b"..%2f..")]
    assert [] == [(each, code) for each, (code, _) in zip(asked, answers(tmp_path, *asked), strict=True) if code >= 500]
    assert [] == errors


VALUES = (
    b"x",
    b"9" * 30,
    b"9" * 5_000,
    b"-1",
    b"1.5",
    b"%ff",
    b"\xff",
    b"%C2%B2",
    b"%00",
    b"1e3",
    str(1 << 63).encode(),
)


@pytest.mark.parametrize("path", ["state", "objects/pods", "objects/pods/default/web", "explain/default/web", "queue"])
@pytest.mark.parametrize("value", VALUES)
def test_a_version_that_is_none_is_refused_by_name(tmp_path, errors, path, value):
    [(code, body)] = answers(tmp_path, (b"GET", f"{V1}/{path}?run=a&rv=".encode() + value, OWN))
    # Bytes that are no UTF-8 in an address the HTTP library refuses by itself.
    assert (400, value != b"\xff") == (code, b'"message":"rv: want a resource version' in body), body
    assert [] == errors


def test_a_version_that_is_still_to_come_is_refused_by_name(tmp_path, errors):
    now, later = answers(
        tmp_path,
        (b"GET", f"{V1}/state?run=a&rv=2".encode(), OWN),
        (b"GET", f"{V1}/state?run=a&rv=999999999".encode(), OWN),
    )
    assert (200, 400) == (now[0], later[0])
    assert b"rv: 999999999 is newer than the newest version, " in later[1]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("state?at=x", b"at: is no parameter of this address; want run, rv"),
        ("state?at=" + "9" * 40, b"at: is no parameter of this address; want run, rv"),
        ("meta?x=1", b"x: is no parameter of this address; want none"),
        ("objects/pods?run=a&rv=1&rv=2", b"rv: is given 2 times, want once"),
        ("objects/pods?run=a&limit=0", b"limit: want 1 to "),
        ("objects/pods?run=a&limit=" + "9" * 5_000, b"limit: want 1 to "),
        ("objects/pods/default/web?run=a&as=xml", b"as: want json or yaml, not 'xml'"),
    ],
)
def test_a_parameter_that_means_nothing_is_refused_by_name(tmp_path, errors, path, message):
    [(code, body)] = answers(tmp_path, (b"GET", f"{V1}/{path}".encode(), OWN))
    assert (400, True) == (code, message in body), body
    assert [] == errors
