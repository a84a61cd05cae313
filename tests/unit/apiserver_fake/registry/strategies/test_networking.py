"""Kinds of networking.k8s.io at the API server: what is completed and what is refused, in upstream's words."""

import pytest

INGRESSES, CLASSES = "ingresses.networking.k8s.io", "ingressclasses.networking.k8s.io"
POLICIES = "networkpolicies.networking.k8s.io"
BACKEND = {"service": {"name": "web", "port": {"number": 80}}}


def an_ingress(path="/", kind="Prefix", backend=BACKEND, **more):
    paths = [{"path": path, "pathType": kind, "backend": backend}]
    return {"metadata": {"name": "web"}, "spec": {"rules": [{"host": "a.example", "http": {"paths": paths}}], **more}}


def said(causes):
    return [f"{cause.path}: {cause.message}" for cause in causes]


def test_an_ingress_takes_the_default_class_unless_it_names_one(world):
    default = {"annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}}
    for name, time in (("b", "2026-01-02T00:00:00Z"), ("a", "2026-01-02T00:00:00Z"), ("old", "2026-01-01T00:00:00Z")):
        meta = {"name": name, "creationTimestamp": time, **default}
        world.put(CLASSES, {"metadata": meta, "spec": {"controller": "x.io/y"}})

    _, unnamed = world.try_create(INGRESSES, an_ingress())
    _, named = world.try_create(INGRESSES, an_ingress(ingressClassName="mine"))

    assert (unnamed["spec"]["ingressClassName"], named["spec"]["ingressClassName"]) == ("a", "mine")
    assert unnamed["status"] == {"loadBalancer": {}}


@pytest.mark.parametrize(
    ("ingress", "cause"),
    [
        ({"metadata": {"name": "x"}, "spec": {}}, "either `defaultBackend` or `rules` must be specified"),
        (an_ingress(kind=None), "spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified"),
        (an_ingress(kind="Regex"), 'pathType: Unsupported value: "Regex": supported values: "Exact"'),
        (an_ingress(path="x"), 'paths[0].path: Invalid value: "x": must be an absolute path'),
        (an_ingress(path="/a//b"), "must not contain '//'"),
        (an_ingress(backend={}), 'paths[0].backend: Invalid value: "": resource or service backend is required'),
        (an_ingress(backend={"service": {"name": "web"}}), "paths[0].backend: Required value: port name or number"),
        (an_ingress(tls=[{"hosts": ["A"]}]), 'spec.tls[0].hosts[0]: Invalid value: "A": a lowercase RFC 1123'),
    ],
)
def test_what_an_ingress_may_not_say(world, ingress, cause):
    causes, _ = world.try_create(INGRESSES, ingress)
    assert any(cause in text for text in said(causes)), said(causes)


def test_a_class_keeps_its_controller(world):
    made = world.create(CLASSES, {"metadata": {"name": "n"}, "spec": {"controller": "k8s.io/x"}})
    causes, _ = world.try_update(CLASSES, made, {**made, "spec": {"controller": "k8s.io/y"}})
    assert said(causes) == ['spec.controller: Invalid value: "k8s.io/y": field is immutable']


def test_a_policy_of_egress_rules_is_of_both_types(world):
    rule = {"to": [{"podSelector": {}}], "ports": [{"port": 53}]}
    made = world.create(POLICIES, {"metadata": {"name": "p"}, "spec": {"podSelector": {}, "egress": [rule]}})
    assert made["spec"]["policyTypes"] == ["Ingress", "Egress"]
    assert made["spec"]["egress"][0]["ports"] == [{"protocol": "TCP", "port": 53}]


@pytest.mark.parametrize(
    ("rule", "cause"),
    [
        ({"from": [{}]}, "spec.ingress[0].from[0]: Required value: must specify a peer"),
        (
            {"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]},
            "may not specify both ipBlock and another",
        ),
        (
            {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/9"]}}]},
            "must be a strict subset of `cidr`",
        ),
        ({"ports": [{"port": "UPPER"}]}, "must contain only alpha-numeric"),
        ({"ports": [{"port": 90, "endPort": 80}]}, "must be greater than or equal to `port`"),
    ],
)
def test_what_a_policy_may_not_say(world, rule, cause):
    causes, _ = world.try_create(POLICIES, {"metadata": {"name": "p"}, "spec": {"podSelector": {}, "ingress": [rule]}})
    assert any(cause in text for text in said(causes)), said(causes)


@pytest.mark.parametrize(
    ("resource", "document", "cause"),
    [
        ("servicecidrs", {"spec": {"cidrs": []}}, "spec.cidrs: Required value: at least one CIDR required"),
        ("servicecidrs", {"spec": {"cidrs": ["10.0.0.0/8", "11.0.0.0/8"]}}, "no more than one IP for each IP family"),
        ("ipaddresses", {"spec": {"parentRef": {"resource": "services"}}}, "spec.parentRef.name: Required value"),
        ("ipaddresses", {"spec": {}}, "spec.parentRef: Required value"),
    ],
)
def test_ranges_and_addresses_of_services(world, resource, document, cause):
    causes, _ = world.try_create(f"{resource}.networking.k8s.io", {"metadata": {"name": "10.0.0.1"}, **document})
    assert any(cause in text for text in said(causes)), said(causes)


def test_an_address_has_its_canonical_form_as_its_name(world):
    document = {"metadata": {"name": "2001:0db8::1"}, "spec": {"parentRef": {"resource": "services", "name": "s"}}}
    causes, _ = world.try_create("ipaddresses.networking.k8s.io", document)
    assert said(causes) == ['metadata.name: Invalid value: "2001:0db8::1": must be in canonical form ("2001:db8::1")']
