"""kr8s and lightkube against a whole mesh: workloads that run, logs, drains, tokens and accounts in pods."""

import asyncio

import kr8s.asyncio
import kr8s.asyncio.objects
import lightkube
import pytest
from conftest import until
from lightkube.core.exceptions import ApiError
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.authentication_v1 import TokenRequestSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment, ReplicaSet
from lightkube.resources.batch_v1 import CronJob, Job
from lightkube.resources.core_v1 import ConfigMap, Pod, ServiceAccountToken
from lightkube.types import CascadeType, PatchType

LABELS = {"app": "web"}
TEMPLATE = {
    "metadata": {"labels": LABELS},
    "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": "nginx:1"}]},
}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": TEMPLATE},
}
BATCH = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}}


@pytest.fixture
def light(whole_mesh, space):
    config = lightkube.KubeConfig.from_file(whole_mesh.kubeconfig)
    return lightkube.Client(config=config, namespace=space, field_manager="tests", trust_env=False)


@pytest.fixture
def with_kr8s(whole_mesh, space):
    def run(program):
        async def main():
            return await program(await kr8s.asyncio.api(kubeconfig=whole_mesh.kubeconfig, namespace=space))

        return asyncio.run(asyncio.wait_for(main(), 60))

    return run


# --- lightkube


def test_lightkube_applies_waits_scales_restarts_and_deletes(light):
    web = Deployment.from_dict(DEPLOYMENT)
    light.apply(web)
    light.wait(Deployment, "web", for_conditions=["Available"])
    light.patch(Deployment.Scale, "web", {"spec": {"replicas": 1}}, patch_type=PatchType.MERGE)
    again = {"spec": {"template": {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}}}
    light.patch(Deployment, "web", again)
    until(lambda: len(list(light.list(ReplicaSet, labels=LABELS))) == 2)
    until(lambda: (status := light.get(Deployment, "web").status).replicas == status.updatedReplicas == 1)
    pod = next(iter(light.list(Pod, labels=LABELS, fields={"status.phase": "Running"})))
    assert "started" in next(iter(light.log(pod.metadata.name)))
    light.delete(Deployment, "web", cascade=CascadeType.FOREGROUND)
    until(lambda: not list(light.list(ReplicaSet)))


def test_lightkube_runs_jobs_by_hand_from_cron_jobs(light, space):
    spec = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": BATCH}}
    cron = light.create(CronJob.from_dict({"metadata": {"name": "yearly", "namespace": space}, "spec": spec}))
    light.create(Job(metadata=ObjectMeta(name="now", namespace=space), spec=cron.spec.jobTemplate.spec))
    light.wait(Job, "now", for_conditions=["Complete"])
    assert light.get(Job, "now").status.succeeded == 1


def test_lightkube_follows_what_it_watches(light, space):
    listed = light.list(ConfigMap)
    assert [each.metadata.name for each in listed] == ["kube-root-ca.crt"]
    for number in range(3):
        light.create(ConfigMap(metadata=ObjectMeta(name=f"c{number}", namespace=space)))
    light.patch(ConfigMap, "c0", {"metadata": {"labels": {"x": "y"}}})
    seen = []
    for kind, found in light.watch(ConfigMap, resource_version=listed.resourceVersion, server_timeout=10):
        seen.append((kind, found.metadata.name))
        if kind == "MODIFIED":
            break
    assert seen == [("ADDED", "c0"), ("ADDED", "c1"), ("ADDED", "c2"), ("MODIFIED", "c0")]


def test_lightkube_in_a_pod_is_its_service_account(light, space, tmp_path, monkeypatch):
    asked = ServiceAccountToken(
        metadata=ObjectMeta(name="default", namespace=space),
        spec=TokenRequestSpec(audiences=[], expirationSeconds=3600),
    )
    token = light.create(asked, "default", namespace=space).status.token
    (tmp_path / "token").write_text(token)
    (tmp_path / "namespace").write_text(space)
    (tmp_path / "ca.crt").write_text(light.get(ConfigMap, "kube-root-ca.crt").data["ca.crt"])
    host, _, port = light._client._client.base_url.netloc.decode().partition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    inside = lightkube.Client(config=lightkube.KubeConfig.from_service_account(str(tmp_path)), trust_env=False)
    with pytest.raises(ApiError) as refused:
        list(inside.list(ConfigMap))
    assert f'User "system:serviceaccount:{space}:default" cannot list' in refused.value.status.message


def test_lightkube_writes_kinds_that_it_has_no_model_of(light, space):
    lease = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")
    light.create(lease(metadata={"name": "l", "namespace": space}, spec={"holderIdentity": "me"}))
    assert light.patch(lease, "l", {"spec": {"holderIdentity": "you"}}).spec == {"holderIdentity": "you"}


# --- kr8s


def test_kr8s_creates_waits_scales_reads_logs_and_deletes(with_kr8s):
    async def program(api):
        web = await kr8s.asyncio.objects.Deployment(DEPLOYMENT, api=api)
        await web.create()
        await web.wait("condition=Available", timeout=30)
        await web.scale(1)
        await web.wait("jsonpath='{.status.replicas}'=1", timeout=30)
        # The other pod is terminating, or gone.
        pods = [pod async for pod in api.get("pods", label_selector=LABELS)]
        (pod,) = [pod for pod in pods if "deletionTimestamp" not in pod.metadata]
        assert await pod.ready()
        lines = [line async for line in pod.logs(container="c")]
        table = [row async for row in api.get("deployments.v1.apps")]
        await web.delete(propagation_policy="Foreground")
        await web.wait("delete", timeout=30)
        return lines, [each.name for each in table], await web.exists()

    lines, names, is_there = with_kr8s(program)
    assert "started" in lines[0]
    assert (names, is_there) == (["web"], False)


def test_kr8s_watches_and_reads_files_written_by_hand(with_kr8s, space, tmp_path):
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m, namespace: {space}}}\ndata: {{a: '1'}}\n"
    (tmp_path / "m.yaml").write_text(text)

    async def program(api):
        found = kr8s.asyncio.objects.objects_from_files(str(tmp_path / "m.yaml"), api=api)
        found = await found if asyncio.iscoroutine(found) else found
        await found[0].create()
        await found[0].annotate({"x": "y"})
        seen = []
        async for kind, each in api.watch("configmaps", namespace=space):
            seen.append((kind, each.name))
            if each.name == "m" and kind == "ADDED":
                await each.delete()
            if kind == "DELETED":
                break
        return seen

    seen = with_kr8s(program)
    assert ("ADDED", "m") in seen
    assert seen[-1] == ("DELETED", "m")


def test_kr8s_knows_who_it_is_what_is_served_and_cordons(with_kr8s):
    async def program(api):
        node = await kr8s.asyncio.objects.Node.get("node-1", api=api)
        await node.cordon()
        await node.refresh()
        cordoned = node.unschedulable
        await node.uncordon()
        await node.refresh()
        served = {each["name"] for each in await api.api_resources()}
        return await api.whoami(), cordoned, node.unschedulable, served

    who, cordoned, after, served = with_kr8s(program)
    assert (cordoned, after) == (True, False)
    assert who
    assert {"pods", "deployments", "customresourcedefinitions", "horizontalpodautoscalers"} <= served
