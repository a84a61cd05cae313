"""A pod whose images have to be fetched, or cannot be: its part of the worker. A pure machine.

Unless a container's script says otherwise its image is on the node, and what one pod has pulled is there for all
(`images`). A pull that fails is tried again when the pod is synced and its back-off is over: after 10 s, then 20 s
more, up to 5 min. Source: kubelet 1, 3.3; upstream `pkg/kubelet/images` (events, reasons).
"""

from __future__ import annotations

from kubelet.pod.actions import AskDevices
from kubelet.pod.hooked import HookedPod
from kubelet.runtime.fake_cri import Container, Pull
from kubelet.runtime.images import NodeImages
from kubelet.view import KubeletContainer

SYNC_RETRY_S = 10.0
PULL_BACKOFF_S, PULL_BACKOFF_MAX_S = 10.0, 300.0


class PullingPod(HookedPod):
    """The images of one pod's machine."""

    __slots__ = ("_images",)

    _images: NodeImages

    def _image_step(self, container: Container, t: float) -> bool:
        """Look for the image, end a pull, or sync one that waits. Return whether the container must wait for it."""
        image, script, pull = container.image, container.script, self._pull_of(container)
        policy = self._spec_of(container).image_pull_policy if pull is not None else ""
        if pull is None or pull.is_done or (policy != "Always" and image in self._images.present):
            self._tell("Pulled", f'Container image "{image}" already present on machine and can be accessed by the pod')
            self._has_image(container, t)
            return False
        if policy == "Never":
            text = f'Container image "{image}" is not present with pull policy of Never'
            self._tell("ErrImageNeverPull", text, "Warning")
            self._without_image(container, t, "ErrImageNeverPull", text)
            return True
        if container.state == "pulling":
            return self._pulled(container, pull, t)
        if container.state == "stuck" and t < pull.failed_s + pull.backoff_s:
            text = f'Back-off pulling image "{image}"'
            self._tell("BackOff", text)
            self._without_image(container, t, "ImagePullBackOff", f"{text}: ErrImagePull: {_error(image)}")
            return True
        self._tell("Pulling", f'Pulling image "{image}"')
        if pull.first_s is None:
            pull.first_s = t
        takes_s = script.pull_s if script.must_pull else self._images.takes_s(image)
        begin_s, end_s = self._images.pull(image, t, takes_s)
        pull.took_s, pull.waited_s = end_s - begin_s, end_s - t
        if end_s - pull.first_s >= script.pull_fails_s:
            self._images.expect(image, end_s)
        container.state, container.due_s = "pulling", end_s
        return False

    def _pull_of(self, container: Container) -> Pull | None:
        """Return how far the container's image has come; None: it was on the node all along, and still is."""
        if not container.must_pull and container.image in self._images.collected:
            container.pull = Pull()
        return container.pull if container.must_pull else None

    def _pulled(self, container: Container, pull: Pull, t: float) -> bool:
        image, script = container.image, container.script
        assert pull.first_s is not None
        if t - pull.first_s < script.pull_fails_s:
            pull.failed_s = t
            pull.backoff_s = min(pull.backoff_s * 2 or PULL_BACKOFF_S, PULL_BACKOFF_MAX_S)
            self._tell("Failed", f'Failed to pull image "{image}": {_error(image)}', "Warning")
            self._without_image(container, t, "ErrImagePull", _error(image))
            return True
        pull.is_done, pull.done_s = True, t
        self._images.add(image, pull.took_s, t)
        times = f"in {pull.took_s:.6g}s ({pull.waited_s:.6g}s including waiting)"
        size = self._images.present[image]
        self._tell("Pulled", f'Successfully pulled image "{image}" {times}. Image size: {size} bytes.')
        self._has_image(container, t)
        return False

    def _has_image(self, container: Container, t: float) -> None:
        self._reached(f"image {container.name}")
        if container.ended is None:
            container.waiting_reason = container.waiting_message = ""
        if container.name in self.pre_start:
            container.state, container.due_s = "devices", None
            self._out.append(AskDevices(container.name))
            return
        container.state, container.due_s = "create", t + self._draw("create", container)

    def devices_ready(self, name: str, trouble: str, now: float) -> None:
        """Plugins have prepared the container's devices, or could not: then it is tried again at the next sync."""
        container = next((c for c in self.containers if c.name == name and c.state == "devices"), None)
        if container is None:
            return
        if not trouble:
            container.state, container.due_s = "create", now + self._draw("create", container)
            return
        self._tell("Failed", f"Error: {trouble}", "Warning")
        container.waiting_reason, container.waiting_message = "CreateContainerConfigError", trouble
        container.state, container.due_s = "stuck", now + SYNC_RETRY_S
        self.refresh(now)

    def _without_image(self, container: Container, t: float, reason: str, message: str) -> None:
        """Wait for the next sync."""
        self._tell("Failed", f"Error: {reason}", "Warning")
        container.waiting_reason, container.waiting_message = reason, message
        container.state, container.due_s = "stuck", t + SYNC_RETRY_S

    def _spec_of(self, container: Container) -> KubeletContainer:
        spec = self.pod.spec
        return next(
            c for c in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers) if c.name == container.name
        )


def _error(image: str) -> str:
    reference = f'failed to resolve reference "{image}": {image}: not found'
    return f'rpc error: code = NotFound desc = failed to pull and unpack image "{image}": {reference}'
