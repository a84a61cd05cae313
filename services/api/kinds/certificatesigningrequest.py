"""CertificateSigningRequest: a client asks for a certificate (certificates.k8s.io/v1)."""

from services.api.meta import AGE, NAME, NONE, Column, Condition, Document, ObjectView, Resource, View
from services.api.times import duration

APPROVED, DENIED, FAILED = "Approved", "Denied", "Failed"
KUBE_CLIENT = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"
LEGACY_UNKNOWN = "kubernetes.io/legacy-unknown"
REQUESTS = "certificatesigningrequests.certificates.k8s.io"


class CertificateSigningRequestSpec(View, frozen=True):
    """A certificate request. `request`: a PEM block in base64. The API server fills in the requester. Durations are
    seconds.
    """

    request: str = ""
    signer_name: str = ""
    expiration_seconds: int | None = None
    usages: tuple[str, ...] = ()
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()


class CertificateSigningRequestStatus(View, frozen=True):
    """Approval or denial of the request, and the issued certificate: PEM in base64."""

    conditions: tuple[Condition, ...] = ()
    certificate: str = ""


class CertificateSigningRequest(ObjectView, frozen=True):
    """A CertificateSigningRequest as components see it."""

    spec: CertificateSigningRequestSpec = CertificateSigningRequestSpec()
    status: CertificateSigningRequestStatus = CertificateSigningRequestStatus()


def _condition(document: Document, now_s: float) -> str:
    status = document.get("status", {})
    types = {each.get("type") for each in status.get("conditions") or ()}
    text = "Denied" if DENIED in types else "Approved" if APPROVED in types else "Pending"
    if FAILED in types:
        text += ",Failed"
    return f"{text},Issued" if status.get("certificate") else text


RESOURCE = Resource(
    CertificateSigningRequest,
    "certificates.k8s.io",
    namespaced=False,
    short_names=("csr",),
    subresources=("status", "approval"),
    columns=(
        NAME,
        AGE,
        Column("SignerName", "spec.signerName", default=NONE),
        Column("Requestor", "spec.username"),
        Column("RequestedDuration", "spec.expirationSeconds", default=NONE, show=duration),
        Column("Condition", _condition),
    ),
    selectable_fields={"spec.signerName": lambda d: str(d.get("spec", {}).get("signerName", ""))},
)
