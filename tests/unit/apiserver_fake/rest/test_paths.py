import msgspec
import pytest
from multidict import MultiDict

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.rest.parameters import Parameters
from apiserver_fake.rest.paths import is_watch, parse, split, to_request, verb_of, watch_request
from services.api.errors import BadRequest, Invalid, MethodNotAllowed, NotFound

CATALOGUE = whole_catalogue()


def route(path):
    first, *rest = split(path)
    return parse(CATALOGUE, "", rest[0], rest[1:]) if first == "api" else parse(CATALOGUE, rest[0], rest[1], rest[2:])


def parameters(*pairs):
    return Parameters(MultiDict(pairs))


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/pods", ("list", "pods", "", "", "")),
        ("GET", "/api/v1/namespaces/a/pods/", ("list", "pods", "a", "", "")),
        ("POST", "/api/v1/namespaces/a/pods", ("create", "pods", "a", "", "")),
        ("DELETE", "/api/v1/namespaces/a/pods", ("deletecollection", "pods", "a", "", "")),
        ("GET", "/api/v1/namespaces/a/pods/p", ("get", "pods", "a", "p", "")),
        ("PUT", "/api/v1/namespaces/a/pods/p/status", ("update", "pods", "a", "p", "status")),
        ("POST", "/api/v1/namespaces/a/pods/p/binding", ("create", "pods", "a", "p", "binding")),
        ("PATCH", "/apis/apps/v1/namespaces/a/deployments/d/scale", ("patch", "deployments.apps", "a", "d", "scale")),
        ("GET", "/api/v1/namespaces/a", ("get", "namespaces", "", "a", "")),
        ("PUT", "/api/v1/namespaces/a/finalize", ("update", "namespaces", "", "a", "finalize")),
        ("GET", "/api/v1/nodes/n%2D1", ("get", "nodes", "", "n-1", "")),
    ],
)
def test_a_path_and_method_mean_one_call(method, path, expected):
    found = route(path)

    assert (verb_of(method, found), found.resource.name, found.namespace, found.name, found.subresource) == expected


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/nosuch",
        "/api/v1/pods/p",
        "/api/v1/namespaces/a/nodes",
        "/api/v1/namespaces/a/pods/p/nosuch",
        "/api/v1/namespaces/a/pods/p/log/deeper",
        "/apis/apps/v1/namespaces/a",
        "/api/v1/namespaces//pods",
    ],
)
def test_a_path_below_a_served_version_that_leads_nowhere_is_not_found(path):
    with pytest.raises(NotFound, match="could not find the requested resource"):
        route(path)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/api/v1/pods"),
        ("POST", "/api/v1/namespaces/a/pods/p"),
        ("PUT", "/api/v1/nodes"),
        ("DELETE", "/api/v1/namespaces/a/pods/p/status"),
        ("GET", "/api/v1/namespaces/a/pods/p/binding"),
        ("HEAD", "/api/v1/nodes"),
    ],
)
def test_a_method_the_resource_does_not_have_is_not_allowed(method, path):
    with pytest.raises(MethodNotAllowed):
        verb_of(method, route(path))


def test_templates_carry_no_names():
    assert route("/api/v1/namespaces/a/pods/p/log").template == "/api/v1/namespaces/{namespace}/pods/{name}/log"


def test_the_old_watch_prefix_of_one_object_watches_that_name():
    found = route("/api/v1/watch/namespaces/a/pods/p")

    assert is_watch("get", found, parameters())
    assert watch_request(found, parameters(), 7).field_selector == "metadata.name=p"


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/namespaces/a/pods/p",
        "/api/v1/nodes/n",
        "/api/v1/namespaces/a/pods/p/status",
        "/apis/custom.metrics.k8s.io/v1beta2/namespaces/a/pods/*/rate",
        "/apis/metrics.k8s.io/v1beta1/nodes/n",
    ],
)
def test_a_get_without_parameters_is_one_whose_parameters_mean_nothing(path):
    bare, asked = (
        to_request("get", route(path), each, traceparent="t") for each in (parameters(), parameters(("x", "1")))
    )
    assert asked == bare


def test_unknown_parameters_are_ignored_even_when_repeated():
    given = parameters(("timeout", "32s"), ("timeout", "33s"), ("hash", "x"), ("limit", "500"))

    assert to_request("list", route("/api/v1/pods"), given).limit == 500


def test_guarantees_v14_a_known_parameter_given_twice_is_refused():
    with pytest.raises(BadRequest, match="limit"):
        parameters(("limit", "1"), ("limit", "2"))


@pytest.mark.parametrize("value", ["-1", "1e3", "9" * 20, "٣"])
def test_guarantees_v14_numbers_are_bounded(value):
    with pytest.raises(BadRequest, match=r"limit|invalid syntax"):
        parameters(("limit", value)).number("limit")


@pytest.mark.parametrize(
    ("query", "is_on"),
    [([("watch", text)], True) for text in ("", "1", "true", "True", "t", "yes")]
    + [([("watch", text)], False) for text in ("0", "false", "False", "FALSE")]
    + [([], False)],
)
def test_a_boolean_parameter_is_true_but_for_0_and_false(query, is_on):
    assert Parameters(MultiDict(query)).flag("watch") is is_on


def test_guarantees_w12_initial_events_need_match_and_bookmarks():
    pods = route("/api/v1/pods")
    for given in (
        parameters(("sendInitialEvents", "true"), ("allowWatchBookmarks", "true")),
        parameters(("resourceVersionMatch", "NotOlderThan")),
    ):
        with pytest.raises(Invalid):
            watch_request(pods, given, 7)


@pytest.mark.parametrize(
    ("query", "version"),
    [
        ({"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}, "7"),
        ({"sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan", "resourceVersion": "3"}, "3"),
        ({"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}, ""),
        ({}, ""),
    ],
)
def test_a_watch_without_initial_events_begins_now(query, version):
    assert watch_request(route("/api/v1/pods"), parameters(*query.items()), 7).resource_version == version


@pytest.mark.parametrize(
    ("query", "limit"),
    [
        ({"limit": "2"}, 2),
        ({"limit": "-1"}, 0),
        ({"limit": "2", "resourceVersion": "0"}, 0),
        ({"limit": "2", "resourceVersion": "0", "resourceVersionMatch": "NotOlderThan"}, 0),
        ({"limit": "2", "resourceVersion": "5"}, 2),
        ({"limit": "2", "resourceVersion": "0", "continue": "x"}, 2),
    ],
)
def test_a_list_from_the_cache_has_no_pages(query, limit):
    assert to_request("list", route("/api/v1/pods"), parameters(*query.items())).limit == limit


def test_a_get_of_one_object_that_asks_for_a_watch_is_a_get():
    assert not is_watch("get", route("/api/v1/namespaces/n/pods/p"), parameters(("watch", "1")))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            {"fieldValidation": "Maybe"},
            'fieldValidation: Unsupported value: "Maybe": supported values: "Ignore", "Strict", "Warn"',
        ),
        ({"force": "true"}, "force: Forbidden: may not be specified for non-apply patch"),
    ],
)
def test_options_that_a_patch_cannot_have_are_invalid(query, message):
    with pytest.raises(Invalid) as refused:
        to_request("patch", route("/api/v1/namespaces/n/pods/p"), parameters(*query.items()), patch_type="merge")

    assert refused.value.message == f'PatchOptions.meta.k8s.io "" is invalid: {message}'


def test_a_streaming_watch_is_passed_on_whole():
    asked = watch_request(
        route("/api/v1/pods"),
        parameters(
            ("sendInitialEvents", "true"),
            ("resourceVersionMatch", "NotOlderThan"),
            ("allowWatchBookmarks", "1"),
            ("timeoutSeconds", "99999"),
            ("fieldSelector", "spec.nodeName=n"),
        ),
        7,
    )

    assert (asked.send_initial_events, asked.allow_bookmarks, asked.timeout_s) == (True, True, 1800.0)
    assert asked.field_selector == "spec.nodeName=n"


def test_delete_options_may_stand_in_the_query_and_the_body_wins():
    request = to_request(
        "delete",
        route("/api/v1/namespaces/a/pods/p"),
        parameters(("gracePeriodSeconds", "5"), ("propagationPolicy", "Orphan")),
        body=b'{"propagationPolicy":"Background","dryRun":["All"]}',
    )

    assert msgspec.json.decode(request.body) == {"gracePeriodSeconds": 5, "propagationPolicy": "Background"}
    assert request.dry_run


def test_a_dry_run_that_is_not_all_is_invalid():
    with pytest.raises(Invalid, match="dryRun"):
        to_request("create", route("/api/v1/namespaces/a/pods"), parameters(("dryRun", "Some")))
