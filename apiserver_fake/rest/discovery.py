"""Discovery: the documents of `/version`, `/api`, `/apis` and their group versions.

Both forms are made: the plain one that Python clients and `kubectl drain` read, and the aggregated one that
kubectl asks for first. Everything comes from the catalogue. A document is encoded once until the catalogue
changes, and has an ETag.
"""

import base64
import hashlib
import platform
import re
import sys
from dataclasses import dataclass
from typing import Any

import msgspec

from apiserver_fake.extensions.aggregated import answers as served
from apiserver_fake.registry.authorization.reviews import REVIEWS
from apiserver_fake.registry.catalogue import Catalogue
from apiserver_fake.rest.paths import subresource_form
from services.api.meta import Document, Resource
from services.api.metrics.apis import COMPUTED
from services.api.release import FOLLOWED, KUBERNETES, RELEASES

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
GIT_VERSION = f"{KUBERNETES}+keplab"
"""The Kubernetes version whose API this server follows, with the suffix `+keplab`."""

_GROUP_ORDER = (
    "", "apps", "authentication.k8s.io", "authorization.k8s.io", "autoscaling", "batch", "policy",
    "coordination.k8s.io", "scheduling.k8s.io", "resource.k8s.io", "storage.k8s.io",
)  # fmt: skip


NOTHING: frozenset[str] = frozenset()
BINDINGS = Resource(kind="Binding")
"""The resource of `POST bindings`, another path for `POST pods/NAME/binding`."""
CREATED_ONLY = (*REVIEWS, BINDINGS)


def version(release: str = FOLLOWED) -> Document:
    """Return the body of `/version` for the emulated release; every field is text."""
    major, minor = release.split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "gitVersion": f"{RELEASES[release]}+keplab",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"none (python{sys.version_info.major}.{sys.version_info.minor})",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{sys.platform}/{'amd64' if platform.machine() == 'x86_64' else platform.machine()}",
    }


def groups(catalogue: Catalogue) -> dict[str, tuple[str, ...]]:
    """Return the served groups in order of preference, each with its versions, preferred first."""
    return catalogue.once("groups", lambda: _groups(catalogue))


def is_built_in(catalogue: Catalogue, group: str) -> bool:
    """Whether a group is one that no definition adds kinds to."""
    versions = groups(catalogue).get(group, ())
    served = (each for v in versions for each in catalogue.served_versions.get((group, v), {}).values())
    return bool(versions) and all(each.schema is None for each in served)


def served_paths(catalogue: Catalogue) -> list[str]:
    """Return the paths that the server says it has."""
    pages = ("flagz", "healthz", "livez", "metrics", "readyz", "statusz", "version")
    roots = ["/api", "/apis", "/openapi/v2", "/openapi/v3", *(f"/{page}" for page in pages)]
    served = [f"/apis/{group}/{v}" if group else f"/api/{v}" for group, vs in groups(catalogue).items() for v in vs]
    return sorted(roots + served)


def _groups(catalogue: Catalogue) -> dict[str, tuple[str, ...]]:
    versions_by_group: dict[str, set[str]] = {}
    for group, version_name in (*catalogue.served_versions, *((r.group, r.version) for r in CREATED_ONLY)):
        versions_by_group.setdefault(group, set()).add(version_name)

    def rank(group: str) -> tuple[int, str]:
        return (_GROUP_ORDER.index(group) if group in _GROUP_ORDER else len(_GROUP_ORDER), group)

    return {
        group: tuple(sorted(versions_by_group[group], key=version_rank))
        for group in sorted(versions_by_group, key=rank)
    }


_VERSION = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")


def version_rank(name: str) -> tuple[int, int, int, str]:
    """Return a sort key for versions by preference: stable before beta before alpha, higher before lower, then
    all others by name. Source: upstream `staging/src/k8s.io/apimachinery/pkg/version/helpers.go`.
    """
    match = _VERSION.fullmatch(name)
    if match is None:
        return (3, 0, 0, name)
    stage = (None, "beta", "alpha").index(match[2])
    return (stage, -int(match[1]), -int(match[3] or 0), name)


def is_served(catalogue: Catalogue, group: str, version_name: str) -> bool:
    """Whether the group version is served."""
    return version_name in groups(catalogue).get(group, ())


def _resources_of(catalogue: Catalogue, group: str, version_name: str) -> list[Resource]:
    served = (each.resource for each in catalogue.served_versions.get((group, version_name), {}).values())
    more = [r for r in CREATED_ONLY if (r.group, r.version) == (group, version_name)]
    return sorted((*served, *more), key=lambda r: r.plural)


def _verbs(r: Resource) -> list[str]:
    if r.name in COMPUTED:
        return list(served.verbs_of(r))
    return ["create"] if r in CREATED_ONLY else list(r.verbs or VERBS)


def storage_version_hash(stored: Resource) -> str:
    """Return the hash of the version in which a kind is stored.

    Source: upstream `staging/src/k8s.io/apiserver/pkg/endpoints/discovery/storageversionhash.go`.
    """
    text = f"{stored.group}/{stored.version}/{stored.kind}"
    return base64.b64encode(hashlib.sha256(text.encode()).digest()[:8]).decode()


def _stored_kind(catalogue: Catalogue, served: Resource) -> Resource | None:
    """Return the kind as it is stored; None for what is not."""
    for each in catalogue.served_versions.get((served.group, served.version), {}).values():
        if each.resource is served and each.stored in catalogue.resources:
            return catalogue.find(each.stored)
    return None


def resource_list(catalogue: Catalogue, group: str, version_name: str) -> Document:
    """Return the plain `APIResourceList` of one group version."""
    entries: list[Document] = []
    for r in _resources_of(catalogue, group, version_name):
        stored = _stored_kind(catalogue, r)
        entry: Document = {"name": r.plural, "singularName": r.singular, "namespaced": r.namespaced, "kind": r.kind}
        entry["verbs"] = _verbs(r)
        if r.short_names:
            entry["shortNames"] = list(r.short_names)
        if r.categories:
            entry["categories"] = list(r.categories)
        if stored is not None:
            entry["storageVersionHash"] = storage_version_hash(stored)
        entries.append(entry)
        for name in sorted(r.subresources):
            form = subresource_form(name, r.kind)
            sub: Document = {"name": f"{r.plural}/{name}", "singularName": "", "namespaced": r.namespaced}
            if form.kind and (form.group, form.version) != (group, version_name):
                sub |= {"group": form.group, "version": form.version}
            entries.append(sub | {"kind": form.kind or r.kind, "verbs": list(form.verbs)})
    group_version = f"{group}/{version_name}" if group else version_name
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": entries}


def _group(catalogue: Catalogue, name: str) -> Document:
    versions = [{"groupVersion": f"{name}/{v}", "version": v} for v in groups(catalogue)[name]]
    return {"name": name, "versions": versions, "preferredVersion": versions[0]}


def kind_of(group: str, version_name: str, kind: str) -> Document:
    """Return a group, version and kind as discovery and OpenAPI write them."""
    return {"group": group, "version": version_name, "kind": kind}


def _aggregated_resource(r: Resource) -> Document:
    entry: Document = {
        "resource": r.plural,
        "responseKind": kind_of("", "", r.kind),
        "scope": "Namespaced" if r.namespaced else "Cluster",
        "singularResource": r.singular,
        "verbs": _verbs(r),
    }
    if r.short_names:
        entry["shortNames"] = list(r.short_names)
    if r.categories:
        entry["categories"] = list(r.categories)
    subresources: list[Document] = []
    for name in sorted(r.subresources):
        form = subresource_form(name, r.kind)
        same = not form.kind or (form.group, form.version) == (r.group, r.version)
        response = kind_of("" if same else form.group, "" if same else form.version, form.kind or r.kind)
        subresources.append({"subresource": name, "responseKind": response, "verbs": list(form.verbs)})
    if subresources:
        entry["subresources"] = subresources
    return entry


def aggregated_discovery(catalogue: Catalogue, *, is_core: bool, form_version: str = "v2") -> Document:
    """Return the `APIGroupDiscoveryList` of `/api` (`is_core`) or `/apis`."""
    items: list[Document] = []
    for name, versions in groups(catalogue).items():
        if (name == "") != is_core:
            continue
        entries = [
            {
                "version": v,
                "resources": [_aggregated_resource(r) for r in _resources_of(catalogue, name, v)],
                "freshness": "Current",
            }
            for v in versions
        ]
        items.append({"metadata": {"name": name} if name else {}, "versions": entries})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{form_version}",
        "metadata": {},
        "items": items,
    }


@dataclass(frozen=True)
class Answer:
    """An encoded document that can be cached: its bytes and its ETag, quotes included."""

    body: bytes
    etag: str


def answer(document: Any) -> Answer:
    """Return the document encoded once, with an ETag computed from its content."""
    return answer_of(msgspec.json.encode(document))


def answer_of(body: bytes) -> Answer:
    """Return an answer of these encoded bytes, with an ETag computed from them."""
    return Answer(body, f'"{hashlib.sha256(body).hexdigest()[:32].upper()}"')


def document_at(catalogue: Catalogue, path: str, form_version: str = "") -> Answer | None:
    """Return the discovery document at a path without trailing slash; None if there is none.

    `form_version`: version of the aggregated form.
    """
    return catalogue.once(("discovery", path, form_version), lambda: _document_at(catalogue, path, form_version))


def _document_at(catalogue: Catalogue, path: str, form_version: str) -> Answer | None:
    parts = path.strip("/").split("/")
    match parts:
        case ["api"] if form_version:
            return answer(aggregated_discovery(catalogue, is_core=True, form_version=form_version))
        case ["apis"] if form_version:
            return answer(aggregated_discovery(catalogue, is_core=False, form_version=form_version))
        case ["api"]:
            addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": ""}]
            versions = list(groups(catalogue).get("", ()))
            return answer({"kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": addresses})
        case ["apis"]:
            named = [_group(catalogue, name) for name in groups(catalogue) if name]
            return answer({"kind": "APIGroupList", "apiVersion": "v1", "groups": named})
        case ["api", version_name] if is_served(catalogue, "", version_name):
            return answer(resource_list(catalogue, "", version_name))
        case ["apis", name] if name and name in groups(catalogue):
            return answer({"kind": "APIGroup", "apiVersion": "v1", **_group(catalogue, name)})
        case ["apis", name, version_name] if name and is_served(catalogue, name, version_name):
            return answer(resource_list(catalogue, name, version_name))
        case _:
            return None
