"""lightkube and kr8s against the REST server: no discovery or all of it, deletes without bodies, server-side apply."""

import lightkube
import pytest
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.core_v1 import Container, PodSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap, Namespace, Node, Pod
from lightkube.types import PatchType

from services.api.release import KUBERNETES

kr8s = pytest.importorskip("kr8s.asyncio")


@pytest.fixture
def client(mesh, namespace):
    config = lightkube.KubeConfig.from_file(str(mesh.kubeconfig()))
    return lightkube.Client(config=config, namespace=namespace, field_manager="tests", trust_env=False)


def test_lightkube_creates_reads_replaces_patches_and_deletes(client, namespace):
    made = client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace=namespace), data={"a": "1"}))
    made.data["b"] = "2"
    replaced = client.replace(made)
    patched = client.patch(ConfigMap, "c", {"data": {"a": None}}, patch_type=PatchType.MERGE)

    assert int(replaced.metadata.resourceVersion) > int(made.metadata.resourceVersion) - 1
    assert patched.data == {"b": "2"}
    client.delete(ConfigMap, "c")
    with pytest.raises(ApiError) as error:
        client.get(ConfigMap, "c")
    assert (error.value.status.code, error.value.status.reason) == (404, "NotFound")


def test_lightkube_lists_in_chunks_and_by_labels(client, namespace):
    for name in ("a", "b", "c"):
        labels = {"x": "y"} if name != "c" else {}
        client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels)))

    assert [c.metadata.name for c in client.list(ConfigMap, chunk_size=1)] == ["a", "b", "c"]
    assert [c.metadata.name for c in client.list(ConfigMap, labels={"x": "y"})] == ["a", "b"]
    assert {"n1", "n2", "n3"} <= {n.metadata.name for n in client.list(Node)}


def test_lightkube_applies_on_the_server(client, namespace):
    document = ConfigMap(
        metadata=ObjectMeta(name="c", namespace=namespace), data={"a": "1"}, apiVersion="v1", kind="ConfigMap"
    )
    client.apply(document, field_manager="one")
    document.data = {"a": "2"}

    with pytest.raises(ApiError, match="conflict"):
        client.apply(document, field_manager="two")
    assert client.apply(document, field_manager="two", force=True).data == {"a": "2"}


def test_lightkube_watches_from_a_version(client, namespace):
    version = client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace=namespace))).metadata.resourceVersion
    client.create(ConfigMap(metadata=ObjectMeta(name="b", namespace=namespace)))
    client.delete(ConfigMap, "b")
    seen = []

    for kind, found in client.watch(ConfigMap, resource_version=version, server_timeout=5):
        seen.append((kind, found.metadata.name))
        if len(seen) == 2:
            break

    assert seen == [("ADDED", "b"), ("DELETED", "b")]


def test_lightkube_conflicts_on_an_old_version(client, namespace):
    made = client.create(ConfigMap(metadata=ObjectMeta(name="c", namespace=namespace), data={"a": "1"}))
    client.patch(ConfigMap, "c", {"data": {"a": "2"}})
    made.data = {"a": "3"}

    with pytest.raises(ApiError) as error:
        client.replace(made)

    assert (error.value.status.code, error.value.status.reason) == (409, "Conflict")


def test_lightkube_reads_a_scale_and_a_generic_resource(client, namespace):
    container = {"name": "c", "image": "nginx:1"}
    document = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w", "namespace": namespace},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}},
        },
    }
    client.create(Deployment.from_dict(document))
    generic = create_namespaced_resource("apps", "v1", "Deployment", "deployments")

    assert client.get(Deployment.Scale, "w").spec.replicas == 3
    assert client.get(generic, "w")["spec"]["replicas"] == 3


def test_lightkube_runs_a_pod_and_lists_namespaces(client, namespace):
    spec = PodSpec(containers=[Container(name="c", image="nginx:1")])
    client.create(Pod(metadata=ObjectMeta(name="p", namespace=namespace), spec=spec))

    assert client.get(Pod, "p").spec.containers[0].image == "nginx:1"
    assert namespace in [n.metadata.name for n in client.list(Namespace)]


def test_kr8s_discovers_creates_patches_lists_and_deletes(mesh, namespace, run_async):
    async def scenario():
        api = await kr8s.api(kubeconfig=str(mesh.kubeconfig()), namespace=namespace)
        assert (await api.version())["gitVersion"] == f"{KUBERNETES}+keplab"
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": namespace}}
        made = await kr8s.objects.ConfigMap({**body, "data": {"a": "1"}}, namespace=namespace, api=api)
        await made.create()
        await made.patch({"data": {"a": "2"}})
        await made.refresh()
        assert made.data["a"] == "2"
        await made.label({"x": "y"})
        found = [each.name async for each in api.get("configmaps", namespace=namespace, label_selector="x=y")]
        assert found == ["c"]
        await made.delete()
        assert not await made.exists()
        assert "n1" in [node.name async for node in api.get("nodes")]

    run_async(scenario())


def test_kr8s_waits_for_a_pod_condition(mesh, namespace, run_async):
    async def scenario():
        api = await kr8s.api(kubeconfig=str(mesh.kubeconfig()), namespace=namespace)
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": namespace},
            "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
        }
        pod = await kr8s.objects.Pod(body, namespace=namespace, api=api)
        await pod.create()
        mesh.run_pod(namespace, "p", "n1")
        await pod.wait("condition=Ready", timeout=10)
        assert await pod.ready()

    run_async(scenario())
