"""kubectl and Jobs: made from the command line, shown, waited for and explained."""

import re


def printed(mesh, namespace, name, status):
    """Say, as the Job controller would, how it stands."""
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs/{name}/status"
    mesh.call("PATCH", path, {"status": status}, content_type="application/merge-patch+json")


def ended(*types):
    at = "2026-01-01T00:01:30Z"
    return [{"type": each, "status": "True", "reason": "CompletionsReached", "message": "m", "lastTransitionTime": at}
            for each in types]  # fmt: skip


def test_a_job_is_made_shown_waited_for_and_gone(kubectl, mesh, namespace):
    kubectl("create", "job", "work", "--image=busybox:1", "-n", namespace, "--", "date")
    running = kubectl("get", "jobs", "-n", namespace)
    printed(mesh, namespace, "work", {
        "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:30Z", "succeeded": 1,
        "conditions": ended("SuccessCriteriaMet", "Complete"),
    })  # fmt: skip
    waited = kubectl("wait", "--for=condition=complete", "job/work", "-n", namespace, "--timeout=5s")
    wide = kubectl("get", "job", "work", "-n", namespace, "-o", "wide")
    described = [line.split() for line in kubectl("describe", "job", "work", "-n", namespace).splitlines()]

    assert running.split()[:5] == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert re.search(r"^work +Running +0/1 ", running, re.M)
    assert "condition met" in waited
    assert re.search(r"^work +Complete +1/1 +90s .*work +busybox:1 +batch.kubernetes.io/controller-uid=", wide, re.M)
    assert ["Backoff", "Limit:", "6"] in described or ["Completions:", "1"] in described
    assert "1 Succeeded / 0 Failed" in kubectl("describe", "job", "work", "-n", namespace)
    assert "deleted" in kubectl("delete", "job", "work", "-n", namespace, "--wait=false")


def test_what_a_job_may_say_is_explained_and_what_it_may_not_is_refused(kubectl, namespace):
    document = {
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "bad"},
        "spec": {"template": {"spec": {"restartPolicy": "Always", "containers": [{"name": "c", "image": "i:1"}]}}},
    }  # fmt: skip
    refusal = kubectl("create", "-n", namespace, "-f", "-", stdin=document, code=1)

    assert 'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"' in refusal
    assert "podFailurePolicy\t<PodFailurePolicy>" in kubectl("explain", "job.spec", "--recursive")
    assert re.search(r"^jobs +batch/v1 +true +Job$", kubectl("api-resources"), re.M)
