"""A whole API server in this process, and what is measured of it while it is sent what no client should send.

The server is the real one, aiohttp and gRPC included, on an event loop that runs only while a request is under way: one
thread, so that a seed repeats what it found. Measured are the longest callback of that loop (nothing else is answered
meanwhile), what is logged as an error, and the memory of the process.
"""

import asyncio
import asyncio.events
import base64
import gc
import json
import random
import shutil
import tempfile
import time
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import grpc
import grpc.aio
import structlog
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.storage import watch_hub
from apiserver_fake.wiring import build
from services.api.identity import ADMIN
from services.api.seams import Seams
from services.api.switches import REGISTER, Switches
from services.runtime.real import MemoryDisk, NoTransport, RealClock
from services.telemetry.eventlog import NullEventLog
from services.telemetry.traces import MemorySpans, Tracer

TOKEN = "fuzz-admin"
CALLERS = {TOKEN: ADMIN.user, "fuzz-node": "system:node:n", "fuzz-user": "ann"}
FUTURE_WAIT_S = 0.05
ANSWER_MAX_S = 20.0
OPTIONS = (("grpc.max_send_message_length", 64 << 20), ("grpc.max_receive_message_length", 64 << 20))


@dataclass
class Answer:
    """What came back; `status` 0: the connection was closed without an answer."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def document(self):
        """Return the JSON of the body, None where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class Target:
    """The server, and the one loop it runs on."""

    def __init__(self):
        self._stack = ExitStack()
        self.loop = asyncio.new_event_loop()
        self.errors = []
        """Lines logged as errors since they were last looked at."""
        self.longest_s = 0.0
        """The longest callback since it was last looked at, in seconds of this thread's own time: the machine may be busy."""
        self._connection = None
        self._folder = Path(tempfile.mkdtemp(prefix="keplab-fuzz-"))
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)

    def __enter__(self):
        self._listen_to_the_log()
        self._measure()
        asyncio.set_event_loop(self.loop)
        try:
            self.run(self._start())
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error):
        self.run(self._stop())
        self.loop.close()
        asyncio.set_event_loop(None)
        self._stack.close()

    def run(self, awaitable):
        """Run the loop until that is done; what is logged as an error meanwhile is kept, whoever set the log up last."""
        structlog.configure(processors=[self._keep], cache_logger_on_first_use=False)
        return self.loop.run_until_complete(awaitable)

    def _listen_to_the_log(self):
        before = structlog.get_config()
        self._stack.callback(lambda: structlog.configure(**before))
        self.loop.set_exception_handler(lambda loop, context: self.errors.append(dict(context)))

    def _keep(self, logger, method, line):
        if method in ("error", "critical", "exception"):
            self.errors.append(dict(line))
        raise structlog.DropEvent

    def _measure(self):
        handle_run = asyncio.events.Handle._run

        def measured(handle):
            begun_s = time.thread_time()
            handle_run(handle)
            self.longest_s = max(self.longest_s, time.thread_time() - begun_s)

        asyncio.events.Handle._run = measured
        self._stack.callback(lambda: setattr(asyncio.events.Handle, "_run", handle_run))

    async def _start(self):
        tokens = [{"token": token, "user": user, "groups": list(ADMIN.groups) if token == TOKEN else []}
                  for token, user in CALLERS.items()]  # fmt: skip
        (self._folder / "tokens").write_text(json.dumps({"tokens": tokens}))
        key = ec.generate_private_key(ec.SECP256R1())
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        (self._folder / "key").write_bytes(pem)
        clock, chance = RealClock(), random.Random(1)
        seams = Seams(
            component="apiserver", clock=clock, random=chance, disk=MemoryDisk(), transport=NoTransport(),
            events=NullEventLog(), tracer=Tracer("apiserver", clock=clock, random=chance, sinks=(MemorySpans(),)),
            switches=Switches({each.name: True for each in REGISTER if each.default is False and each.name[:1].isupper()}),
        )  # fmt: skip
        config = ApiServerConfig(
            engine="memory", grpc_port=0, rest_port=0, token_file=str(self._folder / "tokens"), state_hash=True,
            authorization_mode="RBAC", enable_admission_plugins=("ServiceAccount",),
            service_account_signing_key_file=str(self._folder / "key"), window_changes=1_000, window_s=5.0,
        )  # fmt: skip
        wait_s, watch_hub.FUTURE_WAIT_S = watch_hub.FUTURE_WAIT_S, FUTURE_WAIT_S
        self._stack.callback(lambda: setattr(watch_hub, "FUTURE_WAIT_S", wait_s))
        component = build(config, seams)
        self.server = component.server
        self._running = asyncio.create_task(component.run())
        while not component.is_ready:
            if self._running.done():
                self._running.result()
            await asyncio.sleep(0.01)
        self.rest_port = component.rest_port
        self._channel = grpc.aio.insecure_channel(f"127.0.0.1:{component.grpc_port}", options=OPTIONS)

        await self.create("serviceaccounts", "default")
        for name, document in valid_objects().items():
            made = await self.create(name, NAME, document)
            assert made.status == 201, (name, made.status, made.body)

    async def create(self, wire_name, name, document=None):
        """Create an object of that kind, by default an empty one."""
        resource = self.server.catalogue.resources[wire_name]
        body = {**(document or {}), "apiVersion": resource.api_version, "kind": resource.kind}
        body["metadata"] = {"name": name, **body.get("metadata", {})}
        return await self.ask("POST", path_of(resource), json.dumps(body).encode(), [JSON])

    async def _stop(self):
        await self._hang_up()
        await self._channel.close()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await asyncio.sleep(0.05)

    @property
    def is_alive(self):
        """Whether the server has not ended."""
        return not self._running.done()

    async def settle(self):
        """Return the hash and the version of the state once what controllers in the server do of themselves is done."""
        store, seen = self.server.store, -1
        while seen != store.rv or self.server.writer.queue_length:
            seen = store.rv
            for _ in range(4):
                await asyncio.sleep(0)
        return store.rv, store.state_hash

    # -- HTTP

    async def ask(self, method, path, body=b"", headers=(), *, token=TOKEN):
        """Send one request, byte for byte what it says, and return the answer; a stream is left after its head."""
        sent = [(b"Host", b"127.0.0.1"), *headers]
        if token:
            sent.append((b"Authorization", b"Bearer " + token.encode()))
        if body or method not in ("GET", "DELETE"):
            sent.append((b"Content-Length", str(len(body)).encode()))
        head = b"\r\n".join(name + b": " + value for name, value in sent)
        return await self.send(
            method.encode() + b" " + path + b" HTTP/1.1\r\n" + head + b"\r\n\r\n" + body, has_body=method != "HEAD"
        )

    async def send(self, data, *, has_body=True):
        """Send these bytes and return what they are answered."""
        for attempt in (1, 2):
            is_new = self._connection is None
            if is_new:
                self._connection = await asyncio.open_connection("127.0.0.1", self.rest_port, limit=1 << 26)
            reader, writer = self._connection
            try:
                async with asyncio.timeout(ANSWER_MAX_S):
                    writer.write(data)
                    await writer.drain()
                    answer = await self._answer(reader, has_body)
            except (ConnectionError, asyncio.IncompleteReadError):
                answer = Answer(0)
            if answer.status == 0:
                await self._hang_up()
                # A kept connection may have been closed by the server before this request.
                if attempt == 1 and not is_new:
                    continue
            return answer
        raise AssertionError("the second attempt returns")

    async def _answer(self, reader, has_body):
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        status = int(first.split(" ")[1])
        if status == 100:
            return await self._answer(reader, has_body)
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines) if name}
        body = b""
        if not has_body or status in (204, 304):
            pass
        elif length := headers.get("content-length"):
            body = await reader.readexactly(int(length))
        elif headers.get("transfer-encoding") == "chunked":
            if status == 200:  # a stream: there may be no more for long
                await self._hang_up()
                return Answer(status, headers)
            while size := int(await reader.readuntil(b"\r\n"), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        if headers.get("connection", "").lower() == "close" or status == 101:
            await self._hang_up()
        return Answer(status, headers, body)

    # -- gRPC

    async def call(self, frame, *, token=TOKEN):
        """Send these bytes to `Call` and return the encoded answer, or the status code of the call's end."""
        call = self._channel.unary_unary("/mesh.v1.ApiServer/Call")(frame, metadata=bearer(token), timeout=ANSWER_MAX_S)
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            return error.code()

    @asynccontextmanager
    async def stream(self, method, *, token=TOKEN):
        """Open `Mutate` or `Watch`."""
        stream = self._channel.stream_stream(f"/mesh.v1.ApiServer/{method}")(metadata=bearer(token))
        await stream.initial_metadata()
        try:
            yield stream
        finally:
            stream.cancel()

    async def _hang_up(self):
        if self._connection is not None:
            _, writer = self._connection
            self._connection = None
            writer.transport.abort()
            await asyncio.sleep(0)


JSON = (b"Content-Type", b"application/json")
NAME = "fuzzed"
"""The object of each kind that is there when the server is up."""
NAMESPACE = "default"


def path_of(resource, namespace=NAMESPACE):
    """Return where objects of that kind are."""
    root = f"/apis/{resource.api_version}" if resource.group else f"/api/{resource.api_version}"
    return f"{root}{f'/namespaces/{namespace}' if resource.namespaced else ''}/{resource.plural}".encode()


@cache
def valid_objects():
    """Return one valid object of each kind, by wire name; shared, not to be changed."""
    found = yaml.safe_load(Path(__file__).with_name("valid_objects.yaml").read_text())
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fuzzed")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = request.public_bytes(serialization.Encoding.PEM)
    found["certificatesigningrequests.certificates.k8s.io"]["spec"]["request"] = base64.b64encode(pem).decode()
    return found


def name_of(resource):
    """Return the name of the object of that kind that is there; some kinds leave no choice."""
    return valid_objects().get(resource.name, {}).get("metadata", {}).get("name", NAME)


def bearer(token):
    """Return the metadata of a caller."""
    return (("authorization", f"Bearer {token}"),) if token else ()


def resident_mib():
    """Return the memory of this process in MiB, garbage collected."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20
