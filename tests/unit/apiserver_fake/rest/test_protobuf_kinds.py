"""Every built-in kind in protobuf, there and back."""

import pytest

from apiserver_fake.catalogue import Catalogue
from apiserver_fake.rest.encoding import complete, type_of
from apiserver_fake.rest.protobuf import NotAcceptable, decode, encode, wire
from services.api.metrics.apis import COMPUTED

WITHOUT = frozenset(
    # No types of upstream's release say what their messages are.
    ("apiservices.apiregistration.k8s.io", "customresourcedefinitions.apiextensions.k8s.io", "noderesourcetopologies.topology.node.k8s.io",
     "podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io")
)  # fmt: skip
SERVED = [
    each.resource
    for plurals in Catalogue().served.values()
    for each in plurals.values()
    if each.resource.name not in COMPUTED
]
METADATA = {"name": "x", "labels": {"a": "b"}, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 3}


@pytest.mark.parametrize("resource", SERVED, ids=lambda resource: f"{resource.api_version} {resource.kind}")
def test_every_kind_goes_there_and_comes_back(resource):
    head = {"apiVersion": resource.api_version, "kind": resource.kind}
    document = {"metadata": dict(METADATA)}
    if of := type_of(resource.api_version, resource.kind):
        complete(document, of)
    if resource.name in WITHOUT:
        with pytest.raises(NotAcceptable):
            encode({**head, **document})
        return
    found = decode(encode({**head, **document}))
    assert {name: found[name] for name in ("apiVersion", "kind", "metadata")} == {**head, "metadata": METADATA}
    listed = {"apiVersion": resource.api_version, "kind": resource.list_kind, "metadata": {}, "items": [document] * 3}
    [whole] = [value for number, value in wire(encode(listed)[4:]) if number == 2]
    assert len([value for number, value in wire(whole) if number == 2]) == 3
