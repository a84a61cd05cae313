"""The profile `strict`: who may connect, what is said to those who may not, and certificates renewed under load."""

import asyncio
import base64
import json
import os
import random
import ssl
import subprocess
import sys
import urllib.request
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import grpc
import grpc.aio
import msgspec
import pytest
import structlog
import yaml

from apiserver_fake.config import ApiServerConfig
from apiserver_fake.wiring import build
from protos.mesh.v1 import apiserver_pb2 as pb
from protos.mesh.v1.apiserver_pb2_grpc import ApiServerStub
from services.api.errors import Forbidden
from services.api.identity import ADMIN, NODE_HOSTS_GROUP
from services.api.seams import Seams
from services.api.switches import Switches
from services.api.wire import Request, WatchRequest
from services.client.rpc import RpcTransport
from services.client.tls import ClientTls, TlsError, TlsFiles
from services.runtime import certificates, rotation
from services.runtime.config import StartError
from services.runtime.mesh.options import MeshOptions
from services.runtime.real import MemoryDisk, NoTransport, RealClock
from services.runtime.supervisor import Supervisor
from services.telemetry.eventlog import NullEventLog
from services.telemetry.traces import Tracer

HOST = ("system:node-host:h0", (NODE_HOSTS_GROUP,))
TOKENS = [
    {"token": "adm", "user": ADMIN.user, "groups": list(ADMIN.groups)},
    {"token": "h0", "user": HOST[0], "groups": list(HOST[1]), "nodes": ["n1"]},
]


def in_loop(scenario):
    asyncio.run(asyncio.wait_for(scenario(), 40))


async def until(holds):
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def until_async(holds):
    while not await holds():  # noqa: ASYNC110
        await asyncio.sleep(0.1)


@asynccontextmanager
async def a_server(folder, **config):
    signer = certificates.authority(folder)
    pair = signer.server("apiserver")
    (folder / "tokens").write_bytes(msgspec.json.encode(TOKENS))
    settings = {
        "engine": "memory", "grpc_port": 0, "rest_port": None, "token_file": str(folder / "tokens"),
        "tls_cert_file": str(pair.certificate), "tls_private_key_file": str(pair.key),
        "client_ca_file": str(signer.path), "security": "strict", **config,
    }  # fmt: skip
    clock, dice = RealClock(), random.Random(1)
    tracer = Tracer("apiserver", clock=clock, random=dice)
    seams = Seams("apiserver", clock, dice, MemoryDisk(), NoTransport(), NullEventLog(), tracer, Switches())
    server = build(ApiServerConfig(**settings), seams)
    task = asyncio.create_task(server.run())
    try:
        await until(lambda: server.is_ready or task.done())
        if task.done():
            task.result()
        yield server
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def tls_of(folder, name, user, groups=(), **moment):
    pair = certificates.authority(folder).client(name, user, groups, **moment)
    return ClientTls(TlsFiles(pair.certificate, pair.key, folder / "ca.crt"))


@asynccontextmanager
async def a_client(server, tls=None, host="127.0.0.1", **tokens):
    clock = RealClock()
    transport = RpcTransport(f"{host}:{server.grpc_port}", tokens, clock=clock, random=random.Random(2), tls=tls)
    try:
        yield transport
    finally:
        await transport.close()


def a_create(name):
    body = msgspec.json.encode({"metadata": {"name": name}})
    return Request(verb="create", resource="configmaps", namespace="default", body=body, request_id=f"r-{name}")


def test_without_a_token_a_certificate_is_the_identity_and_with_one_the_token_decides(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as server:
            admin = tls_of(tmp_path, "admin", ADMIN.user, ADMIN.groups)
            scheduler = tls_of(tmp_path, "scheduler", "system:kube-scheduler")
            async with a_client(server, admin) as as_admin, a_client(server, scheduler) as as_scheduler:
                assert (await as_admin.api().call(a_create("a"))).code == 201
                refused = await as_scheduler.api().call(a_create("b"))
                assert refused.code == 403
                assert "system:kube-scheduler" in msgspec.json.decode(refused.body)["message"]
            async with a_client(server, scheduler, **{"system:kube-scheduler": "", ADMIN.user: "adm"}) as both:
                assert (await both.api().call(a_create("c"))).code == 403
                assert (await both.api(ADMIN.user).call(a_create("c"))).code == 201

    in_loop(scenario)


def test_the_token_of_a_node_is_good_only_with_its_hosts_certificate_and_survives_a_renewal(tmp_path):
    async def scenario():
        async with a_server(tmp_path) as server:
            host, other = tls_of(tmp_path, "h0", *HOST), tls_of(tmp_path, "h1", "system:node-host:h1", HOST[1])
            async with a_client(server, host) as transport, a_client(server, other) as thief:
                node = await transport.node_api("n1")
                get = Request(verb="get", resource="nodes", name="n1")
                assert (await node.call(get)).code == 404
                stolen = {"system:node:n1": transport._node_apis["n1"]._token}
                certificates.authority(tmp_path).renew(certificates.Pair(tmp_path / "h0.crt", tmp_path / "h0.key"))
                await until(lambda: transport._link.renewals == 1)
                assert (await node.call(get)).code == 404
                thief._tokens |= stolen
                assert (await thief.api("system:node:n1").call(get)).code == 401
                with pytest.raises(Forbidden, match="the credential of system:node-host:h0 is for n1 alone"):
                    await transport.node_api("n2")
                with pytest.raises(Forbidden, match="has neither nodes nor node_prefix"):
                    await thief.node_api("n1")
                with pytest.raises(Forbidden):
                    (await thief.api().call(get)).unwrap()

    in_loop(scenario)


@pytest.mark.parametrize("credentials", [None, "without a certificate", "of another authority"])
def test_a_client_without_a_certificate_of_the_authority_reaches_no_method(tmp_path, credentials):
    async def scenario():
        async with a_server(tmp_path / "own") as server:
            target, root = f"127.0.0.1:{server.grpc_port}", (tmp_path / "own/ca.crt").read_bytes()
            pair = certificates.authority(tmp_path / "other").client("x", ADMIN.user, ADMIN.groups)
            match credentials:
                case None:
                    channel = grpc.aio.insecure_channel(target)
                case "without a certificate":
                    channel = grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(root))
                case _:
                    key, chain = pair.key.read_bytes(), pair.certificate.read_bytes()
                    channel = grpc.aio.secure_channel(target, grpc.ssl_channel_credentials(root, key, chain))
            async with channel:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await ApiServerStub(channel).Call(pb.Request(verb="list", resource="nodes"), timeout=5)
            assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    in_loop(scenario)


async def reported(transport):
    """Return what a transport that cannot connect logs, once it does."""
    with structlog.testing.capture_logs() as lines:
        calling = asyncio.create_task(transport.api().call(Request(verb="list", resource="nodes")))
        await until(lambda: any(line["event"] == "apiserver.unreachable" for line in lines))
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
    return next(line["error"] for line in lines if line["event"] == "apiserver.unreachable")


def test_a_client_reports_why_no_connection_comes_to_be(tmp_path):
    """X-TLS3: after three tries, naming the file or the name that is wrong."""
    own, other, both = tmp_path / "own", tmp_path / "other", tmp_path / "both.crt"

    async def scenario():
        async with (
            a_server(own, grpc_host="0.0.0.0") as server,
            a_server(tmp_path / "plain", security="tokens") as plain,
        ):
            at = f"127.0.0.1:{server.grpc_port}"
            async with a_client(server) as transport:
                assert await reported(transport) == f"{at} wants a client certificate, and this process has none"
            async with a_client(server, tls_of(other, "c", "x")) as transport:
                assert await reported(transport) == (
                    f"the certificate of {at}: signed by none of the authorities in {other}/ca.crt"
                )
            both.write_bytes((own / "ca.crt").read_bytes() + (other / "ca.crt").read_bytes())
            unknown = ClientTls(TlsFiles(other / "c.crt", other / "c.key", both))
            async with a_client(server, unknown) as transport:
                assert await reported(transport) == (
                    f"{at} refuses the client certificate {other}/c.crt of x: "
                    "is it signed by an authority that the server trusts?"
                )
            named = tls_of(own, "c", "x")
            async with a_client(server, named, host="127.0.0.2") as transport:
                text = await reported(transport)
                assert text == (
                    f"the certificate of 127.0.0.2:{server.grpc_port}: IP address mismatch, "
                    "certificate is not valid for '127.0.0.2'"
                )
            async with a_client(plain, named) as transport:
                assert await reported(transport) == (
                    f"127.0.0.1:{plain.grpc_port} speaks no TLS: does its API server run with --security strict?"
                )

    in_loop(scenario)


def test_files_that_cannot_be_used_are_named_with_the_reason(tmp_path):
    own, now = tmp_path / "own", datetime.now(UTC)
    good = certificates.authority(own).client("good", "x")
    old = certificates.authority(own).client("old", "x", now=now - timedelta(days=366))
    early = certificates.authority(own).client("early", "x", now=now + timedelta(days=1))
    other = certificates.authority(tmp_path / "other").client("o", "x")
    (tmp_path / "text").write_text("no certificate")

    def fault(certificate, key, authority=own / "ca.crt"):
        with pytest.raises(TlsError) as refused:
            ClientTls(TlsFiles(certificate, key, authority))
        return str(refused.value)

    assert fault(tmp_path / "gone", good.key) == f"{tmp_path}/gone: No such file or directory"
    assert fault(tmp_path / "text", good.key) == f"{tmp_path}/text: no certificate in PEM"
    assert fault(good.certificate, tmp_path / "text").startswith(f"{tmp_path}/text: no private key in PEM")
    assert fault(good.certificate, old.key) == f"{old.key}: not the key of {good.certificate}"
    assert fault(old.certificate, old.key).startswith(f"{old.certificate}: the certificate expired at 20")
    assert fault(early.certificate, early.key).startswith(f"{early.certificate}: the certificate is not valid before")
    assert fault(other.certificate, other.key) == (
        f"{other.certificate}: signed by none of the authorities in {own}/ca.crt"
    )
    assert fault(good.certificate, good.key, tmp_path / "text") == f"{tmp_path}/text: no certificate in PEM"


def test_a_server_of_the_profile_without_its_files_does_not_start(tmp_path):
    async def scenario():
        with pytest.raises(StartError, match="--security strict without --client-ca-file"):
            async with a_server(tmp_path, client_ca_file=""):
                pass
        with pytest.raises(StartError, match="--security strict without --tls-cert-file and --tls-private-key-file"):
            async with a_server(tmp_path, client_ca_file="", tls_cert_file="", tls_private_key_file=""):
                pass

    in_loop(scenario)


def test_an_open_connection_ends_with_its_certificate(tmp_path):
    """As upstream's authenticator, which looks at the certificate with each request."""

    async def scenario():
        async with a_server(tmp_path) as server:
            life = timedelta(seconds=2)
            pair = certificates.authority(tmp_path, life=life).client("short", ADMIN.user, ADMIN.groups)
            tls = ClientTls(TlsFiles(pair.certificate, pair.key, tmp_path / "ca.crt"))
            async with a_client(server, tls) as transport:
                api = transport.api()
                assert (await api.call(a_create("in-time"))).code == 201
                await asyncio.sleep(2.5)
                late = await api.call(a_create("late"))
                assert late.code == 401
                assert "the client certificate of system:mesh-admin expired at" in json.loads(late.body)["message"]

    in_loop(scenario)


def test_under_load_leaf_certificates_and_the_authority_change_and_nothing_is_lost(tmp_path):
    """FM-X5: every write is answered, every event comes once, old certificates are refused at the end."""

    async def scenario():
        async with a_server(tmp_path) as server:
            tls = tls_of(tmp_path, "admin", ADMIN.user, ADMIN.groups)
            old = certificates.authority(tmp_path).client("old", ADMIN.user, ADMIN.groups)
            old_authority = (tmp_path / "ca.crt").read_bytes()
            async with a_client(server, tls) as transport:
                api, names, failed, is_over = transport.api(), [], [], False
                seen, start = [], str(server.server.store.window_start)

                async def follow():
                    nonlocal start
                    while True:
                        async for batch in api.watch(WatchRequest(resource="configmaps", resource_version=start)):
                            seen.extend(event.name for event in batch if event.name.startswith("p"))
                            start = str(batch[-1].rv)

                async def write():
                    while not is_over:
                        name = f"p{len(names)}"
                        names.append(name)
                        response = await api.call(a_create(name))
                        if response.code != 201:
                            failed.append((name, response))
                        await asyncio.sleep(0.001)

                async def used():
                    """Until both ends connect with what the files hold."""
                    files = tls.files
                    await until(
                        lambda: tls.material == files.read() and server._tls.material == server._tls._files.read()
                    )

                async def renew_all():
                    signer = certificates.authority(tmp_path)
                    for name in ("admin", "apiserver"):
                        signer.renew(certificates.Pair(tmp_path / f"{name}.crt", tmp_path / f"{name}.key"))
                    await used()

                following, writing = asyncio.create_task(follow()), asyncio.create_task(write())
                await renew_all()
                certificates.add_authority(tmp_path)
                await used()
                certificates.switch_authority(tmp_path)
                await renew_all()
                certificates.drop_authorities(tmp_path)
                await used()
                is_over = True
                await writing
                await until(lambda: len(seen) >= len(names))
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                assert not failed
                assert seen == names
                assert len(names) > 100
                assert transport._link.renewals >= 4
                assert transport._link.reconnects == 0

            root = old_authority + (tmp_path / "ca.crt").read_bytes()
            credentials = grpc.ssl_channel_credentials(root, old.key.read_bytes(), old.certificate.read_bytes())
            async with grpc.aio.secure_channel(f"127.0.0.1:{server.grpc_port}", credentials) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await ApiServerStub(channel).Call(pb.Request(verb="list", resource="nodes"), timeout=5)
                assert refused.value.code() is grpc.StatusCode.UNAVAILABLE

    in_loop(scenario)


def test_a_new_file_that_cannot_be_used_leaves_what_was_there_and_is_reported_once(tmp_path):
    """X-TLS4."""
    tls = tls_of(tmp_path, "c", "x")
    before = tls.material
    tls.files.certificate.unlink()
    tls.files.certificate.write_text("half a certifi")

    with structlog.testing.capture_logs() as lines:
        found = [tls.has_changed() for _ in range(5)]

    assert found == [False] * 5
    assert tls.material == before
    assert [line["error"] for line in lines] == [f"{tmp_path}/c.crt: no certificate in PEM"]


# --- a whole mesh


def nodes_by(kubeconfig):
    """Return the names of the nodes, asked for with nothing but the text of a kubeconfig. Raises: OSError."""
    config = yaml.safe_load(kubeconfig)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    trust = ssl.create_default_context(cadata=base64.b64decode(cluster["certificate-authority-data"]).decode())
    headers = {"Authorization": f"Bearer {user['token']}"}
    request = urllib.request.Request(f"{cluster['server']}/api/v1/nodes", headers=headers)
    with urllib.request.urlopen(request, timeout=10, context=trust) as answer:
        return sorted(item["metadata"]["name"] for item in json.load(answer)["items"])


DRIVER = "gpu.example.com"
STRICT = {
    "engine": "memory", "security": "strict", "log_level": "warning", "serves_clients": True,
    "definitions": {"h0": [{"name": "n0", "drivers": f"{DRIVER}:2"}], "h1": [{"name": "n1"}]},
}  # fmt: skip


def test_in_a_mesh_of_the_profile_every_process_takes_a_new_authority_and_none_is_restarted(tmp_path):
    async def scenario():
        mesh = Supervisor(MeshOptions(data_dir=tmp_path, **STRICT))
        await mesh.start()
        transport = mesh.client_transport()
        api = transport.api()
        try:

            async def document(resource, name):
                get = Request(verb="get", resource=resource, namespace="default", name=name)
                return msgspec.json.decode((await api.call(get)).unwrap().body)

            async def runs(name):
                spec = {"containers": [{"name": "c", "image": "i"}]}
                body = msgspec.json.encode({"metadata": {"name": name}, "spec": spec})
                create = Request(verb="create", resource="pods", namespace="default", body=body)

                async def is_made():  # once there is the service account
                    return (await api.call(create)).code == 201

                async def is_running():
                    return (await document("pods", name))["status"].get("phase") == "Running"

                await until_async(is_made)
                await until_async(is_running)

            async def publishes():
                found = await api.call(Request(verb="list", resource="resourceslices.resource.k8s.io"))
                return DRIVER in found.body.decode()

            await runs("before")
            await until_async(publishes)
            first = mesh.kubeconfig.read_bytes()
            said = []
            await asyncio.to_thread(rotation.change_authority, tmp_path, said.append)
            await runs("after")
            assert said[0] == "both authorities are trusted"
            assert said[2] == "the old authority is trusted no more"
            assert [child.restarts for child in mesh.children.values()] == [0] * len(mesh.children)
            assert await asyncio.to_thread(nodes_by, mesh.kubeconfig.read_bytes()) == ["n0", "n1"]
            with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
                await asyncio.to_thread(nodes_by, first)

            async def is_published():
                found = (await document("configmaps", "kube-root-ca.crt"))["data"]["ca.crt"]
                return found == (tmp_path / "credentials/ca.crt").read_text()

            await until_async(is_published)
            assert mesh.status()["security"] == "strict"
        finally:
            await transport.close()
            await mesh.stop()
        for log in (tmp_path / "logs").iterdir():
            assert "Traceback" not in log.read_text()
            assert "certificate_not_reloaded" not in log.read_text()

    asyncio.run(asyncio.wait_for(scenario(), 120))


def test_a_running_mesh_renews_its_certificates_before_they_expire(tmp_path):
    async def scenario():
        mesh = Supervisor(MeshOptions(data_dir=tmp_path, certificate_life=timedelta(seconds=24), **STRICT))
        await mesh.start()
        try:
            first = {each.name: each.not_after for each in rotation.mesh_certificates(tmp_path)}

            def renewed():
                return all(
                    each.not_after > first[each.name]
                    for each in rotation.mesh_certificates(tmp_path)
                    if each.name != "ca"
                )

            await until(renewed)
            await asyncio.to_thread(rotation.wait_until_used, tmp_path)
            await asyncio.sleep(
                max(0.0, (max(first[n] for n in first if n != "ca") - datetime.now(UTC)).total_seconds())
            )
            assert await asyncio.to_thread(nodes_by, mesh.kubeconfig.read_bytes()) == ["n0", "n1"]
            await until(lambda: all(child.is_ready for child in mesh.children.values()))
            assert [child.restarts for child in mesh.children.values()] == [0] * len(mesh.children)
        finally:
            await mesh.stop()

    asyncio.run(asyncio.wait_for(scenario(), 120))


def keplab(*words):
    environ = {**os.environ, "PYTHONPATH": os.getcwd()}
    return subprocess.run(
        [sys.executable, "-m", "lab.cli", *words], capture_output=True, text=True, timeout=60, env=environ
    )


def test_the_commands_say_what_is_wrong_in_one_line(tmp_path):
    nothing = keplab("rotate", "--data", str(tmp_path))
    assert (nothing.returncode, nothing.stderr.count("\n")) == (1, 1)
    assert f"no mesh has run on {tmp_path}" in nothing.stderr
    short = keplab("up", "--data", str(tmp_path), "--certificate-life", "5s")
    assert short.returncode == 2
    assert "5s: want at least 30 s and at most ten years" in short.stderr
    certificates.authority(tmp_path / "credentials").client("c", "x")
    found = json.loads(keplab("rotate", "--data", str(tmp_path), "--authority", "-o", "json").stdout)
    assert [each["name"] for each in found["certificates"]] == ["ca", "c"]
