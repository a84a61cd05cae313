"""Flags of the controller manager."""

from dataclasses import dataclass

from services.runtime.config import setting
from services.runtime.election import LeaderElectionConfig


@dataclass(frozen=True, kw_only=True)
class ControllersConfig(LeaderElectionConfig):
    """Run the workload and infrastructure controllers."""

    controllers: tuple[str, ...] = setting(
        ("*",),
        "a controller to run; * is all but those that only clients from outside need, -NAME leaves one out; repeatable",
    )
    cluster_signing_cert_file: str = setting(
        "", "certificate of the authority that signs approved CertificateSigningRequests; empty: none are signed"
    )
    cluster_signing_key_file: str = setting("", "its key")
    stages: tuple[str, ...] = setting(
        (), "file of KWOK documents, whose Stages move objects that no kubelet hosts; may be repeated"
    )
    stages_seed: int = setting(0, "seed of what these stages leave to chance")
    enable_crds: tuple[str, ...] = setting(
        (), "kinds of KWOK's whose objects are followed, parted by commas, or all; of concern here is Stage"
    )
    custom_resources: bool = setting(
        False, "collect, count and delete objects of kinds that CustomResourceDefinitions define like any others"
    )
