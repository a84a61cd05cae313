"""Flags of the controller manager."""

from dataclasses import dataclass

from services.runtime.config import setting
from services.runtime.election import LeaderElectionConfig


@dataclass(frozen=True, kw_only=True)
class ControllersConfig(LeaderElectionConfig):
    """Configuration of the process that runs the workload and infrastructure controllers."""

    controllers: tuple[str, ...] = setting(
        ("*",),
        "controller to run; * stands for all but those that only outside clients need, -NAME leaves one out; may be "
        "repeated",
    )
    cluster_signing_cert_file: str = setting(
        "", "certificate of the authority that signs approved CertificateSigningRequests; empty: no request is signed"
    )
    cluster_signing_key_file: str = setting("", "private key of that authority")
    stages: tuple[str, ...] = setting(
        (), "file of KWOK documents, whose Stages move objects that no kubelet hosts; may be repeated"
    )
    stages_seed: int = setting(0, "seed of the random choices of these stages")
    enable_crds: tuple[str, ...] = setting(
        (), "kinds of KWOK whose objects are followed, separated by commas, or all; the controllers follow only Stage"
    )
    custom_resources: bool = setting(
        False, "collect, count and delete objects of kinds that CustomResourceDefinitions define like any others"
    )
