"""Bearer tokens and node tokens."""

import msgspec
import pytest

from apiserver_fake.registry.authorization.authentication import Authenticator, TokenEntry, read_tokens
from services.api.errors import BadRequest, Forbidden, Unauthorized
from services.api.identity import ANONYMOUS, Hosting, Identity, host_identity, node_identity
from services.api.tokens import driver_token
from services.runtime.config import StartError

HOST = host_identity("host-1", Hosting(frozenset(("n1.example", "n2"))))


def an_authenticator(key=b"key", wall=lambda: 1000.0):
    entries = [
        TokenEntry("s3cret", "user:ann", ("g",)),
        TokenEntry("h0st", HOST.user, HOST.groups, tuple(HOST.hosting.nodes)),
        TokenEntry("other", "system:node-host:other", HOST.groups, node_prefix="edge-"),
        TokenEntry("idle", "system:node-host:idle", HOST.groups),
    ]
    return Authenticator(entries, key, wall=wall)


def test_a_listed_token_names_its_identity_and_none_is_anonymous():
    authenticator = an_authenticator()

    assert authenticator.identify("s3cret") == Identity("user:ann", ("g",))
    assert authenticator.identify("") == ANONYMOUS


@pytest.mark.parametrize("bearer", ["s3cre", "s3crets", "node.n1.00", "node..", "node.n1.", "x" * 9000, "é"])
def test_any_other_token_is_refused_in_the_same_words(bearer):
    with pytest.raises(Unauthorized, match=r"^Unauthorized$"):
        an_authenticator().identify(bearer)


def test_a_node_token_is_good_for_that_node_under_the_same_key_only():
    token = an_authenticator().node_token(HOST, "n1.example")

    assert an_authenticator().identify(token, HOST.user) == node_identity("n1.example")
    with pytest.raises(Unauthorized):
        an_authenticator(b"other key").identify(token, HOST.user)
    for forged in (token.replace("n1", "n2"), token.replace(".4600.", ".9600."), token.replace(".4600.", ".9e9.")):
        with pytest.raises(Unauthorized):
            an_authenticator().identify(forged, HOST.user)


def test_guarantees_x_id5_a_node_token_is_good_over_its_own_hosts_connections_only():
    token = an_authenticator().node_token(HOST, "n2")

    for peer in ("", "system:node-host:other", "system:mesh-admin"):
        with pytest.raises(Unauthorized, match=r"^Unauthorized$"):
            an_authenticator().identify(token, peer)


def test_guarantees_x_tok1_a_node_token_is_good_for_an_hour_whatever_was_remembered_of_it():
    now = [1000.0]
    authenticator = an_authenticator(wall=lambda: now[0])
    token = authenticator.node_token(HOST, "n2")
    now[0] += 3600
    assert authenticator.identify(token, HOST.user) == node_identity("n2")
    now[0] += 10

    with pytest.raises(Unauthorized):
        authenticator.identify(token, HOST.user)


@pytest.mark.parametrize(
    ("bearer", "node", "why"),
    [
        ("h0st", "n3", "system:node-host:host-1 is for n1.example, n2 alone"),
        ("h0st", "n1", "system:node-host:host-1 is for n1.example, n2 alone"),
        ("other", "core-1", "system:node-host:other is for nodes that begin with 'edge-' alone"),
        (
            "idle",
            "n1",
            "system:node-host:idle is for no node: its entry in the token file has neither nodes nor node_prefix",
        ),
    ],
)
def test_guarantees_x_id5_a_host_gets_no_token_of_a_node_that_is_not_its_own(bearer, node, why):
    authenticator = an_authenticator()
    with pytest.raises(Forbidden) as refused:
        authenticator.node_token(authenticator.identify(bearer), node)

    assert refused.value.message == f'nodetokens "{node}" is forbidden: the credential of {why}'


def test_the_nodes_of_a_host_are_found_by_its_certificate_too_and_only_by_a_hosts():
    authenticator = an_authenticator()

    assert authenticator.certified_identity(Identity(HOST.user, HOST.groups)).hosting.has("n2")
    assert not authenticator.certified_identity(Identity(HOST.user)).hosting.has("n2")
    assert authenticator.identify("other").hosting.has("edge-7")


def test_a_drivers_token_names_its_service_account_and_is_bound_to_its_node():
    token = driver_token(b"key", "gpu.example.com", "n1.example")

    found = an_authenticator().identify(token)

    assert (found.user, found.on_node) == ("system:serviceaccount:kube-system:gpu.example.com", "n1.example")
    assert found.node == ""
    for forged in (token.replace("n1", "n2"), token.replace("gpu", "nic"), token.replace("driver.", "node.", 1)):
        with pytest.raises(Unauthorized):
            an_authenticator().identify(forged)


def test_node_tokens_are_for_hosts_and_for_names_of_nodes():
    with pytest.raises(Forbidden):
        an_authenticator().node_token(Identity("user:ann"), "n1")
    with pytest.raises(BadRequest):
        an_authenticator().node_token(HOST, "N 1")


def test_a_token_file_is_a_list_or_an_object_with_the_node_key(tmp_path):
    entries = [{"token": "t", "user": "user:ann"}]
    as_list, as_object, broken = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    as_list.write_bytes(msgspec.json.encode(entries))
    as_object.write_bytes(msgspec.json.encode({"tokens": entries, "node_key": "00ff"}))
    broken.write_bytes(b'[{"token": 1}]')

    assert read_tokens(as_list).tokens == read_tokens(as_object).tokens == (TokenEntry("t", "user:ann"),)
    assert read_tokens(as_object).node_key == "00ff"
    with pytest.raises(StartError, match="token file"):
        read_tokens(broken)
    with pytest.raises(StartError, match="No such file"):
        read_tokens(tmp_path / "d")
