"""kubectl under admission webhooks and policies: what it prints when they deny, change, warn, hang and are away."""

import base64
import json
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

GROUP = "admissionregistration.k8s.io/v1"


class Hooks(BaseHTTPRequestHandler):
    """Answers by path: /deny, /mutate, /warn, /hang."""

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        response = {"uid": review["request"]["uid"], "allowed": True}
        match self.path.partition("?")[0]:
            case "/deny":
                response |= {"allowed": False, "status": {"message": "no pods on Mondays", "code": 403}}
            case "/mutate":
                patch = [{"op": "add", "path": "/metadata/labels", "value": {"by": "webhook"}}]
                response |= {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
            case "/warn":
                response["warnings"] = ["this pod is old-fashioned"]
            case "/hang":
                time.sleep(3)
        body = json.dumps(
            {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def hooks(mesh):
    pair = mesh.authority.server("webhooks", ["localhost"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hooks)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def configured(kubectl, mesh, hooks, namespace):
    """Return how to configure a webhook for this test's namespace; taken away afterwards."""
    made = []

    def configure(kind, path, **more):
        bundle = base64.b64encode(mesh.authority.path.read_bytes()).decode()
        port = more.pop("port", hooks)
        hook = {
            "name": f"{path}.example.com",
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
            "clientConfig": {"url": f"https://127.0.0.1:{port}/{path}", "caBundle": bundle},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }
        name = f"{namespace}-{path}"
        body = {"apiVersion": GROUP, "kind": kind, "metadata": {"name": name}, "webhooks": [hook]}
        kubectl("create", "-f", "-", stdin=body)
        made.append((kind, name))

    yield configure
    for kind, name in made:
        kubectl("delete", kind, name)


def create(kubectl, namespace, code=0):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i:1"}]},
    }
    return kubectl("create", "-n", namespace, "-f", "-", stdin=pod, code=code)


def test_a_webhook_denies(kubectl, namespace, configured):
    configured("ValidatingWebhookConfiguration", "deny")
    said = create(kubectl, namespace, code=1)
    assert 'admission webhook "deny.example.com" denied the request: no pods on Mondays' in said
    assert "validatingwebhookconfiguration" in kubectl("get", "validatingwebhookconfigurations", "-o", "name")
    assert kubectl("get", "validatingwebhookconfigurations").split()[:3] == ["NAME", "WEBHOOKS", "AGE"]


def test_a_webhook_changes_what_is_created(kubectl, namespace, configured):
    configured("MutatingWebhookConfiguration", "mutate")
    create(kubectl, namespace)
    assert kubectl("get", "pod", "p", "-n", namespace, "-o", "jsonpath={.metadata.labels.by}") == "webhook"


def test_a_webhook_that_hangs_fails_the_request_in_its_time(kubectl, namespace, configured):
    configured("ValidatingWebhookConfiguration", "hang", timeoutSeconds=1)
    said = create(kubectl, namespace, code=1)
    assert (
        'Internal error occurred: failed calling webhook "hang.example.com": failed to call webhook: Post "https://'
        in said
    )
    assert '/hang?timeout=1s": context deadline exceeded' in said


def test_a_webhook_that_is_away_is_ignored_when_it_may_be(kubectl, namespace, configured):
    configured("ValidatingWebhookConfiguration", "away", port=1, failurePolicy="Ignore")
    assert create(kubectl, namespace) == "pod/p created\n"


def test_policies_deny_and_are_shown(kubectl, namespace):
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    selector = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    spec = {
        "matchConstraints": {"resourceRules": [rule], "namespaceSelector": selector},
        "validations": [{"expression": "false", "message": "not here"}],
    }
    policy = {"apiVersion": GROUP, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": namespace}, "spec": spec}
    bound = {"policyName": namespace, "validationActions": ["Deny"]}
    binding = {
        "apiVersion": GROUP,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": namespace},
        "spec": bound,
    }
    kubectl("create", "-f", "-", stdin=policy)
    kubectl("create", "-f", "-", stdin=binding)
    try:
        said = create(kubectl, namespace, code=1)
        text = f"ValidatingAdmissionPolicy '{namespace}' with binding '{namespace}' denied request: not here"
        assert f'The pods "p" is invalid: : {text}' in said
        listed = kubectl("get", "validatingadmissionpolicies").split()
        assert listed[:4] == ["NAME", "VALIDATIONS", "PARAMKIND", "AGE"]
        assert kubectl("get", "validatingadmissionpolicybindings").split()[:4] == [
            "NAME",
            "POLICYNAME",
            "PARAMREF",
            "AGE",
        ]
        assert "messageExpression" in kubectl("explain", "validatingadmissionpolicy.spec.validations")
        patch = json.dumps({"spec": {"validationActions": ["Warn"]}})
        kubectl("patch", "validatingadmissionpolicybinding", namespace, "--type=merge", "-p", patch)
        create(kubectl, namespace)
    finally:
        kubectl("delete", "validatingadmissionpolicybinding", namespace)
        kubectl("delete", "validatingadmissionpolicy", namespace)
