"""Manifests become pods: names, hashes, annotations, and what they may not ask for."""

import json

import pytest

from kubelet.static_pods.manifests import ManifestError, Manifests, mirror_document, read_manifest

WALL_S = 1_767_225_600.0


def manifest(**spec):
    body = {"containers": [{"name": "main", "image": "img"}], **spec}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": body}).encode()


def test_yaml_and_json_describe_the_same_pod_under_the_nodes_name():
    text = b"apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: img}]}"

    one, other = (read_manifest("web", data, "n1", WALL_S) for data in (text, manifest()))

    assert (one.uid, one.key) == (other.uid, other.key)
    assert (one.key.namespace, one.key.name, len(one.uid)) == ("default", "web-n1", 32)
    assert one.pod.metadata.annotations == {
        "kubernetes.io/config.hash": one.uid,
        "kubernetes.io/config.seen": "2026-01-01T00:00:00Z",
        "kubernetes.io/config.source": "file",
    }


@pytest.mark.parametrize(
    ("file", "data", "node"),
    [("b", manifest(), "n1"), ("a", manifest(hostNetwork=True), "n1"), ("a", manifest(), "n2")],
)
def test_another_file_content_or_node_is_another_pod(file, data, node):
    first = read_manifest("a", manifest(), "n1", WALL_S)

    assert read_manifest(file, data, node, WALL_S + 5).uid != first.uid


def test_a_manifest_seen_later_again_is_the_same_pod():
    assert read_manifest("a", manifest(), "n1", WALL_S).uid == read_manifest("a", manifest(), "n1", WALL_S + 60).uid


def test_static_pods_tolerate_every_no_execute_taint_and_system_classes_have_their_priority():
    pod = read_manifest("a", manifest(priorityClassName="system-node-critical"), "n1", WALL_S).pod

    assert [(t.operator, t.effect) for t in pod.spec.tolerations] == [("Exists", "NoExecute")]
    assert pod.spec.priority == 2_000_001_000


def test_quantities_that_yaml_reads_as_numbers_are_quantities():
    data = manifest(
        containers=[{"name": "c", "image": "i", "resources": {"requests": {"cpu": 2}, "limits": {"cpu": 2.5}}}]
    )

    resources = read_manifest("a", data, "n1", WALL_S).pod.spec.containers[0].resources

    assert (resources.requests, resources.limits) == ({"cpu": "2"}, {"cpu": "2.5"})


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"serviceAccountName": "x"}, "serviceaccounts"),
        ({"volumes": [{"name": "v", "configMap": {"name": "c"}}]}, "configMap in volume 'v'"),
        ({"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]}, "secret in volume 'v'"),
        ({"resourceClaims": [{"name": "g"}]}, "resourceclaims"),
        ({"containers": [{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]}, "envFrom of container 'c'"),
        ({"containers": []}, "spec.containers: want at least one"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0]: want a name and an image"),
        ({"hostNetwork": "perhaps"}, "hostNetwork"),
    ],
)  # fmt: skip
def test_what_a_static_pod_may_not_be_is_named(spec, said):
    with pytest.raises(ManifestError) as error:
        read_manifest("a", manifest(**spec), "n1", WALL_S)

    assert said in str(error.value)


def test_a_mirror_is_owned_by_its_node_and_carries_the_hash():
    static = read_manifest("a", manifest(), "n1", WALL_S)

    mirror = mirror_document(static, "n1", "node-uid")

    assert mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] == static.uid
    assert mirror["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "node-uid", "controller": True}
    ]
    assert "uid" not in mirror["metadata"]


def test_files_that_change_give_pods_that_go_and_pods_that_come():
    manifests = Manifests("n1")
    _, first, _ = manifests.read({"web.yaml": manifest()}, WALL_S)

    gone, new, wrong = manifests.read({"web.yaml": manifest(hostNetwork=True), "bad.yaml": b"{"}, WALL_S)
    again = manifests.read({"web.yaml": manifest(hostNetwork=True), "bad.yaml": b"{"}, WALL_S)

    assert ([s.uid for s in gone], len(new), list(wrong)) == ([first[0].uid], 1, ["bad.yaml"])
    assert again[:2] == ([], [])


def test_of_two_files_with_one_name_the_first_counts():
    manifests = Manifests("n1")

    _, new, wrong = manifests.read({"b.yaml": manifest(), "a.yaml": manifest()}, WALL_S)

    assert ([s.file for s in new], wrong) == (["a.yaml"], {"b.yaml": "pod default/web-n1 is in a.yaml already"})
