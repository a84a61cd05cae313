"""ServiceAccount: a pod's account must exist, and the pod gets its pull secrets and a volume with a token.

Mirror pods are left alone; they may not name an account at all (X-NR7). Source: upstream
`plugin/pkg/admission/serviceaccount/admission.go`.
"""

from apiserver_fake.registry.errors import forbidden
from apiserver_fake.registry.strategy import WriteContext
from services.api.kinds.pod import TOKEN_VOLUME_PREFIX
from services.api.meta import Document
from services.api.wire import Request

MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
TOKEN_S = 3607
ROOT_CA = "kube-root-ca.crt"
NOT_FOUND = "error looking up service account"
"""Beginning of the refusal that a client may get for a moment in a new namespace."""
_CHARACTERS = "bcdfghjklmnpqrstvwxz2456789"
_CONTAINERS = ("initContainers", "containers")


def with_account(new: Document, spec: Document, ctx: WriteContext) -> Document:
    """Return the pod's spec with its account's pull secrets and token volume. Raises: Forbidden if the account
    does not exist.
    """
    namespace, name = ctx.request.namespace, spec["serviceAccountName"]
    account = ctx.lookup("serviceaccounts", namespace, name)
    if account is None:
        why = f'{NOT_FOUND} {namespace}/{name}: serviceaccount "{name}" not found'
        raise forbidden("pods", new["metadata"].get("name") or "", why)
    spec = {**spec}
    if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
        spec["imagePullSecrets"] = [{"name": each.get("name", "")} for each in account["imagePullSecrets"]]
    wanted = spec.get("automountServiceAccountToken")
    if wanted is None:
        wanted = account.get("automountServiceAccountToken")
    return spec if wanted is False else _with_token(spec, ctx)


def is_without_default_account(request: Request, message: str) -> bool:
    """Whether a pod's creation was refused because its namespace has no account `default`."""
    return request.resource == "pods" and f"{NOT_FOUND} {request.namespace}/default: " in message


def _with_token(spec: Document, ctx: WriteContext) -> Document:
    volumes = list(spec.get("volumes") or ())
    known = [each.get("name", "") for each in volumes if each.get("projected")]
    name = next((each for each in known if each.startswith(TOKEN_VOLUME_PREFIX)), "")
    is_new = not name
    if is_new:
        name = TOKEN_VOLUME_PREFIX + "".join(ctx.random.choice(_CHARACTERS) for _ in range(5))
    mount = {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}
    is_needed = False
    for kind in _CONTAINERS:
        containers = []
        for container in spec.get(kind) or ():
            mounts = container.get("volumeMounts") or []
            if any(each.get("mountPath") == MOUNT_PATH for each in mounts):
                containers.append(container)
            else:
                is_needed = True
                containers.append({**container, "volumeMounts": [*mounts, mount]})
        if containers:
            spec[kind] = containers
    if is_new and is_needed:
        spec["volumes"] = [*volumes, _volume(name)]
    return spec


def _volume(name: str) -> Document:
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_S, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 420}}
