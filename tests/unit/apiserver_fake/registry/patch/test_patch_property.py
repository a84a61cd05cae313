"""The shortcuts of patches and of types say what the long way says."""

from calendar import monthrange
from itertools import product

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import apiserver_fake.registry.patch.patch as strategic_merge
from apiserver_fake.registry.schema import schemas
from apiserver_fake.registry.schema.schemas import _conform, _strict_type, conform, shape_of
from services.api.errors import ApiError

TIMES = st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000006Z", "2026-02-30T00:00:00Z", "soon", 5])
STATUS = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from(["Pending", "Running", None, 7]),
        "conditions": st.lists(
            st.fixed_dictionaries(
                {"type": st.sampled_from(["Ready", "Initialized", "PodScheduled"])},
                optional={"status": st.sampled_from(["True", "False", None]), "lastTransitionTime": TIMES},
            ),
            max_size=4,
        ),
        "podIPs": st.lists(st.fixed_dictionaries({"ip": st.sampled_from(["10.0.0.1", "10.0.0.2"])}), max_size=3),
        "containerStatuses": st.lists(
            st.fixed_dictionaries(
                {"name": st.just("main")},
                optional={
                    "restartCount": st.sampled_from([0, "no", True]),
                    "state": st.sampled_from([{"running": None}, {"waiting": {"reason": "Slow", "message": None}}]),
                },
            )
        ),
        "somethingNew": st.none() | st.integers() | st.just({"$patch": "delete"}),
    },
)
POD = shape_of("v1", "Pod")


@given(STATUS, STATUS)
def test_a_patch_that_stands_for_itself_gives_what_merging_it_gives(before, change):
    shortcuts = strategic_merge._is_content, strategic_merge._merge_keyed
    document, wanted = {"status": before}, {"status": change}
    quick = strategic_merge.strategic_merge_patch(document, wanted, POD)
    strategic_merge._is_content, strategic_merge._merge_keyed = (lambda *_: False), (lambda *_: None)
    try:
        slow = strategic_merge.strategic_merge_patch(document, wanted, POD)
    finally:
        strategic_merge._is_content, strategic_merge._merge_keyed = shortcuts

    assert quick == slow


NESTED = st.fixed_dictionaries(
    {},
    optional={
        "containers": st.lists(
            st.fixed_dictionaries(
                {},
                optional={
                    "name": st.sampled_from(["a", "b", 5]),
                    "env": st.lists(st.fixed_dictionaries({"name": st.sampled_from("xy")}), max_size=3),
                    "resources": st.fixed_dictionaries(
                        {}, optional={"limits": st.sampled_from([{"cpu": "1"}, {"cpu": None, "memory": "1"}, None])}
                    ),
                },
            ),
            max_size=3,
        ),
        "$setElementOrder/containers": st.just([{"name": "b"}, {"name": "a"}]),
        "tolerations": st.lists(st.just({"key": "k"}), max_size=2),
        "volumes": st.lists(st.just("none") | st.just({"name": "v", "emptyDir": {}}), max_size=2),
    },
)
PODS = st.fixed_dictionaries(
    {},
    optional={
        "status": STATUS | st.just("up"),
        "spec": NESTED,
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "finalizers": st.lists(st.sampled_from("fgh"), max_size=3),
                "annotations": st.dictionaries(st.sampled_from("ab"), st.sampled_from(["1", None])),
            },
        ),
    },
)


def _outcome(function, *args):
    try:
        return function(*args)
    except ApiError as error:
        return type(error).__name__, str(error)


@given(PODS, PODS)
@example({"status": {}}, {"metadata": {"annotations": {"a": None, "b": "1"}}})
@example({"status": {}}, {"status": {"containerStatuses": [{"name": "main", "state": {"running": None}}]}})
@example({"spec": {"nodeSelector": {"a": "1"}}}, {"spec": {"nodeSelector": {"a": None}}})
@example({"status": {"podIPs": [{"ip": "1"}]}}, {"status": {"podIPs": [{"ip": "2"}, {"ip": "2"}]}})
def test_a_patch_without_directives_gives_what_merging_each_member_gives(document, patch):
    before = msgspec.json.encode([document, patch])
    quick = _outcome(strategic_merge.apply_patch, document, patch, "strategic", POD, "Pod")
    slow = _outcome(strategic_merge.strategic_merge_patch, document, patch, POD)

    assert quick == slow
    assert msgspec.json.encode(quick) == msgspec.json.encode(slow)
    assert msgspec.json.encode([document, patch]) == before


@given(PODS, PODS)
def test_a_patch_without_nulls_gives_what_merging_each_member_gives(document, patch):
    patch = _without_nulls(patch)
    quick = _outcome(strategic_merge._merge_bare, {"kind": "Pod", **document}, patch, POD)
    slow = _outcome(strategic_merge.strategic_merge_patch, {"kind": "Pod", **document}, patch, POD)

    if b'"$' not in msgspec.json.encode(patch):
        assert msgspec.json.encode(quick) == msgspec.json.encode(slow)


def _without_nulls(value):
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value


@given(STATUS)
def test_what_the_strict_type_takes_is_left_as_it_is_by_the_walk(status):
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "status": status}
    try:
        msgspec.convert(document, _strict_type(POD))
    except msgspec.ValidationError:
        return

    assert _conform(POD, document, None, "", [], False) is document


def test_the_strict_type_takes_the_times_of_every_day_and_of_no_other():
    strict = _strict_type(POD)
    condition = {"type": "Ready"}
    document = {"apiVersion": "v1", "kind": "Pod", "status": {"conditions": [condition]}}
    for year, month, day in product(range(1970, 2200), range(14), (0, 1, 9, 10, 19, 20, 28, 29, 30, 31, 32)):
        condition["lastTransitionTime"] = f"{year}-{month:02}-{day:02}T23:59:59Z"
        is_day = 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]
        try:
            msgspec.convert(document, strict)
        except msgspec.ValidationError:
            assert not is_day, condition
        else:
            assert is_day, condition


def test_what_the_strict_type_does_not_take_is_put_right_or_refused():
    assert conform(POD, "v1", "Pod", {"metadata": {"creationTimestamp": None}}) == {"metadata": {}}
    with pytest.raises(ApiError, match="cannot unmarshal"):
        conform(POD, "v1", "Pod", {"spec": {"containers": "none"}})


def test_a_type_that_contains_itself_has_no_strict_type():
    inner = schemas.Shape("object", fields={})
    inner.fields["again"] = inner

    assert _strict_type(inner) is None
