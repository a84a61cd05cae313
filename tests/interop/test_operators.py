"""Operators in Python with kinds of their own: kopf watches and writes them, lightkube loads them from the cluster."""

import asyncio
import contextlib
import os
import subprocess
import sys
import time

import lightkube
import pytest
from lightkube.generic_resource import get_generic_resource, load_in_cluster_generic_resources

pytest.importorskip("kopf")
GROUP = "kopf.example.com"
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"greetings.{GROUP}"},
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {"plural": "greetings", "kind": "Greeting"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"to": {"type": "string"}, "loud": {"type": "boolean", "default": False}},
                            },
                            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        },
                    }
                },
            }
        ],
    },
}
OPERATOR = f'''
import kopf


@kopf.on.create("{GROUP}", "v1", "greetings")
@kopf.on.update("{GROUP}", "v1", "greetings")
def greet(spec, patch, **_):
    text = "hello " + spec["to"]
    patch.status["text"] = text.upper() if spec["loud"] else text


@kopf.on.delete("{GROUP}", "v1", "greetings")
def forget(**_):
    pass
'''
WAIT_MAX_S = 40.0


def greeting(name, **spec):
    return {"apiVersion": f"{GROUP}/v1", "kind": "Greeting", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def greetings(mesh, namespace):
    """The kind, served; returns the address of its objects."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    mesh.call("POST", path, DEFINITION)
    until(lambda: mesh.call("GET", f"/apis/{GROUP}/v1", ok=False)[0] == 200)
    yield f"/apis/{GROUP}/v1/namespaces/{namespace}/greetings"
    mesh.call("DELETE", f"{path}/{DEFINITION['metadata']['name']}")
    until(lambda: mesh.call("GET", f"{path}/{DEFINITION['metadata']['name']}", ok=False)[0] == 404)


def until(holds):
    end = time.monotonic() + WAIT_MAX_S
    while not (found := holds()):
        assert time.monotonic() < end, f"not so after {WAIT_MAX_S} s"
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def an_operator(mesh, namespace, directory):
    (directory / "operator.py").write_text(OPERATOR)
    log = directory / "operator.log"
    command = [sys.executable, "-m", "kopf", "run", "--standalone", "-n", namespace, str(directory / "operator.py")]
    environment = {**os.environ, "KUBECONFIG": str(mesh.kubeconfig())}
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, cwd=directory)
    try:
        yield log
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(5)


def test_a_kopf_operator_writes_the_status_of_its_own_kind_and_holds_deletions(mesh, namespace, greetings, tmp_path):
    def status_of(name):
        return mesh.call("GET", f"{greetings}/{name}")[1].get("status", {}).get("text")

    with an_operator(mesh, namespace, tmp_path) as log:
        mesh.call("POST", greetings, greeting("a", to="ann"))
        try:
            until(lambda: status_of("a") == "hello ann")
            mesh.merge(f"{greetings}/a", {"spec": {"loud": True}})
            until(lambda: status_of("a") == "HELLO ANN")
            held = mesh.call("GET", f"{greetings}/a")[1]["metadata"]["finalizers"]
            mesh.call("DELETE", f"{greetings}/a")
            until(lambda: mesh.call("GET", f"{greetings}/a", ok=False)[0] == 404)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{log.read_text()[-2000:]}") from error

    assert held == ["kopf.zalando.org/KopfFinalizerMarker"]


def test_lightkube_loads_the_kind_from_the_cluster_and_writes_it(mesh, namespace, greetings):
    config = lightkube.KubeConfig.from_file(str(mesh.kubeconfig()))
    client = lightkube.Client(config=config, namespace=namespace, field_manager="tests", trust_env=False)
    load_in_cluster_generic_resources(client)
    kind = get_generic_resource(f"{GROUP}/v1", "Greeting")

    made = client.create(kind(metadata={"name": "b", "namespace": namespace}, spec={"to": "bob"}))
    client.replace(kind.Status(metadata=made.metadata, spec=made.spec, status={"text": "hi"}))

    found = client.get(kind, "b")
    assert (found.spec, found.status) == ({"to": "bob", "loud": False}, {"text": "hi"})
    assert [each.metadata.name for each in client.list(kind)] == ["b"]
    client.delete(kind, "b")


def test_the_official_client_treats_objects_of_the_kind_as_dictionaries(mesh, namespace, greetings):
    kubernetes = pytest.importorskip("kubernetes")
    client = kubernetes.config.new_client_from_config(str(mesh.kubeconfig()))
    api = kubernetes.client.CustomObjectsApi(client)
    where = (GROUP, "v1", namespace, "greetings")

    api.create_namespaced_custom_object(*where, greeting("c", to="cat"))
    api.patch_namespaced_custom_object(*where, "c", {"spec": {"to": "cleo"}})
    api.patch_namespaced_custom_object_status(*where, "c", {"status": {"text": "x"}})
    found = api.get_namespaced_custom_object(*where, "c")
    definitions = kubernetes.client.ApiextensionsV1Api(client).list_custom_resource_definition()

    assert (found["spec"]["to"], found["status"], found["metadata"]["generation"]) == ("cleo", {"text": "x"}, 2)
    assert DEFINITION["metadata"]["name"] in [each.metadata.name for each in definitions.items]


def test_an_asynchronous_client_watches_objects_of_the_kind(mesh, namespace, greetings):
    kubernetes_asyncio = pytest.importorskip("kubernetes_asyncio")

    async def main():
        client = await kubernetes_asyncio.config.new_client_from_config(config_file=str(mesh.kubeconfig()))
        seen = []
        async with client:
            api = kubernetes_asyncio.client.CustomObjectsApi(client)
            await api.create_namespaced_custom_object(GROUP, "v1", namespace, "greetings", greeting("d", to="dan"))
            watch = kubernetes_asyncio.watch.Watch()
            async for event in watch.stream(
                api.list_namespaced_custom_object, GROUP, "v1", namespace, "greetings", timeout_seconds=20
            ):
                seen.append((event["type"], event["object"]["metadata"]["name"]))
                if len(seen) == 2:
                    break
                await api.delete_namespaced_custom_object(GROUP, "v1", namespace, "greetings", "d")
            watch.stop()
        return seen

    assert asyncio.run(main()) == [("ADDED", "d"), ("DELETED", "d")]
