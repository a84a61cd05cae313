"""What the spec of a pod puts into a container: what is read for it, its variables, the files of its volumes."""

import base64

import pytest

from kubelet.runtime.projections import (
    CONFIG_MAPS,
    SECRETS,
    TOKENS,
    environment,
    expand_text,
    field_of,
    references,
    resource_of,
)
from kubelet.runtime.shell.files import Directory, File, Link
from kubelet.runtime.shell.image import fill, image, projected_directory

WALL_S = 1_767_323_045.25


def b64(text):
    return base64.b64encode(text.encode()).decode()


OBJECTS = {
    (CONFIG_MAPS, "c"): {"data": {"a": "1", "b": "2"}},
    (SECRETS, "s"): {"data": {"password": b64("hunter2")}},
    (TOKENS, "vault"): {"status": {"token": "eyJ"}},
}
POD = {
    "metadata": {
        "name": "p",
        "namespace": "shop",
        "uid": "u-1",
        "labels": {"tier": "web", "app": 'a"b\\c\nd'},
        "annotations": {"note.io/x": "y"},
    },
    "spec": {
        "nodeName": "n1",
        "serviceAccountName": "robot",
        "containers": [
            {"name": "main", "resources": {"limits": {"cpu": "1500m"}, "requests": {"cpu": "250m", "memory": "64Mi"}}},
            {"name": "other", "resources": {"limits": {"memory": "1Gi"}}},
        ],
        "initContainers": [{"name": "first", "resources": {"requests": {"cpu": "2"}}}],
    },
    "status": {"podIP": "10.0.0.7", "hostIP": "1.1.1.1", "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd::7"}], "hostIPs": [{"ip": "1.1.1.1"}]},
}  # fmt: skip
MAIN = POD["spec"]["containers"][0]


def with_volumes(*volumes):
    return {**POD, "spec": {**POD["spec"], "volumes": list(volumes)}}


def mounted(volume, objects=OBJECTS, shared=None, files=None, **mount):
    """The file system of a container that mounts the volume at /v."""
    made = image() if files is None else files
    container = {**MAIN, "volumeMounts": [{"name": "v", "mountPath": "/v", **mount}]}
    shared = {} if shared is None else shared
    fill(made, with_volumes({"name": "v", **volume}), container, objects, {}, shared, WALL_S)
    return made


# --- what is read ---


def test_only_what_the_container_uses_is_read_and_each_object_once():
    projected_volume = {
        "sources": [
            {"configMap": {"name": "c"}},
            {"secret": {"name": "s2"}},
            {"serviceAccountToken": {"audience": "vault", "path": "token"}},
            {"serviceAccountToken": {"path": "own"}},
            {"downwardAPI": {}},
        ]
    }
    pod = with_volumes(
        {"name": "config", "configMap": {"name": "files"}},
        {"name": "secret", "secret": {"secretName": "s"}},
        {"name": "all", "projected": projected_volume},
        {"name": "unused", "configMap": {"name": "unused"}},
        {"name": "scratch", "emptyDir": {}},
    )
    container = {
        "env": [
            {"name": "A", "value": "x"},
            {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "a"}}},
            {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        ],
        "envFrom": [{"configMapRef": {"name": "all"}}, {"secretRef": {"name": "all"}}, {"prefix": "X"}],
        "volumeMounts": [{"name": name} for name in ("config", "secret", "all", "scratch")],
    }

    assert references(pod, container) == [
        (CONFIG_MAPS, "c"), (SECRETS, "s"), (CONFIG_MAPS, "all"), (SECRETS, "all"), (CONFIG_MAPS, "files"),
        (SECRETS, "s2"), (TOKENS, "vault"), (TOKENS, ""),
    ]  # fmt: skip
    assert references({}, {}) == []


# --- values ---


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "shop"),
        ("metadata.uid", "u-1"),
        ("metadata.labels['tier']", "web"),
        ("metadata.annotations['note.io/x']", "y"),
        ("metadata.labels['none']", ""),
        ("metadata.labels", 'app="a\\"b\\\\c\\nd"\ntier="web"'),
        ("metadata.annotations", 'note.io/x="y"'),
        ("spec.nodeName", "n1"),
        ("spec.serviceAccountName", "robot"),
        ("status.podIP", "10.0.0.7"),
        ("status.hostIP", "1.1.1.1"),
        ("status.podIPs", "10.0.0.7,fd::7"),
        ("status.hostIPs", "1.1.1.1"),
        ("metadata.color", ""),
    ],
)
def test_a_field_of_the_pod_is_a_text(path, value):
    assert field_of(POD, path) == value
    assert field_of({}, path) == ""


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ({"resource": "limits.cpu"}, "2"),
        ({"resource": "limits.cpu", "divisor": "1m"}, "1500"),
        ({"resource": "requests.cpu"}, "1"),
        ({"resource": "requests.memory", "divisor": "1Mi"}, "64"),
        ({"resource": "limits.memory", "divisor": "1Gi"}, "8"),
        ({"resource": "limits.memory", "divisor": "1Gi", "containerName": "other"}, "1"),
        ({"resource": "requests.cpu", "containerName": "first"}, "2"),
        ({"resource": "requests.ephemeral-storage"}, "0"),
        ({"resource": "limits.ephemeral-storage"}, "0"),
    ],
)
def test_a_containers_amounts_are_divided_and_rounded_up_and_a_limit_that_is_not_said_is_the_nodes(reference, value):
    assert resource_of(POD, MAIN, reference, {"memory": "8Gi", "cpu": "4"}) == value


def test_references_to_variables_are_expanded_where_those_are_known():
    known = {"A": "1"}

    assert expand_text("$(A) $(B) $$(A) $A $(", known) == "1 $(B) $(A) $A $("


def test_variables_come_from_values_objects_fields_and_amounts_in_their_order():
    container = {
        **MAIN,
        "envFrom": [{"configMapRef": {"name": "c"}, "prefix": "C_"}, {"secretRef": {"name": "s"}}, {"configMapRef": {"name": "none"}}],
        "env": [
            {"name": "PLAIN", "value": "$(C_a)-$(password)-$(SVC)"},
            {"name": "EMPTY"},
            {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "b"}}},
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}},
            {"name": "MISSING", "valueFrom": {"secretKeyRef": {"name": "s", "key": "none"}}},
            {"name": "GONE", "valueFrom": {"configMapKeyRef": {"name": "gone", "key": "b"}}},
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
            {"name": "C_b", "value": "own"},
        ],
    }  # fmt: skip

    found = environment(POD, container, OBJECTS, {}, {"SVC": "10.96.0.1"})

    assert found.pop("PATH").startswith("/")
    assert found == {
        "HOSTNAME": "p", "SVC": "10.96.0.1", "C_a": "1", "C_b": "own", "password": "hunter2",
        "PLAIN": "1-hunter2-10.96.0.1", "EMPTY": "", "KEY": "2", "SECRET": "hunter2", "NODE": "n1", "CPU": "2",
        "HOME": "/root",
    }  # fmt: skip


def test_a_container_may_have_another_home_and_a_pod_another_host_name():
    pod = {**POD, "spec": {"hostname": "box"}}

    found = environment(pod, {"env": [{"name": "HOME", "value": "/home/me"}]}, {}, {}, {})

    assert (found["HOME"], found["HOSTNAME"]) == ("/home/me", "box")


# --- volumes ---


@pytest.mark.parametrize(
    ("volume", "files"),
    [
        ({"configMap": {"name": "c"}}, {"a": b"1", "b": b"2"}),
        ({"configMap": {"name": "none"}}, {}),
        ({"configMap": {"name": "c", "items": [{"key": "b", "path": "deep/er"}, {"key": "none", "path": "x"}]}}, {"deep/er": b"2"}),
        ({"secret": {"secretName": "s"}}, {"password": b"hunter2"}),
        ({"downwardAPI": {"items": [
            {"path": "name", "fieldRef": {"fieldPath": "metadata.name"}},
            {"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}]}}, {"name": b"p", "cpu": b"1500"}),
        ({"projected": {"sources": [
            {"configMap": {"name": "c", "items": [{"key": "a", "path": "a"}]}}, {"secret": {"name": "s"}},
            {"downwardAPI": {"items": [{"path": "uid", "fieldRef": {"fieldPath": "metadata.uid"}}]}},
            {"serviceAccountToken": {"audience": "vault", "path": "token"}},
            {"serviceAccountToken": {"audience": "none", "path": "missing"}}]}},
         {"a": b"1", "password": b"hunter2", "uid": b"u-1", "token": b"eyJ"}),
    ],
)  # fmt: skip
def test_a_projected_volume_has_a_file_for_each_key_that_there_is(volume, files):
    made = mounted(volume)
    names = [name for name in made.directory("/v").entries if not name.startswith("..")]

    assert sorted(names) == sorted({path.partition("/")[0] for path in files})
    assert {path: made.read(f"/v/{path}") for path in files} == files


def test_files_have_the_mode_of_their_item_before_that_of_their_volume():
    items = [{"key": "a", "path": "a", "mode": 0o400}, {"key": "b", "path": "b"}]

    own = mounted({"configMap": {"name": "c", "items": items, "defaultMode": 0o600}})
    plain = mounted({"configMap": {"name": "c"}})

    assert [own.entry(f"/v/{name}").mode for name in "ab"] == [0o400, 0o600]
    assert plain.entry("/v/a").mode == 0o644


def test_the_files_lie_behind_a_link_that_the_kubelet_replaces_at_once():
    top = projected_directory([("a", b"1", None), ("d/b", b"2", None), ("d/c", b"3", None)], 0o644, WALL_S)

    version = "..2026_01_02_03_04_05.250000000"
    assert {name: each.target for name, each in top.entries.items() if isinstance(each, Link)} == {
        "a": "..data/a", "d": "..data/d", "..data": version,
    }  # fmt: skip
    assert (top.is_read_only, top.mode) == (True, 0o777)
    assert sorted(top.entries[version].entries["d"].entries) == ["b", "c"]


def test_containers_of_a_pod_share_the_directories_that_are_not_projected():
    shared = {}

    first, second = mounted({"emptyDir": {}}, shared=shared), mounted({"emptyDir": {}}, shared=shared)
    first.write("/v/x", b"1")

    assert second.read("/v/x") == b"1"
    assert list(shared) == ["v"]


def test_a_sub_path_is_one_file_or_directory_of_the_volume():
    shared = {"v": Directory({"f": File(bytearray(b"own"))})}

    file = mounted({"configMap": {"name": "c"}}, subPath="a")
    missing = mounted({"configMap": {"name": "c"}}, subPath="none")
    made = mounted({"emptyDir": {}}, shared=shared, subPath="x/y")
    again = mounted({"emptyDir": {}}, shared=shared, subPath="f")

    assert file.read("/v") == b"1"
    assert not missing.exists("/v")
    assert made.is_directory("/v")
    assert isinstance(shared["v"].entries["x"].entries["y"], Directory)
    assert again.read("/v") == b"own"


def test_a_mount_of_a_volume_that_there_is_not_or_of_the_root_changes_nothing():
    files = image()
    container = {"volumeMounts": [{"name": "none", "mountPath": "/v"}, {"name": "v", "mountPath": "/"}, {"name": "v", "mountPath": "/w"}]}  # fmt: skip

    fill(files, with_volumes({"name": "v", "emptyDir": {}}), container, {}, {}, {}, WALL_S)

    assert (files.exists("/v"), files.exists("/bin/sh"), files.is_directory("/w")) == (False, True, True)


@pytest.mark.parametrize(("hostname", "name"), [("", "p"), ("box", "box")])
def test_the_files_that_the_kubelet_writes_name_the_pod(hostname, name):
    files = image()
    pod = {**POD, "spec": {**POD["spec"], **({"hostname": hostname} if hostname else {})}}

    fill(files, pod, MAIN, {}, {}, {}, WALL_S)

    assert files.read("/etc/hostname").decode() == f"{name}\n"
    assert files.read("/etc/hosts").decode() == (
        f"# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n10.0.0.7\t{name}\n"
    )
    assert files.read("/etc/resolv.conf").decode() == (
        "search shop.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n"
    )


def test_an_image_has_the_usual_directories_and_its_programs():
    made = image()

    for path in ("/bin", "/dev", "/etc", "/home", "/proc", "/root", "/tmp", "/usr/bin", "/var/run"):
        assert made.is_directory(path), path
    assert made.entry("/bin/sh").mode == 0o755
    assert made.read("/etc/passwd") == b"root:x:0:0:root:/root:/bin/sh\n"
