"""Every field of every kind with every value that is odd for it, one at a time, in an object that is valid otherwise.

    python -m tests.fuzz.fields [EVERY]

sends every EVERYth of them (all by default) as rehearsals of a creation or of an update and shows what was answered 5xx.
"""

import copy
import sys
from collections import Counter
from itertools import pairwise, product

from apiserver_fake.registry.schema.schemas import shape_of
from tests.fuzz.target import JSON, NAME, Target, name_of, path_of, valid_objects
from tests.fuzz.values import encoded

DEPTH_MAX = 9
WRONG_TYPES = (None, True, 1, -1, 1.5, 1 << 63, "", "x", [], {}, [None], [{}], [""], {"": None}, {"a": [1]})
TEXTS = (
    " ", "a/b", "a" * 300, "9" * 5_000, "-" + "9" * 5_000, "9" * 30, "1e999", "0x10", "\u00b2", "\u0663", "é", "🦆", "a\0b", "a\nb", "://[", "http://[", "https://[::1",
    "https://a:x/", "http://a:99999999/", "[" * 3_000, "{" * 3_000, '"\\ud800"', '{"a":"\\ud800"}', "[1]", "[null]", "[{}]", '{"a":1}', "abc", "AAE=", "LS0tLS0=", "====",
    "10.0.0.0/" + "9" * 5_000, "::1%eth0", "256.1.1.1", "2026-02-30T00:00:00Z", "9999-12-31T23:59:59Z", "0000-01-01T00:00:00Z",
    "1Ei" * 500, "9" * 5_000 + "Ki", "9" * 5_000 + "%", "99999999999999999999h", "* " * 100, "TZ=../etc/passwd * * * * *", "(a+)+$", "(?P<a", "a.b.c[?(@.x==", "$.a[" + "9" * 5_000 + "]",
    "a in (", "metadata.name=", "0-" + "9" * 5_000, "3-0", "-----BEGIN CERTIFICATE-----\nAAE=\n-----END CERTIFICATE-----",
)  # fmt: skip
"""What readers of numbers, times, addresses, patterns, quantities, JSON and certificates trip over."""
ANNOTATIONS = (
    "apf.kubernetes.io/autoupdate-spec", "api-approved.kubernetes.io", "apiserver.kubernetes.io/endpoint", "authentication.kubernetes.io/node-uid",
    "autoscaling.alpha.kubernetes.io/behavior", "autoscaling.alpha.kubernetes.io/metrics", "batch.kubernetes.io/job-completion-index",
    "container.apparmor.security.beta.kubernetes.io/c", "container.seccomp.security.alpha.kubernetes.io/c", "control-plane.alpha.kubernetes.io/leader",
    "controller.kubernetes.io/pod-deletion-cost", "deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas",
    "deployment.kubernetes.io/revision", "deprecated.daemonset.template.generation", "endpoints.kubernetes.io/over-capacity", "ingressclass.kubernetes.io/is-default-class",
    "kubectl.kubernetes.io/last-applied-configuration", "kubernetes.io/config.mirror", "kubernetes.io/ingress.class", "kubernetes.io/service-account.name",
    "rbac.authorization.kubernetes.io/autoupdate", "scheduler.alpha.kubernetes.io/critical-pod", "scheduler.alpha.kubernetes.io/tolerations",
    "seccomp.security.alpha.kubernetes.io/pod", "service.kubernetes.io/topology-mode", "storageclass.kubernetes.io/is-default-class",
    "volume.beta.kubernetes.io/storage-class", "volume.kubernetes.io/selected-node",
)  # fmt: skip
"""Those that some rule reads."""


def paths(shape, depth=0, inside=()):
    """Yield the place of each field of a type, as steps: a name, or 0 for an item; of a type within itself not again."""
    if depth >= DEPTH_MAX or (shape.component and shape.component in inside):
        return
    within = (*inside, shape.component) if shape.component else inside
    for name, member in (shape.fields or {}).items():
        if not (depth == 0 and name in ("apiVersion", "kind")) and name != "managedFields":
            yield (name,), member
            yield from (((name, *rest), found) for rest, found in paths(member, depth + 1, within))
    for step, member in ((0, shape.items), ("a", shape.values)):
        if member is not None:
            yield (step,), member
            yield from (((step, *rest), found) for rest, found in paths(member, depth + 1, within))


def with_value(document, steps, value):
    """Return a copy of the document with a value at that place; what is missing on the way is made."""
    found = here = copy.deepcopy(document)
    for step, following in pairwise(steps):
        empty = [] if following == 0 else {}
        if isinstance(here, list):
            here[:] = here or [empty]
            here = here[0]
        else:
            if not isinstance(here.get(step), dict | list):
                here[step] = empty
            here = here[step]
    if isinstance(here, list):
        here[:] = [value, *here[1:]]
    else:
        here[steps[-1]] = value
    return found


def changes(resource):
    """Yield the steps to each place of a kind, with each value."""
    for steps, shape in paths(shape_of(resource.api_version, resource.kind)):
        for value in (*WRONG_TYPES, *(TEXTS if shape.type in ("string", "quantity", "time", "int-or-string") else ())):
            yield steps, value
    for name, text in product(ANNOTATIONS, TEXTS):
        yield ("metadata", "annotations", name), text


def requests(catalogue, every=1):
    """Yield `(method, path, body, place)` of every so manyth document, created anew and written over the one there is;
    where there is a status, that is written as well."""
    number = 0
    for resource in sorted(catalogue.resources.values(), key=lambda each: each.name):
        if resource.verbs and "create" not in resource.verbs:
            continue
        collection = path_of(resource)
        valid = {**valid_objects().get(resource.name, {}), "apiVersion": resource.api_version, "kind": resource.kind}
        valid["metadata"] = {"name": NAME, **valid.get("metadata", {})}
        for steps, value in changes(resource):
            number += 1
            if number % every:
                continue
            document, place = with_value(valid, steps, value), ".".join(map(str, steps))
            if place.startswith("status") and "status" in resource.subresources:
                path = collection + f"/{name_of(resource)}/status?dryRun=All".encode()
                yield "PUT", path, encoded(document), f"{resource.name} {place}"
                continue
            yield (
                "PUT",
                collection + f"/{name_of(resource)}?dryRun=All".encode(),
                encoded(document),
                f"{resource.name} {place}",
            )
            if isinstance(document["metadata"], dict) and document["metadata"].get("name") == name_of(resource):
                document = {**document, "metadata": {**document["metadata"], "name": f"{name_of(resource)}2"}}
            yield "POST", collection + b"?dryRun=All", encoded(document), f"{resource.name} {place}"


REVIEWS = {
    "authorization.k8s.io/v1": ("SubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectAccessReview", "SelfSubjectRulesReview"),
    "authentication.k8s.io/v1": ("TokenReview", "SelfSubjectReview"),
}  # fmt: skip


def reviews():
    """Yield the same of the kinds that are only asked."""
    spec = {
        "user": "a",
        "namespace": "default",
        "token": "t",
        "resourceAttributes": {"namespace": "default", "verb": "get"},
    }
    for version, kinds in REVIEWS.items():
        for kind in kinds:
            path = (
                f"/apis/{version}/{'namespaces/default/' if kind.startswith('Local') else ''}{kind.lower()}s".encode()
            )
            shape = shape_of(version, kind)
            known = (shape.fields or {}).get("spec")
            valid = {"spec": {name: each for name, each in spec.items() if known is not None and name in known.fields}}
            for steps, member in paths(shape):
                for value in (*WRONG_TYPES, *(TEXTS if member.type == "string" else ())):
                    yield "POST", path, encoded(with_value(valid, steps, value)), f"{kind} {'.'.join(map(str, steps))}"


def failures(target, asked):
    """Send requests and return the places of those that are answered 5xx, or not at all, with the answer."""
    found = []
    for method, path, body, place in asked:
        answer = target.run(target.ask(method, path, body, [JSON]))
        if answer.status >= 500 or answer.status == 0 or target.errors:
            found.append(
                (
                    place,
                    method,
                    answer.status,
                    answer.body[:300],
                    body[-200:],
                    [str(each)[:600] for each in target.errors],
                )
            )
            target.errors.clear()
    return found


def main():
    every = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    with Target() as target:
        found = failures(target, (*reviews(), *requests(target.server.catalogue, every)))
        for place, count in Counter(each[0] for each in found).items():
            first = next(each for each in found if each[0] == place)
            sys.stdout.write(f"{count} x {place}\n  {first[1:]}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
