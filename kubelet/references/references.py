"""The objects to which a pod's volumes and a container's variables refer, and messages for missing ones. Pure.

For a volume only the keys of an object are kept; for a variable its values, as long as its pod is here. A
volume that no container mounts is ignored. Source: upstream `pkg/kubelet/kubelet_pods.go`
(makeEnvironmentVariables), `pkg/volume/configmap`, `pkg/volume/secret`, `pkg/volume/projected`,
`pkg/volume/csi`, `pkg/kubelet/volumemanager/populator`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from kubelet.view import (
    EnvVarSource,
    KeySelector,
    KubeletContainer,
    KubeletPod,
    KubeletVolume,
    ObjectVolume,
    ResourceFieldSelector,
    VolumeProjection,
)
from services.api.kinds.csidriver import DRIVERS
from services.api.meta import Document

CONFIG_MAPS, SECRETS, TOKENS = "configmaps", "secrets", "serviceaccounts/token"
CLAIMS: Final = "persistentvolumeclaims"
RUNTIME_CLASSES: Final = "runtimeclasses.node.k8s.io"
ROOT_CA: Final = "kube-root-ca.crt"
"""The ConfigMap with the certificate of the authority: the cluster creates it if it issues tokens."""
_SINGULAR = {CONFIG_MAPS: "configmap", SECRETS: "secret"}
_KEYS = {CONFIG_MAPS: "config key", SECRETS: "secret key"}
_TITLES = {CONFIG_MAPS: "ConfigMap", SECRETS: "Secret"}


class Reference(NamedTuple):
    """An object of the pod's namespace, or a driver or runtime class.

    For a token, `name` is the name of its service account.
    """

    resource: str
    name: str
    audience: str = ""


class Content(msgspec.Struct, frozen=True):
    """The content of an object that was read. `files`: keys of its `binaryData`, which variables cannot use."""

    keys: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    values: Document | None = None
    """The object's `data` as stored, for variables; None: it was read for a volume, which needs none."""
    problem: str = ""
    """Why the object is unavailable; "": it is available."""
    is_missing: bool = False
    """Whether the problem is that the object does not exist."""
    is_served: bool = True
    """For a token: whether the API server issues tokens."""


Answers = Mapping[Reference, Content]
NOTHING: Final = Content()


def missing(reference: Reference) -> Content:
    """Return the answer for a ConfigMap or Secret that does not exist."""
    return Content(problem=f'{_SINGULAR[reference.resource]} "{reference.name}" not found', is_missing=True)


def unread(reference: Reference, why: str) -> Content:
    """Return the answer for an object that could not be read, and was not read before."""
    if reference.resource in _SINGULAR:
        name = _SINGULAR[reference.resource]
        return Content(problem=f"failed to sync {name} cache: timed out waiting for the condition")
    return Content(problem=why)


# --- volumes ---


def containers_of(pod: KubeletPod) -> Iterator[KubeletContainer]:
    """Yield the containers of the pod, init and ephemeral ones too."""
    yield from pod.spec.init_containers
    yield from pod.spec.containers
    yield from pod.spec.ephemeral_containers


def mounted_volumes(pod: KubeletPod) -> list[KubeletVolume]:
    """Return the volumes that some container uses, in the pod's order."""
    if not pod.spec.volumes:
        return []
    used = {use.name for c in containers_of(pod) for use in (*c.volume_mounts, *c.volume_devices)}
    return [volume for volume in pod.spec.volumes if volume.name in used]


def of_volume(pod: KubeletPod, volume: KubeletVolume) -> Iterator[Reference]:
    """Yield the objects to which the volume refers."""
    if claim := volume.claim_name(pod.metadata.name):
        yield Reference(CLAIMS, claim)
    if volume.config_map is not None:
        yield Reference(CONFIG_MAPS, volume.config_map.name)
    if volume.secret is not None:
        yield Reference(SECRETS, volume.secret.secret_name)
    if volume.csi is not None:
        yield Reference(DRIVERS, volume.csi.driver)
    for source in volume.projected.sources if volume.projected is not None else ():
        yield from _of_source(pod, source)


def _of_source(pod: KubeletPod, source: VolumeProjection) -> Iterator[Reference]:
    if source.config_map is not None:
        yield Reference(CONFIG_MAPS, source.config_map.name)
    if source.secret is not None:
        yield Reference(SECRETS, source.secret.name)
    if source.service_account_token is not None:
        yield Reference(TOKENS, pod.spec.service_account_name or "default", source.service_account_token.audience)


def volume_problem(pod: KubeletPod, volume: KubeletVolume, answers: Answers) -> str:
    """Return why the volume cannot be set up; "" when it can. The volume of a claim is not checked here."""
    if volume.config_map is not None:
        return _files(Reference(CONFIG_MAPS, volume.config_map.name), volume.config_map, answers)
    if volume.secret is not None:
        return _files(Reference(SECRETS, volume.secret.secret_name), volume.secret, answers)
    if volume.csi is not None:
        return answers[Reference(DRIVERS, volume.csi.driver)].problem
    if volume.downward_api is not None:
        return _downward(pod, (item.resource_field_ref for item in volume.downward_api.items))
    if volume.projected is not None:
        return _projected_error(pod, volume.projected.sources, answers)
    return ""


def _projected_error(pod: KubeletPod, sources: tuple[VolumeProjection, ...], answers: Answers) -> str:
    """Return what is wrong with the sources: one error by itself, several in brackets, each once (upstream
    `utilerrors.NewAggregate`)."""
    asked = [reference for source in sources for reference in _of_source(pod, source)]
    has_tokens = all(answers[each].is_served for each in asked if each.resource == TOKENS)
    errors: dict[str, None] = {}
    for source in sources:
        if source.config_map is not None and (has_tokens or source.config_map.name != ROOT_CA):
            errors[_files(Reference(CONFIG_MAPS, source.config_map.name), source.config_map, answers)] = None
        if source.secret is not None:
            errors[_files(Reference(SECRETS, source.secret.name), source.secret, answers)] = None
        if source.service_account_token is not None:
            errors[answers[next(iter(_of_source(pod, source)))].problem] = None
        if source.downward_api is not None:
            errors[_downward(pod, (item.resource_field_ref for item in source.downward_api.items))] = None
    wrong = [text for text in errors if text]
    return wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]" if wrong else ""


def _files(reference: Reference, source: ObjectVolume, answers: Answers) -> str:
    content = answers[reference]
    if content.problem:
        return "" if source.optional and content.is_missing else content.problem
    if source.optional:
        return ""
    for item in source.items:
        if item.key not in content.keys and item.key not in content.files:
            return f"references non-existent {_KEYS[reference.resource]}: {item.key}"
    return ""


def _downward(pod: KubeletPod, selectors: Iterable[ResourceFieldSelector | None]) -> str:
    names = {container.name for container in containers_of(pod)}
    wrong = (s.container_name for s in selectors if s is not None and s.container_name not in ("", *names))
    return next((f"container {name} not found" for name in wrong), "")


def claim_problem(pod: KubeletPod, volume: KubeletVolume, answers: Answers) -> str:
    """Return why the volume's claim has no volume to mount; "" when it has one, or was not read."""
    claim = volume.claim_name(pod.metadata.name)
    problem = answers.get(Reference(CLAIMS, claim), NOTHING).problem if claim else ""
    return f"error processing PVC {pod.metadata.namespace}/{claim}: {problem}" if problem else ""


# --- variables ---


def of_container(container: KubeletContainer) -> tuple[Reference, ...]:
    """Return the objects to which the container's variables refer."""
    references: dict[Reference, None] = {}
    for source in container.env_from:
        if source.config_map_ref is not None:
            references[Reference(CONFIG_MAPS, source.config_map_ref.name)] = None
        if source.secret_ref is not None:
            references[Reference(SECRETS, source.secret_ref.name)] = None
    for variable in container.env:
        for resource, key in _keys(variable.value_from):
            references[Reference(resource, key.name)] = None
    return tuple(references)


def _keys(source: EnvVarSource | None) -> Iterator[tuple[str, KeySelector]]:
    if source is not None and source.config_map_key_ref is not None:
        yield CONFIG_MAPS, source.config_map_key_ref
    if source is not None and source.secret_key_ref is not None:
        yield SECRETS, source.secret_key_ref


def variables_problem(pod: KubeletPod, container: KubeletContainer, answers: Answers) -> str:
    """Return the first problem of the container's variables; "" when all can be resolved."""
    for source in container.env_from:
        for resource, named in ((CONFIG_MAPS, source.config_map_ref), (SECRETS, source.secret_ref)):
            if named is None:
                continue
            content = answers[Reference(resource, named.name)]
            if content.problem and not (named.optional and content.is_missing):
                return content.problem
    for variable in container.env:
        if variable.value or variable.value_from is None:
            continue
        if text := _downward(pod, (variable.value_from.resource_field_ref,)):
            return text
        for resource, key in _keys(variable.value_from):
            content = answers[Reference(resource, key.name)]
            if content.problem:
                if not (key.optional and content.is_missing):
                    return content.problem
            elif key.key not in content.keys and not key.optional:
                return f"couldn't find key {key.key} in {_TITLES[resource]} {pod.metadata.namespace}/{key.name}"
    return ""
