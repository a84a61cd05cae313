"""Bearer tokens and node tokens."""

import msgspec
import pytest

from apiserver_fake.authentication import Authenticator, TokenEntry, read_tokens
from services.api.errors import BadRequest, Forbidden, Unauthorized
from services.api.identity import ANONYMOUS, NODE_HOSTS_GROUP, Identity, node_identity
from services.api.tokens import driver_token
from services.runtime.config import StartError

HOST = Identity("system:node-host:host-1", (NODE_HOSTS_GROUP,))


def an_authenticator(key=b"key"):
    entries = [TokenEntry("s3cret", "user:ann", ("g",)), TokenEntry("h0st", HOST.user, HOST.groups)]
    return Authenticator(entries, key)


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

    assert an_authenticator().identify(token) == node_identity("n1.example")
    with pytest.raises(Unauthorized):
        an_authenticator(b"other key").identify(token)
    with pytest.raises(Unauthorized):
        an_authenticator().identify(token.replace("n1", "n2"))


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
