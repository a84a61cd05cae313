"""What each kind refuses, whole and in order: paths, types and details are those of upstream v1.36."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from apiserver_fake.extensions.register import whole_catalogue
from apiserver_fake.registry.strategies.certificates import USAGES as USAGE_NAMES
from apiserver_fake.registry.strategy import strategy_for
from apiserver_fake.registry.validation.formats import (
    CONFIG_KEY_TEXT,
    IP_TEXT,
    LABEL_TEXT,
    NAME_PART_TEXT,
    SUBDOMAIN_TEXT,
)
from services.api.label_syntax import VALUE_TEXT
from services.api.wire import Request

ONE_TO_65535 = "must be between 1 and 65535, inclusive"
USAGES = ", ".join(f'"{each}"' for each in USAGE_NAMES)
PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' "
    "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')"
)
CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def said(causes: Any) -> list[str]:
    return [f"{cause.path}: {cause.message}" for cause in causes]


def meta(**more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", **more}}


def service(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 80}], **spec}}


def node(status: Any = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": spec, **({"status": status} if status else {})}


def secret(kind: str, **data: str) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "type": kind, "data": data}


def endpoints(*addresses: Any, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "subsets": [{"addresses": [*addresses], **more}]}


def lease(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": spec}


def event(**more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "namespace": "default"}, "involvedObject": {"namespace": "default"}, **more}


METADATA = [
    ("configmaps", meta(generateName="AB-"), [f'metadata.generateName: Invalid value: "AB-": {SUBDOMAIN_TEXT}']),
    ("configmaps", meta(generateName="a-"), []),
    ("configmaps", meta(annotations={"A/B": "1", "a b": "1"}),
     [f'metadata.annotations: Invalid value: "a b": {NAME_PART_TEXT}']),
    ("configmaps", meta(ownerReferences=[{"apiVersion": "../../etc", "kind": "K", "name": "n", "uid": "u"}]),
     ['metadata.ownerReferences.apiVersion: Invalid value: "../../etc": version must not be empty']),
    ("configmaps", meta(ownerReferences=[{"apiVersion": "v1"}]),
     ['metadata.ownerReferences.kind: Invalid value: "": must not be empty',
      'metadata.ownerReferences.name: Invalid value: "": must not be empty',
      'metadata.ownerReferences.uid: Invalid value: "": must not be empty']),
    ("configmaps", meta(finalizers=["mine", "a/b"]),
     [('metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully '
      "qualified")]),
    ("configmaps", meta(finalizers=["orphan", "foregroundDeletion"]),
     [('metadata.finalizers: Invalid value: ["orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion '
      "cannot be both set")]),
]  # fmt: skip
CORE = [
    ("configmaps", {**meta(), "data": {"a/b": "1", "..": "1"}},
     [f'data[a/b]: Invalid value: "a/b": {CONFIG_KEY_TEXT}', "data[..]: Invalid value: \"..\": must not be '..'"]),
    ("configmaps", {**meta(), "data": {"a": "1"}, "binaryData": {"a": ""}},
     ['data[a]: Invalid value: "a": duplicate of key present in binaryData']),
    ("configmaps", {**meta(), "data": {"a": "x" * (1 << 20)}, "binaryData": {"b": "QQ=="}},
     ["[]: Too long: may not be more than 1048576 bytes"]),
    ("configmaps", {**meta(), "data": {"a": "x" * ((1 << 20) - 1)}, "binaryData": {"b": "QQ=="}}, []),
    ("secrets", {**meta(), "data": {"a": b64("x" * ((1 << 20) + 1))}},
     ["data: Too long: may not be more than 1048576 bytes"]),
    ("secrets", {**meta(), "stringData": {"a": "x" * (1 << 20)}}, []),
    ("secrets", secret("kubernetes.io/tls", **{"tls.crt": ""}), ["data[tls.key]: Required value"]),
    ("secrets", secret("kubernetes.io/tls"), ["data[tls.crt]: Required value", "data[tls.key]: Required value"]),
    ("secrets", secret("kubernetes.io/tls", **{"tls.crt": "", "tls.key": ""}), []),
    ("secrets", secret("kubernetes.io/basic-auth"),
     ["data[username]: Required value", "data[password]: Required value"]),
    ("secrets", secret("kubernetes.io/basic-auth", password=""), []),
    ("secrets", secret("kubernetes.io/ssh-auth"), ["data[ssh-privatekey]: Required value"]),
    ("secrets", secret("kubernetes.io/service-account-token"),
     ["metadata.annotations[kubernetes.io/service-account.name]: Required value"]),
    ("secrets", secret("kubernetes.io/dockercfg"), ["data[.dockercfg]: Required value"]),
    ("secrets", secret("kubernetes.io/dockerconfigjson", **{".dockerconfigjson": b64("{a}")}),
     [('data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character \'a\' looking for '
      "beginning of object key string")]),
    ("secrets", secret("kubernetes.io/dockerconfigjson", **{".dockerconfigjson": b64("")}),
     ['data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": unexpected end of JSON input']),
    ("secrets", secret("kubernetes.io/dockerconfigjson", **{".dockerconfigjson": b64("[]")}),
     [('data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": json: cannot unmarshal array into Go value '
      "of type map[string]interface {}")]),
    ("secrets", secret("example.com/mine", a=b64("x")), []),
    ("namespaces", {"metadata": {"name": "a.b"}}, ['metadata.name: Invalid value: "a.b": must not contain dots']),
    ("namespaces", {"metadata": {"name": "x"}, "spec": {"finalizers": ["mine"]}},
     [('spec.finalizers: Invalid value: "mine": name is neither a standard finalizer name nor is it fully '
      "qualified")]),
    ("nodes", node(taints=[{"key": "a", "effect": "Never"}, {"value": "a b"}]),
     [('metadata.taints[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", '
      '"NoExecute"'),
      'metadata.taints[1].key: Invalid value: "": name part must be non-empty',
      f'metadata.taints[1].key: Invalid value: "": {NAME_PART_TEXT}',
      f'metadata.taints[1].value: Invalid value: "a b": {VALUE_TEXT}',
      "metadata.taints[1].effect: Required value"]),
    ("nodes", node(taints=[{"key": "a", "effect": "NoSchedule"}, {"key": "a", "value": "b", "effect": "NoSchedule"}]),
     [('metadata.taints[1]: Duplicate value: {"Key":"a","Value":"b","Effect":"NoSchedule","TimeAdded":null}: taints must '
      "be unique by key and effect pair")]),
    ("nodes", node(podCIDR="zz"), [f'spec.podCIDRs[0]: Invalid value: "zz": {CIDR}']),
    ("nodes", node(podCIDRs=["10.0.0.1/24", "10.01.0.0/24"]),
     ['spec.podCIDRs[0]: Invalid value: "10.0.0.1/24": must not have bits set beyond the prefix length',
      'spec.podCIDRs[1]: Invalid value: "10.01.0.0/24": must not have leading 0s in IP or prefix length',
      ('spec.podCIDRs: Invalid value: ["10.0.0.1/24","10.01.0.0/24"]: may specify no more than one CIDR for each IP '
       "family")]),
    ("nodes", node(podCIDRs=["10.0.0.0/24", "2001:db8::/64"]), []),
    ("nodes", node({"capacity": {"cpu": "-1", "pods": "1.5"}, "allocatable": {}}),
     ['status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0',
      'status.capacity.pods: Invalid value: "1500m": must be an integer']),
    ("events", event(involvedObject={"namespace": "a"}),
     ['involvedObject.namespace: Invalid value: "a": does not match event.namespace']),
    ("events", {"metadata": {"name": "x", "namespace": "kube-system"}, "involvedObject": {}},
     ['involvedObject.namespace: Invalid value: "": does not match event.namespace']),
    ("events", event(eventTime="2026-01-01T00:00:00.000000Z", reportingInstance="a" * 129),
     ["reportingComponent: Required value",
      'reportingComponent: Invalid value: "": name part must be non-empty',
      f'reportingComponent: Invalid value: "": {NAME_PART_TEXT}',
      'reportingInstance: Invalid value: "": can have at most 128 characters',
      "action: Required value", "reason: Required value"]),
    ("leases.coordination.k8s.io", lease(leaseDurationSeconds=0, leaseTransitions=-1),
     ["spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
      "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0"]),
]  # fmt: skip
SERVICES = [
    ("services", service(ports=[]), ["spec.ports: Required value"]),
    ("services", service(ports=[{"port": 0, "protocol": "ICMP", "name": "A", "targetPort": "a--b", "appProtocol": "a b"}]),
     [f'spec.ports[0].name: Invalid value: "A": {LABEL_TEXT}',
      f"spec.ports[0].port: Invalid value: 0: {ONE_TO_65535}",
      'spec.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"',
      'spec.ports[0].targetPort: Invalid value: "a--b": must not contain consecutive hyphens',
      f'spec.ports[0].appProtocol: Invalid value: "a b": {NAME_PART_TEXT}']),
    ("services", service(ports=[{"port": 80, "targetPort": 70000}]),
     [f"spec.ports[0].targetPort: Invalid value: 70000: {ONE_TO_65535}"]),
    ("services", service(ports=[{"port": 80}, {"port": 80}]),
     ["spec.ports[0].name: Required value", "spec.ports[1].name: Required value",
      ('spec.ports[1]: Duplicate value: {"Name":"","Protocol":"TCP","AppProtocol":null,"Port":80,"TargetPort":0,'
       '"NodePort":0}')]),
    ("services", service(ports=[{"name": "a", "port": 80}, {"name": "a", "port": 81}]),
     ['spec.ports[1].name: Duplicate value: "a"']),
    ("services", service(ports=[{"port": 80, "nodePort": 5}]),
     ["spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"]),
    ("services", service(type="NodePort", ports=[{"port": 80, "nodePort": 5}]),
     [("spec.ports[0].nodePort: Invalid value: 5: provided port is not in the valid range. The range of valid ports is "
      "30000-32767")]),
    ("services", service(type="Odd"),
     [('spec.type: Unsupported value: "Odd": supported values: "ClusterIP", "ExternalName", "LoadBalancer", '
      '"NodePort"')]),
    ("services", service(type="ExternalName"), ["spec.externalName: Required value"]),
    ("services", service(type="ExternalName", externalName="a.b.", ports=[]), []),
    ("services", service(clusterIP="zz"), [f'spec.clusterIPs[0]: Invalid value: "zz": {IP_TEXT}']),
    ("services", service(clusterIP="10.96.0.9", clusterIPs=["10.96.0.8"]),
     ['spec.clusterIPs: Invalid value: ["10.96.0.8"]: first value must match `clusterIP`']),
    ("services", service(clusterIPs=["10.96.0.8"]),
     ['spec.clusterIPs: Invalid value: ["10.96.0.8"]: must be empty when `clusterIP` is not specified']),
    ("services", service(clusterIP="10.96.0.8", clusterIPs=["10.96.0.8", "10.96.0.9"]),
     [('spec.clusterIPs: Invalid value: ["10.96.0.8","10.96.0.9"]: may specify no more than one IP for each IP '
      "family")]),
    ("services", service(ipFamilies=["IPv4", "IPv4", "IPX"], ipFamilyPolicy="Both"),
     ['spec.ipFamilies[1]: Duplicate value: "IPv4"',
      'spec.ipFamilies[2]: Unsupported value: "IPX": supported values: "IPv4", "IPv6"',
      ('spec.ipFamilyPolicy: Unsupported value: "Both": supported values: "PreferDualStack", "RequireDualStack", '
       '"SingleStack"')]),
    ("services", service(ipFamilies=["IPv6"]),
     ['spec.ipFamilies[0]: Invalid value: "IPv6": not configured on this cluster']),
    ("services", service(ipFamilyPolicy="RequireDualStack"),
     [('spec.ipFamilyPolicy: Invalid value: "RequireDualStack": this cluster is not configured for dual-stack '
      "services")]),
    ("services", service(sessionAffinity="Always"),
     ['spec.sessionAffinity: Unsupported value: "Always": supported values: "ClientIP", "None"']),
    ("services", service(sessionAffinity="ClientIP", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 86401}}),
     [("spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than "
      "86400")]),
    ("services", service(sessionAffinityConfig={"clientIP": {}}),
     ["spec.sessionAffinityConfig: Forbidden: must not be set when session affinity is None"]),
    ("services", service(externalIPs=["zz", "127.0.0.1", "1.2.03.4", "::ffff:1.2.3.4"]),
     [f'spec.externalIPs[0]: Invalid value: "zz": {IP_TEXT}',
      'spec.externalIPs[1]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)',
      'spec.externalIPs[2]: Invalid value: "1.2.03.4": must not have leading 0s',
      'spec.externalIPs[3]: Invalid value: "::ffff:1.2.3.4": must not be an IPv4-mapped IPv6 address']),
    ("services", service(loadBalancerSourceRanges=["10.0.0.0/8", "zz"]),
     ["spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
      f'spec.LoadBalancerSourceRanges[1]: Invalid value: "zz": {CIDR}']),
    ("services", service(type="LoadBalancer", loadBalancerSourceRanges=[" 10.0.0.0/8"]), []),
    ("services", service(loadBalancerClass="a/b", allocateLoadBalancerNodePorts=True),
     ["spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'",
      "spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'"]),
    ("services", service(externalTrafficPolicy="Local", internalTrafficPolicy="Near", trafficDistribution="Near"),
     ['spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services',
      'spec.internalTrafficPolicy: Unsupported value: "Near": supported values: "Cluster", "Local"',
      ('spec.trafficDistribution: Unsupported value: "Near": supported values: "PreferClose", "PreferSameNode", '
       '"PreferSameZone"')]),
    ("endpoints", endpoints({"ip": "127.0.0.1"}, {"ip": "zz", "hostname": "A"}),
     ['subsets[0].addresses[0].ip: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)',
      f'subsets[0].addresses[1].ip: Invalid value: "zz": {IP_TEXT}',
      f'subsets[0].addresses[1].hostname: Invalid value: "A": {LABEL_TEXT}',
      'subsets[0].addresses[1].ip: Invalid value: "zz": must be a valid IP address']),
    ("endpoints", endpoints({"ip": "1.2.3.4"}, ports=[{"port": 0}, {"port": 1, "name": "a", "appProtocol": "a b"}]),
     ["subsets[0].ports[0].name: Required value",
      f"subsets[0].ports[0].port: Invalid value: 0: {ONE_TO_65535}",
      f'subsets[0].ports[1].appProtocol: Invalid value: "a b": {NAME_PART_TEXT}']),
    ("endpoints", endpoints(),
     ["subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"]),
]  # fmt: skip


def volume(**spec: Any) -> dict[str, Any]:
    base = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    return {"metadata": {"name": "x"}, "spec": {**base, **spec}}


def claim(**spec: Any) -> dict[str, Any]:
    base = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": "x"}, "spec": {**base, **spec}}


def ingress(backend: Any, **more: Any) -> dict[str, Any]:
    path = {"path": "/", "pathType": "Prefix", "backend": backend, **more}
    return {"metadata": {"name": "x"}, "spec": {"rules": [{"http": {"paths": [path]}}]}}


def policy(rule: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": {"podSelector": {}, "ingress": [rule]}}


def ingress_class(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": {"controller": "a.b/c", **spec}}


def a_slice(kind: str, *addresses: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "addressType": kind, "endpoints": [{"addresses": [*addresses], **more}]}


BACKEND = {"service": {"name": "a", "port": {"number": 80}}}
PATH = "spec.rules[0].http.paths[0]"
STORAGE = [
    ("persistentvolumes", volume(hostPath={"path": "/a/../b"}),
     ['spec.hostPath.path: Invalid value: "/a/../b": must not contain \'..\'']),
    ("persistentvolumes", volume(hostPath={"path": "//"}, persistentVolumeReclaimPolicy="Recycle"),
     ["spec.persistentVolumeReclaimPolicy: Forbidden: may not be 'recycle' for a hostPath mount of '/'"]),
    ("persistentvolumes", {"metadata": {"name": "x"}, "spec": {}},
     ["spec.accessModes: Required value", "spec.capacity: Required value",
      'spec.capacity: Unsupported value: {}: supported values: "storage"',
      "spec: Required value: must specify a volume type"]),
    ("persistentvolumes", volume(capacity={"storage": "0"}, nfs={"server": "a", "path": "b"}, csi={"driver": "A_b"}),
     ['spec.capacity[storage]: Invalid value: "0": must be greater than zero',
      'spec.nfs.path: Invalid value: "b": must be an absolute path',
      "spec.csi: Forbidden: may not specify more than 1 volume type"]),
    ("persistentvolumes", volume(local={"path": ""}),
     ["spec.local.path: Required value", "spec.nodeAffinity: Required value: Local volume requires node affinity"]),
    ("persistentvolumes", volume(csi={"driver": "d", "nodePublishSecretRef": {"name": "A"}}),
     ["spec.csi.volumeHandle: Required value",
      f'spec.csi.nodePublishSecretRef.name: Invalid value: "A": {SUBDOMAIN_TEXT}',
      "spec.csi.nodePublishSecretRef.namespace: Required value"]),
    ("persistentvolumes", volume(cinder={"secretRef": {"name": "a"}}, volumeAttributesClassName=""),
     ["spec.cinder.volumeID: Required value", "spec.cinder.secretRef.namespace: Required value",
      "spec.volumeAttributesClassName: Required value: an empty string is disallowed",
      "spec.csi: Required value: has to be specified when using volumeAttributesClassName"]),
    ("persistentvolumeclaims", {"metadata": {"name": "x"}, "spec": {}},
     ["spec.accessModes: Required value: at least 1 access mode is required",
      "spec.resources[storage]: Required value"]),
    ("persistentvolumeclaims", claim(resources={"requests": {"storage": "-1"}}, volumeMode="Odd",
                                     dataSource={"kind": "Pod", "name": "a"}),
     ['spec.resources[storage]: Invalid value: "-1": must be greater than zero',
      'spec.volumeMode: Unsupported value: "Odd": supported values: "Block", "Filesystem"',
      ('spec.dataSource: Invalid value: "Pod": must be \'PersistentVolumeClaim\' when referencing the default '
       "apiGroup")]),
    ("storageclasses.storage.k8s.io", {"metadata": {"name": "x"}, "reclaimPolicy": "Recycle", "parameters": {"": "a"}},
     ["provisioner: Required value", 'parameters: Invalid value: "": field can not be empty.',
      'reclaimPolicy: Unsupported value: "Recycle": supported values: "Delete", "Retain"']),
    ("csinodes.storage.k8s.io",
     {"metadata": {"name": "x"}, "spec": {"drivers": [{"name": "d", "nodeID": "n", "topologyKeys": ["a", "a"]}]}},
     ['spec.drivers[0]: Duplicate value: "a"']),
    ("csidrivers.storage.k8s.io",
     {"metadata": {"name": "x"}, "spec": {"fsGroupPolicy": "Odd", "tokenRequests": [{"expirationSeconds": 1}, {}],
                                          "nodeAllocatableUpdatePeriodSeconds": 9}},
     ['spec.fsGroupPolicy: Unsupported value: "Odd": supported values: "File", "None", "ReadWriteOnceWithFSType"',
      ("spec.tokenRequests[0].expirationSeconds: Invalid value: 1: may not specify a duration less than 10 minutes"),
      'spec.tokenRequests[1].audience: Duplicate value: ""',
      "spec.nodeAllocatableUpdatePeriodSeconds: Invalid value: 9: must be greater than or equal to 10 seconds"]),
]  # fmt: skip
NETWORKING = [
    ("ingresses.networking.k8s.io", {"metadata": {"name": "x"}, "spec": {}},
     ["spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"]),
    ("ingresses.networking.k8s.io", ingress({}),
     [f'{PATH}.backend: Invalid value: "": resource or service backend is required']),
    ("ingresses.networking.k8s.io", ingress({"service": {"name": "A", "port": {"name": "a--b"}}}, pathType="Odd"),
     [f'{PATH}.pathType: Unsupported value: "Odd": supported values: "Exact", "ImplementationSpecific", "Prefix"',
      f'{PATH}.backend.service.name: Invalid value: "A": {LABEL_TEXT}',
      f'{PATH}.backend.service.port.name: Invalid value: "a--b": must not contain consecutive hyphens']),
    ("ingresses.networking.k8s.io", ingress({"resource": {"kind": "a/b"}}),
     [f'{PATH}.backend.resource.kind: Invalid value: "a/b": may not contain \'/\'',
      f"{PATH}.backend.resource.name: Required value"]),
    ("ingresses.networking.k8s.io", {"metadata": {"name": "x"}, "spec": {
        "defaultBackend": BACKEND, "rules": [{"host": "1.2.3.4"}], "tls": [{"secretName": "A"}]}},
     ['spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address',
      f'spec.tls[0].secretName: Invalid value: "A": {SUBDOMAIN_TEXT}']),
    ("ingressclasses.networking.k8s.io", ingress_class(controller="", parameters={"scope": "Odd"}),
     ["spec.controller: Required value", "spec.parameters.kind: Required value", "spec.parameters.name: Required value",
      'spec.parameters.scope: Unsupported value: "Odd": supported values: "Cluster", "Namespace"']),
    ("networkpolicies.networking.k8s.io",
     policy({"ports": [{"port": "http", "endPort": 81}, {"endPort": 81}, {"port": 90, "endPort": 81}],
             "from": [{}, {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["11.0.0.0/16"]}, "podSelector": {}}]}),
     ["spec.ingress[0].ports[0].endPort: Invalid value: 81: may not be specified when `port` is non-numeric",
      "spec.ingress[0].ports[1].endPort: Invalid value: 81: may not be specified when `port` is not specified",
      "spec.ingress[0].ports[2].endPort: Invalid value: 81: must be greater than or equal to `port`",
      "spec.ingress[0].from[0]: Required value: must specify a peer",
      ('spec.ingress[0].from[1].ipBlock.except[0]: Invalid value: "11.0.0.0/16": must be a strict subset of `cidr`'),
      "spec.ingress[0].from[1]: Forbidden: may not specify both ipBlock and another peer"]),
    ("servicecidrs.networking.k8s.io", {"metadata": {"name": "x"}, "spec": {"cidrs": ["10.0.0.1/8", "10.1.0.0/16"]}},
     ['spec.cidrs[0]: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length',
      ('spec.cidrs: Invalid value: ["10.0.0.1/8","10.1.0.0/16"]: may specify no more than one IP for each IP family, i.e '
       "192.168.0.0/24 and 2001:db8::/64")]),
    ("ipaddresses.networking.k8s.io",
     {"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": {"resource": "a/b", "name": ""}}},
     ["spec.parentRef.resource: Invalid value: \"a/b\": may not contain '/'", "spec.parentRef.name: Required value"]),
    ("endpointslices.discovery.k8s.io", a_slice("FQDN", "a", "a.b."),
     [('endpoints[0].addresses[0]: Invalid value: "a": should be a domain with at least two segments separated by '
       "dots")]),
    ("endpointslices.discovery.k8s.io", a_slice("IPv4", "10.0.0.1", hints={"forNodes": [{"name": "A"}]}, zone="a b"),
     [f'endpoints[0].hints.forNodes[0].name: Invalid value: "A": {SUBDOMAIN_TEXT}']),
]  # fmt: skip

PODS = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
UNFIT = "`selector` does not match template `labels`"


def workload(**spec: Any) -> dict[str, Any]:
    base = {"selector": {"matchLabels": {"a": "b"}}, "template": PODS}
    return {"metadata": {"name": "x"}, "spec": {n: v for n, v in {**base, **spec}.items() if v is not None}}


def rolling(kind: str, **numbers: Any) -> dict[str, Any]:
    key = "strategy" if kind == "deployments" else "updateStrategy"
    return workload(**{key: {"type": "RollingUpdate", "rollingUpdate": numbers}})


WORKLOADS = [
    ("deployments.apps", workload(replicas=-1, selector=None, strategy={"type": "Odd"}, minReadySeconds=-1,
                                  revisionHistoryLimit=-1, progressDeadlineSeconds=-1),
     ["spec.replicas: Invalid value: -1: must be greater than or equal to 0",
      "spec.selector: Required value",
      f'spec.template.metadata.labels: Invalid value: {{"a":"b"}}: {UNFIT}',
      ('spec.strategy: Unsupported value: {"Type":"Odd","RollingUpdate":null}: supported values: "Recreate", '
       '"RollingUpdate"'),
      "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
      "spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0",
      "spec.progressDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
      "spec.progressDeadlineSeconds: Invalid value: -1: must be greater than minReadySeconds"]),
    ("deployments.apps", workload(template=None),
     [f"spec.template.metadata.labels: Invalid value: null: {UNFIT}", "spec.template.spec.containers: Required value"]),
    ("deployments.apps", workload(selector={"matchLabels": {"a": "b c"}}, template=None),
     [f'spec.selector.matchLabels: Invalid value: "b c": {VALUE_TEXT}',
      'spec.selector: Invalid value: {"matchLabels":{"a":"b c"}}: invalid label selector']),
    ("deployments.apps", workload(minReadySeconds=600),
     ["spec.progressDeadlineSeconds: Invalid value: 600: must be greater than minReadySeconds"]),
    ("deployments.apps", rolling("deployments", maxUnavailable=0, maxSurge="0%"),
     ["spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"]),
    ("deployments.apps", rolling("deployments", maxUnavailable="101%", maxSurge="200%"),
     ['spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%']),
    ("deployments.apps", rolling("deployments", maxUnavailable="a", maxSurge=0),
     [f'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "a": {PERCENT}',
      'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "a": may not be 0 when `maxSurge` is 0']),
    ("replicasets.apps", workload(replicas=-1, minReadySeconds=-1, selector={}),
     ["spec.replicas: Invalid value: -1: must be greater than or equal to 0",
      "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
      "spec.selector: Invalid value: {}: empty selector is invalid for deployment"]),
    ("daemonsets.apps", workload(selector=None, updateStrategy={"type": "Odd"}, revisionHistoryLimit=-1),
     [f'spec.template.metadata.labels: Invalid value: {{"a":"b"}}: {UNFIT}',
      ('spec.updateStrategy: Unsupported value: {"Type":"Odd","RollingUpdate":null}: supported values: '
       '"RollingUpdate", "OnDelete"'),
      "spec.revisionHistoryLimit: Invalid value: -1: must be greater than or equal to 0"]),
    ("daemonsets.apps", rolling("daemonsets", maxUnavailable=0, maxSurge=0),
     ["spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0"]),
    ("daemonsets.apps", rolling("daemonsets", maxUnavailable="101%", maxSurge=-1),
     [("spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: -1: must be greater than or equal to 0"),
      'spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "101%": must not be greater than 100%',
      ("spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: -1: may not be set when maxUnavailable is "
       "non-zero")]),
    ("statefulsets.apps", workload(selector=None, serviceName="A_b", minReadySeconds=-1, ordinals={"start": -1},
                                   podManagementPolicy="Odd"),
     ["spec.podManagementPolicy: Invalid value: \"Odd\": must be 'OrderedReady' or 'Parallel'",
      f'spec.serviceName: Invalid value: "A_b": {LABEL_TEXT}',
      "spec.minReadySeconds: Invalid value: -1: must be greater than or equal to 0",
      "spec.ordinals.start: Invalid value: -1: must be greater than or equal to 0",
      "spec.selector: Required value", f'spec.template.metadata.labels: Invalid value: {{"a":"b"}}: {UNFIT}']),
    ("statefulsets.apps", workload(selector={"matchLabels": {"a": "b c"}}),
     [f'spec.selector.matchLabels: Invalid value: "b c": {VALUE_TEXT}',
      'spec.selector: Invalid value: {"matchLabels":{"a":"b c"}}']),
    ("statefulsets.apps", rolling("statefulsets", partition=-1),
     ["spec.updateStrategy.rollingUpdate.partition: Invalid value: -1: must be greater than or equal to 0"]),
    ("statefulsets.apps", workload(volumeClaimTemplates=[{"metadata": {"name": "d"}, "spec": {"volumeMode": "Odd"}}]),
     ["spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required",
      "spec.volumeClaimTemplates[0].spec.resources[storage]: Required value",
      ('spec.volumeClaimTemplates[0].spec.volumeMode: Unsupported value: "Odd": supported values: "Block", '
       '"Filesystem"')]),
]  # fmt: skip

ONCE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
INDEXED = {"completionMode": "Indexed", "completions": 3}


def job(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x", "uid": "u"}, "spec": {"template": ONCE, **spec}}


def failing(*rules: Any) -> dict[str, Any]:
    return job(podFailurePolicy={"rules": [*rules]})


def cron_job(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "x"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": ONCE}}, **spec},
    }


FAIL = "spec.podFailurePolicy.rules[0]"
DONE = "spec.successPolicy.rules"
JOBS = [
    ("jobs.batch", job(parallelism=-1, maxFailedIndexes=-1, managedBy="me", completionMode="Odd"),
     ["spec.parallelism: Invalid value: -1: must be greater than or equal to 0",
      "spec.maxFailedIndexes: Invalid value: -1: must be greater than or equal to 0",
      "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
      'spec.managedBy: Invalid value: "me": must be a domain-prefixed path (such as "acme.io/foo")',
      'spec.completionMode: Unsupported value: "Odd": supported values: "NonIndexed", "Indexed"']),
    ("jobs.batch", job(managedBy=f"a.b/{'c' * 60}"), ["spec.managedBy: Too long: may not be more than 63 bytes"]),
    ("jobs.batch", job(backoffLimitPerIndex=1, maxFailedIndexes=1),
     ["spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
      "spec.maxFailedIndexes: Invalid value: 1: requires indexed completion mode"]),
    ("jobs.batch", job(completionMode="Indexed", completions=100_001, parallelism=100_001, backoffLimitPerIndex=1),
     ["spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed",
      "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000",
      ("spec.parallelism: Invalid value: 100001: must be less than or equal to 10000 when completions are above 100000 "
       "and used with backoff limit per index")]),
    ("jobs.batch", failing({}, {"action": "Odd", "onExitCodes": {}}),
     [f'{FAIL}.action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]',
      f"{FAIL}: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
      ('spec.podFailurePolicy.rules[1].action: Unsupported value: "Odd": supported values: "Count", "FailIndex", '
       '"FailJob", "Ignore"'),
      'spec.podFailurePolicy.rules[1].onExitCodes.operator: Required value: valid values: ["In" "NotIn"]',
      "spec.podFailurePolicy.rules[1].onExitCodes.values: Invalid value: null: at least one value is required"]),
    ("jobs.batch", failing({"action": "FailIndex", "onPodConditions": [{"type": "a b", "status": "Odd"}], "onExitCodes": {
        "operator": "In", "containerName": "z", "values": [0, 2, 1, 1]}}),
     [f'{FAIL}.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
      (f'{FAIL}.onExitCodes.containerName: Invalid value: "z": must be one of the container or initContainer names in '
       "the pod template"),
      f"{FAIL}.onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
      f"{FAIL}.onExitCodes.values[3]: Duplicate value: 1",
      f"{FAIL}.onExitCodes.values: Invalid value: [0,2,1,1]: must be ordered",
      f'{FAIL}.onPodConditions[0].type: Invalid value: "a b": {NAME_PART_TEXT}',
      f'{FAIL}.onPodConditions[0].status: Unsupported value: "Odd": supported values: "False", "True", "Unknown"',
      f"{FAIL}: Invalid value: specifying both OnExitCodes and OnPodConditions is not supported"]),
    ("jobs.batch", job(podFailurePolicy={"rules": []}, podReplacementPolicy="TerminatingOrFailed",
                       template={"spec": {**ONCE["spec"], "restartPolicy": "OnFailure"}}),
     ['spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"',
      ('spec.template.spec.restartPolicy: Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is '
       "specified")]),
    ("jobs.batch", job(successPolicy={"rules": [{"succeededCount": 1}]}),
     [('spec.successPolicy: Invalid value: {"Rules":[{"SucceededIndexes":null,"SucceededCount":1}]}: requires indexed '
       "completion mode")]),
    ("jobs.batch", job(**INDEXED, successPolicy={"rules": []}),
     [f"{DONE}: Required value: at least one rules must be specified when the successPolicy is specified"]),
    ("jobs.batch", job(**INDEXED, successPolicy={"rules": [
        {}, {"succeededIndexes": "0-1-2"}, {"succeededIndexes": "a"}, {"succeededIndexes": "3"},
        {"succeededIndexes": "1,0-1", "succeededCount": 4}, {"succeededIndexes": "0,2", "succeededCount": 3}]}),
     [f"{DONE}[0]: Required value: at least one of succeededCount or succeededIndexes must be specified",
      (f'{DONE}[1].succeededIndexes: Invalid value: "0-1-2": error parsing succeededIndexes: the fragment "0-1-2" violates '
       "the requirement that an index interval can have at most two parts separated by '-'"),
      (f'{DONE}[2].succeededIndexes: Invalid value: "a": error parsing succeededIndexes: cannot convert string to integer '
       'for index: "a"'),
      f'{DONE}[3].succeededIndexes: Invalid value: "3": error parsing succeededIndexes: too large index: "3"',
      (f'{DONE}[4].succeededIndexes: Invalid value: "1,0-1": error parsing succeededIndexes: non-increasing order, '
       "previous: 1, current: 0"),
      (f"{DONE}[4].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of specified "
       "completions)"),
      (f"{DONE}[4].succeededCount: Invalid value: 4: must be less than or equal to 0 (the number of indexes in the "
       "specified succeededIndexes field)"),
      (f"{DONE}[5].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the "
       "specified succeededIndexes field)")]),
    ("jobs.batch", {"metadata": {"name": "a" * 62, "uid": "u"}, "spec": {"template": ONCE, **INDEXED}},
     [(f'metadata.name: Invalid value: "{"a" * 62}": will not able to create pod with invalid DNS label: '
       f'{"a" * 62}-2')]),
    ("cronjobs.batch", cron_job(schedule="TZ=UTC * * * * *", timeZone="Local", concurrencyPolicy="Odd",
                                startingDeadlineSeconds=-1, failedJobsHistoryLimit=-1),
     ['spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field instead',
      "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0",
      ('spec.timeZone: Invalid value: "Local": timeZone must be an explicit time zone as defined in '
       "https://www.iana.org/time-zones"), 'spec.timeZone: Invalid value: "Local": unknown time zone Local',
      'spec.concurrencyPolicy: Unsupported value: "Odd": supported values: "Allow", "Forbid", "Replace"',
      "spec.failedJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0"]),
    ("cronjobs.batch", cron_job(schedule="", jobTemplate={"spec": {
        "selector": {}, "manualSelector": True, "template": {"spec": {"containers": ONCE["spec"]["containers"]}}}}),
     ["spec.schedule: Required value",
      'spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
      "spec.jobTemplate.spec.selector: Invalid value: {}: `selector` will be auto-generated",
      'spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"']),
]  # fmt: skip


def scaler(**spec: Any) -> dict[str, Any]:
    target = {"apiVersion": "g/v1", "kind": "D", "name": "d"}
    return {"metadata": {"name": "x"}, "spec": {"scaleTargetRef": target, "maxReplicas": 1, **spec}}


def schema(rule: Any, **spec: Any) -> dict[str, Any]:
    base = {"priorityLevelConfiguration": {"name": "p"}, "rules": [rule] if rule else []}
    return {"metadata": {"name": "x"}, "spec": {**base, **spec}}


def level(queuing: Any, **limited: Any) -> dict[str, Any]:
    response = {"type": "Queue", "queuing": queuing}
    return {"metadata": {"name": "x"}, "spec": {"type": "Limited", "limited": {"limitResponse": response, **limited}}}


RBAC = "rbac.authorization.k8s.io"
SCALERS, SCHEMAS = "horizontalpodautoscalers.autoscaling", "flowschemas.flowcontrol.apiserver.k8s.io"
LEVELS, REQUESTS = (
    "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
    "certificatesigningrequests.certificates.k8s.io",
)
SOURCES = '"ContainerResource", "External", "Object", "Pods", "Resource"'
METRIC, RULE = "spec.metrics[0]", "spec.rules[0]"
QUEUES = "spec.limited.limitResponse.queuing"
POLICIES = [
    (SCALERS, scaler(metrics=[{}]),
     [f"{METRIC}.type: Required value: must specify a metric source type",
      *[f'{METRIC}.type: Unsupported value: "": supported values: {SOURCES}'] * 2]),
    (SCALERS, scaler(metrics=[{"type": "Resource", "object": {"describedObject": {"kind": "a/b"}, "metric": {
        "name": "a%"}, "target": {"type": "Value"}}, "resource": {}}]),
     [f"{METRIC}.object.describedObject.kind: Invalid value: \"a/b\": may not contain '/'",
      f"{METRIC}.object.describedObject.name: Required value",
      f"{METRIC}.object.metric.name: Invalid value: \"a%\": may not contain '%'",
      f"{METRIC}.object.target.averageValue: Required value: must set either a target value or averageValue",
      f"{METRIC}.object: Forbidden: must populate the given metric source only"]),
    (SCALERS, scaler(metrics=[{"type": "ContainerResource", "containerResource": {"name": "pods", "container": "A",
        "target": {"type": "Utilization", "averageUtilization": 0}}}]),
     [f'{METRIC}.containerResource.name: Invalid value: "pods": must be a standard resource for containers',
      f'{METRIC}.containerResource.container: Invalid value: "A": {LABEL_TEXT}',
      f"{METRIC}.containerResource.target.averageUtilization: Invalid value: 0: must be greater than 0"]),
    (f"clusterroles.{RBAC}", {**meta(), "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b c"}}]}},
     [f'aggregationRule.clusterRoleSelectors[0].matchLabels: Invalid value: "b c": {VALUE_TEXT}',
      "aggregationRule.clusterRoleSelectors[0]: Invalid value: null: invalid label selector."]),
    (f"roles.{RBAC}", {**meta(), "rules": [{"nonResourceURLs": ["/a"], "resources": ["b"]}, {"verbs": ["get"]}]},
     ["rules[0].verbs: Required value: verbs must contain at least one value",
      'rules[0].nonResourceURLs: Invalid value: ["/a"]: namespaced rules cannot apply to non-resource URLs',
      ('rules[0].nonResourceURLs: Invalid value: ["/a"]: rules cannot apply to both regular resources and non-resource '
       "URLs"),
      "rules[1].apiGroups: Required value: resource rules must supply at least one api group",
      "rules[1].resources: Required value: resource rules must supply at least one resource"]),
    (f"clusterrolebindings.{RBAC}", {**meta(), "roleRef": {"kind": "Role", "name": "a/b"}, "subjects": [
        {"kind": "User"}, {"kind": "ServiceAccount", "name": "A", "apiGroup": "a"}, {"kind": "Odd", "name": "n"}]},
     ['roleRef.kind: Unsupported value: "Role": supported values: "ClusterRole"',
      "roleRef.name: Invalid value: \"a/b\": may not contain '/'",
      "subjects[0].name: Required value",
      f'subjects[1].name: Invalid value: "A": {SUBDOMAIN_TEXT}',
      'subjects[1].apiGroup: Unsupported value: "a": supported values: ""',
      "subjects[1].namespace: Required value",
      'subjects[2].kind: Unsupported value: "Odd": supported values: "ServiceAccount", "User", "Group"']),
    (REQUESTS, {**meta(), "spec": {"request": b64("x"), "usages": ["any", "odd", "any"], "signerName": "A/B.c",
                                   "expirationSeconds": 599}},
     [f'spec.request: Invalid value: "{b64("x")}": PEM block type must be CERTIFICATE REQUEST',
      f'spec.usages[1]: Unsupported value: "odd": supported values: {USAGES}',
      'spec.usages[2]: Duplicate value: "any"',
      f'spec.signerName: Invalid value: "A": validating label "A": {LABEL_TEXT}',
      'spec.signerName: Invalid value: "A": should be a domain with at least two segments separated by dots',
      f'spec.signerName: Invalid value: "B.c": validating label "B": {SUBDOMAIN_TEXT}',
      ("spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 600 seconds (10 "
       "minutes)")]),
    (SCHEMAS, schema({}, matchingPrecedence=1, distinguisherMethod={"type": "Odd"}, priorityLevelConfiguration={}),
     ["spec.matchingPrecedence: Invalid value: 1: only the schema named 'exempt' may have matchingPrecedence 1",
      'spec.distinguisherMethod.type: Unsupported value: {"Type":"Odd"}: supported values: "ByNamespace", "ByUser"',
      "spec.priorityLevelConfiguration.name: Required value: must reference a priority level"]),
    (SCHEMAS, schema({"subjects": [
        {"kind": "User", "group": {}}, {"kind": "ServiceAccount", "serviceAccount": {"name": "*", "namespace": "A"}},
        {"kind": "Group", "group": {}}, {"kind": "Odd"}, {"kind": "ServiceAccount", "serviceAccount": {"name": "A"}}]}),
     [f"{RULE}.subjects[0].user: Required value: user is required when subject kind is 'User'",
      f"{RULE}.subjects[0].group: Forbidden: group is forbidden when subject kind is not 'Group'",
      f'{RULE}.subjects[1].serviceAccount.namespace: Invalid value: "A": {LABEL_TEXT}',
      f"{RULE}.subjects[2].group.name: Required value",
      f'{RULE}.subjects[3].kind: Unsupported value: "Odd": supported values: "Group", "ServiceAccount", "User"',
      f'{RULE}.subjects[4].serviceAccount.name: Invalid value: "A": {SUBDOMAIN_TEXT}',
      f"{RULE}.subjects[4].serviceAccount.namespace: Required value: must specify namespace for service account",
      f"{RULE}: Required value: at least one of resourceRules and nonResourceRules has to be non-empty"]),
    (SCHEMAS, schema({"subjects": [{"kind": "Group", "group": {"name": "g"}}],
                      "resourceRules": [{"verbs": ["*", "get"], "apiGroups": ["*", "a"], "namespaces": ["A"]}],
                      "nonResourceRules": [{"verbs": ["get"], "nonResourceURLs": ["a", "/a//b", "/a*"]}]}),
     [f"{RULE}.resourceRules[0].verbs: Invalid value: [\"*\",\"get\"]: if '*' is present, must not specify other verbs",
      (f"{RULE}.resourceRules[0].apiGroups: Invalid value: [\"*\",\"a\"]: if '*' is present, must not specify other api "
       "groups"),
      f"{RULE}.resourceRules[0].resources: Required value: resource rules must supply at least one resource",
      (f'{RULE}.resourceRules[0].namespaces[0]: Invalid value: "A": each member of this list must be \'*\' or a DNS-1123 '
       f"label; {LABEL_TEXT}"),
      f'{RULE}.nonResourceRules[0].nonResourceURLs[0]: Invalid value: "a": must start with slash',
      f'{RULE}.nonResourceRules[0].nonResourceURLs[1]: Invalid value: "/a//b": must not contain double slash',
      f'{RULE}.nonResourceRules[0].nonResourceURLs[2]: Invalid value: "/a*": wildcard can only do suffix matching']),
    (LEVELS, {**meta(), "spec": {"type": "Exempt"}},
     ["spec.type: Invalid value: \"Exempt\": type must be 'Exempt' if and only if name is 'exempt'"]),
    (LEVELS, level({"queues": 10_000_001, "handSize": -1}, lendablePercent=101, borrowingLimitPercent=-1,
                   nominalConcurrencyShares=-1),
     ["spec.limited.nominalConcurrencyShares: Invalid value: -1: must be a non-negative integer",
      f"{QUEUES}.queues: Invalid value: 10000001: must not be greater than 10000000",
      f"{QUEUES}.handSize: Invalid value: -1: must be positive",
      "spec.limited.lendablePercent: Invalid value: 101: must be between 0 and 100, inclusive",
      "spec.limited.borrowingLimitPercent: Invalid value: -1: if specified, must be a non-negative integer"]),
    (LEVELS, level({"queues": 64, "handSize": 11}),
     [(f"{QUEUES}.handSize: Invalid value: 11: required entropy bits of deckSize 64 and handSize 11 should not be "
       "greater than 60")]),
]  # fmt: skip


def limits(**item: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": {"limits": [item]}}


def quota(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": spec}


def term(scope: str, operator: str = "Exists", *values: str) -> dict[str, Any]:
    return {"scopeName": scope, "operator": operator, **({"values": [*values]} if values else {})}


ONLY_EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
STANDARD_ONLY = "must be a standard resource type or fully qualified"
QUOTAS = [
    ("limitranges", limits(type="Pod", max={"cpu": "500m", "example.com/a": "1"}, min={"cpu": "1000m"},
                           default={"cpu": "2"}),
     ["spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
      'spec.limits[0].min[cpu]: Invalid value: "1": min value 1 is greater than max value 500m']),
    ("limitranges", limits(type="PersistentVolumeClaim", min={"memory": "1"}, maxLimitRequestRatio={"odd": "500m"}),
     ["spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided",
      f'spec.limits[0].maxLimitRequestRatio[odd]: Invalid value: "odd": {STANDARD_ONLY}',
      'spec.limits[0].maxLimitRequestRatio[odd]: Invalid value: "500m": ratio 500m is less than 1']),
    ("limitranges", limits(type="Container", max={"requests.example.com/a": "1"}, min={"pods": "1"}),
     [('spec.limits[0].max[requests.example.com/a]: Invalid value: "requests.example.com/a": '
       "doesn't follow extended resource name standard"),
      'spec.limits[0].min[pods]: Invalid value: "pods": must be a standard resource for containers',
      ('spec.limits[0].default[requests.example.com/a]: Invalid value: "requests.example.com/a": '
       "doesn't follow extended resource name standard"),
      ('spec.limits[0].defaultRequest[pods]: Invalid value: "pods": must be a standard resource for containers'),
      ('spec.limits[0].defaultRequest[requests.example.com/a]: Invalid value: "requests.example.com/a": '
       "doesn't follow extended resource name standard")]),
    ("limitranges", limits(type="Container", max={"cpu": "2"}, min={"cpu": "1"}, default={"cpu": "3"},
                           defaultRequest={"cpu": "1"}, maxLimitRequestRatio={"cpu": "4"}),
     ['spec.limits[0].default[cpu]: Invalid value: "2": default value 3 is greater than max value 2',
      'spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "4": ratio 4 is greater than max/min = 2.000000']),
    ("limitranges", limits(type="Container", default={"hugepages-2Mi": "4Mi"}, defaultRequest={"hugepages-2Mi": "2Mi"}),
     [('spec.limits[0].defaultRequest[hugepages-2Mi]: Invalid value: "2Mi": default value 4Mi must equal to '
       "defaultRequest value 2Mi in hugepages-2Mi")]),
    ("limitranges", limits(type="example.com/T", max={"requests.hugepages-2Mi": "-1"}, default={"a.kubernetes.io/b": "2"},
                           defaultRequest={"a.kubernetes.io/b": "1"}), []),
    ("resourcequotas", quota(hard={"odd": "1", "pods": "-500m"}),
     [f'spec.hard[odd]: Invalid value: "odd": {STANDARD_ONLY}',
      'spec.hard[odd]: Invalid value: "odd": must be a standard resource for quota',
      'spec.hard[pods]: Invalid value: "-500m": must be greater than or equal to 0',
      'spec.hard[pods]: Invalid value: "-500m": must be an integer']),
    ("resourcequotas", quota(hard={"requests.example.com/a": "500m", "requests.hugepages-2Mi": "2Mi"}), []),
    ("resourcequotas", quota(hard={"fast.storageclass.storage.k8s.io/requests.storage": "500m"}),
     [('spec.hard[fast.storageclass.storage.k8s.io/requests.storage]: Invalid value: "500m": must be an integer')]),
    ("resourcequotas", quota(hard={"hugepages-2Mi": "2Mi", "pods": "1"}, scopes=["Terminating", "Odd", "NotTerminating"]),
     [f'spec.scopes: Invalid value: ["Terminating","Odd","NotTerminating"]: {each}' for each in (
         "unsupported scope applied to resource", "unsupported scope", "unsupported scope applied to resource",
         "conflicting scopes")]),
    ("resourcequotas", quota(hard={"cpu": "1"}, scopeSelector={"matchExpressions": [
        term("BestEffort", "In"), term("NotBestEffort", "Exists", "a"), term("Odd", "Is"),
        term("PriorityClass", "NotIn", "a")]}),
     [('spec.scopeSelector.matchExpressions: Invalid value: {"MatchExpressions":['
       '{"ScopeName":"BestEffort","Operator":"In","Values":null},'
       '{"ScopeName":"NotBestEffort","Operator":"Exists","Values":["a"]},'
       '{"ScopeName":"Odd","Operator":"Is","Values":null},'
       '{"ScopeName":"PriorityClass","Operator":"NotIn","Values":["a"]}]}: unsupported scope applied to resource'),
      f'spec.scopeSelector.matchExpressions.operator: Invalid value: "In": {ONLY_EXISTS}',
      ("spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or "
       "'NotIn' for scope selector"),
      ("spec.scopeSelector.matchExpressions.values: Invalid value: [\"a\"]: must be no value when `operator` is 'Exist' or "
       "'DoesNotExist' for scope selector"),
      'spec.scopeSelector.matchExpressions.scopeName: Invalid value: "Odd": unsupported scope',
      'spec.scopeSelector.matchExpressions.operator: Invalid value: "Is": not a valid selector operator',
      "spec.scopeSelector.matchExpressions: Invalid value: null: conflicting scopes"]),
]  # fmt: skip


def hooks(*hooks: dict[str, Any]) -> dict[str, Any]:
    usual = {
        "name": "a.b.c",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": "https://a"},
    }
    return {"metadata": {"name": "x"}, "webhooks": [{**usual, **each} for each in hooks]}


def mutating(*operations: str, mutations: Any = (), **spec: Any) -> dict[str, Any]:
    rule = {"operations": [*operations], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    return quota(matchConstraints={"resourceRules": [rule]}, mutations=[*mutations], **spec)


APPLIED = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}
NOT_MUTATED = 'Unsupported value: "DELETE": supported values: "*", "CONNECT", "CREATE", "UPDATE"'
HOOKS, GROUP = "validatingwebhookconfigurations.admissionregistration.k8s.io", "admissionregistration.k8s.io"
ADMISSION = [
    (HOOKS, hooks({"name": "A"}, {"name": "a.b"}),
     [f'webhooks[0].name: Invalid value: "A": {SUBDOMAIN_TEXT}',
      'webhooks[1].name: Invalid value: "a.b": should be a domain with at least three segments separated by dots']),
    (HOOKS, hooks({}, {"sideEffects": "Some", "admissionReviewVersions": ["v2", "v2"]}),
     ['webhooks[1].sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"',
      'webhooks[1].admissionReviewVersions[1]: Invalid value: "v2": duplicate version',
      'webhooks[1].admissionReviewVersions: Invalid value: ["v2","v2"]: must include at least one of v1, v1beta1',
      'webhooks[1].name: Duplicate value: "a.b.c"']),
    (HOOKS, hooks({"clientConfig": {"service": {"name": "a", "port": 0, "path": "//"}}}),
     ["webhooks[0].clientConfig.service.name: Required value: service name is required",
      f"webhooks[0].clientConfig.service.port: Invalid value: 0: port is not valid: {ONE_TO_65535}",
      'webhooks[0].clientConfig.service.path: Invalid value: "//": segment[0] may not be empty']),
    (HOOKS, hooks({"clientConfig": {"service": {"namespace": "a"}}}),
     ["webhooks[0].clientConfig.service.namespace: Required value: service namespace is required"]),
    (f"mutatingadmissionpolicies.{GROUP}", mutating("CREATE", "DELETE", reinvocationPolicy="Odd"),
     [f"spec.matchConstraints.resourceRules.operations: {NOT_MUTATED}",
      "spec.mutations: Required value: mutations must contain at least one item",
      'spec.reinvocationPolicy: Unsupported value: "Odd": supported values: "IfNeeded", "Never"']),
    (f"mutatingadmissionpolicies.{GROUP}", mutating("*", mutations=[
        {**APPLIED, "jsonPatch": {"expression": "[]"}}, {**APPLIED, "applyConfiguration": {"expression": " "}},
        {"patchType": "JSONPatch"}, APPLIED]),
     [('spec.mutations[0].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is '
       "ApplyConfiguration"),
      "spec.mutations[1].applyConfiguration.expression: Required value",
      "spec.mutations[2].jsonPatch: Required value: must be specified when patchType is JSONPatch"]),
    (f"mutatingadmissionpolicybindings.{GROUP}", quota(policyName="p", matchResources={"resourceRules": [
        {"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]}),
     [f"spec.matchResources.resourceRules.operations: {NOT_MUTATED}"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("resource", "document", "found"),
    [*METADATA, *CORE, *SERVICES, *STORAGE, *NETWORKING, *WORKLOADS, *JOBS, *POLICIES, *QUOTAS, *ADMISSION],
)
def test_all_that_is_wrong_with_a_new_object_is_named_in_order(world, resource, document, found):
    causes, _ = world.try_create(resource, document)
    assert said(causes) == found


UPDATES = [
    ("nodes", node(podCIDR="10.0.0.0/24", providerID="a"), {"spec": {"podCIDR": "10.0.1.0/24", "providerID": "b"}},
     ['spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid',
      'spec.providerID: Forbidden: node updates may not change providerID except from "" to valid']),
    ("nodes", node(), {"spec": {"podCIDR": "10.0.1.0/24", "providerID": "b"}}, []),
    ("secrets", secret("kubernetes.io/basic-auth", username=""), {"type": "Opaque"},
     ['type: Invalid value: "Opaque": field is immutable']),
    ("services", service(type="LoadBalancer", loadBalancerClass="a/b"),
     {"spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "loadBalancerClass": "a/c"}},
     ['spec.loadBalancerClass: Invalid value: "a/c": may not change once set']),
    ("services", service(clusterIP="10.96.0.9"),
     {"spec": {"ports": [{"port": 80}], "clusterIP": "10.96.0.8", "clusterIPs": ["10.96.0.8"]}},
     ['spec.clusterIPs[0]: Invalid value: ["10.96.0.8"]: may not change once set']),
    ("resourcequotas", {"metadata": {"name": "x"}, "spec": {"scopes": ["Terminating", "BestEffort"]}},
     {"spec": {"scopes": ["BestEffort", "Terminating", "BestEffort"]}}, []),
    ("resourcequotas", {"metadata": {"name": "x"}, "spec": {"scopes": ["Terminating"]}}, {"spec": {}},
     ["spec.scopes: Invalid value: null: field is immutable"]),
]  # fmt: skip


@pytest.mark.parametrize(("resource", "document", "change", "found"), UPDATES)
def test_what_a_stored_object_may_not_become_is_named(world, resource, document, change, found):
    stored = world.create(resource, document)
    causes, _ = world.try_update(resource, stored, {**stored, **change})
    assert said(causes) == found


WORKLOAD = {
    "metadata": {"name": "x"},
    "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    },
}
STATUSES = [
    ("services", service(), {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}},
     ["status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"]),
    ("services", service(type="LoadBalancer"),
     {"loadBalancer": {"ingress": [{"ip": "zz", "ipMode": "Odd"}, {"hostname": "1.2.3.4", "ipMode": "VIP"}]}},
     [f'status.loadBalancer.ingress[0].ip: Invalid value: "zz": {IP_TEXT}',
      ('status.loadBalancer.ingress[0].ipMode: Unsupported value: "Odd": supported values: "Proxy", "VIP"'),
      "status.loadBalancer.ingress[1].ipMode: Forbidden: may not be specified when `ip` is not set",
      'status.loadBalancer.ingress[1].hostname: Invalid value: "1.2.3.4": must be a DNS name, not an IP address']),
    ("deployments.apps", WORKLOAD,
     {"replicas": 1, "updatedReplicas": -1, "readyReplicas": 1, "availableReplicas": 2},
     ["status.updatedReplicas: Invalid value: -1: must be greater than or equal to 0",
      "status.availableReplicas: Invalid value: 2: cannot be greater than status.replicas",
      "status.availableReplicas: Invalid value: 2: cannot be greater than readyReplicas"]),
    ("replicasets.apps", WORKLOAD, {"replicas": 1, "fullyLabeledReplicas": 2},
     ["status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas"]),
    ("poddisruptionbudgets.policy", {"metadata": {"name": "a_B"}, "spec": {"minAvailable": 1}},
     {"currentHealthy": -1, "conditions": [{"type": "a b", "status": "Odd"}]},
     [f'status.conditions[0].type: Invalid value: "a b": {NAME_PART_TEXT}',
      'status.conditions[0].status: Unsupported value: "Odd": supported values: "False", "True", "Unknown"',
      "status.conditions[0].lastTransitionTime: Required value: must be set",
      "status.conditions[0].reason: Required value: must be set",
      "status.currentHealthy: Invalid value: -1: must be greater than or equal to 0"]),
    ("jobs.batch", job(), {"active": 1, "ready": 2, "succeeded": -1, "uncountedTerminatedPods": {
        "succeeded": ["", "u"], "failed": ["u"]}, "completedIndexes": "0", "failedIndexes": "0",
        "completionTime": "2026-01-01T00:00:00Z", "startTime": "2026-01-01T00:00:01Z"},
     ["status.succeeded: Invalid value: -1: must be greater than or equal to 0",
      'status.uncountedTerminatedPods.succeeded[0]: Invalid value: "": must not be empty',
      'status.uncountedTerminatedPods.failed[0]: Duplicate value: "u"',
      ('status.completionTime: Invalid value: "2026-01-01T00:00:00Z": cannot set completionTime when there is no '
       "Complete=True condition"),
      'status.completionTime: Invalid value: "2026-01-01T00:00:00Z": completionTime cannot be set before startTime',
      'status.completedIndexes: Invalid value: "0": cannot set non-empty completedIndexes when non-indexed completion mode',
      'status.failedIndexes: Invalid value: "0": cannot set non-null failedIndexes when backoffLimitPerIndex is null',
      'status.failedIndexes: Invalid value: "0": failedIndexes and completedIndexes overlap at index: 0',
      "status.ready: Invalid value: 2: cannot set more ready pods than active",
      "status.succeeded: Invalid value: -1: cannot decrease the succeeded counter"]),
    ("jobs.batch", job(), {"active": 1, "terminating": 1, "conditions": [
        {"type": each, "status": "True"} for each in ("Complete", "Failed", "SuccessCriteriaMet")]},
     ["status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions",
      "status.completionTime: Required value: completionTime is required for Complete jobs",
      "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition",
      "status.active: Invalid value: 1: active>0 is invalid for finished job",
      "status.startTime: Required value: startTime is required for finished job",
      "status.terminating: Invalid value: 1: terminating>0 is invalid for finished job",
      "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and Failed=true conditions"]),
    ("nodes", node(), {"addresses": [{"type": "Hostname", "address": "a"}] * 2},
     ['status.addresses[1]: Duplicate value: {"Type":"Hostname","Address":"a"}']),
    (f"validatingadmissionpolicies.{GROUP}", {**mutating("*", validations=[{"expression": "true"}])},
     {"typeChecking": {"expressionWarnings": [{"warning": "w"}, {"fieldRef": "spec"}]},
      "conditions": [{"type": "A", "status": "True", "reason": "R"}]},
     ["status.typeChecking.expressionWarnings[0].fieldRef: Required value",
      "status.typeChecking.expressionWarnings[1].warning: Required value",
      "status.conditions[0].lastTransitionTime: Required value: must be set"]),
]  # fmt: skip


@pytest.mark.parametrize(("resource", "document", "status", "found"), STATUSES)
def test_what_a_status_may_not_say_is_named(world, resource, document, status, found):
    stored = world.create(resource, document)
    strategy, new = whole_catalogue().kind(resource).strategy, {**stored, "status": status}
    ctx = world.ctx(None, Request(verb="update", resource=resource, subresource="status"))
    strategy.prepare_status(stored, new, ctx)
    assert said(strategy.validate_status(stored, new, ctx)) == found


@pytest.mark.parametrize(("spec", "labels", "found"), [
    ({}, {}, []),
    ({"selector": {"matchLabels": {"a": "b"}}}, {"a": "b"},
     [('spec.selector: Invalid value: {"matchLabels":{"batch.kubernetes.io/controller-uid":"u","a":"b"}}: `selector` not '
       "auto-generated")]),
    ({}, {"job-name": "other"},
     [('spec.template.metadata.labels[job-name]: Invalid value: {"job-name":"other",'
       '"batch.kubernetes.io/controller-uid":"u","batch.kubernetes.io/job-name":"x","controller-uid":"u"}: must be '
       "'x'")]),
    ({"selector": {"matchLabels": {"a": "b"}}, "manualSelector": True}, {"a": "b"}, []),
])  # fmt: skip
def test_a_job_selects_by_its_own_uid_or_says_that_it_does_not(world, spec, labels, found):
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    causes, _ = world.try_create(
        "jobs.batch", {"metadata": {"name": "x", "uid": "u"}, "spec": {**spec, "template": template}}
    )
    assert said(causes) == found


def test_a_node_that_a_tool_makes_is_completed_and_keeps_pods_off_until_it_is_ready(world):
    new = node({"capacity": {"cpu": "4"}}, podCIDR="10.0.0.0/24")
    made = world.create("nodes", new, field_validation="Warn")
    assert made["status"] == {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "4"}}
    assert made["spec"] == {
        "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"],
        "taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}],
    }  # fmt: skip
    assert "taints" not in world.create("nodes", {**node(), "metadata": {"name": "of-a-kubelet"}})["spec"]


def test_an_address_of_a_balancer_is_a_virtual_one_unless_it_is_said(world):
    stored = world.create("services", service(type="LoadBalancer"))
    new = {**stored, "status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}, {"hostname": "a"}]}}}
    ctx = world.ctx(None, Request(verb="update", resource="services", subresource="status"))
    strategy_for("services").prepare_status(stored, new, ctx)
    assert new["status"]["loadBalancer"]["ingress"] == [{"ipMode": "VIP", "ip": "1.2.3.4"}, {"hostname": "a"}]
