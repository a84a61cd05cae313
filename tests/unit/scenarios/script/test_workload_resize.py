"""What a scenario's `resize` asks for."""

import pytest

from lab.scenarios.script.workload import check_resize, pod, resize_patch


def asked(made, **options):
    [container] = resize_patch(made, {name.replace("_", "-"): value for name, value in options.items()})["spec"][
        "containers"
    ]
    return container["name"], container["resources"]


def test_a_guaranteed_pods_limit_goes_with_its_request():
    made = pod("p", {"cpu": "500m", "memory": "1Gi"})

    assert asked(made, cpu="700m") == ("main", {"requests": {"cpu": "700m"}, "limits": {"cpu": "700m"}})


def test_a_limit_is_left_alone_where_there_is_none_and_set_where_it_is_said():
    made = pod("p", {"cpu": "500m", "qos": "burstable"})

    assert asked(made, cpu="700m") == ("main", {"requests": {"cpu": "700m"}})
    assert asked(made, cpu_limit="2") == ("main", {"limits": {"cpu": "2"}})


def test_a_resize_policy_is_said_by_resource():
    made = pod("p", {"cpu": "1", "resize-policy": "memory:RestartContainer"})

    assert made["spec"]["containers"][0]["resizePolicy"] == [
        {"resourceName": "memory", "restartPolicy": "RestartContainer"}
    ]


def test_mistakes_are_said_before_anything_starts():
    with pytest.raises(ValueError, match="no option 'disk'"):
        check_resize({"disk": "1"})
    with pytest.raises(ValueError, match="resize wants cpu="):
        check_resize({"container": "main"})
    with pytest.raises(ValueError, match="no container 'x'; there are: main"):
        resize_patch(pod("p", {}), {"container": "x", "cpu": "1"})
