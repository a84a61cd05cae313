"""The admission plugins that kube-apiserver 1.36 has on by default, and what keplab has of each.

Source: upstream `pkg/kubeapiserver/options/plugins.go`, `DefaultOffAdmissionPlugins`.
"""

from typing import Final, NamedTuple


class Plugin(NamedTuple):
    """`module`: where keplab does what the plugin does, "" where it does not; `note`: what differs, or why not."""

    name: str
    module: str
    note: str = ""


_STRATEGIES: Final = "apiserver_fake/registry/strategies"
PLUGINS: Final = (
    Plugin("NamespaceLifecycle", "apiserver_fake/registry/writes/new_objects.py"),
    Plugin("LimitRanger", "apiserver_fake/registry/admission/limit_ranger.py"),
    Plugin("ServiceAccount", "apiserver_fake/registry/admission/service_account.py"),
    Plugin(
        "TaintNodesByCondition", f"{_STRATEGIES}/core.py", "nodes that clients make; kubelets of the mesh are ready"
    ),
    Plugin(
        "PodSecurity",
        "",
        "not here: the labels `pod-security.kubernetes.io/...` of a Namespace are kept without effect, as if every "
        "level were `privileged`; a ValidatingAdmissionPolicy may stand in for what a scenario needs",
    ),
    Plugin("Priority", "apiserver_fake/registry/admission/priority.py"),
    Plugin("DefaultTolerationSeconds", "apiserver_fake/registry/validation/pod/defaults.py"),
    Plugin("DefaultStorageClass", f"{_STRATEGIES}/volumes.py"),
    Plugin("StorageObjectInUseProtection", f"{_STRATEGIES}/volumes.py"),
    Plugin(
        "PodGroupProtection",
        "services/controllers/podgroup_protection/controller.py",
        "the controller puts the finalizer on as well, a moment after the group is created",
    ),
    Plugin("PersistentVolumeClaimResize", f"{_STRATEGIES}/volumes.py"),
    Plugin("RuntimeClass", "apiserver_fake/registry/admission/runtime_class.py"),
    Plugin("CertificateApproval", "apiserver_fake/registry/admission/certificates.py"),
    Plugin("CertificateSigning", "apiserver_fake/registry/admission/certificates.py"),
    Plugin("ClusterTrustBundleAttest", "", "not here: ClusterTrustBundles are not served; beta, off by default"),
    Plugin("CertificateSubjectRestriction", "apiserver_fake/registry/admission/certificates.py"),
    Plugin("DefaultIngressClass", f"{_STRATEGIES}/networking.py"),
    Plugin("PodTopologyLabels", "apiserver_fake/registry/subresources/binding.py"),
    Plugin("PodGroupWorkloadExists", f"{_STRATEGIES}/scheduling.py", "with GenericWorkload"),
    Plugin("NodeDeclaredFeatureValidator", "apiserver_fake/registry/admission/declared_features.py"),
    Plugin(
        "JobValidation", "", "not here: upstream's acts with the gate WorkloadWithJob alone, which is off by default"
    ),
    Plugin("PodResizeValidator", "apiserver_fake/registry/subresources/resize.py", "switch `resize.feasibility`"),
    Plugin("MutatingAdmissionPolicy", "apiserver_fake/extensions/admission/mutating_policies.py"),
    Plugin("MutatingAdmissionWebhook", "apiserver_fake/extensions/admission/webhooks.py"),
    Plugin("ValidatingAdmissionPolicy", "apiserver_fake/extensions/admission/validating_policies.py"),
    Plugin("ValidatingAdmissionWebhook", "apiserver_fake/extensions/admission/webhooks.py"),
    Plugin("ResourceQuota", "apiserver_fake/registry/admission/quota.py"),
)
"""In upstream's order."""


def table() -> str:
    """Return the plugins as a table of Markdown, paths relative to docs/reference."""
    rows = (
        f"| {each.name} | {f'[{each.module}](../../{each.module})' if each.module else 'no'} | {each.note} |"
        for each in PLUGINS
    )
    return "\n".join(["| Plugin | Where | Remark |", "|---|---|---|", *rows])
