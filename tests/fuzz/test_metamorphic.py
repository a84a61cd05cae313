"""What must be equal whatever the input is (V12): a selected list and the list filtered, an object with and without unknown
fields, an object before a patch and after its inverse."""

import json
import re

import pytest
from hypothesis import strategies as st

from tests.fuzz import rest
from tests.fuzz.running import findings
from tests.fuzz.target import JSON, NAME, Target, path_of, valid_objects
from tests.fuzz.values import values_of

MAPS = b"/api/v1/namespaces/default/configmaps"
MERGE = [(b"Content-Type", b"application/merge-patch+json")]
SEED = 1
LABELS = [{}, {"a": "b"}, {"a": "c"}, {"a": "b", "n": "5"}, {"n": "10"}, {"a": "", "n": "x"}]
OPERATORS = {
    "{k}={v}": lambda labels, k, v: labels.get(k) == v,
    "{k}=={v}": lambda labels, k, v: labels.get(k) == v,
    "{k}!={v}": lambda labels, k, v: labels.get(k) != v,
    "{k} in ({v},c)": lambda labels, k, v: labels.get(k) in (v, "c"),
    "{k} notin ({v})": lambda labels, k, v: labels.get(k) != v,
    "{k}": lambda labels, k, v: k in labels,
    "!{k}": lambda labels, k, v: k not in labels,
    "{k}>5": lambda labels, k, v: labels.get(k, "").isdigit() and int(labels[k]) > 5,
    "{k}<10": lambda labels, k, v: labels.get(k, "").isdigit() and int(labels[k]) < 10,
}
terms = st.tuples(
    st.sampled_from(sorted(OPERATORS)), st.sampled_from(["a", "n", "z"]), st.sampled_from(["b", "c", "", "5"])
)


@pytest.fixture(scope="module")
def target():
    with Target() as found:
        yield found


def test_v12_what_a_selector_lists_is_what_is_left_of_the_whole_list(target):
    for i, labels in enumerate(LABELS):
        body = json.dumps({"metadata": {"name": f"of-{i}", "labels": {"mine": "y", **labels}}}).encode()
        assert target.run(target.ask("POST", MAPS, body, [JSON])).status == 201

    def check(chosen):
        text = ",".join(["mine=y", *(form.format(k=key, v=value) for form, key, value in chosen)])
        path = MAPS + b"?labelSelector=" + rest.quoted(text).replace("/", "%2F").encode()
        found = [item["metadata"]["name"] for item in target.run(target.ask("GET", path)).document()["items"]]
        wanted = [f"of-{i}" for i, labels in enumerate(LABELS) if all(OPERATORS[f](labels, k, v) for f, k, v in chosen)]
        assert found == wanted, text

    assert findings(st.lists(terms, max_size=3), check, 120, SEED) == []


MADE = ("uid", "creationTimestamp", "managedFields", "resourceVersion")


def plain(document):
    """Return the object without what is made anew each time; its uid may be in labels and selectors."""
    text = json.dumps(document).replace(document["metadata"]["uid"], "uid")
    for chance in (
        "kube-api-access-[a-z0-9]{5}",
        r"10\.96\.[0-9]+\.[0-9]+",
        r"[0-9-]{10}T[0-9:.]+Z",
    ):  # a volume's name, a Service's address, now
        text = re.sub(chance, "chance", text)
    document = json.loads(text)
    return {**document, "metadata": {k: v for k, v in document["metadata"].items() if k not in MADE}}


@st.composite
def with_unknown(draw):
    """The wire name of a kind, an object of it, and the same with a field that no schema knows."""
    name = draw(st.sampled_from(sorted(set(valid_objects()) - FREE)))
    document = json.loads(json.dumps(valid_objects()[name]))
    more = json.loads(json.dumps(document))
    holder = more
    while draw(st.booleans()):
        below = [
            each
            for each in (holder.values() if isinstance(holder, dict) else holder)
            if isinstance(each, dict | list) and each
        ]
        if not below:
            break
        holder = draw(st.sampled_from(below))
    if isinstance(holder, dict) and not all(isinstance(each, str) for each in holder.values()):
        holder["xNobodyKnowsIt"] = draw(st.sampled_from([1, "a", None, {"a": []}]))
    return name, document, more


FREE = frozenset(
    ("controllerrevisions.apps", "customresourcedefinitions.apiextensions.k8s.io", "deviceclasses.resource.k8s.io")
)
"""Kinds with places that keep what they are given."""


def test_v12_a_field_that_no_schema_knows_changes_nothing(target):
    def check(case):
        name, *two = case
        resource = target.server.catalogue.resources[name]
        answers = []
        for document in two:
            document = {**document, "apiVersion": resource.api_version, "kind": resource.kind}
            document["metadata"] = {"name": "made", **document.get("metadata", {})}
            if document["metadata"]["name"] == "made":
                path = path_of(resource) + b"?dryRun=All&fieldValidation=Ignore"
                answers.append(target.run(target.ask("POST", path, json.dumps(document).encode(), [JSON])))
        if answers:
            assert answers[0].status == answers[1].status == 201, answers[1].body
            assert plain(answers[0].document()) == plain(answers[1].document())

    assert findings(with_unknown(), check, 120, SEED) == []


def inverse(before, after):
    """Return the merge patch that makes `after` to `before`."""
    found = {}
    for key in {*before, *after}:
        if key not in before:
            found[key] = None
        elif isinstance(before[key], dict) and isinstance(after.get(key), dict):
            if below := inverse(before[key], after[key]):
                found[key] = below
        elif before[key] != after.get(key):
            found[key] = before[key]
    return found


def test_v12_a_patch_and_its_inverse_leave_the_object_as_it_was(target):
    schemas = rest.schemas_of(target)
    kinds = (
        "configmaps",
        "secrets",
        "pods",
        "deployments.apps",
        "services",
        "persistentvolumeclaims",
        "resourceslices.resource.k8s.io",
    )
    seen = []

    @st.composite
    def patches(draw):
        resource = target.server.catalogue.resources[draw(st.sampled_from(kinds))]
        schema = schemas.of(resource.group, resource.version, resource.kind)
        fields = {
            name: each
            for name, each in schema["properties"].items()
            if name not in ("apiVersion", "kind", "status", "metadata")
        }
        name = draw(st.sampled_from(sorted(fields)))
        meta = draw(st.sampled_from([{}, {"labels": {"x": "y"}}, {"annotations": {"x": "y"}}]))
        return resource, {name: draw(values_of(schemas, fields[name])), "metadata": meta}

    def check(case):
        resource, patch = case
        path = path_of(resource) + b"/" + NAME.encode()
        before = target.run(target.ask("GET", path)).document()
        answer = target.run(target.ask("PATCH", path, json.dumps(patch).encode(), MERGE))
        if answer.status != 200:
            return
        seen.append(resource.name)
        back = inverse(plain(before), plain(answer.document()))
        back.get("metadata", {}).pop("generation", None)
        again = target.run(target.ask("PATCH", path, json.dumps(back).encode(), MERGE))
        if again.status == 200:  # some fields can be set and never be taken back
            left, right = plain(before), plain(again.document())
            for each in (left, right):
                each["metadata"].pop("generation", None)
            assert left == right

    assert findings(patches(), check, 80, SEED) == []
    assert len(set(seen)) >= 3
