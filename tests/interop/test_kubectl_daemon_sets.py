"""kubectl and DaemonSets: shown, explained, drained around, rolled out and back; the controller's part is done by hand."""

import re

import pytest

from services.controllers.shared_revisions import POD_LABEL, data_of

KIND = {"apiVersion": "apps/v1", "kind": "DaemonSet"}


def a_daemon_set(image="agent:1"):
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "c", "image": image}]}}
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
    return {**KIND, "metadata": {"name": "agent"}, "spec": spec}


@pytest.fixture
def agent(kubectl, mesh, namespace):
    """Return a DaemonSet, and ways to say as its controller what is so."""

    class Agent:
        path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets/agent"

        def stored(self):
            return mesh.call("GET", self.path)[1]

        def owner(self):
            return [{**KIND, "name": "agent", "uid": self.stored()["metadata"]["uid"], "controller": True}]

        def shows(self, **counters):
            status = {"observedGeneration": self.stored()["metadata"]["generation"], **counters}
            mesh.merge(f"{self.path}/status", {"status": status})

        def keeps(self, number):
            """Keep the template as it is now as a revision."""
            metadata = {"name": f"agent-{number}", "labels": {"app": "agent", POD_LABEL: str(number)},
                        "ownerReferences": self.owner()}  # fmt: skip
            body = {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "revision": number,
                    "data": data_of(self.stored()["spec"]["template"])}  # fmt: skip
            mesh.call("POST", f"/apis/apps/v1/namespaces/{namespace}/controllerrevisions", body)

        def has_pod_on(self, node):
            body = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": "agent:1"}]},
                    "metadata": {"name": "agent-x", "labels": {"app": "agent"}, "ownerReferences": self.owner()}}  # fmt: skip
            mesh.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)
            mesh.run_pod(namespace, "agent-x", node)

    kubectl("create", "-n", namespace, "-f", "-", stdin=a_daemon_set())
    return Agent()


def test_a_daemon_set_is_shown_described_and_explained(kubectl, agent, namespace):
    agent.shows(desiredNumberScheduled=3, currentNumberScheduled=3, numberReady=2, updatedNumberScheduled=1,
                numberAvailable=2, numberMisscheduled=0)  # fmt: skip
    shown = kubectl("get", "ds", "-n", namespace, "-o", "wide")
    described = kubectl("describe", "daemonset", "agent", "-n", namespace)

    assert shown.splitlines()[0].split() == [
        "NAME", "DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE", "NODE", "SELECTOR", "AGE", "CONTAINERS",
        "IMAGES", "SELECTOR"]  # fmt: skip
    assert re.search(r"^agent +3 +3 +2 +1 +2 +<none> .*c +agent:1 +app=agent$", shown, re.M)
    assert "Desired Number of Nodes Scheduled: 3" in described
    assert "maxSurge" in kubectl("explain", "ds.spec.updateStrategy.rollingUpdate")
    assert re.search(r"^daemonsets +ds +apps/v1 +true +DaemonSet$", kubectl("api-resources"), re.M)


def test_a_drain_leaves_the_pods_of_daemon_sets_only_when_asked_to(kubectl, mesh, agent, namespace):
    node = f"drained-{kubectl.suite}"
    mesh.a_node(node)
    agent.has_pod_on(node)
    refusal = kubectl("drain", node, "--timeout=10s", code=1)
    ignored = kubectl("drain", node, "--ignore-daemonsets", "--timeout=10s")

    assert "cannot delete DaemonSet-managed Pods" in refusal
    assert f"ignoring DaemonSet-managed Pods: {namespace}/agent-x" in ignored
    assert f"node/{node} drained" in ignored
    assert "deletionTimestamp" not in mesh.call("GET", f"/api/v1/namespaces/{namespace}/pods/agent-x")[1]["metadata"]


def test_a_rollout_has_a_status_a_history_and_a_way_back(kubectl, agent, namespace):
    agent.keeps(1)
    kubectl("set", "image", "ds/agent", "c=agent:2", "-n", namespace)
    agent.keeps(2)
    agent.shows(desiredNumberScheduled=2, currentNumberScheduled=2, numberReady=2, updatedNumberScheduled=2,
                numberAvailable=2, numberMisscheduled=0)  # fmt: skip
    done = kubectl("rollout", "status", "ds/agent", "-n", namespace, "--timeout=10s")
    history = kubectl("rollout", "history", "ds/agent", "-n", namespace)
    first = kubectl("rollout", "history", "ds/agent", "-n", namespace, "--revision=1")
    undone = kubectl("rollout", "undo", "ds/agent", "-n", namespace)
    stored = agent.stored()

    assert "successfully rolled out" in done
    assert re.findall(r"^(\d+) ", history, re.M) == ["1", "2"]
    assert "agent:1" in first
    assert "rolled back" in undone
    assert stored["spec"]["template"]["spec"]["containers"][0]["image"] == "agent:1"
    assert stored["metadata"]["annotations"]["deprecated.daemonset.template.generation"] == "3"
    assert "restarted" in kubectl("rollout", "restart", "ds/agent", "-n", namespace)
