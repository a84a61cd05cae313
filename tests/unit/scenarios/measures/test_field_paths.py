"""Which fields a measure may name: those of the kind and those that a run's objects have beside their documents."""

import re

import pytest

from lab.scenarios.measures.expression import compile_expression
from services.api.resources import resources


@pytest.mark.parametrize(
    "text",
    [
        'pods.filter(p, p.status.phase == "Running" && has(p.spec.nodeName)).size()',
        "created.pods.map(p, has(p.at.bound), p.at.bound - p.at.created).quantile(0.99)",
        "created.pods.map(p, p.queue.gated + p.queue.backoff).sum() + pods.filter(p, p.role in p.nodes).size()",
        "nodes.map(n, n.utilization.cpu).stddev() + nodes.filter(n, n.pods > 3.0).size()",
        'nodes.map(n, "example.com/gpu" in n.requested, n.requested["example.com/gpu"]).sum()',
        'pods.filter(p, p.metadata.labels.app == "web" && p.metadata.annotations["any/thing"] == "x").size()',
        (
            'created.nodes.map(n, n.versions.filter(v, v.?status.conditions.orValue([]).exists(c, c.type == "Ready"))'
            ".map(v, v.seconds).sum()).sum()"
        ),
        'lines["sched.attempt"].filter(l, l.at > 1.0 && l.data.anything.at_all == 1 && l.obj.name == "a").size()',
        "pods.map(p, p.spec.containers[0].resources.requests.cpu).size()",
        'pods.filter(p, p.spec.tolerations.map(t, t.key).exists(k, k == "a")).size()',
    ],
)
def test_what_an_object_can_have_may_be_named(text):
    found = compile_expression(text)
    assert found.at_end | found.created | found.events


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            'pods.filter(p, p.status.fase == "Running").size()',
            "column 24: Pod status has no field 'fase'; did you mean phase?",
        ),
        (
            "pods.filter(p, has(p.spec.nodName)).size()",
            "column 19: Pod spec has no field 'nodName'; did you mean nodeName?",
        ),
        ("pods.map(p, p.?spec.nodName.orValue('')).size()", "no field 'nodName'; did you mean nodeName?"),
        ('pods.filter(p, p.metadata["nam"] == "x").size()', "Pod metadata has no field 'nam'; did you mean name"),
        ("created.pods.map(p, p.at.bond - p.at.created).sum()", "Pod at has no field 'bond'; did you mean bound?"),
        ("created.jobs.map(j, j.at.bound).sum()", "Job at has no field 'bound'; it has created, gone"),
        ("nodes.map(n, n.queue.active).sum()", "Node has no field 'queue'"),
        (
            "created.pods.map(p, p.versions.map(v, v.second).sum()).sum()",
            "Pod versions has no field 'second'; did you mean seconds",
        ),
        (
            'pods.filter(p, p.spec.containers.exists(c, c.imag == "x")).size()',
            "Pod spec.containers has no field 'imag'; did you mean image",
        ),
        ("pods.filter(p, true).filter(p, p.spek == 1).size()", "Pod has no field 'spek'; did you mean spec?"),
        (
            'lines["sched.attempt"].filter(l, l.outcome == "ok").size()',
            "event log sched.attempt has no field 'outcome'",
        ),
        ("pods.map(p, p.metadata.name.size.x).size()", "Pod metadata.name is of type string, it has no field 'size'"),
    ],
)
def test_a_field_that_no_object_can_have_is_refused_with_those_near_it(text, says):
    with pytest.raises(ValueError, match=re.escape(says)):
        compile_expression(text)


def test_all_mistakes_are_named_in_their_order():
    with pytest.raises(ValueError, match=r"column 24: .*'fase'.*; column 46: .*'nod'"):
        compile_expression("pods.filter(p, p.status.fase == 'x' && p.spec.nod == '').size()")


def test_every_kind_that_can_be_named_has_its_metadata():
    for each in resources().values():
        assert {each.plural} == compile_expression(f"{each.plural}.filter(o, o.metadata.uid == '').size()").at_end
