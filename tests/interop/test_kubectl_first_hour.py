"""The first hour of an engineer with kubectl, as a table: command, exit code, what a v1.36 cluster prints.

One mesh serves all; each kubectl has a namespace of its own. A pattern is searched line by line, one that begins with `!`
must not be found. What other files here test is not repeated.

Source: kubectl-requests 3, 4, 7, 8.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import parts
import pytest

ROOT = Path(__file__).parents[2]
COMMAND_MAX_S = 60.0
LIMITS = {"requests": {"cpu": "10m", "memory": "16Mi"}}
WEB = {
    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [
            {"name": "c", "image": "nginx:1", "ports": [{"name": "http", "containerPort": 80}], "resources": LIMITS}]}},
    },
}  # fmt: skip
SET = {
    "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "rs"},
    "spec": {"replicas": 0, "selector": {"matchLabels": {"a": "b"}},
             "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}},
}  # fmt: skip
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
    "metadata": {"name": "r1", "namespace": "NAMESPACE"},
    "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}],
}  # fmt: skip


class Step(NamedTuple):
    """A command (its words, or with spaces inside a word a list), its exit code and the patterns of its output."""

    command: str | list[str]
    patterns: tuple[str, ...] = ()
    code: int = 0
    stdin: Any = None


def step(command: str | list[str], *patterns: str, code: int = 0, stdin: Any = None) -> Step:
    return Step(command, patterns, code, stdin)


def patch(what: str, text: str, *more: str) -> list[str]:
    return ["patch", *what.split(), *more, "-p", text]


STEPS = [
    # What the server says of itself.
    step("get --raw /readyz?verbose", r"^\[\+\]etcd ok$", r"^\[\+\]informer-sync ok$", r"^readyz check passed$"),
    step("get --raw /readyz/etcd", r"\Aok\Z"),
    step("get --raw /livez/nosuch", "NotFound", code=1),
    step("get --raw /readyz?verbose&exclude=etcd", r"^\[\+\]etcd excluded: ok$"),
    step("api-resources --verbs=deletecollection -o name", r"^pods$", r"!^namespaces$"),
    step("api-resources --categories=api-extensions --no-headers", r"^customresourcedefinitions +crd,crds "),
    step("explain pod.spec.containers.resources.limits", r"^FIELD: limits <map\[string\]Quantity>$"),
    step("explain deployments.spec.strategy.rollingUpdate.maxSurge", r"^FIELD: maxSurge <IntOrString>$"),
    step("explain pods.metadata.managedFields.fieldsV1", r"^FIELD: fieldsV1 <FieldsV1>$"),
    step("explain deployments --recursive", r"^  spec\t<DeploymentSpec>$", r"^    selector\t<LabelSelector> -required-$"),
    step("explain bindings", r"^KIND: +Binding$", r"^  target\t<ObjectReference> -required-$"),
    step("explain selfsubjectaccessreviews.spec", r"^  resourceAttributes\t<ResourceAttributes>$"),
    step("explain svc.spec.type", r"^ENUM:$", r"^    LoadBalancer$"),
    step("explain pods.spec.evictionResponders", 'field "evictionResponders" does not exist', code=1),
    step("get node node-0 -o yaml", r"^  podCIDR: 10\.64\.", r"!^  generation", r"!taints: \[\]"),
    step("describe node node-0", r"^PodCIDRs: +10\.64\.\d+\.0/24$", r"^  HolderIdentity: +node-0$"),
    step("get ns {ns} -o yaml", "!generation"),
    # Objects by every generator that no other file uses.
    step("create -f - -o json", r'^    "status": \{\}$', stdin=WEB),
    step("create -f - -o json", r'^    "status": \{$', r'^        "replicas": 0$', stdin=SET),
    step("create role r1 --verb=get,list --resource=pods,deployments.apps --resource-name=a", "r1 created"),
    step("describe role r1", r"^  deployments.apps +\[\] +\[a\] +\[get list\]$"),
    step("create role r2 --verb=get --resource=nosuch", "the server doesn't have a resource type \"nosuch\"", code=1),
    step("create clusterrole {ns}-agg --aggregation-rule=a/b=true -o yaml", r"^rules: null$|^rules: \[\]$"),
    step("create clusterrole {ns}-nr --verb=get --non-resource-url=/logs/*", "created"),
    step("describe clusterrole {ns}-nr", r"^ +\[/logs/\*\] +\[\] +\[get\]$"),
    step("create rolebinding rb --clusterrole=view --user=jane --group=devs", "created"),
    step("set subject rolebinding rb --user=joe", "rolebinding.rbac.authorization.k8s.io/rb subjects updated"),
    step("describe rolebinding rb", r"^  User +jane *$", r"^  User +joe *$", r"^  Group +devs *$"),
    step("auth can-i get pods --subresource=log --as=jane", r"^yes$"),
    step("auth can-i delete pods --as=jane", r"^no$", code=1),
    step("auth whoami --as=jane --as-group=devs --as-uid=7", r"^UID +7$", r"^Groups +\[devs system:authenticated\]$"),
    step("auth reconcile --remove-extra-permissions -f -", "reconciliation required update", "extra rules removed:",
         stdin=ROLE),
    step("create quota q --hard=pods=40 --scopes=BestEffort", "quota/q created|resourcequota/q created"),
    step("create quota bad --hard=pods=4,requests.cpu=1 --scopes=BestEffort", "unsupported scope applied to resource",
         code=1),
    step("describe ns {ns}", r"^  Scopes:  BestEffort$", r"^No LimitRange resource\.$"),
    step("expose deployment web --port=80", "service/web exposed"),
    step("create ingress ing --default-backend=web:80 --class=nginx", "created"),
    step("create ingress ing2 --rule=foo.com/bar*=web:80,tls=cert", "created"),
    step("get ing", r"^ing +nginx +\* +80 ", r"^ing2 +<none> +foo\.com +80, 443 "),
    step("describe ing ing2", r"^  cert terminates foo\.com$", r"^ +/bar +web:80 \("),
    step("create cronjob cj --image=busybox --schedule=@hourly --restart=OnFailure -- date", "created"),
    step(["create", "cronjob", "bad", "--image=x", "--schedule=61 * * * *"],
         r"end of range \(61\) above maximum \(59\): 61", code=1),
    step("create token default --bound-object-kind=Pod --bound-object-name=nosuch", 'pods "nosuch" not found', code=1),
    step("create svc clusterip h --clusterip=None", "created"),
    step("create svc nodeport np --tcp=80:80 --node-port=80", "valid ports is 30000-32767", code=1),
    step("create pdb p --selector=app=web --max-unavailable=50%", "created"),
    step("get hpa", "No resources found"),
    # Pods and what is known of them.
    step("rollout status deployment/web --timeout=30s", "successfully rolled out"),
    step("describe pods -l app=web", r"^    Image ID: +docker\.io/library/nginx@sha256:[0-9a-f]{64}$",
         r"^  PodReadyToStartContainers +True"),
    step("get pods -o yaml", r"imageID: docker\.io/library/nginx@sha256:", "kube-api-access-"),
    step("get pdb", r"^p +N/A +50% +1 "),
    step("label deploy web --list", r"^app=web$"),
    step("label deploy web a=b --overwrite", "labeled"),
    step("label deploy web a=b", "not labeled"),
    step(["annotate", "deploy", "web", "note=x y"], "annotated"),
    step("set resources deploy web --limits=cpu=1 --requests=cpu=2", "must be less than or equal to cpu limit of 1",
         code=1),
    step("set image deploy/web nosuch=x", 'unable to find container named "nosuch"', code=1),
    step("set selector svc web app=web,x=y", "selector updated"),
    step("scale pod/nosuch --replicas=1", 'pods "nosuch" not found', code=1),
    step("scale deploy/web --replicas=2 --current-replicas=7", "Expected replicas to be 7, was 2", code=1),
    step("wait deploy/web --for=jsonpath={{.status.readyReplicas}}=2 --timeout=20s", "condition met"),
    step("wait pods -l no=ne --for=condition=Ready --timeout=1s", "no matching resources found", code=1),
    step("wait pod/nope --for=delete --timeout=5s"),
    step(patch("deploy web", '[{"op":"test","path":"/spec/replicas","value":9}]', "--type=json"),
         r"^The request is invalid: the server rejected our request due to an error in our request$", code=1),
    step(patch("deploy web", '[{"op":"remove","path":"/spec/nope"}]', "--type=json"),
         "the server rejected our request due to an error in our request", code=1),
    step(patch("deploy web", '{"a":1}', "--type=json"), "json: cannot unmarshal object into Go value of type", code=1),
    step(patch("deploy web", '{"spec":{"bogus":1}}', "--type=merge"), r'^Warning: unknown field "spec\.bogus"$'),
    step(patch("deploy web", "{}", "--subresource=nosuch"), "could not find the requested resource", code=1),
    step(patch("svc web", '{"spec":{"type":"Bogus"}}'), 'supported values: "ClusterIP", "ExternalName"', code=1),
    step("get deploy web --subresource=scale -o yaml", r"^kind: Scale$", r"^  selector: app=web$"),
    step("get pods --server-print=false", r"^NAME +AGE$"),
    step("get pods -L app --show-labels", r"STATUS +RESTARTS +AGE +APP +LABELS$"),
    step("get pod nosuch --subresource=status", "NotFound", code=1),
    step("get rs --field-selector status.replicas=0", r"^rs +0 +0 +0 "),
    step("get svc --field-selector spec.type=NodePort", "No resources found"),
    step("get deploy web -o yaml --show-managed-fields", "manager: kubectl-create", "subresource: status"),
    step("rollout pause deploy/web", "paused"),
    step("rollout pause deploy/web", "is already paused", code=1),
    step("rollout restart deploy/web", "can't restart paused deployment", code=1),
    step("rollout resume deploy/web", "resumed"),
    step("rollout undo deploy/web --to-revision=99", "unable to find specified revision 99 in history", code=1),
    step("rollout history deploy", r"^REVISION  CHANGE-CAUSE$"),
    step("run r1 --image=nginx --overrides={{\"spec\":{{\"nodeName\":\"node-1\"}}}} --port=80 --expose", "service/r1 created"),
    step("run Bad --image=x", "a lowercase RFC 1123 subdomain must consist of", code=1),
    step("debug nosuch --image=busybox", 'pods "nosuch" not found', code=1),
    step("logs nosuch", r'pods "nosuch" not found', code=1),
    step("logs deploy/web --all-pods=true --prefix --tail=1", r"^\[pod/web-\S+/c\] "),
    step("events --for deployment/web", r"Deployment/web +Scaled up replica set", "!Pod/"),
    step("top pod nosuch", 'pods "nosuch" not found', code=1),
    # How things go.
    step("delete ns default", "this namespace may not be deleted", code=1),
    step("delete rs rs --cascade=foreground", 'replicaset.apps "rs" deleted'),
    step("delete pod r1 --now", 'pod "r1" deleted'),
    step("delete pods --field-selector=status.phase=Succeeded", "No resources found"),
    step("delete deploy web --cascade=orphan", 'deployment.apps "web" deleted'),
    step("get rs -l app=web -o jsonpath={{.items[0].metadata.ownerReferences}}", r"!Deployment"),
    step("delete all --all --wait=false", r'^pod "web-', r'^service "web" deleted', r'^replicaset\.apps "web-'),
    step("delete clusterrole {ns}-agg {ns}-nr", "deleted"),
]  # fmt: skip


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory):
    data = tmp_path_factory.mktemp("hour") / "mesh"
    keplab = [sys.executable, "-m", "lab.cli"]
    up = [*keplab, "up", "--nodes", "2", "--engine", "memory", "--data", str(data), "--detach", "-o", "json"]
    started = subprocess.run(up, cwd=ROOT, capture_output=True, text=True, timeout=COMMAND_MAX_S)
    try:
        assert started.returncode == 0, started.stderr[-1000:]
        yield json.loads(started.stdout)["kubeconfig"]
    finally:
        subprocess.run([*keplab, "down", "--data", str(data)], cwd=ROOT, capture_output=True, timeout=COMMAND_MAX_S)


def faults(text: str, code: int, wanted: Step) -> list[str]:
    found = [] if code == wanted.code else [f"exit {code}, want {wanted.code}"]
    for pattern in wanted.patterns:
        if bool(re.search(pattern.removeprefix("!"), text, re.M)) == pattern.startswith("!"):
            found.append(f"{'there is' if pattern.startswith('!') else 'there is no'} {pattern.removeprefix('!')}")
    return found


def differences(steps: list[Step], run: Callable[[list[str], Any], tuple[int, str]], ns: str) -> list[str]:
    """Run all steps, one after the other; return those that answered otherwise, with what they printed."""
    wrong = []
    for each in steps:
        words = each.command.format(ns=ns).split() if isinstance(each.command, str) else each.command
        code, text = run(words, each.stdin)
        if said := faults(text, code, each):
            wrong.append(f"kubectl {' '.join(words)}\n  {'; '.join(said)}\n{text[:900]}")
    return wrong


@pytest.mark.parametrize("suite", list(parts.KUBECTLS))
def test_the_first_hour_looks_as_on_a_real_cluster(suite, kubeconfig, tmp_path):
    try:
        binary = parts.kubectl(suite)
    except parts.NotToBeHadError as error:
        pytest.skip(str(error))
    ns = f"hour-{suite}"

    def run(words: list[str], stdin: Any) -> tuple[int, str]:
        command = [
            str(binary),
            f"--kubeconfig={kubeconfig}",
            f"--cache-dir={tmp_path}/cache",
            f"--namespace={ns}",
            *words,
        ]
        done = subprocess.run(
            command, input=json.dumps(stdin).replace("NAMESPACE", ns), capture_output=True, text=True, timeout=COMMAND_MAX_S,
            env={**os.environ, "HOME": str(tmp_path)}, cwd=tmp_path,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    assert run(["create", "namespace", ns], None)[0] == 0
    wrong = differences(STEPS, run, ns)

    assert not wrong, f"{len(wrong)} of {len(STEPS)} commands differ:\n\n" + "\n\n".join(wrong)
