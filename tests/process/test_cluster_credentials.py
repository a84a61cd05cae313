"""Credentials that end: tokens of programs and files are renewed while a cluster is followed."""

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest
from aiohttp import web

from lab.exchange.cluster import Cluster
from lab.exchange.rest.credentials import FILE_AGE_S, Credentials
from lab.exchange.rest.kubeconfig import Access, Program, read_access
from lab.exchange.stream import Refused


class ApiServer:
    """Lists no namespaces, for those who have the token of now."""

    def __init__(self):
        self.token, self.asked = "t1", []

    async def answer(self, request):
        self.asked.append(request.headers.get("Authorization", ""))
        if self.asked[-1] != f"Bearer {self.token}":
            return web.json_response({"kind": "Status", "code": 401, "message": "Unauthorized"}, status=401)
        return web.json_response({"kind": "List", "items": []})


def with_server(use):
    """Call `use(server, address)` with an API server."""

    async def run():
        server, app = ApiServer(), web.Application()
        app.router.add_get("/{path:.*}", server.answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        try:
            return await use(server, f"http://127.0.0.1:{runner.addresses[0][1]}")
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def program(tmp_path, text):
    """A program of these lines; what it prints of itself, `ran` counts."""
    path = tmp_path / "get-token"
    path.write_text(f"#!/bin/sh\necho ran >> {tmp_path}/ran\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return Program((str(path),), hint="install it\nfrom there")


def printing(tmp_path, **status):
    printed = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return program(tmp_path, f"echo '{json.dumps(printed)}'")


def runs(tmp_path):
    return len((tmp_path / "ran").read_text().split())


def tokens(access, *walls):
    """The tokens at these moments."""

    async def ask():
        now = [0.0]
        credentials = Credentials(access, None, lambda: now[0])
        found = []
        for now[0] in walls:
            found.append(await credentials.token())
        return found

    return asyncio.run(ask())


def test_a_token_that_is_refused_is_asked_for_again_and_the_request_with_it(tmp_path):
    async def use(server, address):
        (tmp_path / "token").write_text("t1")
        which = program(
            tmp_path,
            f"""printf '{{"apiVersion":"client.authentication.k8s.io/v1","status":{{"token":"%s"}}}}' $(cat {tmp_path}/token)""",
        )
        async with Cluster(Access(address, program=which)) as cluster:
            await cluster.get("/api/v1/namespaces")
            server.token = "t2"
            (tmp_path / "token").write_text("t2")
            # Both at once: the program runs once more, not once for each.
            return await asyncio.gather(*(cluster.get("/api/v1/namespaces") for _ in range(2))), server.asked

    answers, asked = with_server(use)

    assert [each["items"] for each in answers] == [[], []]
    assert asked == ["Bearer t1"] * 3 + ["Bearer t2"] * 2
    assert runs(tmp_path) == 2


def test_a_token_that_stays_refused_is_an_error_of_the_cluster(tmp_path):
    async def use(server, address):
        async with Cluster(Access(address, program=printing(tmp_path, token="other"))) as cluster:
            with pytest.raises(Exception, match="Unauthorized"):
                await cluster.get("/api/v1/namespaces")
            return server.asked

    assert with_server(use) == ["Bearer other"]
    assert runs(tmp_path) == 2


def test_a_program_runs_again_when_what_it_printed_ends(tmp_path):
    access = Access("http://h", program=printing(tmp_path, token="t", expirationTimestamp="1970-01-01T00:01:40Z"))

    assert tokens(access, 1, 50, 99) == ["t"] * 3
    assert runs(tmp_path) == 1
    assert tokens(access, 1, 50, 100) == ["t"] * 3
    assert runs(tmp_path) == 3


def test_a_file_is_read_again_each_minute_and_one_that_is_gone_changes_nothing(tmp_path):
    file = tmp_path / "token"
    file.write_text("t1\n")
    access = Access("http://h", token="t1", token_file=file)

    async def ask():
        now = [1000.0]
        credentials = Credentials(access, None, lambda: now[0])
        found = [await credentials.token()]
        file.write_text("t2\n")
        for passed in (FILE_AGE_S - 1, 1, FILE_AGE_S):
            now[0] += passed
            found.append(await credentials.token())
            if len(found) == 3:
                file.unlink()
        return found

    assert asyncio.run(ask()) == ["t1", "t1", "t2", "t2"]


def test_a_program_is_asked_as_kubectl_asks_it_and_has_no_terminal(tmp_path):
    text = f"""printf %s "$KUBERNETES_EXEC_INFO" > {tmp_path}/info; cat > {tmp_path}/input
echo '{{"apiVersion":"client.authentication.k8s.io/v1beta1","status":{{"token":"'$A'"}}}}'"""
    made = program(tmp_path, text)
    asked = Program(made.command, (("A", "b"),), "client.authentication.k8s.io/v1beta1", {"server": "https://h"})

    assert tokens(Access("http://h", program=asked), 1) == ["b"]
    assert json.loads((tmp_path / "info").read_text()) == {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": {"server": "https://h"}},
    }
    assert (tmp_path / "input").read_text() == ""


def test_a_certificate_that_a_program_prints_is_shown(tmp_path):
    shown = []

    class Trust:
        def load_cert_chain(self, path):
            shown.append(Path(path).read_text())

    access = Access("https://h", program=printing(tmp_path, clientCertificateData="certificate", clientKeyData="key"))

    assert asyncio.run(Credentials(access, Trust(), lambda: 1.0).token()) == ""
    assert shown == ["certificate\nkey\n"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo no network >&2; exit 3", "get-token ended with 3: no network"),
        ("exit 1", "get-token ended with 1: it said nothing"),
        ("echo '{'; echo bad >&2", "get-token printed no ExecCredential: Input data was truncated; bad"),
        ("""echo '{"apiVersion": "v1", "status": {"token": "t"}}'""", "printed v1, and the kubeconfig says client."),
        ("""echo '{"apiVersion": "client.authentication.k8s.io/v1", "status": {}}'""", "neither a token nor a certif"),
    ],
)
def test_a_program_that_prints_no_credentials_is_one_line(tmp_path, text, message):
    with pytest.raises(Refused) as refused:
        tokens(Access("http://h", program=program(tmp_path, text)), 1)

    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_program_that_is_not_there_is_said_with_how_it_is_installed(tmp_path):
    config = tmp_path / "config"
    user = {"exec": {"command": "keplab-no-such-program", "installHint": "install it\nfrom there"}}
    config.write_text(
        json.dumps(
            {"clusters": [{"name": "c", "cluster": {"server": "http://h"}}], "users": [{"name": "u", "user": user}]}
        )
    )

    with pytest.raises(Refused) as refused:
        tokens(read_access(config), 1)

    wanted = f"keplab-no-such-program, which prints credentials: {os.strerror(2)}; install it; from there"
    assert wanted == str(refused.value)
