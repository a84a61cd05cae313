"""Conversion webhooks over TLS: what is asked, what is believed of the answer, and what callers get when it fails."""

import asyncio
import base64
import random
import ssl

import msgspec
import pytest
from aiohttp import web

from apiserver_fake.extensions.customresources import webhooks
from apiserver_fake.extensions.customresources.webhooks import WebhookConverter
from apiserver_fake.registry.controlplane.service_addresses import address_of
from apiserver_fake.storage.records import record_of
from apiserver_fake.storage.store import Store
from services.api.errors import ApiError
from services.api.resources import resources
from services.runtime import certificates
from services.runtime.real import RealClock
from services.telemetry.calls import serving
from services.telemetry.traces import MemorySpans, Tracer

GROUP = "example.com"
ABOUT = "conversion webhook for example.com/v1, Kind=Widget"


def a_widget(name="one", version="v1", **spec):
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "7", "labels": {"a": "b"}}
    return {"apiVersion": f"{GROUP}/{version}", "kind": "Widget", "metadata": metadata, "spec": spec}


def success(review, change=lambda each: each, **response):
    """Answer a review as a good webhook does: every object in the version that is wanted."""
    request = review["request"]
    objects = [change({**each, "apiVersion": request["desiredAPIVersion"]}) for each in request["objects"]]
    said = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects, **response}
    return {"apiVersion": review["apiVersion"], "kind": "ConversionReview", "response": said}


class Hook:
    """A webhook over TLS that answers what it is given to answer, with None nothing; remembers what it was asked."""

    def __init__(self, directory, answer, code=200):
        self.authority = certificates.authority(directory)
        self.pair = self.authority.server("webhook", ("hook.system.svc",))
        self.answer, self.code, self.asked = answer, code, []
        self.spans, self.traces = MemorySpans(), []
        self.tracer = Tracer("apiserver", clock=RealClock(), random=random.Random(1), sinks=(self.spans,))

    async def _handle(self, request):
        review = await request.json()
        self.asked.append(review)
        self.traces.append(request.headers.get("traceparent"))
        if self.answer is None:
            await self.is_over.wait()
            raise web.HTTPServiceUnavailable
        found = self.answer(review)
        return web.Response(status=self.code, body=found if isinstance(found, bytes) else msgspec.json.encode(found))

    async def __aenter__(self):
        self.is_over = asyncio.Event()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.pair.certificate, self.pair.key)
        self.runner = web.ServerRunner(web.Server(self._handle))
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0, ssl_context=context).start()
        self.port = self.runner.addresses[0][1]
        return self

    async def __aexit__(self, *_):
        self.is_over.set()
        await self.runner.cleanup()

    def converter(self, *, reviews=("v1",), service=None, bundle=True, address=None):
        config = {"url": f"https://127.0.0.1:{self.port}/convert"}
        if service is not None:
            config = {"service": service}
        if bundle:
            config["caBundle"] = base64.b64encode(self.authority.path.read_bytes()).decode()
        webhook = {"clientConfig": config, "conversionReviewVersions": list(reviews)}
        definition = {
            "metadata": {"name": f"widgets.{GROUP}"},
            "spec": {
                "group": GROUP,
                "names": {"kind": "Widget"},
                "conversion": {"strategy": "Webhook", "webhook": webhook},
            },
        }
        return WebhookConverter(definition, address or (lambda *_: ("127.0.0.1", self.port)), self.tracer)


def converted(directory, answer, documents, *, code=200, **settings):
    async def main():
        async with Hook(directory, answer, code) as hook:
            return await hook.converter(**settings)(documents, f"{GROUP}/v2"), hook

    return asyncio.run(main())


def refused(directory, answer, **settings):
    with pytest.raises(ApiError) as error:
        converted(directory, answer, [a_widget()], **settings)
    assert error.value.code == 500
    return error.value.message


def test_one_review_asks_for_all_objects_that_are_in_another_version(tmp_path):
    documents = [a_widget("one"), a_widget("two", "v2"), a_widget("three")]
    found, hook = converted(tmp_path, success, documents)

    [review] = hook.asked
    assert (review["apiVersion"], review["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert review["request"]["desiredAPIVersion"] == "example.com/v2"
    assert [each["metadata"]["name"] for each in review["request"]["objects"]] == ["one", "three"]
    assert [(each["apiVersion"], each["metadata"]["name"]) for each in found] == [
        ("example.com/v2", "one"),
        ("example.com/v2", "two"),
        ("example.com/v2", "three"),
    ]


PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


def test_a_review_is_a_request_below_the_one_it_is_for_and_names_itself(tmp_path):
    serving.set(PARENT)
    try:
        _, hook = converted(tmp_path, success, [a_widget()])
    finally:
        serving.set("")

    (span,) = hook.spans.spans
    assert (span.name, span.kind, span.parent, span.trace_id) == ("POST /convert", "client", "b" * 16, "a" * 32)
    assert hook.traces == [f"00-{'a' * 32}-{span.span_id}-01"]
    assert span.attributes["http.response.status_code"] == 200
    assert (span.attributes["server.address"], span.attributes["server.port"]) == ("127.0.0.1", hook.port)


def test_nothing_is_handed_on_where_there_is_no_trace(tmp_path):
    _, hook = converted(tmp_path, success, [a_widget()])

    assert (hook.spans.spans, hook.traces) == ([], [None])


def test_labels_and_annotations_may_change_and_other_metadata_is_what_it_was(tmp_path):
    def change(each):
        metadata = {**each["metadata"], "labels": {"c": "d"}, "annotations": {"e": "f"}, "resourceVersion": "99"}
        return {**each, "metadata": metadata, "spec": {"new": True}}

    [found], _ = converted(tmp_path, lambda review: success(review, change), [a_widget()])

    assert found["spec"] == {"new": True}
    assert found["metadata"] == {
        **a_widget()["metadata"], "labels": {"c": "d"}, "annotations": {"e": "f"}, "resourceVersion": "7",
    }  # fmt: skip


def test_nothing_is_asked_for_objects_that_are_in_the_version_already(tmp_path):
    found, hook = converted(tmp_path, success, [a_widget(version="v2")])

    assert (found, hook.asked) == ([a_widget(version="v2")], [])


def test_the_first_review_version_that_is_known_is_spoken(tmp_path):
    _, hook = converted(tmp_path, success, [a_widget()], reviews=("v9", "v1beta1", "v1"))

    assert hook.asked[0]["apiVersion"] == "apiextensions.k8s.io/v1beta1"
    assert refused(tmp_path, success, reviews=("v9",)) == f"{ABOUT} failed: no supported conversion review versions"


def failure(review):
    return success(review, result={"status": "Failed", "message": "no such size"})


def of_kind(kind):
    return lambda review: success(review, lambda each: {**each, "kind": kind})


def renamed(review):
    return success(review, lambda each: {**each, "metadata": {**each["metadata"], "name": "other"}})


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (failure, "failed: no such size"),
        (lambda r: success(r, result={"status": "Nope"}), "failed: response.result.status was 'Nope', not 'Success'"),
        (lambda r: success(r, uid="x"), 'failed: expected response.uid="'),
        (lambda r: {"apiVersion": "v1", "kind": "Pod"}, "failed: expected webhook response of apiextensions.k8s.io/v1"),
        (lambda r: {k: v for k, v in success(r).items() if k != "response"}, "failed: no response provided"),
        (lambda r: success(r, convertedObjects=[]), "returned 0 objects, expected 1"),
        (of_kind("Gadget"), "returned invalid converted object at index 0: invalid kind (expected Widget, received"),
        (renamed, "returned invalid converted object at index 0: must have the same name: one != other"),
        (lambda r: success(r, lambda each: {**each, "apiVersion": "a/v1"}), "invalid groupVersion (expected"),
        (lambda r: b"<html>", "failed: the answer is not JSON"),
        (lambda r: [], "failed: the answer is not an object"),
    ],
)
def test_an_answer_that_cannot_be_believed_is_an_error_that_says_why(tmp_path, answer, words):
    assert refused(tmp_path, answer).startswith(ABOUT)
    assert words in refused(tmp_path, answer)


def test_an_error_of_the_server_is_another_than_one_of_the_connection(tmp_path):
    assert "the server responded with the status code 503" in refused(tmp_path, success, code=503)
    assert 'failed: Post "https://' in refused(tmp_path, success, bundle=False)
    assert "certificate verify failed" in refused(tmp_path, success, bundle=False)


def test_a_webhook_that_does_not_answer_in_time_is_an_error_that_says_for_how_long_it_was_waited(tmp_path, monkeypatch):
    monkeypatch.setattr(webhooks, "TIMEOUT_S", 0.05)

    message = refused(tmp_path, None)

    assert message.startswith(f'{ABOUT} failed: Post "https://127.0.0.1:')
    assert message.endswith('/convert?timeout=0.05s": context deadline exceeded')


SERVICE = {"name": "hook", "namespace": "system", "path": "/x", "port": 8443}


def test_a_service_is_reached_at_its_address_under_its_own_name(tmp_path):
    found, hook = converted(tmp_path, success, [a_widget()], service=SERVICE)
    assert (found[0]["apiVersion"], len(hook.asked)) == ("example.com/v2", 1)

    def nowhere(namespace, name, port):
        raise LookupError(f'service "{name}" not found')

    assert refused(tmp_path, success, service=SERVICE, address=nowhere) == (
        f'{ABOUT} failed: Post "https://hook.system.svc:8443/x?timeout=30s": service "hook" not found'
    )


def a_store(*documents):
    store = Store()
    kinds = {each.kind: each for each in resources().values()}
    records = [
        record_of(kinds[each["kind"]], each, place + 1, msgspec.json.encode(each))
        for place, each in enumerate(documents)
    ]
    store.load(records, len(records))
    return store


def a_service(**spec):
    return {"kind": "Service", "metadata": {"name": "hook", "namespace": "system"}, "spec": spec}


def a_slice(*addresses, ready=True, port=9443):
    return {
        "kind": "EndpointSlice",
        "metadata": {"name": "hook-x", "namespace": "system", "labels": {"kubernetes.io/service-name": "hook"}},
        "ports": [{"name": "https", "port": port}],
        "endpoints": [{"addresses": [each], "conditions": {"ready": ready}} for each in addresses],
    }


PORTS = {"ports": [{"name": "https", "port": 443}]}


def test_a_service_address_is_a_ready_endpoint_or_an_external_name():
    ready = a_store(a_service(**PORTS), a_slice("127.0.0.7"))
    external = a_store(a_service(type="ExternalName", externalName="localhost"))

    assert address_of(ready, "system", "hook", 443) == ("127.0.0.7", 9443)
    assert address_of(external, "system", "hook", 8443) == ("localhost", 8443)


@pytest.mark.parametrize(
    ("documents", "words"),
    [
        ((), 'service "hook" not found'),
        ((a_service(**PORTS),), 'no endpoints available for service "hook"'),
        ((a_service(**PORTS), a_slice("127.0.0.7", ready=False)), 'no endpoints available for service "hook"'),
        ((a_service(ports=[{"port": 80}]),), 'no service port 443 found for service "hook"'),
    ],
)
def test_a_service_that_cannot_be_reached_says_why(documents, words):
    with pytest.raises(LookupError, match=words):
        address_of(a_store(*documents), "system", "hook", 443)
