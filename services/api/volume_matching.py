"""Matching of volumes and claims: rules that the scheduler and the volume binder must agree on.

The caller decides whether a node can reach the volume, because only the scheduler knows nodes.
Source: upstream `staging/src/k8s.io/component-helpers/storage/volume`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from services.api.kinds.persistentvolume import AVAILABLE, PersistentVolume
from services.api.kinds.persistentvolumeclaim import PersistentVolumeClaim
from services.api.quantity import units
from services.api.selectors import from_label_selector


def capacity_of(volume: PersistentVolume) -> int:
    """Return the volume's size in bytes."""
    return units(volume.spec.capacity.get("storage", "0"))


def is_reserved_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume names this claim; the reference may lack a uid."""
    reference = volume.spec.claim_ref
    return (
        reference is not None
        and (reference.namespace, reference.name) == (claim.metadata.namespace, claim.metadata.name)
        and reference.uid in ("", claim.metadata.uid)
    )


def is_large_enough(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume is as large as the claim requests."""
    return capacity_of(volume) >= claim.requested_bytes


def _is_usable(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume could be given to the claim even if it is reserved for it already."""
    return (
        is_large_enough(volume, claim)
        and volume.spec.volume_mode == claim.spec.volume_mode
        and volume.spec.volume_attributes_class_name == claim.spec.volume_attributes_class_name
        and volume.metadata.deletion_timestamp is None
    )


def _is_offered(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Whether the volume is unclaimed and of the kind the claim asks for."""
    selector = claim.spec.selector
    return (
        volume.spec.claim_ref is None
        and volume.status.phase == AVAILABLE
        and volume.storage_class == claim.storage_class
        and all(mode in volume.spec.access_modes for mode in claim.spec.access_modes)
        and (selector is None or from_label_selector(selector).matches(volume.metadata.labels))
    )


def candidates(claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]) -> list[PersistentVolume]:
    """Return the volumes that suit the claim, the best first: the smallest, by name among equals.

    A volume that is reserved for the claim is the only candidate.
    """
    usable = [v for v in volumes if _is_usable(v, claim)]
    reserved = [v for v in usable if is_reserved_for(v, claim)]
    offered = reserved[:1] or [v for v in usable if _is_offered(v, claim)]
    return sorted(offered, key=lambda v: (capacity_of(v), v.metadata.name))


def match(
    claims: Sequence[PersistentVolumeClaim],
    offers: Mapping[str, Sequence[PersistentVolume]],
    reaches: Callable[[PersistentVolume], bool],
) -> dict[str, PersistentVolume]:
    """Assign to each claim the first of its candidates that is reachable and not taken by an earlier claim.

    `offers` are the candidates by the claim's uid. Claims must come smallest first, so that a large volume is left
    for a large claim. Returns claim uid to volume; a claim without a volume is left out.
    """
    chosen: dict[str, PersistentVolume] = {}
    taken: set[str] = set()
    for claim in claims:
        for volume in offers[claim.metadata.uid]:
            if volume.metadata.name not in taken and reaches(volume):
                chosen[claim.metadata.uid] = volume
                taken.add(volume.metadata.name)
                break
    return chosen
