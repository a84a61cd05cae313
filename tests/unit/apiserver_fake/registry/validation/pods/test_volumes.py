"""A pod's volumes: one source each, whose fields are right; the texts are upstream's."""

from __future__ import annotations

import pytest

from tests.unit.apiserver_fake.registry.validation.pods.rules import LABEL, SUBDOMAIN, pod, wrong

MODE = "must be a number between 0 and 0777 (octal), both inclusive"
CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
TOKEN = {"path": "token", "expirationSeconds": 3600}
CERTIFICATE = {"signerName": "example.com/s", "keyType": "ED25519", "keyPath": "key"}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ({}, []),
        ({"emptyDir": {"sizeLimit": "1Gi"}}, []),
        ({"emptyDir": {"sizeLimit": "-1"}}, ["#.emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity"]),
        ({"emptyDir": {}, "hostPath": {"path": "/x"}, "nfs": {}},
         ["#.hostPath: Forbidden: may not specify more than 1 volume type", "#.nfs: Forbidden: may not specify more than 1 volume type"]),
        ({"downwardAPI": {}, "emptyDir": {}}, ["#.downwarAPI: Forbidden: may not specify more than 1 volume type"]),
        ({"hostPath": {"path": "/x", "type": "Directory"}}, []),
        ({"hostPath": {"type": "zz"}}, ["#.hostPath.path: Required value"]),
        ({"hostPath": {"path": "/a/../b", "type": "zz"}},
         ["#.hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
          ('#.hostPath.type: Unsupported value: "zz": supported values: "", "BlockDevice", "CharDevice", "Directory", '
          '"DirectoryOrCreate", "File", "FileOrCreate", "Socket"')]),
        ({"gitRepo": {"directory": "/a/.."}},
         ["#.gitRepo.repository: Required value", '#.gitRepo.directory: Invalid value: "/a/..": must be a relative path',
          "#.gitRepo.directory: Invalid value: \"/a/..\": must not contain '..'"]),
        ({"gcePersistentDisk": {"partition": 256}},
         ["#.persistentDisk.pdName: Required value",
          "#.persistentDisk.partition: Invalid value: 256: must be between 1 and 255, inclusive"]),
        ({"awsElasticBlockStore": {}}, ["#.awsElasticBlockStore.volumeID: Required value"]),
        ({"secret": {"defaultMode": 512}},
         ["#.secret.secretName: Required value", f"#.secret.defaultMode: Invalid value: 512: {MODE}"]),
        ({"secret": {"secretName": "s", "items": [{"key": "k", "path": "a/b", "mode": 0}]}}, []),
        ({"configMap": {"items": [{"path": "../x", "mode": 9999}, {"key": "k", "path": "..x"}, {"key": "k"}]}},
         ["#.configMap.name: Required value",
          "#.configMap.items[0].key: Required value",
          "#.configMap.items[0].path: Invalid value: \"../x\": must not contain '..'",
          f"#.configMap.items[0].mode: Invalid value: 9999: {MODE}",
          "#.configMap.items[1].path: Invalid value: \"..x\": must not start with '..'",
          "#.configMap.items[2].path: Required value"]),
        ({"nfs": {}},
         ["#.nfs.server: Required value", "#.nfs.path: Required value",
          '#.nfs.path: Invalid value: "": must be an absolute path']),
        ({"iscsi": {"targetPortal": "10.0.0.1", "iqn": "eui.0123456789abcdef", "lun": 0}}, []),
        ({"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2015-02.example.com:test", "lun": 0}}, []),
        ({"iscsi": {"targetPortal": "10.0.0.1", "iqn": "naa.0123456789abcdef0123456789abcdef", "lun": 0}}, []),
        ({"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.15-02.example.com:test", "lun": 0}},
         ['#.iscsi.iqn: Invalid value: "iqn.15-02.example.com:test": must be valid format']),
        ({"iscsi": {"iqn": "abc", "lun": 256, "chapAuthSession": True, "initiatorName": "naa.x"}},
         ["#.iscsi.targetPortal: Required value",
          '#.iscsi.iqn: Invalid value: "abc": must be valid format starting with iqn, eui, or naa',
          "#.iscsi.lun: Invalid value: 256: must be between 0 and 255, inclusive",
          "#.iscsi.secretRef: Required value", '#.iscsi.initiatorname: Invalid value: "naa.x": must be valid format']),
        ({"glusterfs": {}}, ["#.glusterfs.endpoints: Required value", "#.glusterfs.path: Required value"]),
        ({"flocker": {}}, ["#.flocker: Required value: one of datasetName and datasetUUID is required"]),
        ({"flocker": {"datasetName": "a/b", "datasetUUID": "u"}},
         ['#.flocker: Invalid value: "resource": datasetName and datasetUUID can not be specified simultaneously',
          "#.flocker.datasetName: Invalid value: \"a/b\": must not contain '/'"]),
        ({"persistentVolumeClaim": {}}, ["#.persistentVolumeClaim.claimName: Required value"]),
        ({"rbd": {}}, ["#.rbd.monitors: Required value", "#.rbd.image: Required value"]),
        ({"cinder": {"secretRef": {}}}, ["#.cinder.volumeID: Required value", "#.cinder.secretRef.name: Required value"]),
        ({"cephfs": {}}, ["#.cephfs.monitors: Required value"]),
        ({"quobyte": {"registry": "a:1,b"}},
         ['#.quobyte.registry: Invalid value: "a:1,b": must be a host:port pair or multiple pairs separated by commas',
          "#.quobyte.volume: Required value"]),
        ({"fc": {}}, ["#.fc.targetWWNs: Required value: must specify either targetWWNs or wwids, but not both"]),
        ({"fc": {"targetWWNs": ["a"], "wwids": ["b"]}},
         ['#.fc.targetWWNs: Invalid value: ["a"]: targetWWNs and wwids can not be specified simultaneously',
          "#.fc.lun: Required value: lun is required if targetWWNs is specified"]),
        ({"flexVolume": {"options": {"x.k8s.io/a": "1", "mine": "2"}}},
         ["#.flexVolume.driver: Required value",
          '#.flexVolume.options[x.k8s.io/a]: Invalid value: "x.k8s.io/a": kubernetes.io and k8s.io namespaces are reserved']),
        ({"azureFile": {}}, ["#.azureFile.secretName: Required value", "#.azureFile.shareName: Required value"]),
        ({"vsphereVolume": {}}, ["#.vsphereVolume.volumePath: Required value"]),
        ({"photonPersistentDisk": {}}, ["#.photonPersistentDisk.pdID: Required value"]),
        ({"portworxVolume": {}}, ["#.portworxVolume.volumeID: Required value"]),
        ({"azureDisk": {"diskName": "d", "diskURI": "https://a", "kind": "Managed", "cachingMode": "zz"}},
         ['#.azureDisk.cachingMode: Unsupported value: "zz": supported values: "None", "ReadOnly", "ReadWrite"',
          ('#.azureDisk.diskURI: Unsupported value: "https://a": supported values: "/subscriptions/{sub-id}/resourcegroups/'
          '{group-name}/providers/microsoft.compute/disks/{disk-id}"')]),
        ({"storageos": {"volumeNamespace": "A"}},
         ["#.storageos.volumeName: Required value", f'#.storageos.volumeNamespace: Invalid value: "A": {LABEL}']),
        ({"scaleIO": {}},
         ["#.scaleIO.gateway: Required value", "#.scaleIO.system: Required value", "#.scaleIO.volumeName: Required value"]),
        ({"csi": {"nodePublishSecretRef": {}}},
         ["#.csi.driver: Required value", "#.csi.nodePublishSecretRef.name: Required value"]),
        ({"csi": {"driver": "My.Driver", "nodePublishSecretRef": {"name": "A"}}},
         [f'#.csi.name: Invalid value: "A": {SUBDOMAIN}']),
        ({"image": {}}, ["#.image.reference: Required value"]),
        ({"image": {"reference": "i:1", "pullPolicy": "zz"}},
         ['#.image.pullPolicy: Unsupported value: "zz": supported values: "Always", "IfNotPresent", "Never"']),
        ({"ephemeral": {"volumeClaimTemplate": CLAIM}}, []),
        ({"ephemeral": {}}, ["#.ephemeral.volumeClaimTemplate: Required value"]),
        ({"ephemeral": {"volumeClaimTemplate": {**CLAIM, "metadata": {"name": "x", "labels": {"a": "b c"}}}}},
         [('#.ephemeral.volumeClaimTemplate.metadata.labels: Invalid value: "b c": a valid label must be an empty string or '
          "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. "
          "'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"),
          "#.ephemeral.volumeClaimTemplate.metadata.name: Forbidden: cannot be set"]),
    ],
)  # fmt: skip
def test_a_volume_has_one_source_whose_fields_are_right(world, source, found):
    assert wrong(world, pod(volumes=[{"name": "v", **source}])) == [
        each.replace("#", "spec.volumes[0]") for each in found
    ]


@pytest.mark.parametrize(
    ("items", "found"),
    [
        ([{"path": "a", "fieldRef": {"fieldPath": "metadata.labels['app']"}},
          {"path": "b", "resourceFieldRef": {"containerName": "c", "resource": "limits.cpu", "divisor": "1m"}}], []),
        ([{"fieldRef": {"fieldPath": "spec.nodeName"}}],
         ["#.path: Required value",
          ('#.fieldRef.fieldPath: Unsupported value: "spec.nodeName": supported values: "metadata.annotations", '
          '"metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"')]),
        ([{"path": "a"}], ["#: Required value: one of fieldRef and resourceFieldRef is required"]),
        ([{"path": "a", "fieldRef": {"fieldPath": "metadata.name"}, "resourceFieldRef": {"resource": "zz"}}],
         ['#: Invalid value: "resource": fieldRef and resourceFieldRef can not be specified simultaneously']),
        ([{"path": "/a", "mode": -1, "resourceFieldRef": {"resource": "limits.cpu"}}],
         ['#.path: Invalid value: "/a": must be a relative path', "#.resourceFieldRef.containerName: Required value",
          f"#.mode: Invalid value: -1: {MODE}"]),
    ],
)  # fmt: skip
def test_files_of_the_downward_api_are_named_by_their_volume(world, items, found):
    said = wrong(world, pod(volumes=[{"name": "v", "downwardAPI": {"items": items}}]))

    assert said == [each.replace("#", "spec.volumes[0].downwardAPI") for each in found]


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ([{"secret": {"name": "s"}}, {"configMap": {"name": "m"}}, {"serviceAccountToken": TOKEN}], []),
        ([{"secret": {"name": "s"}, "configMap": {}}],
         ["#.sources[0].configMap.name: Required value",
          "#.sources[0]: Forbidden: may not specify more than 1 volume type per source"]),
        ([{"secret": {"name": "s", "items": [{"key": "k", "path": "p"}]}},
          {"configMap": {"name": "m", "items": [{"key": "k", "path": "p"}]}}],
         ['#: Invalid value: "m": conflicting duplicate paths']),
        ([{"serviceAccountToken": {"expirationSeconds": 1}}],
         [("#.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 1: may not specify a duration less than 10 "
          "minutes"), "#.path: Required value"]),
        ([{"serviceAccountToken": {"path": "../t", "expirationSeconds": 2**33}}],
         [("#.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 8589934592: may not specify a duration larger "
          "than 2^32 seconds"), "#.path: Invalid value: \"../t\": must not contain '..'"]),
        ([{"downwardAPI": {"items": [{"path": "a"}]}}],
         ["#.sources[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required"]),
        ([{"clusterTrustBundle": {"path": "p"}}],
         ["#.sources[0].clusterTrustBundle: Required value: either name or signerName must be specified"]),
        ([{"clusterTrustBundle": {"name": "n", "signerName": "s", "path": "p"}}],
         [('#.sources[0].clusterTrustBundle: Invalid value: {"Name":"n","SignerName":"s","LabelSelector":null,"Optional":null,'
          '"Path":"p"}: only one of name and signerName may be used')]),
        ([{"clusterTrustBundle": {"signerName": "zz", "path": "p"}}],
         [('#.sources[0].clusterTrustBundle.signerName: Invalid value: "zz": must be a fully qualified domain and path of the '
          "form 'example.com/signer-name'")]),
        ([{"podCertificate": CERTIFICATE}], []),
        ([{"podCertificate": {"keyType": "zz", "maxExpirationSeconds": 1}}],
         ["#.sources[0].podCertificate.signerName: Required value",
          ('#.sources[0].podCertificate.keyType: Unsupported value: "zz": supported values: "RSA3072", "RSA4096", "ECDSAP256", '
          '"ECDSAP384", "ECDSAP521", "ED25519"'),
          ("#.sources[0].podCertificate.maxExpirationSeconds: Invalid value: 1: if provided, maxExpirationSeconds must be >= "
          "3600"),
          ("#.sources[0].podCertificate: Required value: specify at least one of credentialBundlePath, keyPath, and "
          "certificateChainPath")]),
    ],
)  # fmt: skip
def test_a_projected_volume_has_each_file_once(world, sources, found):
    world.switch(emulate__version="1.37")  # before that bundles and certificates are dropped
    said = wrong(world, pod(volumes=[{"name": "v", "projected": {"sources": sources}}]))

    assert said == [each.replace("#", "spec.volumes[0].projected") for each in found]


def test_a_token_needs_an_account(world):
    mirror = {"kubernetes.io/config.mirror": "x"}
    volume = {"name": "v", "projected": {"sources": [{"serviceAccountToken": TOKEN}]}}

    assert wrong(world, pod(mirror, nodeName="n", volumes=[volume])) == [
        (
            "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when "
            "serviceAccountName is not set"
        )
    ]


def test_names_are_labels_each_of_one_volume_and_those_of_wrong_volumes_are_free(world):
    volumes = [{"name": "a", "nfs": {"server": "s"}}, {"name": "a"}, {"name": "a"}, {"emptyDir": {}}, {"name": "B"}]

    assert wrong(world, pod(volumes=volumes)) == [
        "spec.volumes[0].nfs.path: Required value",
        'spec.volumes[0].nfs.path: Invalid value: "": must be an absolute path',
        'spec.volumes[2].name: Duplicate value: "a"',
        "spec.volumes[3].name: Required value",
        f'spec.volumes[4].name: Invalid value: "B": {LABEL}',
    ]


def test_claims_that_are_made_for_a_pod_are_no_others(world):
    made = {"name": "v", "ephemeral": {"volumeClaimTemplate": CLAIM}}
    named = {"name": "w", "persistentVolumeClaim": {"claimName": "p-v"}}

    assert wrong(world, pod(volumes=[made, named])) == [
        (
            'spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: "p-v": must not reference a PVC that gets created '
            "for an ephemeral volume"
        )
    ]


def test_a_claims_name_fits_the_pods(world):
    document = pod(volumes=[{"name": "v" * 63, "ephemeral": {"volumeClaimTemplate": CLAIM}}])
    document["metadata"]["name"] = "p" * 250

    assert wrong(world, document) == [
        (
            f'spec.volumes[0].name: Invalid value: "{"v" * 63}": PVC name "{"p" * 250}-{"v" * 63}": must be no more than 253 '
            "characters"
        )
    ]


def test_sources_get_upstreams_defaults(world):
    sources = {
        "iscsi": {"targetPortal": "a", "iqn": "naa.0123456789abcdef0123456789abcdef"},
        "rbd": {"monitors": ["m"], "image": "i"},
        "azureDisk": {"diskName": "d", "diskURI": "https://x"},
        "image": {"reference": "i"},
        "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]},
    }
    made = world.create("pods", pod(volumes=[{"name": name.lower(), name: value} for name, value in sources.items()]))

    assert [each[name] for each, name in zip(made["spec"]["volumes"], sources, strict=True)] == [
        {**sources["iscsi"], "iscsiInterface": "default"},
        {**sources["rbd"], "pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
        {**sources["azureDisk"], "cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False},
        {"reference": "i", "pullPolicy": "Always"},
        {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}}], "defaultMode": 420},
    ]
