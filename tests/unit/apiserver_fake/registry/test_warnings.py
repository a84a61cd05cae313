"""What clients are warned about, in upstream's words."""

import pytest

from apiserver_fake.registry import warnings

META = {"name": "x"}


def a_pod(**spec):
    return {"metadata": META, "spec": {"containers": [{"name": "c", **spec.pop("container", {})}], **spec}}


def of_pod(**spec):
    return warnings.of("pods", None, a_pod(**spec))


def env(*variables):
    return of_pod(container={"env": [{"name": name, "value": value} for name, value in variables]})


def test_an_environment_variable_that_hides_another_is_named():
    assert env(("A", "1"), ("A", "2")) == [
        'spec.containers[0].env[1]: hides previous definition of "A", which may be dropped when using apply'
    ]
    assert env(("A", "1"), ("A", "$(A)2")) == []
    assert len(env(("A", "1"), ("A", "$(A)"))) == 1


def test_deprecated_node_labels_are_named_where_they_are_used():
    term = {"matchExpressions": [{"key": "beta.kubernetes.io/arch", "operator": "Exists"}]}
    node = {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]},
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}],
    }
    spread = [{"topologyKey": "failure-domain.beta.kubernetes.io/zone", "labelSelector": {}}]

    found = of_pod(
        nodeSelector={"beta.kubernetes.io/os": "linux"},
        affinity={"nodeAffinity": node},
        topologySpreadConstraints=spread,
    )

    at = "spec.affinity.nodeAffinity"
    arch = 'beta.kubernetes.io/arch is deprecated since v1.14; use "kubernetes.io/arch" instead'
    assert found == [
        'spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead',
        f"{at}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: {arch}",
        f"{at}.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: {arch}",
        (
            "spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since "
            'v1.17; use "topology.kubernetes.io/zone" instead'
        ),
    ]


@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        ({"container": {"resources": {"requests": {"memory": "100m"}}}},
         'spec.containers[0].resources.requests[memory]: fractional byte value "100m" is invalid, must be an integer'),
        ({"volumes": [{"name": "v", "gitRepo": {}}]}, "spec.volumes[0].gitRepo: deprecated in v1.11"),
        ({"hostAliases": [{"ip": "1.1.1.1"}, {"ip": "1.1.1.1"}]}, 'spec.hostAliases[1].ip: duplicate ip "1.1.1.1"'),
        ({"imagePullSecrets": [{}]}, 'spec.imagePullSecrets[0].name: invalid empty name ""'),
        ({"terminationGracePeriodSeconds": -1},
         "spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"),
        ({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "k"}]}}},
         ("spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: "
         "a null labelSelector results in matching no pod")),
        ({"container": {"ports": [{"containerPort": 80, "protocol": "TCP"}, {"containerPort": 80, "protocol": "TCP"}]}},
         "spec.containers[0].ports[1]: duplicate port definition with spec.containers[0].ports[0]"),
    ],
)  # fmt: skip
def test_what_means_something_else_in_a_pod_is_named(spec, warning):
    assert of_pod(**spec) == [warning]


def test_names_that_are_no_dns_labels_are_named():
    [found] = warnings.of("pods", None, {**a_pod(), "metadata": {"name": "a.b"}})

    assert found == (
        "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is "
        "recommended: [must not contain dots]"
    )


def test_templates_are_looked_at_when_the_spec_changes():
    template = {"metadata": {}, "spec": a_pod(nodeSelector={"beta.kubernetes.io/os": "linux"})["spec"]}
    workload = {"kind": "Deployment", "metadata": META, "spec": {"replicas": 1, "template": template}}
    text = (
        'spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'
    )

    assert warnings.of("deployments.apps", None, workload) == [text]
    assert warnings.of("deployments.apps", workload, {**workload, "metadata": {"name": "x", "labels": {}}}) == []
    assert warnings.of("deployments.apps", workload, {**workload, "spec": {**workload["spec"], "replicas": 2}}) == [
        text
    ]


def test_pods_that_exist_and_kinds_without_warnings_have_none():
    pod = a_pod(nodeSelector={"beta.kubernetes.io/os": "linux"})

    assert warnings.of("pods", pod, pod) == []
    assert warnings.of("configmaps", None, {"metadata": META}) == []


@pytest.mark.parametrize(
    ("resource", "document", "warning"),
    [
        ("services", {"metadata": META, "spec": {"type": "ClusterIP", "externalName": "x"}},
         'spec.externalName is ignored when spec.type is not "ExternalName"'),
        ("services", {"metadata": META, "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "externalIPs": ["1.2.3.4"]}},
         "spec.externalIPs is deprecated and may no longer be implemented in some clusters"),
        ("services", {"metadata": META, "spec": {"type": "ClusterIP", "clusterIPs": ["fd00::0:1"]}},
         'spec.clusterIPs[0]: IPv6 address "fd00::0:1" should be in RFC 5952 canonical format ("fd00::1")'),
        ("persistentvolumeclaims", {"metadata": META, "spec": {"resources": {"requests": {"storage": "1500m"}}}},
         'spec.resources.requests[storage]: fractional byte value "1500m" is invalid, must be an integer'),
        ("persistentvolumes", {"metadata": META, "spec": {"persistentVolumeReclaimPolicy": "Recycle"}},
         ("spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended "
         "approach is to use dynamic provisioning.")),
        ("jobs.batch", {"metadata": META, "spec": {"completionMode": "Indexed", "completions": 200_000, "parallelism": 20_000}},
         ("spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
         "Kubernetes might not be able to track completedIndexes when a big number of indexes fail")),
    ],
)  # fmt: skip
def test_other_kinds_have_warnings_of_their_own(resource, document, warning):
    assert warnings.of(resource, None, document) == [warning]
