"""The images of a pod's containers: looked up, pulled, and pulled again after a failure. Pure.

A node has the images that its definition names and those that its pods have pulled (`NodeImages`). The pull
policy decides whether an image is pulled. A pull takes no time unless a script says otherwise, or the image
was deleted. A failed pull is tried again when the pod is synced and its back-off is over: after 10 s, then
20 s more, up to 5 min. The images of the volumes that a container mounts come before its own. Source:
kubelet 1, 3.3; upstream `pkg/kubelet/images` (events, reasons), KEP-4639.
"""

from kubelet.effects import PrepareDevices, ResolveReferences
from kubelet.pod.container import Container, Pull
from kubelet.pod.context import SYNC_S, PodContext
from kubelet.pod.image_names import EVENT, REASON, problem_of
from kubelet.pod.states import ContainerState
from kubelet.references.references import Answers, of_container, variables_problem
from kubelet.view import KubeletContainer
from services.api.times import Duration

PULL_BACKOFF_S, PULL_BACKOFF_MAX_S = 10.0, 300.0
NEVER_PULLED = "ErrImageNeverPull"
NEVER = 'Container image "{}" is not present with pull policy of Never'
PRESENT = 'Container image "{}" already present on machine and can be accessed by the pod'


def step(pod: PodContext, container: Container, t: float) -> bool:
    """Look up the images, end a pull, or retry a failed one. Return whether the container must wait for them."""
    image, script, pull = container.image, container.script, _pull_of(pod, container)
    spec, images = _spec_of(pod, container), pod.node.images
    policy = spec.image_pull_policy
    if spec.volume_mounts and (problem := _volume_image_problem(pod, spec, t)):
        _fail(pod, container, t, *problem)
        return True
    if text := problem_of(image):
        pod.event(EVENT, text, "Warning", of=container)
        _fail(pod, container, t, REASON, text)
        return True
    is_here = image in images.present or (image in images.fetched if pull is None else pull.is_done)
    if is_here and policy != "Always":
        pod.event("Pulled", PRESENT.format(image), of=container)
        _on_image_present(pod, container, t)
        return False
    if policy == "Never":
        text = NEVER.format(image)
        pod.event(NEVER_PULLED, text, "Warning", of=container)
        _fail(pod, container, t, NEVER_PULLED, text)
        return True
    if pull is None:
        took_s = pod.draw("image", container)
        _fetch(pod, image, _pulled_text(image, took_s, took_s, images.present.get(image, 0)), of=container)
        _on_image_present(pod, container, t)
        return False
    if container.state == ContainerState.PULLING:
        return _finish_pull(pod, container, pull, t)
    if container.state == ContainerState.STUCK and t < pull.failed_s + pull.backoff_s:
        text = f'Back-off pulling image "{image}"'
        pod.event("BackOff", text, of=container)
        _fail(pod, container, t, "ImagePullBackOff", f"{text}: ErrImagePull: {_error(image)}")
        return True
    pod.event("Pulling", f'Pulling image "{image}"', of=container)
    if pull.first_s is None:
        pull.first_s = t
    takes_s = script.pull_s if script.must_pull else pod.node.images.takes_s(image)
    begin_s, end_s = pod.node.images.pull(image, t, takes_s)
    pull.took_s, pull.waited_s = end_s - begin_s, end_s - t
    if end_s - pull.first_s >= script.pull_fails_s:
        pod.node.images.expect(image, end_s)
    container.become(ContainerState.PULLING, end_s)
    return False


def _fetch(pod: PodContext, image: str, text: str, of: Container | None = None) -> None:
    """Have an image that takes no time."""
    pod.event("Pulling", f'Pulling image "{image}"', of=of)
    pod.node.images.fetched[image] = None
    pod.event("Pulled", text, of=of)


def _volume_image_problem(pod: PodContext, spec: KubeletContainer, t: float) -> tuple[str, str] | None:
    """Have the images that the container mounts; return reason and message of the last that cannot be had."""
    used, images = {use.name for use in spec.volume_mounts}, pod.node.images
    problem: tuple[str, str] | None = None
    for volume in pod.pod.spec.volumes:
        if volume.image is None or volume.name not in used:
            continue
        image, policy = volume.image.reference, volume.image.pull_policy
        if text := problem_of(image):
            problem = REASON, text
            pod.event(EVENT, text, "Warning")
            continue
        if policy != "Always" and (image in images.present or image in images.fetched):
            continue
        if policy == "Never":
            problem = NEVER_PULLED, NEVER.format(image)
            pod.event(*problem, "Warning")
        else:
            _fetch(pod, image, _pulled_text(image, 0.0, 0.0, images.present.get(image, 0)))
    return problem


def _pull_of(pod: PodContext, container: Container) -> Pull | None:
    """Return how far the container's image has come; None: it was on the node all along, and still is."""
    if not container.must_pull and container.image in pod.node.images.collected:
        container.pull = Pull()
    return container.pull if container.must_pull else None


def _finish_pull(pod: PodContext, container: Container, pull: Pull, t: float) -> bool:
    image, script = container.image, container.script
    assert pull.first_s is not None
    if t - pull.first_s < script.pull_fails_s:
        pull.failed_s = t
        pull.backoff_s = min(pull.backoff_s * 2 or PULL_BACKOFF_S, PULL_BACKOFF_MAX_S)
        pod.event("Failed", f'Failed to pull image "{image}": {_error(image)}', "Warning", of=container)
        _fail(pod, container, t, "ErrImagePull", _error(image))
        return True
    pull.is_done, pull.done_s = True, t
    pod.node.images.add(image, pull.took_s, t)
    text = _pulled_text(image, pull.took_s, pull.waited_s, pod.node.images.present[image])
    pod.event("Pulled", text, of=container)
    _on_image_present(pod, container, t)
    return False


def recover(pod: PodContext, container: Container, now: float) -> None:
    """Mark the image as present, because an earlier kubelet started the container."""
    pod.node.images.fetched[container.image] = None
    if container.script.must_pull:
        container.pull.is_done = True
        pod.node.images.add(container.image, container.script.pull_s, now)


def _on_image_present(pod: PodContext, container: Container, t: float) -> None:
    """The image is here: create the container, once plugins have prepared its devices."""
    pod.reach(f"image {container.name}")
    if container.ended is None:
        container.waiting_reason = container.waiting_message = ""
    if container.name in pod.pre_start:
        container.become(ContainerState.DEVICES)
        pod.effects.append(PrepareDevices(container.name))
    else:
        _configure(pod, container, t)


def _configure(pod: PodContext, container: Container, t: float) -> None:
    """Create the container, once what its variables refer to was read."""
    spec = _spec_of(pod, container)
    if (wanted := of_container(spec)) or variables_problem(pod.pod, spec, {}):
        container.become(ContainerState.CONFIG)
        pod.effects.append(ResolveReferences(container.name, wanted))
    else:
        container.become(ContainerState.CREATE, t + pod.draw("create", container))


def references_read(pod: PodContext, container: Container, answers: Answers, now: float) -> str:
    """Create the container if its variables can be resolved; return the problem, or ""."""
    problem = variables_problem(pod.pod, _spec_of(pod, container), answers)
    if not problem:
        container.become(ContainerState.CREATE, now + pod.draw("create", container))
    return problem


def devices_prepared(pod: PodContext, container: Container, problem: str, now: float) -> None:
    """Configure the container with the devices that plugins prepared.

    After a problem it waits for the next sync.
    """
    if not problem:
        _configure(pod, container, now)
        return
    pod.event("Failed", f"Error: {problem}", "Warning", of=container)
    container.wait_for_sync(now + SYNC_S, "CreateContainerConfigError", problem)


def _pulled_text(image: str, took_s: float, waited_s: float, size: int) -> str:
    times = f"in {_spelt(took_s)} ({_spelt(waited_s)} including waiting)"
    return f'Successfully pulled image "{image}" {times}. Image size: {size} bytes.'


def _spelt(seconds: float) -> str:
    """Return a time in whole milliseconds, as Go prints a duration."""
    return Duration(int(seconds * 1000 + 0.5) / 1000).text


def _fail(pod: PodContext, container: Container, t: float, reason: str, message: str) -> None:
    pod.event("Failed", f"Error: {reason}", "Warning", of=container)
    container.wait_for_sync(t + SYNC_S, reason, message)


def _spec_of(pod: PodContext, container: Container) -> KubeletContainer:
    spec = pod.pod.spec
    return next(
        c for c in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers) if c.name == container.name
    )


def _error(image: str) -> str:
    reference = f'failed to resolve reference "{image}": {image}: not found'
    return f'rpc error: code = NotFound desc = failed to pull and unpack image "{image}": {reference}'
