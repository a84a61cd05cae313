"""Who is sent away before the API server is asked."""

import asyncio

from services.api.identity import Credential, Identity
from services.runtime.delegation import Caller, Delegation, Right

ADA = Identity("ada", ("dev",), credential=Credential(expires_s=1_000))


class Clock:
    def __init__(self, wall_s):
        self._wall_s = wall_s

    def now(self):
        return 0.0

    def wall(self):
        return self._wall_s


def refused(wall_s, authorization=""):
    """Return the status for who has Ada's certificate at that time; there is no API server to ask."""
    delegation = Delegation(lambda: None, Clock(wall_s))
    caller = Caller("GET", "/metrics", authorization)
    return asyncio.run(delegation.refusal(caller, ADA, [Right("get", "/metrics")])).code


def test_a_certificate_that_expired_on_an_open_connection_names_no_one():
    assert refused(1_000) == 503
    assert refused(1_001) == 401


def test_a_token_counts_where_the_certificate_has_expired():
    assert refused(1_001, "Bearer abc") == 503
