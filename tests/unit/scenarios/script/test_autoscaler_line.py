"""The line `autoscaler`: metrics of all kinds, and what is refused."""

import pytest

from lab.scenarios.script.workload import autoscaler


def test_custom_metrics_are_written_in_one_word_each():
    options = {"pods": "rps:10", "object": "Service/web:rps:2k", "external": "queue:30", "cpu": "50%"}
    metrics = autoscaler("web", options)["spec"]["metrics"]

    assert [each["type"] for each in metrics] == ["Resource", "Pods", "Object", "External"]
    assert metrics[2]["object"] == {
        "metric": {"name": "rps"},
        "target": {"type": "Value", "value": "2k"},
        "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "web"},
    }
    assert metrics[3]["external"]["target"] == {"type": "AverageValue", "averageValue": "30"}


@pytest.mark.parametrize(
    ("option", "text"),
    [("pods", "rps"), ("pods", "rps:"), ("external", "a:b:c"), ("object", "rps:1"), ("object", "Gadget/x:rps:1")],
)
def test_a_metric_of_another_form_is_refused_with_the_form_wanted(option, text):
    with pytest.raises(ValueError, match=rf"{option}=.*want .*METRIC:VALUE"):
        autoscaler("web", {option: text})
