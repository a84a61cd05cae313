"""Extenders over real HTTP: the transport by itself, and a scheduler process that asks."""

import asyncio
import contextlib
import random
import shutil
import ssl
import subprocess
import threading

import pytest
from aiohttp import web

from lab.scenarios.run import load_scenario, run_as_processes
from scheduler.configuration.document import Extender, ExtenderTLS
from scheduler.extenders.http import HttpTransport
from scheduler.preemption.candidates import ExtenderError
from services.runtime.real import RealClock
from services.telemetry.traces import MemorySpans, Tracer

PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


class Server:
    """An HTTP server in a thread of its own. `asked`: what was posted; `context`: for HTTPS."""

    def __init__(self, context=None, **answers):
        self._answers = answers
        self._context = context
        self.asked, self.traces = [], []
        self.url = ""

    async def _answer(self, request):
        question = await request.json()
        self.asked.append(question)
        self.traces.append(request.headers.get("traceparent"))
        return await self._answers[request.match_info["verb"]](question)

    async def _serve(self, ready, stop):
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/extender/{verb}", self._answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._context)
        await site.start()
        scheme = "https" if self._context else "http"
        self.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}/extender"
        ready.set()
        await asyncio.get_running_loop().run_in_executor(None, stop.wait)
        await runner.cleanup()

    @contextlib.contextmanager
    def running(self):
        ready, stop = threading.Event(), threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready, stop)))
        thread.start()
        try:
            assert ready.wait(10)
            yield self
        finally:
            stop.set()
            thread.join(10)


async def echo(question):
    return web.json_response(question)


async def refuse(question):
    return web.Response(status=503)


async def dawdle(question):
    await asyncio.sleep(0.5)
    return web.json_response({})


def post(server, verb, timeout_s=5.0, spans=(), **settings):
    async def once():
        transport = HttpTransport(Tracer("scheduler", clock=RealClock(), random=random.Random(1), sinks=spans))
        extender = Extender(url_prefix=server.url, **settings)
        try:
            return await transport.post(
                extender, f"{server.url}/{verb}", b'{"a": 1}', timeout_s, PARENT if spans else ""
            )
        finally:
            await transport.close()

    return asyncio.run(once())


def test_the_body_of_a_good_answer_comes_back():
    with Server(echo=echo).running() as server:
        assert b'{"a": 1}' == post(server, "echo")


def test_a_question_is_a_request_below_the_attempt_and_names_itself():
    spans = MemorySpans()
    with Server(echo=echo, refuse=refuse, dawdle=dawdle).running() as server:
        post(server, "echo", spans=(spans,))
        for verb in ("refuse", "dawdle"):
            with pytest.raises(ExtenderError):
                post(server, verb, timeout_s=0.1, spans=(spans,))
        post(server, "echo")
    good, refused, late = spans.spans

    assert [f"00-{'a' * 32}-{span.span_id}-01" for span in spans.spans] + [None] == server.traces
    assert {("client", "b" * 16, "a" * 32)} == {(span.kind, span.parent, span.trace_id) for span in spans.spans}
    assert "POST /extender/echo" == good.name
    assert ("127.0.0.1", 200) == (good.attributes["server.address"], good.attributes["http.response.status_code"])
    assert f"{server.url}/echo" == good.attributes["url.full"]
    assert "" == good.error
    assert (503, "503") == (refused.attributes["http.response.status_code"], refused.attributes["error.type"])
    assert "ExtenderError" == late.attributes["error.type"]
    assert "http.response.status_code" not in late.attributes


def test_every_other_end_is_an_error_that_names_the_url():
    with Server(refuse=refuse, dawdle=dawdle).running() as server:
        with pytest.raises(ExtenderError) as status:
            post(server, "refuse")
        with pytest.raises(ExtenderError) as late:
            post(server, "dawdle", 0.05)
        url = server.url
    with pytest.raises(ExtenderError) as gone:
        post(server, "refuse")

    assert f"failed refuse with extender at URL {url}/refuse, code 503" == str(status.value)
    assert f'Post "{url}/dawdle": no answer within 0.05 s' == str(late.value)
    assert str(gone.value).startswith(f'Post "{url}/refuse": Cannot connect')


@pytest.fixture
def certificate(tmp_path):
    """A self-signed certificate of localhost, as (certificate, key) files."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not here")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


def test_a_server_is_verified_by_the_authority_that_is_named(certificate):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    own = certificate[0].read_bytes()

    with Server(context, echo=echo).running() as server:
        named = post(server, "echo", tls_config=ExtenderTLS(server_name="localhost", ca_data=own))
        unnamed = post(server, "echo", enable_https=True)
        with pytest.raises(ExtenderError) as foreign:
            post(server, "echo", tls_config=ExtenderTLS(server_name="localhost"))
        with pytest.raises(ExtenderError) as other_name:
            post(server, "echo", tls_config=ExtenderTLS(server_name="elsewhere", ca_data=own))
        with pytest.raises(ExtenderError) as nonsense:
            post(server, "echo", tls_config=ExtenderTLS(ca_data=b"no certificate"))

    assert b'{"a": 1}' == named == unnamed
    assert "self-signed certificate" in str(foreign.value)
    assert "elsewhere" in str(other_name.value)
    assert "tlsConfig: " in str(nonsense.value)


def test_a_scheduler_process_asks_its_extender(tmp_path):
    async def only_n2(question):
        return web.json_response({"nodenames": [name for name in question["NodeNames"] if name == "n2"]})

    with Server(filter=only_n2).running() as server:
        tmp_path.joinpath("scheduler.yaml").write_text(f"""
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
- schedulerName: second
extenders:
- urlPrefix: {server.url}
  filterVerb: filter
  nodeCacheCapable: true
""")
        scenario = tmp_path / "scenario.txt"
        scenario.write_text("""# Extended
limit 60s
scheduler-config scheduler.yaml
nodes n1..n3 cpu=8
pod a cpu=1
pod b cpu=1 scheduler=second
expect within 20s each pods phase == Running
expect each pods spec.nodeName == n2
expect within 10s count events reason=Scheduled reportingComponent=second == 1
""")

        result = run_as_processes(load_scenario(scenario), engine="memory", data_dir=tmp_path / "mesh")

    assert [] == [f"{j.text} ({j.seen})" for j in result.expectations if not j.passed]
    assert {"a", "b"} == {question["Pod"]["metadata"]["name"] for question in server.asked}
