"""kwokctl's scale: names, templates, parameters, and which objects come and go."""

import pytest

from lab.exchange.scale import add_cidr, add_ip, plan_objects, read_resources, resource_named
from lab.exchange.stream import Refused


def there(*names):
    return [
        {"metadata": {"name": name, "creationTimestamp": f"2026-01-01T00:00:{n:02d}Z"}} for n, name in enumerate(names)
    ]


def test_gaps_are_filled_and_names_are_numbered():
    plan = plan_objects("node", there("node-000000", "node-000002"), 4, 6)

    assert (plan.make, plan.delete) == ((("node-000001", 1), ("node-000003", 3)), ())


def test_the_newest_go():
    assert plan_objects("node", there("node-2", "node-0", "node-1"), 1, 1).delete == ("node-0", "node-1")
    assert plan_objects("node", there("a"), 1, 6) == ((), ())
    assert plan_objects("node", there("a"), 0, 6).delete == ("a",)


def test_one_object_may_go_without_a_number_and_two_may_not():
    assert plan_objects("node", (), 1, 0).make == (("node", 0),)
    with pytest.raises(Refused, match="want a serial number for more than one object"):
        plan_objects("node", (), 2, 0)


def test_the_node_template_has_kwoks_values_and_takes_others():
    made = resource_named("node", {}, (".allocatable.cpu=64", ".nodeInfo.architecture=arm64")).object(
        "node-000001", "", 1
    )

    assert made["kind"] == "Node"
    assert made["metadata"]["labels"]["kwok.x-k8s.io/kwokctl-scale"] == "node"
    assert made["metadata"]["labels"]["type"] == "kwok"
    assert made["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"
    assert made["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"
    assert made["spec"]["podCIDR"] == "10.0.1.0/24"
    assert made["status"]["allocatable"] == made["status"]["capacity"] == {"cpu": 64, "memory": "256Gi", "pods": 110}


def test_the_pod_template_has_its_containers_resources():
    params = (".containers[0].resources={requests: {cpu: 1, memory: 1Gi}, limits: {cpu: 2}}", ".nodeName=n1")
    made = resource_named("pod", {}, params).object("pod-000000", "shop", 0)

    container = made["spec"]["containers"][0]
    assert (made["metadata"]["namespace"], made["spec"]["nodeName"], made["spec"]["hostNetwork"]) == (
        "shop",
        "n1",
        False,
    )
    assert container["resources"] == {"requests": {"cpu": 1, "memory": "1Gi"}, "limits": {"cpu": 2, "memory": "1Gi"}}


def test_networks_and_addresses_are_counted_on():
    assert [add_cidr("10.0.0.1/24", 300), add_ip("10.0.0.250", 10)] == ["10.1.44.1/24", "10.0.1.4"]


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("gpu", (), "no KwokctlResource 'gpu'; there are node, pod; --config FILE has more"),
        ("node", ("cpu",), "--param 'cpu': want .path=value, such as .allocatable.cpu=64"),
        ("pod", (".containers[3].image=x",), "--param '.containers[3].image=x': there is no element 3"),
        ("pod", (".hostNetwork.x=1",), "--param '.hostNetwork.x=1': x is no member of a bool"),
    ],
)
def test_what_cannot_be_used_is_refused(name, params, message):
    with pytest.raises(Refused) as refused:
        resource_named(name, {}, params)
    assert str(refused.value) == message


def test_a_file_has_templates_of_its_own(tmp_path):
    path = tmp_path / "k.yaml"
    path.write_text(
        "apiVersion: config.kwok.x-k8s.io/v1alpha1\nkind: KwokctlResource\nmetadata: {name: map}\nparameters: {a: 1}\n"
        "template: |\n  apiVersion: v1\n  kind: ConfigMap\n  data: {a: '{{ .a }}', ip: {{ AddIP \"10.0.0.1\" Index }}}\n"
    )

    made = resource_named("map", read_resources(path), (".a=2",)).object("map-1", "default", 1)

    assert made["data"] == {"a": "2", "ip": "10.0.0.2"}


def test_a_template_that_cannot_be_filled_names_its_line(tmp_path):
    path = tmp_path / "k.yaml"
    path.write_text(
        "apiVersion: config.kwok.x-k8s.io/v1alpha1\nkind: KwokctlResource\nmetadata: {name: map}\n"
        'template: |\n  kind: ConfigMap\n  x: {{ AddCIDR "nowhere" 1 }}\n'
    )

    with pytest.raises(Refused, match=r"KwokctlResource map: template: .*'nowhere' does not appear"):
        resource_named("map", read_resources(path), ()).object("map-1", "", 0)
