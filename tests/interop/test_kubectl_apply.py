"""kubectl's ways of writing, of two releases: apply from both sides, prune, diff, edit, patch, and who manages what."""

import json

import pytest
from test_kubectl import a_config_map

PORTS = {
    "named": [{"name": "http", "containerPort": 80}, {"name": "metrics", "containerPort": 9090}],
    "without names": [{"containerPort": 80}, {"containerPort": 9090}],
    "two protocols": [{"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53}],
}
LABELS = {"app": "web"}


def a_deployment(ports=PORTS["named"], *, image="nginx:1", **spec):
    container = {"name": "c", "image": image, "ports": ports}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [container]}},
            **spec,
        },
    }


def a_service(*ports):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "web"},
        "spec": {"selector": LABELS, "ports": [*ports]},
    }


SERVICES = {
    "two ports": a_service({"name": "a", "port": 80}, {"name": "b", "port": 81}),
    "one port": a_service({"port": 80}),
}
OBJECTS = {**{name: a_deployment(ports) for name, ports in PORTS.items()}, **SERVICES}


@pytest.fixture
def write(kubectl, namespace):
    """Run a command that reads the document from its input."""

    def run(document, *command, **more):
        return kubectl(*command, "-n", namespace, "-f", "-", stdin=document, **more)

    return run


@pytest.fixture
def seen(kubectl, namespace):
    """Return an object with its managed fields."""

    def get(kind, name):
        return json.loads(kubectl("get", kind, name, "-n", namespace, "-o", "json", "--show-managed-fields"))

    return get


def managers(document):
    entries = document["metadata"]["managedFields"]
    return sorted((each["manager"], each["operation"], each.get("subresource", "")) for each in entries)


@pytest.mark.parametrize("document", OBJECTS.values(), ids=OBJECTS)
def test_server_side_apply_of_the_same_file_changes_nothing(write, seen, document):
    kind, name = document["kind"].lower(), document["metadata"]["name"]
    write(document, "apply", "--server-side")
    before = seen(kind, name)

    write(document, "apply", "--server-side")

    assert seen(kind, name) == before
    assert write(document, "diff", "--server-side") == ""


@pytest.mark.parametrize("document", OBJECTS.values(), ids=OBJECTS)
def test_client_side_apply_of_the_same_file_changes_nothing(write, document):
    write(document, "apply")

    assert "unchanged" in write(document, "apply")
    assert write(document, "diff") == ""


def test_server_side_apply_takes_over_from_client_side_apply(write, seen):
    write(a_deployment(), "apply")
    assert managers(seen("deployment", "web")) == [("kubectl-client-side-apply", "Update", "")]

    write(a_deployment(image="nginx:2"), "apply", "--server-side")
    after = seen("deployment", "web")
    write(a_deployment([]), "apply", "--server-side")

    # kubectl applies its own annotation as a manager apart, so that it stays.
    assert managers(after) == [("kubectl", "Apply", ""), ("kubectl-last-applied", "Apply", "")]
    assert after["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:2"
    assert "ports" not in seen("deployment", "web")["spec"]["template"]["spec"]["containers"][0]


def test_conflicts_name_the_other_manager_and_can_be_forced(kubectl, namespace, write, seen):
    write(a_deployment(replicas=1), "apply", "--server-side")
    kubectl("scale", "deployment/web", "-n", namespace, "--replicas=3")
    kubectl("set", "image", "deployment/web", "c=nginx:7", "-n", namespace, "--field-manager=ci")

    refused = write(a_deployment(replicas=1), "apply", "--server-side", code=1)

    assert "Apply failed with 2 conflicts" in refused
    assert 'conflicts with "ci" using apps/v1:\n- .spec.template.spec.containers[name="c"].image' in refused
    assert 'with subresource "scale" using apps/v1:\n- .spec.replicas' in refused, refused
    write(a_deployment(replicas=1), "apply", "--server-side", "--force-conflicts")
    assert managers(seen("deployment", "web")) == [("kubectl", "Apply", "")]


def test_two_managers_share_an_object(write, seen):
    write(a_config_map(a="1"), "apply", "--server-side", "--field-manager=one")
    write(a_config_map(b="2"), "apply", "--server-side", "--field-manager=two")
    write(a_config_map(c="3"), "apply", "--server-side", "--field-manager=one")

    found = seen("cm", "cm1")

    assert found["data"] == {"b": "2", "c": "3"}
    fields = {each["manager"]: each["fieldsV1"] for each in found["metadata"]["managedFields"]}
    assert fields == {"one": {"f:data": {"f:c": {}}}, "two": {"f:data": {"f:b": {}}}}


def test_an_unknown_field_is_refused_by_both_applies(write):
    bad = {**a_config_map(), "bogus": 1}

    assert 'strict decoding error: unknown field "bogus"' in write(bad, "apply", code=1)
    refused = write(bad, "apply", "--server-side", code=1)
    assert "failed to create typed patch object" in refused
    assert ".bogus: field not declared in schema" in refused


def test_an_unknown_field_is_left_out_where_it_is_not_refused(kubectl, namespace, write, seen):
    warned = write({**a_config_map(), "bogus": 1}, "create", "--validate=warn")
    said = kubectl("patch", "cm/cm1", "-n", namespace, "--type=merge", "-p", '{"bogus":2}')

    assert 'Warning: unknown field "bogus"' in warned
    assert 'Warning: unknown field "bogus"' in said
    assert "bogus" not in seen("cm", "cm1")


def test_commands_have_managers_of_their_own(kubectl, namespace, write, seen):
    write(a_config_map(a="1"), "create")
    for command in (
        ("label", "cm/cm1", "a=b"),
        ("annotate", "cm/cm1", "a=b"),
        ("patch", "cm/cm1", "-p", '{"data":{"b":"2"}}'),
    ):
        kubectl(*command, "-n", namespace)
    kubectl("edit", "cm", "cm1", "-n", namespace, env={"KUBE_EDITOR": "sed -i s/b:.*2/b:\\ new/"})

    assert managers(seen("cm", "cm1")) == [
        (f"kubectl-{name}", "Update", "") for name in ("annotate", "create", "edit", "label")
    ]
    write(a_config_map(a="9"), "replace")
    assert ("kubectl-replace", "Update", "") in managers(seen("cm", "cm1"))


def test_prune_by_label_with_and_without_an_allowlist(kubectl, namespace, write):
    def labelled(name):
        document = a_config_map(name)
        return {**document, "metadata": {**document["metadata"], "labels": {"set": "prune"}}}

    both = {"apiVersion": "v1", "kind": "List", "items": [labelled("one"), labelled("two"), labelled("three")]}
    write(both, "apply")
    said = write(labelled("one"), "apply", "--prune", "-l", "set=prune", "--prune-allowlist=core/v1/ConfigMap")
    assert "configmap/two pruned" in said
    assert kubectl("get", "cm", "-n", namespace, "-l", "set=prune", "-o", "name") == "configmap/one\n"
    write(labelled("two"), "apply")
    assert "configmap/two pruned" in write(labelled("one"), "apply", "--prune", "-l", "set=prune")


def test_last_applied_can_be_viewed_set_and_edited(kubectl, namespace, write, seen):
    write(a_config_map(a="1"), "apply")
    assert 'a: "1"' in kubectl("apply", "view-last-applied", "cm/cm1", "-n", namespace)
    kubectl("apply", "edit-last-applied", "cm/cm1", "-n", namespace, env={"KUBE_EDITOR": "sed -i s/a:.*1/a:\\ edited/"})
    assert "a: edited" in kubectl("apply", "view-last-applied", "cm/cm1", "-n", namespace)
    assert seen("cm", "cm1")["data"] == {"a": "1"}
    write(a_config_map(a="2"), "apply", "set-last-applied")
    assert 'a: "2"' in kubectl("apply", "view-last-applied", "cm/cm1", "-n", namespace)


def test_warnings_about_a_pod_are_shown(kubectl, namespace, write):
    container = {
        "name": "c",
        "image": "i",
        "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
        "resources": {"requests": {"memory": "100m"}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"nodeSelector": {"beta.kubernetes.io/os": "linux"}, "containers": [container]},
    }

    said = write(pod, "create")

    assert (
        'Warning: spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'
        in said
    )
    assert 'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply' in said
    assert (
        'spec.containers[0].resources.requests[memory]: fractional byte value "100m" is invalid, must be an integer'
        in said
    )
