"""Frames over gRPC: bytes that are no messages, messages of anything, and valid ones with bad fields; on `Call`, `Mutate`
and `Watch`."""

import asyncio

import grpc
from hypothesis import strategies as st

from protos.mesh.v1 import apiserver_pb2 as pb
from tests.fuzz.rest import SELECTORS, VERSIONS, is_faithful
from tests.fuzz.target import NAME, NAMESPACE, Answer, valid_objects
from tests.fuzz.values import TEXTS, bad_values, encoded, mutated, one_in

REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.RESOURCE_EXHAUSTED)
DUE = (503, 504)
WAIT_S = 20.0
VERBS = ("create", "update", "patch", "get", "list", "delete", "deletecollection", "x")
SUBRESOURCES = (
    *[""] * 16,
    "status",
    "scale",
    "binding",
    "unbind",
    "eviction",
    "resize",
    "token",
    "approval",
    "finalize",
    "log",
    "x",
)
texts = st.sampled_from([each.encode("utf-8", "replace").decode() for each in TEXTS])
doubles = st.sampled_from([0.0, 1.0, -1.0, 1e308, float("inf"), float("-inf"), float("nan"), 5e-324])


@st.composite
def requests(draw, catalogue, schemas):
    """A call with most of its fields right."""
    name = draw(st.sampled_from(sorted(catalogue.resources)))
    resource = catalogue.resources[name]
    request = pb.Request(
        id=draw(st.integers(0, 2**64 - 1)),
        verb=draw(st.sampled_from(VERBS)) if not draw(one_in(20)) else draw(texts),
        resource=name if not draw(one_in(20)) else draw(st.one_of(texts, st.sampled_from(["nodetokens", "statehash"]))),
        namespace=NAMESPACE if resource.namespaced and not draw(one_in(15)) else draw(st.one_of(st.just(""), texts)),
        name=draw(st.sampled_from([NAME, NAME, "made", "none"])) if not draw(one_in(10)) else draw(texts),
        subresource=draw(st.sampled_from(SUBRESOURCES)),
        patch_type=draw(st.sampled_from(["", "merge", "json", "strategic", "apply", "x"])),
        dry_run=draw(st.booleans()),
    )
    if request.verb == "deletecollection":
        request.dry_run = True
    for _ in range(draw(st.sampled_from([0, 0, 1, 2]))):
        field = draw(st.sampled_from(["uid", "resource_version", "resource_version_match", "label_selector", "field_selector", "continue_token",
                                      "field_manager", "field_validation", "request_id", "traceparent", "lease_epoch", "token"]))  # fmt: skip
        pool = {"label_selector": SELECTORS, "field_selector": SELECTORS, "resource_version": VERSIONS}.get(
            field, TEXTS
        )
        setattr(request, field, draw(st.sampled_from(pool)).encode("utf-8", "replace").decode())
    if draw(one_in(5)):
        request.limit = draw(st.sampled_from([1, -1, 2**63 - 1, -(2**63)]))
    if draw(one_in(5)):
        request.deadline_s = draw(doubles)
    document = {**valid_objects().get(name, {}), "apiVersion": resource.api_version, "kind": resource.kind}
    document["metadata"] = {"name": request.name, **document.get("metadata", {})}
    schema = schemas.of(resource.group, resource.version, resource.kind)
    match draw(st.sampled_from([9] * 12 + [0, 1, 2])):
        case 0:
            request.body = draw(st.binary(max_size=80))
        case 1:
            request.body = encoded(draw(bad_values))
        case 2:
            whole = encoded(document)
            request.body = whole[: draw(st.integers(0, len(whole)))]
        case _:
            if request.verb not in ("get", "list", "delete") or draw(one_in(4)):
                request.body = encoded(draw(mutated(schemas, schema, document)))
    return request


@st.composite
def watches(draw, catalogue):
    """A watch with most of its fields right."""
    request = pb.WatchRequest(
        id=draw(st.integers(0, 5)),
        resource=draw(st.sampled_from(sorted(catalogue.resources))) if not draw(one_in(8)) else draw(texts),
        namespace=draw(st.sampled_from(["", NAMESPACE, "none"])) if not draw(one_in(8)) else draw(texts),
        label_selector=draw(st.sampled_from(["", "", *SELECTORS])),
        field_selector=draw(st.sampled_from(["", "", *SELECTORS])),
        resource_version=draw(st.sampled_from(VERSIONS)),
        resource_version_match=draw(st.sampled_from(["", "", "", "Exact", "NotOlderThan", "x"])),
        allow_bookmarks=draw(st.booleans()),
        send_initial_events=draw(st.booleans()),
        timeout_s=draw(doubles),
    )
    if draw(one_in(10)):
        request.token = draw(texts)
    return pb.WatchControl(
        open=[request] * draw(st.sampled_from([1, 1, 1, 2])), close=draw(st.lists(st.integers(0, 7), max_size=2))
    )


@st.composite
def spoiled(draw, message):
    """The bytes of a message, a few of them others."""
    data = bytearray(draw(message).SerializeToString())
    for _ in range(draw(st.integers(1, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data)


@st.composite
def frames(draw, catalogue, schemas):
    """A method, and the frames that are sent to it."""
    method = draw(st.sampled_from(["Call", "Call", "Mutate", "Mutate", "Watch"]))
    one = requests(catalogue, schemas)
    match method:
        case "Call":
            message, count = one, 1
        case "Mutate":
            message, count = st.lists(one, min_size=1, max_size=4).map(lambda some: pb.RequestBatch(requests=some)), 2
        case _:
            message, count = watches(catalogue), 3
    found = []
    for _ in range(draw(st.integers(1, count))):
        match draw(st.sampled_from([9] * 8 + [0, 1])):
            case 0:
                found.append(draw(st.binary(max_size=60)))
            case 1:
                found.append(draw(spoiled(message)))
            case _:
                found.append(draw(message).SerializeToString())
    return method, found


TYPES = {"Call": pb.Request, "Mutate": pb.RequestBatch, "Watch": pb.WatchControl}


def read(method, frame):
    """Return the message of a frame, None where it is none."""
    try:
        return TYPES[method].FromString(frame)
    except Exception:
        return None


def ending(error):
    """Return the code with which a stream was refused; the client's library may lose it to a write that came too late."""
    return grpc.StatusCode.INVALID_ARGUMENT if error.details() == "Internal error from Core" else error.code()


class Frames:
    """The oracles of frames over gRPC, against one server."""

    def __init__(self, target):
        self._target = target
        self.codes = {}
        self.slow = []
        self.frames = 0

    def check(self, method, sent):
        """Send the frames and look at everything that must hold. Raises: AssertionError."""
        target = self._target
        before = target.run(target.settle())
        target.longest_s = 0.0
        self.frames += len(sent)
        shown = f"{method} {[read(method, frame) or frame for frame in sent]!r:.3000}"
        answers = target.run(
            asyncio.wait_for({"Call": self._call, "Mutate": self._mutate, "Watch": self._watch}[method](sent), WAIT_S)
        )
        if target.longest_s > 1.0:
            self.slow.append((target.longest_s, shown))
        assert target.is_alive, f"the server ended after {shown}"
        errors, target.errors[:] = list(target.errors), []
        assert errors == [], f"logged as an error: {errors}\nafter {shown}"
        for code, body in answers:
            self.codes[code] = self.codes.get(code, 0) + 1
            assert not isinstance(code, grpc.StatusCode) or code in REFUSED, f"{code}\nto {shown}"
            assert (
                isinstance(code, grpc.StatusCode) or code < 500 or code in DUE or is_faithful(Answer(code, {}, body))
            ), f"{code} {body[:500]}\nto {shown}"
        if method == "Watch" or all(isinstance(code, grpc.StatusCode) or code >= 400 for code, _ in answers):
            after = target.run(target.settle())
            assert after == before, f"the state has changed after {[code for code, _ in answers]}\nto {shown}"

    async def _call(self, sent):
        answer = await self._target.call(sent[0])
        if isinstance(answer, grpc.StatusCode):
            return [(answer, b"")]
        found = pb.Response.FromString(answer)
        return [(found.code, found.body)]

    async def _mutate(self, sent):
        """Every call of a readable frame is answered, also those behind one that is refused."""
        answers = []
        try:
            async with self._target.stream("Mutate") as stream:
                for frame in sent:
                    message = read("Mutate", frame)
                    await stream.write(frame)
                    wanted = len(message.requests) if message is not None else 1
                    while wanted > 0:
                        for found in pb.ResponseBatch.FromString(await stream.read()).responses:
                            wanted -= not found.more
                            answers.append((found.code, found.body))
        except grpc.aio.AioRpcError as error:
            if all(read("Mutate", frame) is not None for frame in sent):
                raise AssertionError(f"the stream ended: {error.code()} {error.details()}") from None
            answers.append((ending(error), b""))
        return answers

    async def _watch(self, sent):
        """A stream of watches stands as long as its frames are messages: a watch of everything behind them is served."""
        ends = []
        try:
            async with self._target.stream("Watch") as stream:
                for frame in sent:
                    await stream.write(frame)
                last = pb.WatchRequest(id=2**60, resource="namespaces", resource_version="0")
                await stream.write(pb.WatchControl(open=[last]).SerializeToString())
                while True:
                    found = pb.WatchFrame.FromString(await stream.read())
                    ends += [(end.code, end.status) for end in found.ends if end.code]
                    if any(batch.id == 2**60 for batch in found.batches):
                        return ends
        except grpc.aio.AioRpcError as error:
            if all(read("Watch", frame) is not None for frame in sent):
                raise AssertionError(f"the stream ended: {error.code()} {error.details()}") from None
            return [*ends, (ending(error), b"")]
