"""Who may ask the page's server: a token that is traded for a cookie, hosts, origins, and a value that changes carry (check 18)."""

import pytest

from lab.ui.session import CSRF_HEADER, MisdirectedHost, Sessions, policy
from services.api.errors import Forbidden, Unauthorized

TOKEN, COOKIE, CSRF = "t" * 64, "c" * 64, "x" * 64
HOST = {"Host": "127.0.0.1:7170"}
OWN = {**HOST, "Origin": "http://127.0.0.1:7170"}


@pytest.fixture
def sessions():
    return Sessions(TOKEN, COOKIE, CSRF, hosts=("Lab.example",))


def test_a_short_token_is_refused():
    with pytest.raises(ValueError, match="has 31 characters; want at least 32"):
        Sessions("t" * 31, COOKIE, CSRF)


def test_the_token_is_traded_for_the_cookie(sessions):
    assert COOKIE == sessions.trade(b'{"token": "%b"}' % TOKEN.encode())


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"token": 1}', b'{"token": "wrong"}', b'{"token": "\xff"}'])
def test_no_other_body_is(sessions, body):
    with pytest.raises(Unauthorized):
        sessions.trade(body)


@pytest.mark.parametrize("host", ["127.0.0.1:7170", "localhost:1", "[::1]:7170", "lab.example"])
def test_a_known_host_may_be_named(sessions, host):
    sessions.check_host(host)
    with pytest.raises(MisdirectedHost):
        sessions.check_host(f"x{host}")


@pytest.mark.parametrize("host", ["", "evil.example", "127.0.0.1.evil.example:7170", "10.0.0.1"])
def test_a_foreign_host_is_refused(sessions, host):
    with pytest.raises(MisdirectedHost) as refusal:
        sessions.check_host(host)
    assert 421 == refusal.value.code


@pytest.mark.parametrize("cookie", ["", "c", TOKEN, "ü" * 64])
def test_without_the_cookie_nothing_is_answered(sessions, cookie):
    with pytest.raises(Unauthorized):
        sessions.check("GET", HOST, cookie)


def test_reading_takes_the_cookie_alone(sessions):
    sessions.check("GET", HOST, COOKIE)
    sessions.check("GET", OWN, COOKIE, is_socket=True)
    with pytest.raises(Forbidden):
        sessions.check("POST", OWN, COOKIE)


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "", "http://127.0.0.1:7171", "file://127.0.0.1:7170"]
)
@pytest.mark.parametrize("is_socket", [False, True])
def test_what_comes_from_another_page_is_refused(sessions, origin, is_socket):
    with pytest.raises(Forbidden, match="is not this page's"):
        sessions.check("GET", {**HOST, "Origin": origin}, COOKIE, is_socket=is_socket)
    with pytest.raises(Forbidden):
        sessions.check_origin({**HOST, "Origin": origin})


@pytest.mark.parametrize("given", [{}, {CSRF_HEADER: ""}, {CSRF_HEADER: COOKIE}])
def test_a_change_needs_the_pages_value(sessions, given):
    with pytest.raises(Forbidden, match=CSRF_HEADER):
        sessions.check("POST", {**OWN, **given}, COOKIE)
    sessions.check("DELETE", {**OWN, CSRF_HEADER: CSRF}, COOKIE)


def test_the_policy_is_that_of_the_design():
    assert (
        "default-src 'none'; script-src 'self' 'sha256-abc='; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types keplab"
    ) == policy(["sha256-abc="])
