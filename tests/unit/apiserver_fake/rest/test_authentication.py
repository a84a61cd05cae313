"""Authentication by client certificates: what a certificate says is read once a connection, its validity each time."""

import asyncio
from types import SimpleNamespace

import pytest
from multidict import CIMultiDict

from apiserver_fake.rest.handlers import authentication
from apiserver_fake.rest.handlers.authentication import EXTERNALS_MAX, Authentication
from services.api.errors import Unauthorized
from services.api.identity import external
from services.runtime.serving_tls import identity_of_peer


def peer_of(user):
    return {"subject": ((("commonName", user),),), "notAfter": "Jan  1 00:00:00 2030 GMT"}


def request_of(peer):
    transport = SimpleNamespace(get_extra_info={"peercert": peer}.get)
    return SimpleNamespace(transport=transport, headers=CIMultiDict())


@pytest.fixture
def checked():
    return []


@pytest.fixture
def server(checked):
    def certified_identity(identity):
        checked.append(identity.user)
        if len(checked) > EXTERNALS_MAX + 3:
            raise Unauthorized("Unauthorized")
        return identity

    callers = SimpleNamespace(certified_identity=certified_identity, authorize_action=None)
    return SimpleNamespace(audit=None, access=SimpleNamespace(is_rbac=True), callers=callers, is_shared=False)


def test_a_certificate_is_read_once_a_connection_and_checked_for_each_request(monkeypatch, server, checked):
    read = []

    def noted(peer):
        read.append(peer)
        return identity_of_peer(peer)

    monkeypatch.setattr(authentication, "identity_of_peer", noted)
    authenticating = Authentication(server, None, frozenset())
    ada, bob = peer_of("ada"), peer_of("bob")

    callers = [asyncio.run(authenticating.caller(request_of(peer))) for peer in (ada, bob, ada, bob, dict(ada))]

    assert [external(identity_of_peer(peer)) for peer in (ada, bob, ada, bob, ada)] == callers
    assert [ada, bob, ada] == read
    assert ["ada", "bob", "ada", "bob", "ada"] == checked


def test_a_certificate_that_is_no_longer_valid_is_refused_on_a_connection_that_it_opened(server):
    authenticating = Authentication(server, None, frozenset())
    for number in range(EXTERNALS_MAX + 2):  # more connections than are kept
        asyncio.run(authenticating.caller(request_of(peer_of(f"user-{number}"))))
    ada = peer_of("ada")
    assert "ada" == asyncio.run(authenticating.caller(request_of(ada))).user

    with pytest.raises(Unauthorized):
        asyncio.run(authenticating.caller(request_of(ada)))
