"""pykube-ng against a whole mesh: what its README and its examples do."""

import base64
import contextlib

import pykube
import pytest
import requests
from conftest import until

LABELS = {"app": "web"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "nginx:1"}]}}
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {"replicas": 1, "selector": {"matchLabels": LABELS}, "template": TEMPLATE},
}


@pytest.fixture(scope="module")
def api(whole_mesh):
    return pykube.HTTPClient(pykube.KubeConfig.from_file(whole_mesh.kubeconfig))


def named(api, space, kind, name, **body):
    return kind(api, {"metadata": {"name": name, "namespace": space}, **body})


def refreshed(found):
    found.reload()
    return found


def status_of(found):
    return refreshed(found).obj.get("status", {})


def test_a_deployment_is_scaled_updated_undone_and_deleted(api, space):
    web = pykube.Deployment(api, {**DEPLOYMENT, "metadata": {"name": "web", "namespace": space}})
    web.create()
    until(lambda: status_of(web).get("availableReplicas") == 1)
    assert web.ready
    web.patch({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "nginx:2"}]}}}})
    until(lambda: len(pykube.ReplicaSet.objects(api, space).filter(selector=LABELS)) == 2)
    until(lambda: status_of(web).get("updatedReplicas") == 1)
    web.patch({"spec": {"replicas": 2}})
    until(lambda: status_of(web).get("availableReplicas") == 2)
    pods = pykube.Pod.objects(api).filter(namespace=space, selector={"app__in": {"web"}})
    assert {pod.obj["spec"]["containers"][0]["image"] for pod in pods if pod.ready} >= {"nginx:2"}
    assert "c" in next(iter(pods)).logs(container="c")
    web.delete(propagation_policy="Foreground")
    until(lambda: not web.exists())


def test_objects_are_queried_by_name_label_and_field(api, space):
    for name in ("a", "b"):
        named(api, space, pykube.ConfigMap, name, data={"k": name}).create()
        pykube.ConfigMap.objects(api, space).get_by_name(name).patch({"metadata": {"labels": {"of": name}}})
    maps = pykube.ConfigMap.objects(api, space)
    assert [each.name for each in maps.filter(selector="of in (a, b)")] == ["a", "b"]
    assert [each.name for each in maps.filter(selector={"of__neq": "a", "of": "b"})] == ["b"]
    assert [each.name for each in maps.filter(field_selector={"metadata.name": "b"})] == ["b"]
    assert maps.get(name="a").obj["data"] == {"k": "a"}
    assert maps.get_or_none(name="nope") is None
    table = maps.as_table()
    assert [column["name"] for column in table.columns] == ["Name", "Data", "Age"]
    assert [row["cells"][0] for row in table.rows] == ["a", "b", "kube-root-ca.crt"]


def test_updates_of_what_changed_meanwhile_are_refused(api, space):
    made = named(api, space, pykube.ConfigMap, "c", data={"n": "0"})
    made.create()
    other = pykube.ConfigMap.objects(api, space).get_by_name("c")
    made.obj["data"]["n"] = "1"
    made.update(is_strategic=False)
    other.obj["data"]["n"] = "2"
    other.obj["metadata"]["resourceVersion"] = "1"
    with pytest.raises(pykube.exceptions.HTTPError, match="the object has been modified") as refused:
        other.update()
    assert refused.value.code == 409
    with pytest.raises(pykube.exceptions.HTTPError, match="already exists"):
        named(api, space, pykube.ConfigMap, "c").create()


def test_secrets_services_and_jobs_are_written(api, space):
    named(api, space, pykube.Secret, "s", data={"p": base64.b64encode(b"x").decode()}).create()
    named(api, space, pykube.Service, "web", spec={"selector": LABELS, "ports": [{"port": 80}]}).create()
    assert pykube.Service.objects(api, space).get(name="web").obj["spec"]["clusterIP"].startswith("10.")
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "busybox"}]}}
    job = named(api, space, pykube.Job, "j", spec={"template": template})
    job.create()
    until(lambda: status_of(job).get("succeeded") == 1)
    job.delete(propagation_policy="Background")
    until(lambda: not pykube.Pod.objects(api, space).filter(selector="job-name=j"))


def test_a_watch_follows_a_pod_until_it_is_gone(api, space):
    pod = named(api, space, pykube.Pod, "p", spec={**TEMPLATE["spec"], "terminationGracePeriodSeconds": 1})
    watching = pykube.Pod.objects(api, space).watch()
    pod.create()
    kinds, phases = [], []
    for event in watching:
        kinds.append(event.type)
        phases.append(event.object.obj["status"]["phase"])
        if phases[-1] == "Running" and phases.count("Running") == 1:
            pod.delete()
        if kinds[-1] == "DELETED":
            break
    assert (kinds[0], phases[0]) == ("ADDED", "Pending")


def test_a_node_is_cordoned_and_uncordoned(api):
    node = pykube.Node.objects(api).get_by_name("node-1")

    def wrote(write):
        """Write with what was read just now: a node's status changes all the time."""
        with contextlib.suppress(pykube.exceptions.HTTPError):
            write(refreshed(node))
            return True
        return False

    until(lambda: wrote(pykube.Node.cordon))
    assert refreshed(node).unschedulable
    until(lambda: wrote(pykube.Node.uncordon))
    assert not refreshed(node).unschedulable
    assert {each.name for each in pykube.Node.objects(api)} == {"node-0", "node-1"}


def test_kinds_are_made_from_discovery(api, space):
    assert api.version == ("1", "36")
    lease = pykube.object_factory(api, "coordination.k8s.io/v1", "Lease")
    lease(api, {"metadata": {"name": "l", "namespace": space}, "spec": {"holderIdentity": "me"}}).create()
    found = lease.objects(api, space).get_by_name("l")
    found.patch({"spec": {"holderIdentity": None}})
    assert found.obj["spec"] == {}
    assert "roles" in {each["name"] for each in api.resource_list("rbac.authorization.k8s.io/v1")["resources"]}


def test_a_program_in_a_pod_reads_its_service_account(whole_mesh, api, space, tmp_path, monkeypatch):
    body = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}}
    made = api.post(url="serviceaccounts/default/token", namespace=space, version="v1", json=body)
    made.raise_for_status()
    (tmp_path / "token").write_text(made.json()["status"]["token"])
    authority = pykube.ConfigMap.objects(api, space).get_by_name("kube-root-ca.crt").obj["data"]["ca.crt"]
    (tmp_path / "ca.crt").write_text(authority)
    (tmp_path / "namespace").write_text(space)
    host, _, port = api.url.removeprefix("https://").partition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    inside = pykube.HTTPClient(pykube.KubeConfig.from_service_account(str(tmp_path)))
    assert inside.version == ("1", "36")
    with pytest.raises(requests.HTTPError) as refused:
        list(pykube.Pod.objects(inside, space))
    assert f'"system:serviceaccount:{space}:default" cannot list' in refused.value.response.json()["message"]
