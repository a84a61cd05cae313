"""Answered requests are counted under upstream's names: totals by code, durations by bucket, and those that go on."""

import pytest

from apiserver_fake.requests import BOUNDS, COUNTED_MAX, TIMED_MAX, Requests
from services.api.wire import Request

VERSIONS = {"pods": "v1", "deployments.apps": "v1", "widgets.example.com": "v1beta2"}


def counted(*answered, begun=(0, 0)):
    requests = Requests(lambda name: VERSIONS.get(name, ""))
    requests.begun[:] = begun
    for request, code, took_s in answered:
        requests.on_ended(request, code, took_s, "")
    return requests.metrics()


def labels(**values):
    order = ("verb", "dry_run", "group", "version", "resource", "subresource", "scope", "component")
    given = {"dry_run": "", "group": "", "version": "v1", "subresource": "", "component": "apiserver", **values}
    return ",".join(f'{name}="{given[name]}"' for name in order)


def test_totals_are_by_code_and_durations_are_not():
    create = Request(verb="create", resource="deployments.apps", namespace="default", name="web", body=b"{}")

    found = counted((create, 201, 0.003), (create, 201, 0.21), (create, 409, 0.003))

    where = labels(verb="POST", group="apps", resource="deployments", scope="resource")
    assert found[f'apiserver_request_total{{{where},code="201"}}'] == 2
    assert found[f'apiserver_request_total{{{where},code="409"}}'] == 1
    assert found[f'apiserver_request_duration_seconds_bucket{{{where},le="0.005"}}'] == 2
    assert found[f'apiserver_request_duration_seconds_bucket{{{where},le="0.2"}}'] == 2
    assert found[f'apiserver_request_duration_seconds_bucket{{{where},le="0.4"}}'] == 3
    assert found[f"apiserver_request_duration_seconds_sum{{{where}}}"] == pytest.approx(0.216)
    assert found[f"apiserver_request_duration_seconds_count{{{where}}}"] == 3


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (
            Request(verb="get", resource="pods", namespace="default", name="p"),
            {"verb": "GET", "resource": "pods", "scope": "resource"},
        ),
        (
            Request(verb="list", resource="pods", namespace="default"),
            {"verb": "LIST", "resource": "pods", "scope": "namespace"},
        ),
        (Request(verb="list", resource="pods"), {"verb": "LIST", "resource": "pods", "scope": "cluster"}),
        (
            Request(verb="deletecollection", resource="widgets.example.com", namespace="default"),
            {
                "verb": "DELETECOLLECTION",
                "group": "example.com",
                "version": "v1beta2",
                "resource": "widgets",
                "scope": "namespace",
            },
        ),
        (
            Request(verb="patch", resource="pods", namespace="default", name="p", subresource="status", dry_run=True),
            {"verb": "PATCH", "dry_run": "All", "resource": "pods", "subresource": "status", "scope": "resource"},
        ),
        (
            Request(verb="get", resource="nothing", name="x"),
            {"verb": "GET", "version": "", "resource": "nothing", "scope": "resource"},
        ),
    ],
)
def test_labels_are_upstreams(request_, expected):
    assert counted((request_, 200, 0.0))[f'apiserver_request_total{{{labels(**expected)},code="200"}}'] == 1


def test_requests_in_flight_are_those_begun_that_have_no_answer():
    get = Request(verb="get", resource="pods", namespace="default", name="p")

    found = counted((get, 200, 0.0), (get, 404, 0.0), begun=(3, 2))

    assert found['apiserver_current_inflight_requests{request_kind="readOnly"}'] == 1
    assert found['apiserver_current_inflight_requests{request_kind="mutating"}'] == 2


def test_sorts_of_requests_above_the_limits_are_counted_together():
    requests = Requests(lambda _: "v1")
    for number in range(COUNTED_MAX + 10):
        requests.on_ended(Request(verb="get", resource=f"kind{number:05}.example.com", name="x"), 200, 0.1, "")

    found = requests.metrics()

    together = labels(
        verb="GET", group="unexpected", version="unexpected", resource="unexpected", subresource="unexpected",
        scope="resource",
    )  # fmt: skip
    assert found[f'apiserver_request_total{{{together},code="200"}}'] == 10
    assert found[f"apiserver_request_duration_seconds_count{{{together}}}"] == COUNTED_MAX + 10 - TIMED_MAX
    names = [name.partition("{")[0] for name in found]
    assert names.count("apiserver_request_total") == COUNTED_MAX + 1
    assert names.count("apiserver_request_duration_seconds_bucket") == (TIMED_MAX + 1) * (len(BOUNDS) + 1)
    first = labels(verb="GET", group="example.com", resource="kind00000", scope="resource")
    assert found[f"apiserver_request_duration_seconds_count{{{first}}}"] == 1


def test_a_verb_that_no_request_has_is_other():
    strange = [(Request(verb=f"verb{number}", resource="pods", name="x"), 400, 0.0) for number in range(9)]

    found = counted(*strange, begun=(9, 0))

    where = labels(verb="other", resource="pods", scope="resource")
    assert found[f'apiserver_request_total{{{where},code="400"}}'] == 9
    assert found['apiserver_current_inflight_requests{request_kind="readOnly"}'] == 0


def test_buckets_are_upstreams():
    assert (len(BOUNDS), BOUNDS[0], BOUNDS[-1]) == (23, 0.005, 60.0)
