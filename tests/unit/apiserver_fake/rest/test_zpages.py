"""Pages for those who look after a server: their texts, their documents, and what clients may ask for."""

from dataclasses import dataclass

import msgspec
import pytest
import yaml

from apiserver_fake.rest import zpages
from apiserver_fake.rest.protobuf import NotAcceptable

STATUS = zpages.Status(
    began_s=1_767_225_600.0,
    now_s=1_767_225_600.0 + 3_725.9,
    runtime="none (python3.12)",
    release="1.36.3",
    paths=("/healthz", "/metrics"),
)
V1BETA1 = "application/json;as=Statusz;g=config.k8s.io;v=v1beta1"
HEAD = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for "
    "debugging purposes only.\n"
)


@pytest.mark.parametrize("accept", ["", "*/*", "text/plain", "text/*", "application/json, */*", "text/html, */*;q=0.1"])
def test_status_is_a_text_for_who_asks_for_no_kind(accept):
    page = zpages.status_page(accept, STATUS)

    assert page.body == (
        f"\napiserver statusz\n{HEAD}\n"
        "Started: Thu Jan  1 00:00:00 UTC 2026\n"
        "Up: 1 hr 02 min 05 sec\n"
        "Go version: none (python3.12)\n"
        "Binary version: 1.36.3\n"
        "Emulation version: 1.36\n"
        "Paths: /healthz /metrics\n"
    )
    assert page.content_type == "text/plain; charset=utf-8"


def test_status_is_a_document_for_who_names_the_kind():
    page = zpages.status_page(V1BETA1, STATUS)

    assert msgspec.json.decode(page.body) == {
        "kind": "Statusz",
        "apiVersion": "config.k8s.io/v1beta1",
        "metadata": {"name": "apiserver"},
        "startTime": "2026-01-01T00:00:00Z",
        "uptimeSeconds": 3725,
        "goVersion": "none (python3.12)",
        "binaryVersion": "1.36.3",
        "emulationVersion": "1.36",
        "paths": ["/healthz", "/metrics"],
    }
    assert "Warning" not in page.headers


def test_the_older_version_is_served_with_a_warning_and_yaml_as_well_as_json():
    page = zpages.status_page(V1BETA1.replace("v1beta1", "v1alpha1").replace("json", "yaml"), STATUS)

    assert yaml.safe_load(page.body)["apiVersion"] == "config.k8s.io/v1alpha1"
    assert page.headers["Warning"] == (
        '299 - "This version of the statusz endpoint is deprecated. Please use a newer version."'
    )


@pytest.mark.parametrize(
    "accept",
    [
        "application/json",
        "application/vnd.kubernetes.protobuf",
        V1BETA1.replace("Statusz", "Flagz"),
        V1BETA1.replace("v1beta1", "v2"),
        V1BETA1.replace("application/json", "text/plain"),
    ],
)
def test_what_cannot_be_had_is_refused_with_what_can(accept):
    with pytest.raises(NotAcceptable) as refused:
        zpages.status_page(accept, STATUS)

    assert refused.value.message == (
        "only the following media types are accepted: application/json, application/yaml, text/plain"
    )


def test_flags_are_spelled_as_gos_are_and_sorted():
    @dataclass
    class Configuration:
        rest_port: int | None = None
        cluster_objects: bool = True
        role: tuple[str, ...] = ("a", "b")
        engine: str = "memory"

    flags = zpages.flags_of(Configuration())

    assert zpages.flags_page("", flags).body == (
        f"\napiserver flagz\n{HEAD}cluster-objects=true\nengine=memory\nrest-port=\nrole=[a,b]\n"
    )
    structured = zpages.flags_page(V1BETA1.replace("Statusz", "Flagz"), flags)
    assert msgspec.json.decode(structured.body)["flags"] == flags


def test_paths_of_the_api_itself_are_none_for_debugging():
    listed = ["/", "/api", "/apis/apps/v1", "/openapi/v2", "/metrics", "/livez/etcd", "/livez", "/.well-known/x"]

    assert zpages.debugging_paths(listed) == ("/livez", "/metrics")


def test_there_is_a_page_of_profiles_and_none_by_any_name():
    assert zpages.profiles_page([], "/debug/pprof/").code == 200
    redirect = zpages.profiles_page([], "/debug/pprof")
    assert (redirect.code, redirect.headers["Location"]) == (302, "/debug/pprof/")
    heap = zpages.profiles_page(["heap"], "/debug/pprof/heap")
    assert (heap.code, heap.body) == (404, "Unknown profile\n")
