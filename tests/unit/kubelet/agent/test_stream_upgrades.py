"""Which upgrades of a connection to a stream a kubelet takes, and in which words it refuses the others."""

import asyncio

import pytest

from kubelet.agent.streams import PORT_FORWARD, REMOTE_COMMAND, SESSIONS_MAX, Streams
from services.runtime.health import HttpRequest

EXEC, FORWARD = "/exec/{namespace}/{pod}/{container}", "/portForward/{namespace}/{pod}"


class Answer:
    """What is written to a client."""

    def __init__(self):
        self.data = b""

    def write(self, data):
        self.data += data

    @property
    def status(self):
        return self.data.partition(b"\r\n")[0].decode()

    @property
    def headers(self):
        lines = self.data.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return [(name, value) for name, _, value in (line.partition(": ") for line in lines)]

    @property
    def body(self):
        return self.data.partition(b"\r\n\r\n")[2].decode()


def asked(path, streams=None, params=None, **headers):
    """Ask for an upgrade of a node without pods."""
    answer = Answer()

    async def ask():
        take = dict((streams or Streams(tuple)).upgrades())[path]
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        where = {"namespace": "default", "pod": "p", "container": "main"} if params is None else params
        await take(HttpRequest(path, where, {}, names), None, answer)

    asyncio.run(ask())
    return answer


def test_a_request_that_asks_for_no_upgrade_is_a_bad_one():
    for headers in ({}, {"upgrade": "websocket"}):
        answer = asked(EXEC, x_stream_protocol_version=REMOTE_COMMAND[0], **headers)

        assert answer.status == "HTTP/1.1 400 Bad Request"
        assert answer.body == "unable to upgrade: want the protocol SPDY/3.1\n"


@pytest.mark.parametrize(("path", "protocols"), [(EXEC, REMOTE_COMMAND), (FORWARD, PORT_FORWARD)])
def test_a_client_without_a_common_protocol_is_refused_with_those_there_are(path, protocols):
    answer = asked(path, upgrade="SPDY/3.1", x_stream_protocol_version="v9.channel.k8s.io, v8.channel.k8s.io")

    assert answer.status == "HTTP/1.1 403 Forbidden"
    assert answer.body == (
        "unable to upgrade: unable to negotiate protocol: client supports [v9.channel.k8s.io v8.channel.k8s.io], "
        f"server accepts [{' '.join(protocols)}]\n"
    )
    assert answer.headers == [
        ("Content-Type", "text/plain; charset=utf-8"),
        *(("X-Accepted-Stream-Protocol-Versions", protocol) for protocol in protocols),
        ("Content-Length", str(len(answer.body))),
        ("Connection", "close"),
    ]


def test_a_client_beyond_the_most_sessions_there_may_be_is_asked_to_come_later():
    streams = Streams(tuple)
    streams._sessions |= set(range(SESSIONS_MAX))

    answer = asked(EXEC, streams, upgrade="spdy/3.1", x_stream_protocol_version=REMOTE_COMMAND[0])

    assert (answer.status, answer.body) == (
        "HTTP/1.1 429 Too Many Requests", "256 streaming connections are open already\n",
    )  # fmt: skip


def test_a_pod_that_is_not_here_is_not_found_and_its_session_is_over():
    streams = Streams(tuple)

    answer = asked(EXEC, streams, upgrade="SPDY/3.1", x_stream_protocol_version=f"v9.x, {REMOTE_COMMAND[0]}")

    assert answer.status == "HTTP/1.1 404 Not Found"
    assert streams.count == 0
