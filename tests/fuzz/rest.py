"""Requests over REST: every kind and subresource, bodies by schema, patches, queries, headers; and their oracles."""

from dataclasses import dataclass

from hypothesis import strategies as st

from apiserver_fake.rest.parameters import SINGLE_PARAMETERS
from apiserver_fake.rest.paths import subresource_form
from tests.fuzz.target import JSON, NAME, NAMESPACE, TOKEN, name_of, path_of, valid_objects
from tests.fuzz.values import NUMBERS, ODD, TEXTS, Schemas, bad_values, encoded, mutated, one_in, values_of

PATCHES = ("merge-patch+json", "json-patch+json", "strategic-merge-patch+json", "apply-patch+yaml")
MEDIA_TYPES = (
    "application/json", "application/yaml", "application/vnd.kubernetes.protobuf", "text/plain", "", "application/json; charset=x",
    "application/json;as=Table;v=v1;g=meta.k8s.io", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "*/*", "a", "/",
    "application/json;stream=watch", "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;v=v1;g=meta.k8s.io", "application/json;q=x",
    *(f"application/{form}" for form in PATCHES),
)  # fmt: skip
SELECTORS = (
    "a=b", "a", "!a", "a in (b,c)", "a notin (b)", "a!=b", "a==b,c=d", "a>1", "a<x", "a in ()", "a in (", ",", "==", "a=b=c", "a = b ", "(", "!",
    "a/b/c=d", "metadata.name=fuzzed", "metadata.namespace=default", "spec.nodeName=n", "status.phase=Running", "spec.nope=a", "metadata.name in (a)",
    ",".join(["a=b"] * 65), "a=" + "x" * 2_000, "a=\u00e9", "a=%00", "involvedObject.name=p", "type=Opaque", "metadata.name!=a,metadata.name!=b",
)  # fmt: skip
VERSIONS = ("", "0", "1", "-1", "01", "x", "9" * 30, str(2**63), "1.5", "1795416421354065", " ")
HEADERS = (
    "Accept", "Content-Type", "Content-Encoding", "Accept-Encoding", "Authorization", "Host", "Origin", "User-Agent", "traceparent", "x-request-id",
    "x-lease-epoch", "Audit-Id", "If-None-Match", "Impersonate-User", "Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-a", "Connection",
    "Upgrade", "Expect", "Content-Length", "Transfer-Encoding", "Range", "X-Stream-Protocol-Version", "Sec-WebSocket-Protocol", "Cookie", "Warning",
)  # fmt: skip
CREATED = ("binding", "unbind", "eviction", "token")
"""Subresources whose bodies are created, not written."""
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "FOO", "get")
DUE = (503, 504)


@dataclass(frozen=True)
class Place:
    """A resource as it is served, and one of its subresources or ""."""

    resource: object
    subresource: str = ""

    def __str__(self):
        version = self.resource.api_version
        return f"{version}/{self.resource.plural}" + (f"/{self.subresource}" if self.subresource else "")


def places(catalogue):
    """Every resource and subresource that is served and is no connection."""
    found = []
    for served in catalogue.served_versions.values():
        for each in served.values():
            found.append(Place(each.resource))
            found += [Place(each.resource, name) for name in each.resource.subresources]
    return sorted(found, key=str)


def schemas_of(target):
    """Return what the server says of its types."""
    index = target.run(target.ask("GET", b"/openapi/v3")).document()
    urls = [entry["serverRelativeURL"] for entry in index["paths"].values()]
    return Schemas([target.run(target.ask("GET", url.encode())).document() for url in urls])


def quoted(text):
    """Return a text as part of an address; most of it as it is."""
    return "".join(
        c if c.isalnum() or c in "-._~/" else "".join(f"%{b:02X}" for b in c.encode("utf-8", "surrogatepass"))
        for c in text
    )


def printable(text):
    """Return a text as a header may have it: without what ends a line."""
    return text.encode("utf-8", "surrogatepass").replace(b"\r", b"").replace(b"\n", b"").replace(b"\0", b"")[:2_000]


@st.composite
def parameters(draw):
    """A query, most of it of names that mean something."""
    found = {}
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 1, 1, 2, 3]))):
        name = draw(st.sampled_from(TEXTS if draw(one_in(10)) else sorted(SINGLE_PARAMETERS)))
        pool = {"labelSelector": SELECTORS, "fieldSelector": SELECTORS, "resourceVersion": VERSIONS}.get(name)
        pool = pool or (
            "true",
            "1",
            "0",
            "All",
            "Strict",
            "Warn",
            "Ignore",
            "Exact",
            "NotOlderThan",
            "Foreground",
            "Orphan",
            *TEXTS[:40],
        )
        found[name] = f"{quoted(name)}={quoted(draw(st.sampled_from(pool)))}"
    return "&".join([*found.values()] * (2 if draw(one_in(30)) else 1))


@st.composite
def headers(draw):
    """Some headers, odd ones."""
    found = []
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 0, 1, 2]))):
        name = draw(st.sampled_from(HEADERS))
        value = draw(st.sampled_from(MEDIA_TYPES if name in ("Accept", "Content-Type") else TEXTS))
        if name not in ("Content-Length", "Transfer-Encoding", "Connection", "Expect", "Upgrade"):
            found.append((name.encode(), printable(value)))
    return found


@dataclass(frozen=True)
class Case:
    """One request, byte for byte."""

    method: str
    path: bytes
    body: bytes = b""
    headers: tuple = ()
    token: str = TOKEN

    @property
    def is_dry(self):
        """Whether it asks for a dry run, in the way that counts."""
        return b"dryRun=All" in self.path.partition(b"?")[2]

    def __repr__(self):
        shown = self.body if len(self.body) < 2_000 else self.body[:2_000] + b" ..."
        return f"{self.method} {self.path[:1500].decode()}\n  headers {self.headers}, token {self.token!r}\n  body {shown!r}"


@st.composite
def json_patches(draw, document):
    """A JSON patch, most of its paths being there."""
    operations = []
    for _ in range(draw(st.sampled_from([1, 1, 2, 3]))):
        path, value = "", document
        while isinstance(value, dict | list) and value and not draw(one_in(6)):
            key = draw(
                st.sampled_from(sorted(value) if isinstance(value, dict) else [0, len(value) - 1, "-", len(value)])
            )
            path += "/" + str(key).replace("~", "~0").replace("/", "~1")
            if isinstance(value, dict):
                value = value[key]
            else:
                value = value[key] if isinstance(key, int) and key < len(value) else None
        operation = {
            "op": draw(st.sampled_from(["add", "replace", "remove", "test", "move", "copy", "x", None])),
            "path": path,
        }
        if draw(st.booleans()):
            operation["value"] = draw(bad_values)
        if draw(one_in(4)):
            operation["from"] = draw(st.sampled_from(["", "/metadata", "/spec", "/spec/x", "x", 5, path, path + "/a"]))
        if draw(one_in(10)):
            operation[draw(st.sampled_from(["op", "path", "value", "from"]))] = draw(bad_values)
        operations.append(operation)
    return draw(st.sampled_from([operations] * 9 + [operations[0]]))


@st.composite
def bodies(draw, schemas, place, method, media_type):
    """A body for that place: mostly a valid object with parts replaced."""
    resource = place.resource
    form = subresource_form(place.subresource, resource.kind) if place.subresource else None
    group, version, kind = resource.group, resource.version, resource.kind
    if form is not None and form.kind:
        group, version, kind = form.group, form.version, form.kind
    schema = schemas.of(group, version, kind)
    head = {"apiVersion": f"{group}/{version}" if group else version, "kind": kind}
    document = {**head, **valid_objects().get(resource.name, {})} if kind == resource.kind else head
    document["metadata"] = {"name": NAME, **document.get("metadata", {})}
    if kind != resource.kind:
        document = {**draw(values_of(schemas, schema or {"type": "object"})), **document}
    elif place.subresource == "status":
        document["status"] = draw(values_of(schemas, (schema.get("properties") or {}).get("status")))
    match draw(st.sampled_from([9] * 20 + [0, 1, 2, 3])):
        case 0:
            return draw(st.sampled_from([encoded(each) for each in (*ODD, *NUMBERS[:5], "x")]))
        case 1:
            return draw(st.binary(max_size=60))
        case 2:
            whole = encoded(document)
            return whole[: draw(st.integers(0, len(whole)))]
        case 3:
            whole = bytearray(encoded(document))
            for _ in range(draw(st.integers(1, 4))):
                whole[draw(st.integers(0, len(whole) - 1))] = draw(st.integers(0, 255))
            return bytes(whole)
    if media_type.endswith("json-patch+json"):
        return encoded(draw(json_patches(document)))
    if method == "DELETE":
        options = schemas.of("", "v1", "DeleteOptions")
        return encoded(draw(mutated(schemas, options, {"kind": "DeleteOptions", "apiVersion": "v1"})))
    if method == "POST" and not place.subresource and not draw(one_in(4)):
        document["metadata"]["name"] = draw(st.sampled_from(["made", "made-2", "made-3", NAME]))
    return encoded(draw(mutated(schemas, schema, document)))


@st.composite
def cases(draw, schemas, place):
    """One request of that place."""
    resource = place.resource
    namespace = NAMESPACE if not draw(one_in(20)) else draw(st.sampled_from(["", "none", "kube-system", *TEXTS[:60]]))
    path = path_of(resource, "@").decode().replace("@", quoted(namespace))
    verbs = ["create", "update", "update", "patch", "patch", "patch", "read", "read", "delete", "odd"]
    if place.subresource:
        verbs = ["create"] * 8 + ["odd"] if place.subresource in CREATED else verbs[1:]
    verb = draw(st.sampled_from(verbs))
    is_named = verb in ("update", "patch") or place.subresource or draw(st.booleans())
    name = name_of(resource) if not draw(one_in(15)) else draw(st.sampled_from(["made", "none", *TEXTS]))
    if (is_named and verb != "create") or place.subresource:
        path += f"/{quoted(name)}" + (f"/{place.subresource}" if place.subresource else "")
    query = [draw(parameters())]
    media_type = "application/json"
    match verb:
        case "create":
            method = "POST"
        case "update":
            method = "PUT"
        case "patch":
            method, media_type = "PATCH", "application/" + draw(st.sampled_from(PATCHES))
            if media_type.endswith("yaml"):
                query += [each for each in ("fieldManager=m", "force=true") if each.partition("=")[0] not in query[0]]
        case "read":
            method = "GET"
            if draw(one_in(5)) and "watch" not in query[0]:
                query.append("watch=1")
        case "delete":
            # Whole collections only as a rehearsal: the others need them.
            method = "DELETE"
            if not is_named and "dryRun" not in query[0]:
                query.append("dryRun=All")
        case _:
            method = draw(st.sampled_from(METHODS))
    if method not in ("GET", "HEAD") and "dryRun" not in query[0] and "dryRun=All" not in query and draw(st.booleans()):
        query.append("dryRun=All")
    body = b""
    if method in ("POST", "PUT", "PATCH") or (method == "DELETE" and draw(st.booleans())):
        body = draw(bodies(schemas, place, method, media_type))
    sent = [(b"Content-Type", media_type.encode())] if not draw(one_in(25)) else []
    sent += draw(headers())
    token = TOKEN if not draw(one_in(30)) else draw(st.sampled_from(["fuzz-node", "fuzz-user", "", "wrong"]))
    # Two of a kind would be a broken head, which is another test.
    sent = list({name.lower(): (name, value) for name, value in sent if name != b"Authorization"}.values())
    text = "&".join(part for part in query if part)
    return Case(method, f"{path}{'?' + text if text else ''}".encode(), body, tuple(sent), token)


class Rest:
    """The oracles of requests over REST, against one server."""

    def __init__(self, target):
        self._target = target
        self._whole = {}
        """Uid and version of each kind's object as it was made."""
        self.codes = {}
        self.slow = []

    def restore(self, place):
        """Put the kind's object back as it was, if a case has changed it."""
        resource = place.resource
        if resource.name not in valid_objects():
            return
        document = valid_objects()[resource.name]
        name = name_of(resource)
        path = path_of(self._target.server.catalogue.resources[resource.name]) + b"/" + name.encode()
        store = self._target.server.store
        stored = store.get(resource.name, NAMESPACE if resource.namespaced else "", name)
        if stored is not None and self._whole.get(resource.name) == (stored.uid, stored.rv):
            return
        run, ask = self._target.run, self._target.ask
        if stored is not None:
            run(
                ask(
                    "PATCH",
                    path,
                    b'{"metadata":{"finalizers":null}}',
                    [(b"Content-Type", b"application/merge-patch+json")],
                )
            )
            run(ask("DELETE", path, b'{"gracePeriodSeconds":0}', [JSON]))
        run(self._target.create(resource.name, NAME, document))
        if (stored := store.get(resource.name, NAMESPACE if resource.namespaced else "", name)) is not None:
            self._whole[resource.name] = stored.uid, stored.rv

    def check(self, case):
        """Send the request and look at everything that must hold. Raises: AssertionError."""
        target = self._target
        before = target.run(target.settle())
        target.longest_s = 0.0
        answer = target.run(target.ask(case.method, case.path, case.body, case.headers, token=case.token))
        if target.longest_s > 1.0:
            self.slow.append((target.longest_s, repr(case)))
        self.codes[answer.status] = self.codes.get(answer.status, 0) + 1
        assert target.is_alive, f"the server ended after\n{case!r}"
        errors, target.errors[:] = list(target.errors), []
        assert errors == [], f"logged as an error: {errors}\nafter {case!r}"
        assert answer.status < 500 or answer.status in DUE or is_faithful(answer), (
            f"{answer.status} {answer.body[:600]!r}\nto {case!r}"
        )
        if answer.status >= 400 or case.is_dry or case.method in ("GET", "HEAD"):
            after = target.run(target.settle())
            assert after == before, f"the state has changed after an answer {answer.status}\nto {case!r}"
        if answer.status >= 400 and case.method != "HEAD" and answer.headers.get("content-type") == "application/json":
            status = answer.document()
            assert status is not None, f"an answer that is no JSON: {answer.body[:600]!r}\nto {case!r}"
            assert (status["kind"], status["code"]) == ("Status", answer.status), f"{status}\nto {case!r}"
            assert status["message"], f"a refusal without a message\nto {case!r}"


FAITHFUL = (
    b"This pod has more than one PodDisruptionBudget",
    b"the spec replicas field",
    b"failed calling webhook",
    b"conversion webhook for",
)


def is_faithful(answer):
    """Whether it is one of upstream's 500s about a state that no input is at fault for (decision 0045)."""
    return any(text in answer.body for text in FAITHFUL)
