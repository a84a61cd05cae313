"""kubectl and what controllers act on: made from the command line, shown, described and refused."""

import re


def test_a_cron_job_is_made_shown_and_run_by_hand(kubectl, namespace):
    made = ("create", "cronjob", "tick", "--image=busybox:1", "--schedule=*/5 * * * *", "-n", namespace, "--", "date")
    kubectl(*made)
    shown = kubectl("get", "cj", "-n", namespace)
    wide = kubectl("get", "cronjobs", "-n", namespace, "-o", "wide")
    described = kubectl("describe", "cronjob", "tick", "-n", namespace)
    kubectl("create", "job", "now", "--from=cronjob/tick", "-n", namespace)
    kubectl("patch", "cronjob", "tick", "-n", namespace, "-p", '{"spec": {"suspend": true, "timeZone": "Etc/UTC"}}')
    owner = kubectl("get", "job", "now", "-n", namespace, "-o", "jsonpath={.metadata.ownerReferences[0].kind}")

    assert shown.split("\n")[0].split() == [
        "NAME", "SCHEDULE", "TIMEZONE", "SUSPEND", "ACTIVE", "LAST", "SCHEDULE", "AGE"]  # fmt: skip
    assert re.search(r"^tick +\*/5 \* \* \* \* +<none> +False +0 +<none> ", shown, re.M)
    assert re.search(r" tick +busybox:1 +<none>$", wide, re.M)
    assert re.search(r"^Concurrency Policy: +Allow$", described, re.M)
    assert re.search(r"^tick +.* Etc/UTC +True ", kubectl("get", "cj", "tick", "-n", namespace), re.M)
    assert owner == "CronJob"
    assert re.search(r"^cronjobs +cj +batch/v1 +true +CronJob$", kubectl("api-resources"), re.M)
    assert "timeZone\t<string>" in kubectl("explain", "cronjob.spec")


def test_a_schedule_that_cannot_be_read_is_refused_in_upstreams_words(kubectl, namespace):
    made = ("create", "cronjob", "bad", "--image=i:1", "--schedule=61 * * * *", "-n", namespace)

    assert (
        kubectl(*made, code=1)
        .strip()
        .endswith('spec.schedule: Invalid value: "61 * * * *": end of range (61) above maximum (59): 61')
    )


def test_a_deployment_is_autoscaled_from_the_command_line(kubectl, namespace):
    kubectl("create", "deployment", "web", "--image=nginx:1", "-n", namespace)
    kubectl("create", "-n", namespace, "-f", "-", stdin={
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "minReplicas": 2,
                 "maxReplicas": 5, "metrics": [{"type": "Resource", "resource": {
                     "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]},
    })  # fmt: skip
    shown = kubectl("get", "hpa", "-n", namespace)
    described = kubectl("describe", "hpa", "web", "-n", namespace)

    assert shown.split("\n")[0].split() == [
        "NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]  # fmt: skip
    assert re.search(r"^web +Deployment/web +cpu: <unknown>/50% +2 +5 +0 ", shown, re.M)
    assert re.search(r"resource cpu on pods .*<unknown> / 50%", described)
    assert "behavior\t<HorizontalPodAutoscalerBehavior>" in kubectl("explain", "hpa.spec")


def test_kubectl_autoscale_speaks_of_v1_or_v2(kubectl, namespace):
    kubectl("create", "deployment", "web", "--image=nginx:1", "-n", namespace)
    cpu = "--cpu-percent=60" if "v1.32" in kubectl("version", "--client") else "--cpu=60%"
    kubectl("autoscale", "deployment", "web", "--min=2", "--max=5", cpu, "-n", namespace)

    assert "cpu: <unknown>/60%" in kubectl("get", "hpa", "web", "-n", namespace)


def test_an_autoscaler_is_read_patched_and_applied_in_v1(kubectl, namespace):
    memory = {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 70}},
    }
    cpu = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    kubectl("create", "-n", namespace, "-f", "-", stdin={
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 5, "metrics": [cpu, memory]},
    })  # fmt: skip
    old = ("horizontalpodautoscalers.v1.autoscaling", "web", "-n", namespace, "-o")
    kubectl("patch", *old[:4], "--type=merge", "-p", '{"spec": {"targetCPUUtilizationPercentage": 40}}')
    kubectl("apply", "-n", namespace, "-f", "-", stdin={
        "apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "other"},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 3, "targetCPUUtilizationPercentage": 30},
    })  # fmt: skip

    assert kubectl("get", *old, "jsonpath={.apiVersion} {.spec.targetCPUUtilizationPercentage}") == "autoscaling/v1 40"
    assert "targetAverageUtilization" in kubectl("get", *old, "yaml")
    assert "cpu: <unknown>/40%, memory: <unknown>/70%" in kubectl("get", "hpa", "web", "-n", namespace)
    assert "cpu: <unknown>/30%" in kubectl("get", "hpa", "other", "-n", namespace)


def test_endpoint_slices_are_shown(kubectl, mesh, namespace):
    kubectl("create", "service", "clusterip", "web", "--tcp=80:8080", "-n", namespace)
    kubectl("create", "-n", namespace, "-f", "-", stdin={
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "ports": [{"name": "80-8080", "port": 8080}], "endpoints": [{"addresses": ["10.0.0.7"], "conditions": {"ready": True}}],
    })  # fmt: skip
    shown = kubectl("get", "endpointslices", "-n", namespace)

    assert re.search(r"^NAME +ADDRESSTYPE +PORTS +ENDPOINTS +AGE$", shown, re.M)
    assert re.search(r"^web-1 +IPv4 +8080 +10\.0\.0\.7 ", shown, re.M)
    assert re.search(r"Endpoints: +10\.0\.0\.7:8080", kubectl("describe", "service", "web", "-n", namespace))
    assert "web-1" in kubectl("describe", "endpointslice", "web-1", "-n", namespace)


def test_a_rollout_is_looked_at_paused_and_undone(kubectl, namespace):
    kubectl("create", "deployment", "web", "--image=nginx:1", "-n", namespace)
    kubectl("rollout", "pause", "deployment/web", "-n", namespace)
    paused = kubectl("get", "deployment", "web", "-n", namespace, "-o", "jsonpath={.spec.paused}")
    kubectl("rollout", "resume", "deployment/web", "-n", namespace)
    kubectl("rollout", "restart", "deployment/web", "-n", namespace)
    annotations = kubectl(
        "get", "deployment", "web", "-n", namespace, "-o", "jsonpath={.spec.template.metadata.annotations}"
    )

    assert paused == "true"
    assert "kubectl.kubernetes.io/restartedAt" in annotations
    assert "No rollout history found" in kubectl("rollout", "history", "deployment/web", "-n", namespace)
