"""Continue tokens (guarantees S10)."""

import pytest

from apiserver_fake.registry.read import ContinueTokens, Cursor
from services.api.errors import BadRequest
from services.api.meta import Key
from services.api.wire import Request

LIST = Request(verb="list", resource="pods", namespace="x", label_selector="a=b")


def test_a_token_brings_back_version_key_and_expiry():
    cursors = ContinueTokens(b"secret")

    token = cursors.token(7, Key("x", "p"), ContinueTokens.fingerprint(LIST), 100.0)

    assert cursors.read(token, ContinueTokens.fingerprint(LIST)) == Cursor(7, Key("x", "p"), 400.0)


@pytest.mark.parametrize(
    "corrupt", [lambda t: t[:-2], lambda t: "A" + t[1:], lambda t: "", lambda t: "%%", lambda t: t + "é"]
)
def test_a_torn_or_forged_token_is_a_bad_request(corrupt):
    cursors = ContinueTokens(b"secret")
    token = cursors.token(7, Key("x", "p"), ContinueTokens.fingerprint(LIST), 100.0)

    with pytest.raises(BadRequest, match="continue key is not valid"):
        cursors.read(corrupt(token), ContinueTokens.fingerprint(LIST))


def test_a_token_of_another_server_or_another_list_is_a_bad_request():
    token = ContinueTokens(b"secret").token(7, Key("x", "p"), ContinueTokens.fingerprint(LIST), 100.0)
    other = Request(verb="list", resource="pods", namespace="x")

    with pytest.raises(BadRequest):
        ContinueTokens(b"other").read(token, ContinueTokens.fingerprint(LIST))
    with pytest.raises(BadRequest, match="other selectors"):
        ContinueTokens(b"secret").read(token, ContinueTokens.fingerprint(other))
