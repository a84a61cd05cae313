"""What is read of a kubeconfig, and what is refused of one by field and value."""

import base64
import json

import pytest

from lab.exchange.rest.kubeconfig import read_access
from lab.exchange.stream import Refused


def config(**changes):
    return {
        "clusters": [{"name": "c", "cluster": {"server": "https://here:6443/"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
        **changes,
    }


def read(tmp_path, content):
    path = tmp_path / "config"
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return read_access(path)


def user(content):
    return config(users=[{"name": "u", "user": content}])


def test_server_and_user_are_those_of_the_current_context(tmp_path):
    found = read(tmp_path, config())

    assert (found.server, found.token, found.name) == ("https://here:6443", "t", "x")


def test_a_user_without_anything_is_no_one(tmp_path):
    found = read(tmp_path, user(None))

    assert (found.token, found.program) == ("", None)


def test_a_program_that_prints_a_token_has_arguments_and_an_environment(tmp_path):
    program = {"command": "get-token", "args": ["--for", 5], "env": [{"name": "A", "value": "b"}]}

    found = read(tmp_path, user({"exec": program})).program

    assert (found.command, found.environment) == (("get-token", "--for", "5"), (("A", "b"),))
    assert (found.api_version, found.cluster) == ("client.authentication.k8s.io/v1", None)


def test_a_program_with_a_relative_path_lies_beside_the_kubeconfig(tmp_path):
    found = read(tmp_path, user({"exec": {"command": "./bin/get-token"}}))

    assert found.program.command == (str(tmp_path / "bin" / "get-token"),)


def test_a_program_is_given_the_cluster_where_it_wants_that(tmp_path):
    cluster = {
        "server": "https://here:6443",
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
        "tls-server-name": "there",
        "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}],
    }
    wanted = {"command": "x", "provideClusterInfo": True, "apiVersion": "client.authentication.k8s.io/v1beta1"}

    found = read(tmp_path, user({"exec": wanted}) | {"clusters": [{"name": "c", "cluster": cluster}]})

    assert found.server_name == "there"
    assert found.program.api_version == "client.authentication.k8s.io/v1beta1"
    assert found.program.cluster == {
        "server": "https://here:6443",
        "certificate-authority-data": base64.b64encode(b"PEM").decode(),
        "tls-server-name": "there",
        "config": {"audience": "a"},
    }


def test_the_token_of_a_file_goes_before_the_one_that_is_written_out(tmp_path):
    (tmp_path / "token").write_text("of-file\n")

    found = read(tmp_path, user({"token": "written", "tokenFile": "token"}))

    assert (found.token, found.token_file) == ("of-file", tmp_path / "token")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"{", "no kubeconfig: "),
        (b"", "no kubeconfig: want an object"),
        (config(clusters=5), "clusters: want a list of objects with name and cluster"),
        (config(users=["u"]), "users: want a list of objects with name and user"),
        (config(users=[]), "users: no 'u'; there are none"),
        (config(clusters=[{"name": "c", "cluster": "https://here"}]), "clusters: cluster of 'c': want an object"),
        (config(clusters=[{"name": "c", "cluster": {"server": "here"}}]), "clusters: server 'here': want a URL"),
        (config(**{"current-context": "y"}), "contexts: no 'y'; there are x"),
        (user({"exec": {"args": []}}), "users: exec.command None: want a program"),
        (user({"exec": ["x"]}), "users: exec.command None: want a program"),
        (user({"exec": {"command": "x", "args": 5}}), "users: exec.args 5: want a list"),
        (user({"exec": {"command": "x", "env": [{"name": "A"}]}}), "users: exec.env [{'name': 'A'}]: want a list of"),
        (user({"exec": {"command": "x", "apiVersion": "v1"}}), "users: exec.apiVersion 'v1': want one of client.auth"),
        (user({"exec": {"command": "x", "interactiveMode": "Always"}}), "x would be given no terminal"),
        (
            config(clusters=[{"name": "c", "cluster": {"server": "https://h", "proxy-url": "socks5://p"}}]),
            "clusters: proxy-url 'socks5://p': want a URL of http or https",
        ),
        (user({"client-key-data": "%"}), "client-key-data: want base64 of PEM"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(tmp_path, content, text):
    with pytest.raises(Refused, match=r".") as refused:
        read(tmp_path, content)

    assert text in str(refused.value)
    assert str(tmp_path) in str(refused.value)
    assert "\n" not in str(refused.value)
