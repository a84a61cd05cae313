"""A client of etcd's API v3, with fail-over between members, TLS, user and password.

Calls go to one member until it fails, then to the next. Reads are tried at every member before they fail. A
transaction is tried once, because only its caller can find out its outcome. Watches require a member with a
leader and detect when it falls silent. Source: etcd's `client/v3`, `api/v3rpc/rpctypes/error.go`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import structlog

from apiserver_fake.storage.etcd.keyvalues import (
    CompactedError,
    DeniedError,
    EtcdError,
    Event,
    Head,
    KeyValue,
    NoSpaceError,
    Outcome,
    TooLargeError,
    Txn,
    UnreachableError,
)
from protos.etcd.v3 import rpc_pb2 as pb
from protos.etcd.v3.rpc_pb2_grpc import AuthStub, KVStub, WatchStub
from services.runtime.config import EXIT_CONFIG, EXIT_USAGE, StartError

ATTEMPT_MAX_S = 2.0
READ_MAX_S = 5.0
COMMIT_MAX_S = 3.0
SILENCE_S = 2.0
"""Seconds without events after which a watch's member is probed; after as long again the watch leaves it."""
AGAIN_S = 0.1
PORT = 2379

_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    # The time that an attempt may take, as in `services/client/channel.py`.
    ("grpc.min_reconnect_backoff_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_WITH_LEADER = ("hasleader", "true")

log = structlog.get_logger()


@dataclass(frozen=True)
class EtcdFlags:
    """The connection flags of etcd, of the same names. `servers`: URLs separated by commas."""

    servers: str
    cafile: str = ""
    certfile: str = ""
    keyfile: str = ""
    user: str = ""
    password_file: str = ""


class EtcdClient:
    """The connection; implements `keyvalues.Etcd`. Make it inside the running event loop."""

    def __init__(self, flags: EtcdFlags) -> None:
        """Connect with these flags. Raises: StartError naming the flag and the error."""
        self.endpoints = endpoints_of(flags.servers)
        credentials = _credentials(flags)
        self._user, self._password = flags.user, _text(flags.password_file, "--etcd-password-file").decode().strip()
        self._channels = [
            grpc.aio.secure_channel(target, credentials, options=_OPTIONS)
            if is_secure
            else grpc.aio.insecure_channel(target, options=_OPTIONS)
            for target, is_secure in self.endpoints
        ]
        self._called = self._watched = 0
        self._token = ""

    def __str__(self) -> str:
        return ", ".join(target for target, _ in self.endpoints)

    # -- calls

    async def read(self, key: bytes) -> Head:
        """Return the key, linearizably."""
        found = await self._ask(lambda stub: stub.Range, pb.RangeRequest(key=key))
        kv = found.kvs[0] if found.kvs else None
        return Head(
            kv.value if kv is not None else None, kv.mod_revision if kv is not None else 0, found.header.revision
        )

    async def range(self, prefix: bytes, revision: int, after: bytes = b"", limit: int = 0) -> list[KeyValue]:
        """Return the keys below the prefix as they were at a revision."""
        request = pb.RangeRequest(
            key=after + b"\0" if after else prefix, range_end=_end(prefix), revision=revision, limit=limit
        )
        found = await self._ask(lambda stub: stub.Range, request, READ_MAX_S)
        return [KeyValue(kv.key, kv.value, kv.mod_revision) for kv in found.kvs]

    async def commit(self, txn: Txn) -> Outcome:
        """Try a transaction once, at one member."""
        unchanged = pb.Compare(result=pb.Compare.EQUAL, target=pb.Compare.MOD, key=txn.key, mod_revision=txn.revision)
        writes = [pb.RequestOp(request_put=pb.PutRequest(key=key, value=value)) for key, value in txn.puts]
        writes += [pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=key)) for key in txn.deletes]
        looking = pb.RequestOp(request_range=pb.RangeRequest(key=txn.key, keys_only=True))
        request = pb.TxnRequest(compare=[unchanged], success=writes, failure=[looking])
        response = await self._try(lambda stub: stub.Txn, request, COMMIT_MAX_S)
        if response.succeeded:
            return Outcome(is_committed=True, revision=response.header.revision)
        kvs = response.responses[0].response_range.kvs
        return Outcome(is_committed=False, revision=kvs[0].mod_revision if kvs else 0)

    async def compact(self, revision: int) -> None:
        """Discard the history before a revision."""
        try:
            await self._try(lambda stub: stub.Compact, pb.CompactionRequest(revision=revision), READ_MAX_S)
        except CompactedError:
            return

    async def _ask(self, method: Callable[[Any], Any], request: Any, attempt_s: float = ATTEMPT_MAX_S) -> Any:
        """Call something that may be repeated, at one member after the other."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + READ_MAX_S
        while True:
            try:
                return await self._try(method, request, max(0.05, min(attempt_s, end_s - loop.time())))
            except UnreachableError:
                if loop.time() + AGAIN_S >= end_s:
                    raise
                await asyncio.sleep(AGAIN_S)

    async def _try(self, method: Callable[[Any], Any], request: Any, timeout_s: float) -> Any:
        at = self._called
        for is_last in (False, True):
            try:
                return await method(KVStub(self._channels[at]))(
                    request, timeout=timeout_s, metadata=await self._metadata(at)
                )
            except grpc.aio.AioRpcError as error:
                etcd_error = _error(error)
                if self._user and _is_token_over(str(etcd_error)) and not is_last:
                    self._token = ""
                    continue
                if isinstance(etcd_error, UnreachableError) and self._called == at:
                    self._called = (at + 1) % len(self._channels)
                raise etcd_error from None
        raise AssertionError("unreachable")

    async def _metadata(self, at: int) -> tuple[tuple[str, str], ...]:
        if not self._user:
            return (_WITH_LEADER,)
        if not self._token:
            request = pb.AuthenticateRequest(name=self._user, password=self._password)
            response = await AuthStub(self._channels[at]).Authenticate(request, timeout=ATTEMPT_MAX_S)
            self._token = response.token
        return (_WITH_LEADER, ("token", self._token))

    # -- watches

    async def watch(self, prefix: bytes, start: int) -> AsyncIterator[list[Event]]:
        """Yield the changes below the prefix, one or more whole revisions at a time."""
        at = self._watched
        try:
            call = WatchStub(self._channels[at]).Watch(metadata=await self._metadata(at))
        except grpc.aio.AioRpcError as error:
            self._watched = (at + 1) % len(self._channels)
            raise _error(error) from None
        try:
            create = pb.WatchCreateRequest(key=prefix, range_end=_end(prefix), start_revision=start, fragment=True)
            await call.write(pb.WatchRequest(create_request=create))
            async for events in self._events(call):
                yield events
        except (grpc.aio.AioRpcError, UnreachableError, asyncio.InvalidStateError) as error:
            etcd_error = _error(error) if isinstance(error, grpc.aio.AioRpcError) else UnreachableError(str(error))
            if _is_token_over(str(etcd_error)):
                self._token = ""
            self._watched = (at + 1) % len(self._channels)
            raise etcd_error from None
        finally:
            call.cancel()

    async def _events(self, call: Any) -> AsyncIterator[list[Event]]:
        events: list[Event] = []
        is_asked = False
        reading: asyncio.Task[Any] | None = None
        try:
            while True:
                # Not `asyncio.timeout`: a read that is cancelled cancels the call.
                reading = reading or asyncio.ensure_future(call.read())
                await asyncio.wait({reading}, timeout=SILENCE_S)
                if not reading.done():
                    if is_asked:
                        raise UnreachableError(f"the watch has said nothing for {2 * SILENCE_S:g} s")
                    is_asked = True
                    await call.write(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
                    continue
                response, reading, is_asked = reading.result(), None, False
                if response is grpc.aio.EOF:
                    raise UnreachableError(f"the watch has ended: {await call.details() or await call.code()}")
                if response.canceled:
                    if response.compact_revision:
                        raise CompactedError("required revision has been compacted", response.compact_revision)
                    raise UnreachableError(response.cancel_reason)
                events.extend(
                    Event(e.kv.key, e.kv.value if e.type == pb.Event.PUT else None, e.kv.mod_revision)
                    for e in response.events
                )
                if events and not response.fragment:
                    yield events
                    events = []
        finally:
            if reading is not None:
                reading.cancel()

    async def close(self) -> None:
        """Close all channels."""
        for channel in self._channels:
            await channel.close()


def endpoints_of(servers: str) -> list[tuple[str, bool]]:
    """Return (HOST:PORT, whether it uses TLS) for each of the comma-separated URLs. Raises: StartError."""
    endpoints = []
    for url in filter(None, (part.strip() for part in servers.split(","))):
        scheme, mark, place = url.rpartition("://")
        if (mark and scheme not in ("http", "https")) or not place.strip("/") or "/" in place.rstrip("/"):
            raise StartError(f"--etcd-servers {url!r}: want http://HOST:PORT or https://HOST:PORT", EXIT_USAGE)
        target = place.rstrip("/")
        if not target.rpartition(":")[2].isdigit() or ":" not in target:
            target = f"{target}:{PORT}"
        endpoints.append((target, scheme == "https"))
    if not endpoints:
        raise StartError("engine etcd needs --etcd-servers", EXIT_USAGE)
    return endpoints


def _end(prefix: bytes) -> bytes:
    """Return the first key that is not below a prefix."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def _text(path: str, flag: str) -> bytes:
    try:
        return Path(path).read_bytes() if path else b""
    except OSError as error:
        raise StartError(f"{flag} {path}: {error.strerror}", EXIT_CONFIG) from None


def _credentials(flags: EtcdFlags) -> grpc.ChannelCredentials:
    if bool(flags.certfile) != bool(flags.keyfile):
        missing, given = (
            ("--etcd-keyfile", "--etcd-certfile") if flags.certfile else ("--etcd-certfile", "--etcd-keyfile")
        )
        raise StartError(f"{given} without {missing}", EXIT_USAGE)
    authority, key, certificate = (
        _text(path, flag) or None
        for path, flag in (
            (flags.cafile, "--etcd-cafile"),
            (flags.keyfile, "--etcd-keyfile"),
            (flags.certfile, "--etcd-certfile"),
        )
    )
    return grpc.ssl_channel_credentials(authority, key, certificate)


def _is_token_over(text: str) -> bool:
    return "invalid auth token" in text or "revision of auth store is old" in text


_MEANT: Sequence[tuple[str, type[EtcdError]]] = (
    ("database space exceeded", NoSpaceError),
    ("revision has been compacted", CompactedError),
    ("request is too large", TooLargeError),
    ("too many operations in txn request", TooLargeError),
    ("received message larger than max", TooLargeError),
)
_DENIED = (
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.UNIMPLEMENTED,
)


def _error(error: grpc.aio.AioRpcError) -> EtcdError:
    """Return what a failure means to the caller; whatever is not known leaves the outcome open."""
    text = error.details() or error.code().name
    for words, kind in _MEANT:
        if words in text:
            return kind(text)
    if error.code() in _DENIED:
        return DeniedError(text)
    return UnreachableError(
        "etcdserver: request timed out" if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else text
    )
