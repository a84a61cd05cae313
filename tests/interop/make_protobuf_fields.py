"""Rewrites `apiserver_fake/rest/protobuf_fields.json` from the Go types of the Kubernetes API.

    python tests/interop/make_protobuf_fields.py /usr/share/gocode/src > apiserver_fake/rest/protobuf_fields.json

The folder is where Debian's `golang-k8s-api-dev` and `golang-k8s-apimachinery-dev` put the sources, those of
`apiextensions-apiserver` and `kube-aggregator` beside them. The Go
types are read and not the .proto files, because only they say which fields are pointers (whose zero is a
value) and which are left out of JSON when empty.
"""

import json
import re
import sys
from pathlib import Path

PACKAGES = {
    "core": "k8s.io/api/core/v1",
    "apps": "k8s.io/api/apps/v1",
    "policy": "k8s.io/api/policy/v1",
    "scheduling": "k8s.io/api/scheduling/v1",
    "coordination": "k8s.io/api/coordination/v1",
    "autoscaling": "k8s.io/api/autoscaling/v1",
    "autoscalingv2": "k8s.io/api/autoscaling/v2",
    "batch": "k8s.io/api/batch/v1",
    "certificates": "k8s.io/api/certificates/v1",
    "discovery": "k8s.io/api/discovery/v1",
    "events": "k8s.io/api/events/v1",
    "flowcontrol": "k8s.io/api/flowcontrol/v1",
    "networking": "k8s.io/api/networking/v1",
    "node": "k8s.io/api/node/v1",
    "storage": "k8s.io/api/storage/v1",
    "authentication": "k8s.io/api/authentication/v1",
    "authorization": "k8s.io/api/authorization/v1",
    "rbac": "k8s.io/api/rbac/v1",
    "resource": "k8s.io/api/resource/v1",
    "admissionregistration": "k8s.io/api/admissionregistration/v1",
    "meta": "k8s.io/apimachinery/pkg/apis/meta/v1",
    "apiextensions": "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
    "apiregistration": "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1",
}
ROOTS = [
    "core.Binding", "core.ConfigMap", "core.Event", "core.LimitRange", "core.Namespace", "core.Node", "core.Pod",
    "core.ResourceQuota", "core.Secret", "core.Service", "core.ServiceAccount", "apps.Deployment", "apps.ReplicaSet",
    "apps.DaemonSet",
    "apps.ControllerRevision", "apps.StatefulSet",
    "policy.PodDisruptionBudget", "policy.Eviction", "scheduling.PriorityClass", "coordination.Lease", "autoscaling.Scale",
    "autoscaling.HorizontalPodAutoscaler",
    "autoscalingv2.HorizontalPodAutoscaler", "batch.CronJob", "batch.Job",
    "authentication.SelfSubjectReview", "authentication.TokenRequest", "authentication.TokenReview",
    "authorization.LocalSubjectAccessReview", "authorization.SelfSubjectAccessReview",
    "authorization.SelfSubjectRulesReview", "authorization.SubjectAccessReview", "meta.DeleteOptions",
    "rbac.ClusterRole", "rbac.ClusterRoleBinding", "rbac.Role", "rbac.RoleBinding",
    "core.Endpoints", "core.PersistentVolume", "core.PersistentVolumeClaim", "core.PodTemplate", "core.ReplicationController",
    "certificates.CertificateSigningRequest", "discovery.EndpointSlice", "events.Event",
    "flowcontrol.FlowSchema", "flowcontrol.PriorityLevelConfiguration",
    "networking.Ingress", "networking.IngressClass", "networking.IPAddress", "networking.NetworkPolicy",
    "networking.ServiceCIDR", "node.RuntimeClass",
    "storage.CSIDriver", "storage.CSINode", "storage.CSIStorageCapacity", "storage.StorageClass",
    "storage.VolumeAttachment", "storage.VolumeAttributesClass",
    "rbac.Role", "rbac.RoleBinding", "rbac.ClusterRole", "rbac.ClusterRoleBinding",
    "admissionregistration.MutatingWebhookConfiguration", "admissionregistration.ValidatingWebhookConfiguration",
    "admissionregistration.ValidatingAdmissionPolicy", "admissionregistration.ValidatingAdmissionPolicyBinding",
    "admissionregistration.MutatingAdmissionPolicy", "admissionregistration.MutatingAdmissionPolicyBinding",
    "authentication.TokenRequest", "authentication.TokenReview", "authentication.SelfSubjectReview",
    "authorization.SubjectAccessReview", "authorization.LocalSubjectAccessReview",
    "meta.Status", "meta.ListMeta", "meta.PartialObjectMetadata",
    "resource.ResourceClaim", "resource.ResourceClaimTemplate", "resource.DeviceClass", "resource.ResourceSlice",
    "apiextensions.CustomResourceDefinition", "apiregistration.APIService",
]  # fmt: skip
# Types with a JSON form of their own; the decoder knows them by name.
SPECIAL = {
    "metav1.Time": "time", "Time": "time", "metav1.MicroTime": "microtime", "MicroTime": "microtime",
    "metav1.Duration": "duration", "resource.Quantity": "quantity", "intstr.IntOrString": "int-or-string",
    "ExtraValue": "texts", "metav1.FieldsV1": "json", "FieldsV1": "json", "runtime.RawExtension": "json",
    "JSON": "json", "JSONSchemaPropsOrArray": "schema-or-list", "JSONSchemaPropsOrBool": "schema-or-bool",
    "JSONSchemaPropsOrStringArray": "schema-or-texts",
}  # fmt: skip
ALIASES = {"metav1": "meta", "v1": "core", "corev1": "core", "apiv1": "core"}
PRIMITIVE = {
    "string": "string", "bool": "bool", "int32": "int", "int64": "int", "int": "int", "uint32": "int", "uint64": "int",
    "float64": "double", "[]byte": "bytes", "types.UID": "string", "types.NodeName": "string",
}  # fmt: skip
FIELD = re.compile(
    r'^\s+(?:(\w+)\s+)?([*\[\]\w.]+)\s+`json:"([^"]*)"(?:\s+\w+:"[^"]*")*?\s+protobuf:"(\w+),(\d+),(\w+)'
)


def read(source: Path):
    structs, named = {}, {}
    for package, folder in PACKAGES.items():
        for file in sorted((source / folder).glob("*.go")):
            if file.name.endswith(("_test.go", ".pb.go")) or "zz_generated" in file.name:
                continue
            current = None
            for line in file.read_text().splitlines():
                if found := re.match(r"^type (\w+) struct\{\}", line):
                    structs[f"{package}.{found[1]}"] = []
                elif found := re.match(r"^type (\w+) struct \{", line):
                    current = f"{package}.{found[1]}"
                    structs.setdefault(current, [])
                elif found := re.match(r"^(?:type |\t)(\w+) (=\s+)?([\w\[\].*]+)$", line.split("//")[0].rstrip()):
                    if line.startswith("type "):
                        named[f"{package}.{found[1]}"] = found[3]
                elif line.startswith("}"):
                    current = None
                elif current and (found := FIELD.match(line)):
                    _, go_type, tag, _, number, _ = found.groups()
                    structs[current].append((int(number), go_type, tag))
    return structs, named


def resolve(package, go_type, structs, named):
    """`(is_pointer, container, type)`; container is "", list or map."""
    pointer = go_type.startswith("*")
    go_type = go_type.lstrip("*")
    if go_type in SPECIAL:
        return pointer, "", SPECIAL[go_type]
    if go_type in PRIMITIVE:
        return pointer, "", PRIMITIVE[go_type]
    if go_type.startswith("[]"):
        return pointer, "list", resolve(package, go_type[2:], structs, named)[2]
    if found := re.match(r"^map\[[\w.]+\](.+)$", go_type):
        inner = resolve(package, found[1], structs, named)
        return pointer, "map", inner[2]
    prefix, _, name = go_type.rpartition(".")
    full = f"{ALIASES.get(prefix, prefix) if prefix else package}.{name}"
    if full in structs:
        return pointer, "", full
    if full in named:
        inner = resolve(full.split(".")[0], named[full], structs, named)
        return pointer or inner[0], inner[1], inner[2]
    raise SystemExit(f"{package}: what is {go_type}?")


def main(source: Path) -> None:
    structs, named = read(source)
    waiting, table = list(ROOTS), {}
    while waiting:
        name = waiting.pop()
        if name in table:
            continue
        table[name] = fields = {}
        for number, go_type, tag in structs[name]:
            json_name, *options = tag.split(",")
            pointer, container, of = resolve(name.split(".")[0], go_type, structs, named)
            # list and map are left out when empty; a pointer's zero and a field without omitempty are kept
            keep = pointer or not ({"omitempty", "omitzero"} & set(options))
            how = "inline" if "inline" in options else container or ("keep" if keep else "")
            fields[number] = [json_name, of, how] if how else [json_name, of]
            if "." in of:
                waiting.append(of)
    lines = [f"{json.dumps(name)}: {json.dumps(table[name])}" for name in sorted(table)]
    sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
