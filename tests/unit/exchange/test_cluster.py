"""Kinds of a cluster by name: what its discovery says, and what a group that does not answer leaves of it."""

import asyncio

import pytest

from lab.exchange.cluster import Cluster
from lab.exchange.rest.kubeconfig import Access
from lab.exchange.stream import Refused
from services.api.errors import Forbidden, Unavailable

GADGET = {"name": "gadgets", "kind": "Gadget", "namespaced": True, "verbs": ["get", "list"], "singularName": "gadget"}


def _groups(*names):
    return {"groups": [{"name": name, "preferredVersion": {"version": "v1"}} for name in names]}


def _cluster(pages):
    cluster = Cluster(Access("https://cluster.test"))

    async def get(path, **_):
        page = pages.get(path, {"resources": []})
        if isinstance(page, Exception):
            raise page
        return page

    cluster.get = get
    return cluster


def test_a_kind_of_another_group_is_known_although_one_group_does_not_answer():
    pages = {
        "/apis": _groups("metrics.k8s.io", "example.com"),
        "/apis/metrics.k8s.io/v1": Unavailable("no endpoints"),
        "/apis/example.com/v1": {"resources": [GADGET]},
    }

    (kind,) = asyncio.run(_cluster(pages).kinds(["gadgets"]))

    assert ("example.com", "Gadget", True) == (kind.group, kind.kind, kind.namespaced)


def test_the_refusal_of_an_unknown_kind_names_the_groups_that_could_not_be_listed():
    pages = {"/apis": _groups("metrics.k8s.io"), "/apis/metrics.k8s.io/v1": Unavailable("no endpoints")}

    with pytest.raises(Refused, match=r"no kind 'gadgets'; metrics\.k8s\.io/v1 \(no endpoints\) could not be listed;"):
        asyncio.run(_cluster(pages).kinds(["gadgets"]))


def test_a_server_that_forbids_its_discovery_is_refused_by_that_error():
    pages = {"/apis": Forbidden('User "ann" cannot get path "/apis"')}

    with pytest.raises(Refused, match=r'its API groups could not be listed: User "ann" cannot get path "/apis"'):
        asyncio.run(_cluster(pages).kinds(["gadgets"]))
