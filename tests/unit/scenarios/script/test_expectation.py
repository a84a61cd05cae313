"""Judging what must be so."""

import pytest

from lab.scenarios.script.expectation import lookup, parse_expectation


class World:
    def __init__(self, pods):
        self._pods = pods

    def documents(self, resource):
        return self._pods if resource == "pods" else []

    def created_names(self, resource):
        return ["web-1", "web-2", "other"]


def _pod(name, phase, node="", **status):
    return {
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"nodeName": node, "overhead": {"memory": "1Gi"}},
        "status": {"phase": phase, **status},
    }


WORLD = World(
    [_pod("web-1", "Running", "n2", unbindCount=1), _pod("web-2", "Failed", "n1"), _pod("x", "Running", "n1")]
)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("count pods == 3", True),
        ("count pods phase=Running == 2", True),
        ("count pods phase=Running|Failed name=web-* == 2", True),
        ("count pods label.app=web node=n1 >= 3", False),
        ("each pods phase=Running spec.nodeName != n9", True),
        ("each pods name=web-* spec.nodeName != n1", False),
        ("each pods name=web-1 status.unbindCount == 1", True),
        ("each pods name=web-1 status.unbindCount < 10", True),
        ("each pods name=absent phase == Running", False),
        ("created pods name=web-* == 2", True),
        ("each pods name=x spec.overhead.memory == 1024Mi", True),
        ("each pods name=x spec.overhead.memory >= 900Mi", True),
        ("each pods name=x spec.overhead.memory < 1G", False),
    ],
)
def test_an_expectation_is_judged_over_what_is_stored(text, holds):
    assert holds == parse_expectation(text).judge(WORLD)[0]


def test_a_failed_expectation_says_what_was_seen():
    holds, seen = parse_expectation("each pods name=web-* spec.nodeName == n2").judge(WORLD)

    assert (False, "web-2: n1") == (holds, seen)


def test_a_path_picks_list_members_by_type_name_or_place():
    document = {"conditions": [{"type": "Ready", "status": "True"}], "items": [{"name": "a", "v": 7}]}

    assert lookup(document, "conditions[Ready].status") == "True"
    assert lookup(document, "items[a].v") == 7
    assert lookup(document, "items[0].v") == 7
    assert lookup(document, "items[3].v") is None
    assert lookup(document, "conditions.status") is None


def test_a_line_of_a_million_characters_is_refused_before_it_is_split():
    with pytest.raises(ValueError, match="the line has 1,000,000 characters; want at most 65,536"):
        parse_expectation("a" * 1_000_000)
