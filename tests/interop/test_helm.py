"""Helm against a whole mesh: the chart that `helm create` makes, and charts with hooks, definitions and lookups."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import parts
import pytest
import yaml

HELM = shutil.which("helm", path=f"{Path(sys.prefix) / 'bin'}{os.pathsep}{os.environ.get('PATH', '')}")
EVERYTHING = ("--set=autoscaling.enabled=true", "--set=ingress.enabled=true", "--set=serviceAccount.create=true")
COMMAND_MAX_S = 90.0
CHART = {"apiVersion": "v2", "name": "own", "version": "0.1.0", "appVersion": "1"}
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.helm.example.com"},
    "spec": {
        "group": "helm.example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 3}}}
                        },
                    }
                },
            }
        ],
    },
}
TEMPLATES = {
    "widget.yaml": """
apiVersion: helm.example.com/v1
kind: Widget
metadata: {name: one}
spec: {size: {{ .Values.size }}}
""",
    "settings.yaml": """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data:
  kept: {{ dig "data" "kept" "first" (lookup "v1" "ConfigMap" .Release.Namespace "settings") | quote }}
  root: {{ hasKey (dig "data" dict (lookup "v1" "ConfigMap" .Release.Namespace "kube-root-ca.crt")) "ca.crt" | quote }}
  nodes: {{ len (lookup "v1" "Node" "" "").items | quote }}
  widgets: {{ .Capabilities.APIVersions.Has "helm.example.com/v1/Widget" | quote }}
  version: {{ .Capabilities.KubeVersion.Minor | quote }}
""",
    "hooks.yaml": """
{{- range $hook, $weight := dict "pre-install" "1" "post-upgrade" "2" "pre-delete" "3" }}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $hook }}
  annotations:
    helm.sh/hook: {{ $hook }}
    helm.sh/hook-weight: {{ $weight | quote }}
    helm.sh/hook-delete-policy: before-hook-creation{{ if eq $hook "pre-delete" }},hook-succeeded{{ end }}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, command: [sh, -c, "echo {{ $hook }}"]}]
{{- end }}
""",
    "pod.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: server}
spec:
  selector: {matchLabels: {app: server}}
  template:
    metadata: {labels: {app: server}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: nginx, resources: {requests: {cpu: {{ .Values.cpu }}}}}]
""",
}


class Helm:
    def __init__(self, whole_mesh, directory, space):
        self.directory, self.space = directory, space
        self.kubeconfig = whole_mesh.kubeconfig
        homes = {f"HELM_{each}_HOME": str(directory / each.lower()) for each in ("CACHE", "CONFIG", "DATA")}
        self._environment = {**os.environ, **homes, "HOME": str(directory), "KUBECONFIG": self.kubeconfig}

    def __call__(self, *words, code=0):
        done = subprocess.run(
            [HELM, *words, "--namespace", self.space], capture_output=True, text=True, timeout=COMMAND_MAX_S,
            env=self._environment, cwd=self.directory,
        )  # fmt: skip
        text = done.stdout + done.stderr
        assert done.returncode == code, f"helm {' '.join(words)}: exit {done.returncode}, want {code}\n{text}"
        return text if code else done.stdout

    def statuses(self, release):
        return [each["status"] for each in json.loads(self("history", release, "-o", "json"))]


@pytest.fixture
def helm(whole_mesh, space, tmp_path):
    if HELM is None:
        pytest.skip("no helm on this machine: it comes with the package helm-binary")
    return Helm(whole_mesh, tmp_path, space)


@pytest.fixture
def kubectl(helm):
    try:
        binary = parts.kubectl("forky")
    except parts.NotToBeHadError as error:
        pytest.skip(str(error))

    def run(*words, stdin=None, code=0):
        done = subprocess.run(
            [str(binary), f"--kubeconfig={helm.kubeconfig}", f"--cache-dir={helm.directory}/k", "-n", helm.space, *words],
            input=stdin, capture_output=True, text=True, timeout=COMMAND_MAX_S,
        )  # fmt: skip
        assert done.returncode == code, f"kubectl {' '.join(words)}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


@pytest.fixture
def own_chart(helm):
    """A chart with a definition, an object of it, hooks, lookups and a Deployment."""
    chart = helm.directory / "own"
    for folder in ("templates", "crds"):
        (chart / folder).mkdir(parents=True)
    (chart / "Chart.yaml").write_text(yaml.safe_dump(CHART))
    (chart / "values.yaml").write_text(yaml.safe_dump({"size": 2, "cpu": "10m"}))
    (chart / "crds" / "widgets.yaml").write_text(yaml.safe_dump(DEFINITION))
    for name, text in TEMPLATES.items():
        (chart / "templates" / name).write_text(text)
    return str(chart)


def test_the_chart_that_helm_makes_lives_its_whole_life(helm, kubectl):
    helm("create", "web")
    installed = helm("install", "web", "./web", *EVERYTHING, "--wait", "--timeout=60s")
    assert "STATUS: deployed" in installed
    assert re.search(r"^web\s+\S+\s+1\s.*\sdeployed\s+web-0\.1\.0\s+1\.16\.0", helm("ls"), re.M)
    helm("upgrade", "web", "./web", *EVERYTHING, "--set=image.tag=2", "--wait", "--timeout=60s")
    assert "Rollback was a success" in helm("rollback", "web", "1", "--wait", "--timeout=60s")
    assert helm.statuses("web") == ["superseded", "superseded", "deployed"]
    status = helm("status", "web", "--show-resources")
    for kind in ("v1/Deployment", "v1/Service", "v1/Ingress", "v2/HorizontalPodAutoscaler", "v1/Pod(related)"):
        assert f"==> {kind}" in status
    assert re.search(r"^web-\S+ +1/1 +Running", status, re.M)
    kinds = {each["kind"] for each in yaml.safe_load_all(helm("get", "manifest", "web"))}
    assert kinds == {"ServiceAccount", "Service", "Deployment", "HorizontalPodAutoscaler", "Ingress"}
    tested = helm("test", "web", "--logs", "--timeout=60s")
    assert re.search(r"^Phase: +Succeeded$", tested, re.M)
    assert "POD LOGS: web-test-connection" in tested
    assert 'release "web" uninstalled' in helm("uninstall", "web", "--wait", "--timeout=60s")
    left = kubectl("get", "deployments,services,ingresses,hpa,replicasets", "-o", "name", "--ignore-not-found")
    assert left == ""


def test_what_helm_renders_is_applied_by_kubectl(helm, kubectl):
    helm("create", "web")
    rendered = helm("template", "web", "./web", *EVERYTHING, "--skip-tests")
    for answer in ("created", "unchanged"):
        said = kubectl("apply", "-f", "-", stdin=rendered)
        assert len(re.findall(rf" {answer}$", said, re.M)) == 5
    by_the_server = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=rendered)
    assert len(re.findall(" serverside-applied$", by_the_server, re.M)) == 5
    kubectl("rollout", "status", "deployment/web", "--timeout=60s")
    kubectl("delete", "-f", "-", stdin=rendered)


def test_an_upgrade_that_fails_is_rolled_back(helm, own_chart, kubectl):
    refused = helm("upgrade", "--install", "own", own_chart, "--set=size=9", code=1)
    assert "spec.size in body should be less than or equal to 3" in refused
    helm("upgrade", "--install", "own", own_chart, "--reset-values", "--wait", "--timeout=60s")
    failed = helm("upgrade", "own", own_chart, "--set=cpu=900", "--atomic", "--timeout=4s", code=1)
    assert "release own failed, and has been rolled back due to atomic being set" in failed
    assert helm.statuses("own") == ["superseded", "superseded", "failed", "deployed"]
    request = "jsonpath={.spec.template.spec.containers[0].resources.requests.cpu}"
    assert kubectl("get", "deployment", "server", "-o", request) == "10m"
    helm("uninstall", "own", "--wait", "--timeout=60s")


def test_definitions_hooks_and_lookups(helm, own_chart, kubectl):
    plan = helm("install", "own", own_chart, "--dry-run=server")
    assert re.search(r'root: "true"\n *nodes: "2"', plan)
    helm("install", "own", own_chart, "--wait", "--timeout=60s")
    assert kubectl("get", "crd", "widgets.helm.example.com", "-o", "name")
    kubectl("wait", "--for=condition=Complete", "job/pre-install", "--timeout=5s")
    data = json.loads(kubectl("get", "configmap", "settings", "-o", "jsonpath={.data}"))
    assert data == {"kept": "first", "root": "true", "nodes": "2", "widgets": "true", "version": "36"}
    kubectl("patch", "configmap", "settings", "--type=merge", "-p", '{"data":{"kept":"changed"}}')
    helm("upgrade", "own", own_chart, "--set=size=3", "--wait", "--timeout=60s")
    assert kubectl("get", "configmap", "settings", "-o", "jsonpath={.data.kept}") == "changed"
    assert kubectl("get", "widgets", "one", "-o", "jsonpath={.spec.size}") == "3"
    assert kubectl("logs", "job/post-upgrade").splitlines()[-1].endswith("post-upgrade")
    helm("uninstall", "own", "--wait", "--timeout=60s")
    assert kubectl("get", "jobs", "-o", "name") == "job.batch/post-upgrade\njob.batch/pre-install\n"
    assert kubectl("get", "widgets", "-o", "name") == ""
