"""kubectl of two releases against the REST server: the commands of kubectl-requests 8 that concern our kinds."""

import json
import re
import time

import pytest

from services.api.release import KUBERNETES

APP = {"matchLabels": {"app": "web"}}
TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "nginx:1", "resources": {"requests": {"cpu": "10m"}}}]},
}


def a_pod(name="p1", **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "nginx:1"}], **spec},
    }


def a_deployment(name="web", replicas=2, image="nginx:1"):
    template = json.loads(json.dumps(TEMPLATE))
    template["spec"]["containers"][0]["image"] = image
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": APP, "template": template},
    }


def a_replica_set(name="rs"):
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": APP, "template": TEMPLATE},
    }


def a_config_map(name="cm1", **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data or {"a": "b"}}


# --- discovery


def test_version_names_an_honest_server(kubectl):
    assert f"Server Version: {KUBERNETES}+keplab" in kubectl("version")


def test_api_resources_lists_our_kinds_with_their_short_names(kubectl):
    text = kubectl("api-resources")

    assert re.search(r"^pods +po +v1 +true +Pod$", text, re.M)
    assert re.search(r"^deployments +deploy +apps/v1 +true +Deployment$", text, re.M)
    assert "apps/v1" in kubectl("api-versions")


def test_raw_paths_answer(kubectl):
    assert kubectl("get", "--raw", "/healthz") == "ok"
    assert "[+]ping ok" in kubectl("get", "--raw", "/readyz?verbose")
    assert "apiserver_request_total" in kubectl("get", "--raw", "/metrics")


def test_explain_knows_the_fields_of_our_kinds(kubectl):
    assert "nodeName <string>" in kubectl("explain", "pods.spec.nodeName")
    assert "replicas\t<integer>" in kubectl("explain", "deployments", "--recursive")
    assert "limits\t<map[string]Quantity>" in kubectl("explain", "pods.spec.containers.resources")
    # Read from /openapi/v2, in protobuf.
    older = kubectl("explain", "pods.spec.containers.resources", "--output=plaintext-openapiv2")
    assert "limits\t<map[string]string>" in older


def test_a_kind_that_is_not_served_is_the_clients_own_error(kubectl):
    assert 'doesn\'t have a resource type "nosuchresource"' in kubectl("get", "nosuchresource", code=1)
    for version, kind in (("apps/v1", "Nothing"), ("example.com/v1", "Nothing"), ("v7", "Pod")):
        unserved = {"apiVersion": version, "kind": kind, "metadata": {"name": "s"}}
        said = kubectl("apply", "-f", "-", stdin=unserved, code=1)
        assert f'no matches for kind "{kind}" in version "{version}"' in said


def test_whoami_and_can_i_answer_for_the_caller(kubectl):
    assert "system:mesh-admin" in kubectl("auth", "whoami")
    assert kubectl("auth", "can-i", "create", "pods", "-n", "default").startswith("yes")
    assert "pods" in kubectl("auth", "can-i", "--list", "-n", "default")


def test_a_user_is_refused_what_is_not_hers_and_can_review_her_access_beforehand(kubectl, namespace):
    refused = kubectl("cordon", "n1", user="user:alice", code=1)

    assert 'nodes "n1" is forbidden' in refused
    assert "user:alice" in refused
    assert kubectl("auth", "can-i", "patch", "nodes", user="user:alice", code=1).startswith("no")


# --- get


def test_get_prints_nodes_and_pods_in_every_form(kubectl, mesh, namespace):
    kubectl("apply", "-f", "-", "-n", namespace, stdin=a_pod())
    mesh.run_pod(namespace, "p1", "n1")

    assert re.search(r"^p1 +1/1 +Running +0 ", kubectl("get", "pods", "-n", namespace), re.M)
    assert re.search(
        r"^p1 .* 10\.0\.0\.1 +n1 +<none> +<none>$", kubectl("get", "po", "-n", namespace, "-o", "wide"), re.M
    )
    assert kubectl("get", "pods", "-n", namespace, "-o", "name") == "pod/p1\n"
    assert "nodeName: n1" in kubectl("get", "pod", "p1", "-n", namespace, "-o", "yaml")
    listed = json.loads(kubectl("get", "pods", "-n", namespace, "-o", "json"))
    assert [i["kind"] for i in listed["items"]] == ["Pod"]
    assert kubectl("get", "no", "n1", "-o", "jsonpath={.status.allocatable.cpu}") == "4"
    assert namespace in kubectl("get", "pods", "-A")
    assert kubectl("get", "pods", "-n", namespace, "-l", "app=web", "-o", "name") == "pod/p1\n"
    assert "No resources found" in kubectl("get", "pods", "-n", namespace, "-l", "app notin (web)")
    assert "p1" in kubectl("get", "pods", "-n", namespace, "--field-selector=status.phase=Running")
    assert "No resources found" in kubectl("get", "pods", "-n", namespace, "--field-selector=status.phase!=Running")
    assert re.search(rf"^n1 +Ready +<none> +\S+ +{re.escape(KUBERNETES)}\s", kubectl("get", "nodes"), re.M)
    assert "kubernetes.io/hostname=n1" in kubectl("get", "nodes", "--show-labels")
    assert kubectl("get", "pods", "-n", namespace, "-o", "custom-columns=N:.metadata.name", "--no-headers") == "p1\n"


def test_get_sorts_and_pages(kubectl, namespace):
    for name in ("b", "a", "c"):
        kubectl("apply", "-f", "-", "-n", namespace, stdin=a_config_map(name))

    names = kubectl("get", "cm", "-n", namespace, "--sort-by=.metadata.name", "--no-headers")
    paged = kubectl("get", "cm", "-n", namespace, "--chunk-size=1", "--no-headers")

    assert re.findall(r"^\w", names, re.M) == ["a", "b", "c"] == re.findall(r"^\w", paged, re.M)


def test_get_several_kinds_and_all(kubectl, namespace):
    kubectl("apply", "-f", "-", "-n", namespace, stdin=a_deployment())

    assert re.search(r"^deployment.apps/web +0/2 +0 +0 ", kubectl("get", "all", "-n", namespace), re.M)
    assert "web" in kubectl("get", "deployments.v1.apps", "-n", namespace)
    assert "nginx:1" in kubectl("get", "deploy,rs,svc", "-n", namespace, "-o", "wide")
    assert re.search(r"^NAME +DESIRED", kubectl("get", "deploy", "web", "-n", namespace, "--subresource=scale"), re.M)


def test_a_missing_object_is_said_as_the_real_server_says_it(kubectl, namespace):
    text = kubectl("get", "pod", "nosuch", "-n", namespace, code=1)

    assert text == 'Error from server (NotFound): pods "nosuch" not found\n'
    assert kubectl("get", "cm", "nosuch", "-n", namespace, "--ignore-not-found") == ""
    assert 'namespaces "nons" not found' in kubectl("get", "pod", "x", "-n", "nons", code=1)


def test_get_watch_shows_changes_as_they_come(kubectl, namespace):
    kubectl("apply", "-f", "-", "-n", namespace, stdin=a_config_map("first"))
    watching = kubectl.started("get", "cm", "-n", namespace, "-w", "--no-headers")
    try:
        assert watching.stdout.readline().startswith("first")
        kubectl("apply", "-f", "-", "-n", namespace, stdin=a_config_map("second"))
        assert watching.stdout.readline().startswith("second")
        kubectl("delete", "cm", "first", "-n", namespace)
        assert watching.stdout.readline().startswith("first")
    finally:
        watching.kill()
        watching.communicate()


# --- write


@pytest.mark.parametrize(
    "document", [a_pod(), a_replica_set(), a_deployment(), a_config_map()], ids=lambda d: d["kind"]
)
def test_apply_creates_then_finds_unchanged_then_changes(kubectl, namespace, document):
    kind, name = document["kind"].lower(), document["metadata"]["name"]
    first = kubectl("apply", "-f", "-", "-n", namespace, stdin=document)
    again = kubectl("apply", "-f", "-", "-n", namespace, stdin=document)
    document = {**document, "metadata": {**document["metadata"], "labels": {"app": "web", "x": "y"}}}
    changed = kubectl("apply", "-f", "-", "-n", namespace, stdin=document)

    assert [text.split()[-1] for text in (first, again, changed)] == ["created", "unchanged", "configured"]
    assert kubectl("get", kind, name, "-n", namespace, "-o", "jsonpath={.metadata.labels.x}") == "y"


def test_apply_removes_what_the_file_no_longer_says(kubectl, namespace):
    kubectl("apply", "-f", "-", "-n", namespace, stdin=a_config_map(a="1", b="2"))
    kubectl("apply", "-f", "-", "-n", namespace, stdin=a_config_map(a="1"))

    assert json.loads(kubectl("get", "cm", "cm1", "-n", namespace, "-o", "json"))["data"] == {"a": "1"}


def test_apply_reads_yaml_files_with_several_objects(kubectl, namespace):
    (kubectl.directory / "two.yaml").write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y1}\n---\n"
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: y2}\n"
    )

    assert kubectl("apply", "-f", "two.yaml", "-n", namespace).count("created") == 2


def test_server_side_apply_owns_conflicts_and_forces(kubectl, namespace):
    apply = ("apply", "--server-side", "-n", namespace, "-f", "-")
    assert "serverside-applied" in kubectl(*apply, stdin=a_config_map(a="1"))
    assert "serverside-applied" in kubectl(*apply, stdin=a_config_map(a="2"))

    refused = kubectl(*apply, "--field-manager=ci", stdin=a_config_map(a="3"), code=1)
    kubectl(*apply, "--field-manager=ci", "--force-conflicts", stdin=a_config_map(a="3"))

    assert 'conflict with "kubectl": .data.a' in refused
    assert kubectl("get", "cm", "cm1", "-n", namespace, "-o", "jsonpath={.data.a}") == "3"


def test_server_side_apply_takes_over_what_client_side_apply_made(kubectl, namespace):
    kubectl("apply", "-f", "-", "-n", namespace, stdin=a_deployment())

    assert "serverside-applied" in kubectl("apply", "--server-side", "-n", namespace, "-f", "-", stdin=a_deployment())


def test_a_dry_run_stores_nothing(kubectl, namespace):
    assert "created (server dry run)" in kubectl(
        "apply", "-n", namespace, "--dry-run=server", "-f", "-", stdin=a_config_map()
    )
    assert 'configmaps "cm1" not found' in kubectl("get", "cm", "cm1", "-n", namespace, code=1)


def test_an_unknown_field_is_refused_warned_about_or_ignored_as_asked(kubectl, namespace):
    bad = {**a_config_map(), "dataa": {"x": "y"}}

    strict = kubectl("create", "-n", namespace, "-f", "-", stdin=bad, code=1)
    warned = kubectl("create", "-n", namespace, "--validate=warn", "-f", "-", stdin=bad)

    assert 'unknown field "dataa"' in strict
    assert 'Warning: unknown field "dataa"' in warned


def test_create_and_replace_go_by_file_and_a_second_create_exists(kubectl, namespace):
    kubectl("create", "-n", namespace, "-f", "-", stdin=a_config_map())
    exists = kubectl("create", "-n", namespace, "-f", "-", stdin=a_config_map(), code=1)
    kubectl("replace", "-n", namespace, "-f", "-", stdin=a_config_map(a="new"))

    assert '(AlreadyExists): error when creating "STDIN": configmaps "cm1" already exists' in exists
    assert kubectl("get", "cm", "cm1", "-n", namespace, "-o", "jsonpath={.data.a}") == "new"


def test_diff_shows_what_apply_would_change(kubectl, namespace):
    kubectl("apply", "-n", namespace, "-f", "-", stdin=a_config_map(a="1"))

    text = kubectl("diff", "-n", namespace, "-f", "-", stdin=a_config_map(a="2"), code=1)

    assert re.search(r'^-  a: "1"$', text, re.M)
    assert re.search(r'^\+  a: "2"$', text, re.M)
    assert kubectl("diff", "-n", namespace, "-f", "-", stdin=a_config_map(a="1")) == ""


def test_edit_sends_what_the_editor_left(kubectl, namespace):
    kubectl("apply", "-n", namespace, "-f", "-", stdin=a_config_map(a="old"))

    kubectl(
        "edit", "cm", "cm1", "-n", namespace, env={"EDITOR": "sed -i s/old/new/", "KUBE_EDITOR": "sed -i s/old/new/"}
    )

    assert kubectl("get", "cm", "cm1", "-n", namespace, "-o", "jsonpath={.data.a}") == "new"


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic", '{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"nginx:9"}]}}}}'),
        ("merge", '{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"nginx:9"}]}}}}'),
        ("json", '[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"nginx:9"}]'),
    ],
    ids=["strategic", "merge", "json"],
)
def test_all_three_patches_change_the_image(kubectl, namespace, kind, patch):
    kubectl("apply", "-n", namespace, "-f", "-", stdin=a_deployment())

    kubectl("patch", "deployment", "web", "-n", namespace, f"--type={kind}", "-p", patch)

    [container] = json.loads(kubectl("get", "deploy", "web", "-n", namespace, "-o", "json"))["spec"]["template"][
        "spec"
    ]["containers"]
    assert container["image"] == "nginx:9"
    assert ("resources" in container and bool(container["resources"])) == (kind != "merge")


def test_label_annotate_and_their_removal(kubectl, namespace):
    kubectl("apply", "-n", namespace, "-f", "-", stdin=a_config_map())
    kubectl("label", "cm", "cm1", "-n", namespace, "tier=front")
    kubectl("annotate", "cm", "cm1", "-n", namespace, "note=hi")

    assert kubectl("get", "cm", "-n", namespace, "-l", "tier=front", "-o", "name") == "configmap/cm1\n"
    assert "unlabeled" in kubectl("label", "cm", "cm1", "-n", namespace, "tier-")
    assert "No resources found" in kubectl("get", "cm", "-n", namespace, "-l", "tier")


def test_scale_with_and_without_a_precondition(kubectl, namespace):
    kubectl("apply", "-n", namespace, "-f", "-", stdin=a_deployment())
    kubectl("scale", "deployment", "web", "-n", namespace, "--replicas=4")
    refused = kubectl("scale", "deployment", "web", "-n", namespace, "--replicas=9", "--current-replicas=3", code=1)
    kubectl("scale", "deployment", "web", "-n", namespace, "--replicas=2", "--current-replicas=4")
    kubectl(
        "patch",
        "deploy",
        "web",
        "-n",
        namespace,
        "--subresource=scale",
        "--type=merge",
        "-p",
        '{"spec":{"replicas":3}}',
    )

    assert "Expected replicas to be 3" in refused
    assert kubectl("get", "deploy", "web", "-n", namespace, "-o", "jsonpath={.spec.replicas}") == "3"


@pytest.mark.parametrize(
    ("kind", "patch"),
    [
        ("strategic", '{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"20m"}}}]}}'),
        ("json", '[{"op":"replace","path":"/spec/containers/0/resources/requests/cpu","value":"20m"}]'),
    ],
    ids=["strategic", "json"],
)
def test_a_patch_of_the_subresource_resize_changes_the_size_and_nothing_else_does(kubectl, namespace, kind, patch):
    pod = a_pod(containers=TEMPLATE["spec"]["containers"])
    kubectl("create", "-n", namespace, "-f", "-", stdin=pod)
    words = ("patch", "pod", "p1", "-n", namespace, f"--type={kind}", "-p", patch)

    refused = kubectl(*words, code=1)
    kubectl(*words, "--subresource", "resize")
    qos = '{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":null}}}]}}'
    removed = kubectl("patch", "pod", "p1", "-n", namespace, "-p", qos, "--subresource", "resize", code=1)

    assert "pod updates may not change fields other than" in refused
    assert "resource requests cannot be removed" in removed
    seen = json.loads(kubectl("get", "pod", "p1", "-n", namespace, "--subresource=resize", "-o", "json"))
    assert seen["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "20m"}}
    assert seen["metadata"]["generation"] == 2


def test_set_image_env_and_resources(kubectl, namespace):
    kubectl("apply", "-n", namespace, "-f", "-", stdin=a_deployment())
    kubectl("set", "image", "deployment/web", "-n", namespace, "c=nginx:2")
    kubectl("set", "env", "deployment/web", "-n", namespace, "A=b")
    kubectl("set", "resources", "deployment/web", "-n", namespace, "--requests=cpu=50m")

    [container] = json.loads(kubectl("get", "deploy", "web", "-n", namespace, "-o", "json"))["spec"]["template"][
        "spec"
    ]["containers"]
    assert (container["image"], container["env"]) == ("nginx:2", [{"name": "A", "value": "b"}])
    assert container["resources"]["requests"] == {"cpu": "50m"}


def test_run_and_expose_send_json(kubectl, namespace):
    kubectl("run", "p1", "-n", namespace, "--image=nginx:1")
    kubectl("expose", "pod", "p1", "-n", namespace, "--port=80")

    assert "80/TCP" in kubectl("get", "svc", "p1", "-n", namespace)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("configmap made --from-literal=a=b", "cm/made"),
        ("secret generic made --from-literal=a=b", "secret/made"),
        ("serviceaccount made", "sa/made"),
        ("deployment made --image=nginx:1 --replicas=0", "deploy/made"),
        ("poddisruptionbudget made --selector=app=web --min-available=1", "pdb/made"),
    ],
    ids=lambda text: text.partition(" ")[0],
)
def test_imperative_creates_send_protobuf_and_are_read(kubectl, namespace, words, shown):
    assert "created" in kubectl("create", *words.split(), "-n", namespace)
    assert "made" in kubectl("get", shown, "-n", namespace)


def test_namespaces_and_priority_classes_are_created_imperatively(kubectl):
    name = f"imperative-{kubectl.suite}"
    kubectl("create", "namespace", name)
    kubectl("create", "priorityclass", name, "--value=1000", "--description=x")

    assert "Active" in kubectl("get", "ns", name)
    assert re.search(rf"^{name} +1000 +false", kubectl("get", "pc", name), re.M)
    kubectl("delete", "priorityclass", name)


# --- delete and wait


def test_delete_waits_until_the_object_is_gone(kubectl, namespace):
    kubectl("apply", "-n", namespace, "-f", "-", stdin=a_config_map())

    assert 'configmap "cm1" deleted' in kubectl("delete", "-n", namespace, "-f", "-", stdin=a_config_map())
    assert "NotFound" in kubectl("delete", "cm", "cm1", "-n", namespace, code=1)
    kubectl("delete", "cm", "cm1", "-n", namespace, "--ignore-not-found")


def test_deleting_a_running_pod_waits_for_its_kubelet(kubectl, mesh, namespace):
    kubectl("run", "p1", "-n", namespace, "--image=nginx:1")
    mesh.run_pod(namespace, "p1", "n1")
    deleting = kubectl.started("delete", "pod", "p1", "-n", namespace)
    try:
        wait_until(lambda: "Terminating" in kubectl("get", "pod", "p1", "-n", namespace))
        assert deleting.poll() is None
        mesh.finish_pod(namespace, "p1", "n1")
        text, _ = deleting.communicate(timeout=20)
    finally:
        deleting.kill()

    assert 'pod "p1" deleted' in text
    assert deleting.returncode == 0


def test_a_forced_delete_does_not_wait(kubectl, mesh, namespace):
    kubectl("run", "p1", "-n", namespace, "--image=nginx:1")
    mesh.run_pod(namespace, "p1", "n1")

    assert "force deleted" in kubectl("delete", "pod", "p1", "-n", namespace, "--force", "--grace-period=0")
    assert "NotFound" in kubectl("get", "pod", "p1", "-n", namespace, code=1)


def test_delete_by_label_and_all(kubectl, namespace):
    for name in ("a", "b", "c"):
        kubectl("apply", "-n", namespace, "-f", "-", stdin=a_config_map(name))
    kubectl("label", "cm", "a", "b", "-n", namespace, "x=y")

    assert kubectl("delete", "cm", "-n", namespace, "-l", "x=y", "--wait=false").count("deleted") == 2
    assert kubectl("delete", "cm", "--all", "-n", namespace).count("deleted") == 1


@pytest.mark.parametrize(("cascade", "finalizer"), [("foreground", "foregroundDeletion"), ("orphan", "orphan")])
def test_cascades_leave_a_finalizer_for_the_garbage_collector(kubectl, namespace, cascade, finalizer):
    kubectl("apply", "-n", namespace, "-f", "-", stdin=a_deployment())
    kubectl("delete", "deployment", "web", "-n", namespace, f"--cascade={cascade}", "--wait=false")

    assert finalizer in kubectl("get", "deploy", "web", "-n", namespace, "-o", "jsonpath={.metadata.finalizers}")
    patch = '[{"op":"remove","path":"/metadata/finalizers"}]'
    kubectl("patch", "deploy", "web", "-n", namespace, "--type=json", "-p", patch)
    assert "NotFound" in kubectl("get", "deploy", "web", "-n", namespace, code=1)


def test_wait_for_condition_jsonpath_create_and_delete(kubectl, mesh, namespace):
    waits = [
        ("pod/p1", "--for=create"),
        ("pod/p1", "--for=condition=Ready"),
        ("pod/p1", "--for=jsonpath={.status.phase}=Running"),
    ]
    kubectl("run", "p1", "-n", namespace, "--image=nginx:1")
    running = [kubectl.started("wait", "-n", namespace, *words, "--timeout=20s") for words in waits]
    time.sleep(0.3)
    mesh.run_pod(namespace, "p1", "n1")
    for each in running:
        text, _ = each.communicate(timeout=25)
        assert each.returncode == 0, text
    gone = kubectl.started("wait", "-n", namespace, "pod/p1", "--for=delete", "--timeout=20s")
    kubectl("delete", "pod", "p1", "-n", namespace, "--force", "--grace-period=0")
    text, _ = gone.communicate(timeout=25)

    assert gone.returncode == 0, text
    timed_out = kubectl("wait", "-n", namespace, "cm/nosuch", "--for=delete", "--timeout=1s")
    assert timed_out == ""


# --- describe, events, logs


def test_describe_shows_pod_deployment_node_and_namespace(kubectl, mesh, namespace):
    kubectl("apply", "-n", namespace, "-f", "-", stdin=a_deployment())
    kubectl("run", "p1", "-n", namespace, "--image=nginx:1")
    mesh.run_pod(namespace, "p1", "n1")
    an_event(mesh, namespace, "p1")

    pod = kubectl("describe", "pod", "p1", "-n", namespace)
    assert re.search(r"^Node: +n1", pod, re.M)
    assert "Scheduled" in pod
    assert "Pod Template:" in kubectl("describe", "deployment", "web", "-n", namespace)
    node = kubectl("describe", "node", "n1")
    assert re.search(rf"{namespace} +p1", node)
    assert "Status:       Active" in kubectl("describe", "ns", namespace)


def an_event(mesh, namespace, pod):
    uid = mesh.call("GET", f"/api/v1/namespaces/{namespace}/pods/{pod}")[1]["metadata"]["uid"]
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{pod}."},
        "involvedObject": {"kind": "Pod", "apiVersion": "v1", "namespace": namespace, "name": pod, "uid": uid},
        "reason": "Scheduled",
        "message": "Successfully assigned",
        "type": "Normal",
        "count": 1,
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "source": {"component": "default-scheduler"},
    }
    mesh.call("POST", f"/api/v1/namespaces/{namespace}/events", event, user="system:kube-scheduler")


def test_events_are_listed_and_selected_by_object(kubectl, mesh, namespace):
    kubectl("run", "p1", "-n", namespace, "--image=nginx:1")
    an_event(mesh, namespace, "p1")

    assert "Successfully assigned" in kubectl("events", "-n", namespace)
    assert "Scheduled" in kubectl("events", "-n", namespace, "--for", "pod/p1")
    assert "No events found" in kubectl("events", "-n", namespace, "--for", "pod/p2")
    assert re.search(r"Normal +Scheduled +pod/p1 +Successfully", kubectl("get", "events", "-n", namespace))


def test_logs_come_from_the_kubelet_and_its_absence_is_explained(kubectl, mesh, namespace, a_kubelet):
    kubectl("run", "p1", "-n", namespace, "--image=nginx:1")
    assert kubectl("logs", "p1", "-n", namespace) == ""
    mesh.run_pod(namespace, "p1", "n2")

    assert "does not answer" in kubectl("logs", "p1", "-n", namespace, code=1)
    with a_kubelet("n2") as asked:
        assert kubectl("logs", "p1", "-n", namespace, "--tail=5") == "line one\nline two\n"
        assert kubectl("logs", "p1", "-n", namespace, "-f").endswith("line two\n")
    assert asked == [f"/containerLogs/{namespace}/p1/p1?tailLines=5", f"/containerLogs/{namespace}/p1/p1?follow=true"]


# --- nodes


def test_cordon_taint_and_uncordon_change_the_node(kubectl):
    kubectl("cordon", "n2")
    assert "Ready,SchedulingDisabled" in kubectl("get", "node", "n2")
    kubectl("uncordon", "n2")
    assert "SchedulingDisabled" not in kubectl("get", "node", "n2")
    kubectl("taint", "nodes", "n2", "k=v:NoSchedule")
    assert kubectl("get", "node", "n2", "-o", "jsonpath={.spec.taints[0].key}") == "k"
    kubectl("taint", "nodes", "n2", "k:NoSchedule-")
    # What a node that a client makes has from the start stays until something says that it is ready.
    left = json.loads(kubectl("get", "node", "n2", "-o", "jsonpath={.spec.taints}"))
    assert left == [{"effect": "NoSchedule", "key": "node.kubernetes.io/not-ready"}]
    assert "labeled" in kubectl("label", "nodes", "--all", "disk=ssd", "--overwrite")


def test_drain_evicts_and_waits_for_the_kubelet(kubectl, mesh, namespace):
    kubectl("run", "p1", "-n", namespace, "--image=nginx:1")
    mesh.run_pod(namespace, "p1", "n3")
    draining = kubectl.started("drain", "n3", "--force", "--timeout=25s")
    try:
        wait_until(lambda: "Terminating" in kubectl("get", "pod", "p1", "-n", namespace))
        mesh.finish_pod(namespace, "p1", "n3")
        text, _ = draining.communicate(timeout=25)
    finally:
        draining.kill()
        kubectl("uncordon", "n3")

    assert draining.returncode == 0, text
    assert "node/n3 drained" in text


# --- rollouts


def test_rollout_status_history_pause_restart_and_undo(kubectl, mesh, namespace):
    kubectl("apply", "-n", namespace, "-f", "-", stdin=a_deployment())
    two_revisions(mesh, namespace)
    status = kubectl.started("rollout", "status", "deployment/web", "-n", namespace, "--timeout=25s")
    time.sleep(0.3)
    rolled_out(mesh, namespace)
    text, _ = status.communicate(timeout=30)
    assert "successfully rolled out" in text

    history = kubectl("rollout", "history", "deployment/web", "-n", namespace)
    assert re.search(r"^1 ", history, re.M)
    assert re.search(r"^2 ", history, re.M)
    kubectl("rollout", "pause", "deployment/web", "-n", namespace)
    assert kubectl("get", "deploy", "web", "-n", namespace, "-o", "jsonpath={.spec.paused}") == "true"
    kubectl("rollout", "resume", "deployment/web", "-n", namespace)
    kubectl("rollout", "restart", "deployment/web", "-n", namespace)
    assert "restartedAt" in kubectl("get", "deploy", "web", "-n", namespace, "-o", "yaml")
    assert "rolled back" in kubectl("rollout", "undo", "deployment/web", "-n", namespace, "--to-revision=1")
    image = "jsonpath={.spec.template.spec.containers[0].image}"
    assert kubectl("get", "deploy", "web", "-n", namespace, "-o", image) == "nginx:0"


def two_revisions(mesh, namespace):
    """What the deployment controller would have made: an old and a new ReplicaSet, and revision 2."""
    path = f"/apis/apps/v1/namespaces/{namespace}"
    _, deployment = mesh.call("GET", f"{path}/deployments/web")
    owner = {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": deployment["metadata"]["uid"],
        "controller": True,
    }  # fmt: skip
    for revision, image in (("1", "nginx:0"), ("2", "nginx:1")):
        template = json.loads(json.dumps(deployment["spec"]["template"]))
        template["metadata"]["labels"]["pod-template-hash"] = revision
        template["spec"]["containers"][0]["image"] = image
        labels = {"app": "web", "pod-template-hash": revision}
        replica_set = {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": f"web-{revision}",
                "labels": labels,
                "annotations": {"deployment.kubernetes.io/revision": revision},
                "ownerReferences": [owner],
            },
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": template},
        }
        mesh.call("POST", f"{path}/replicasets", replica_set)
    mesh.merge(f"{path}/deployments/web", {"metadata": {"annotations": {"deployment.kubernetes.io/revision": "2"}}})


def rolled_out(mesh, namespace):
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
    generation = mesh.call("GET", path)[1]["metadata"]["generation"]
    status = {
        "observedGeneration": generation, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2,
        "availableReplicas": 2,
    }  # fmt: skip
    mesh.merge(f"{path}/status", {"status": status}, user="system:controller:deployment")


def wait_until(holds, most_s=15.0):
    deadline = time.monotonic() + most_s
    while not holds():
        assert time.monotonic() < deadline, "it did not come to be in time"
        time.sleep(0.1)
