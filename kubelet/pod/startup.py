"""The start of a pod until its containers may run: volumes, claims, sandbox; each takes time and may fail. Pure.

Each stage may fail by a fault of the pod or of its node (`script`). A failure is recorded, and the pod is
synced again 10 s later, up to half as much more by chance. Failures for which a node may unbind a pod are
counted; the node decides whether it does. Events and reasons are upstream's. Source: kubelet 1, 3.2, 3.3,
5.2, 8; dra-core 7; guarantees N2; kubelet-unbinding 6.1.
"""

from collections.abc import Sequence
from enum import IntEnum

from kubelet.effects import (
    AttachGivenUp,
    AttachVolumes,
    CallDrivers,
    PodRejected,
    PrepareClaims,
    ResolveReferences,
    StartFailed,
    UnprepareClaims,
)
from kubelet.pod.container import Container
from kubelet.pod.context import PodContext
from kubelet.pod.mounts import Mounts, extras
from kubelet.references.references import RUNTIME_CLASSES, SECRETS, Answers
from kubelet.runtime.claims import HeldClaim
from kubelet.runtime.script import (
    ATTACH,
    CONFIG,
    CONTAINER_STAGES,
    CREATE,
    MOUNT,
    NETWORK,
    NETWORK_DOWN,
    PREPARE,
    SANDBOX,
    START,
    StartFaults,
)
from kubelet.runtime.volumes import MESSAGE, REASON, claims_of
from kubelet.timers import EARLY_S
from services.api.meta import Key

RETRY_S, TRANSIENT_RETRY_S, RETRY_JITTER = 10.0, 1.0, 0.5
VOLUME_WAIT_S = 123.0
"""Seconds for which one try waits for all volumes."""
CLAIMS_FAILED = "FailedPrepareDynamicResources"
_REASONS = {CONFIG: "CreateContainerConfigError", CREATE: "CreateContainerError", START: "RunContainerError"}
_ERRORS = {
    CONFIG: 'configuration of container "{}" not found',
    CREATE: 'failed to create container "{}": rpc error: code = Unknown desc = emulated',
    START: 'failed to start container "{}": OCI runtime create failed: emulated: unknown',
}
_THRESHOLDS = {
    CLAIMS_FAILED: (5, 120.0),
    "FailedCreatePodSandBox": (10, 300.0),
    "FailedMount": (2, 0.0),
    "RunContainerError": (5, 0.0),
}
"""Thresholds of failures by reason, after which a pod may be unbound (kubelet-unbinding 6.1).

Each is a number of failures, and the seconds that they span at least.
"""
NO_FAULTS = StartFaults()
LATE = "context deadline exceeded"
"""The error for volumes that did not come in time."""


class Faults:
    """The start faults of a pod, and the number of its failed tries. `node`: faults of every start on the node."""

    __slots__ = ("_counts", "_own", "_pod", "_tries", "node")

    def __init__(self, pod: PodContext) -> None:
        self._pod = pod
        self.node = pod.node.faults
        own = [f for c in pod.containers for f in c.script.start_faults if f.stage not in CONTAINER_STAGES]
        self._own = StartFaults(own) if own else NO_FAULTS
        self._tries = 0
        self._counts: dict[str, tuple[int, float]] = {}

    def fails_until(self, stage: str, t: float, own: StartFaults | None = None) -> float | None:
        """Return until when this try of a stage would fail; None: it succeeds. `own`: a container's faults."""
        own = self._own if own is None else own
        if (own is NO_FAULTS or not own) and not self.node:
            return None
        self._tries += 1
        latency = self._pod.latency
        until_s = own.strikes(stage, t, latency.share(stage, self._tries))
        if until_s is None:
            until_s = self.node.strikes(stage, t, latency.share(f"node {stage}", self._tries))
        return until_s

    def retry_at_s(self, t: float, after_s: float = RETRY_S) -> float:
        """Return when the pod is synced again after a failure."""
        self._tries += 1
        return t + after_s * (1.0 + RETRY_JITTER * self._pod.latency.share("retry", self._tries))

    def fail(self, reason: str, message: str, t: float) -> float:
        """Record and count a failure; return when the pod is synced again.

        It emits `StartFailed` once there were enough failures.
        """
        self._pod.event(reason, message, "Warning")
        retry_s = self.retry_at_s(t)
        self.count(reason, message, t)
        return retry_s

    def count(self, reason: str, message: str, t: float) -> None:
        """Count a failure; emit `StartFailed` once there were enough."""
        count, first_s = self._counts.get(reason, (0, t))
        self._counts[reason] = count + 1, first_s
        least, over_s = _THRESHOLDS[reason]
        if count + 1 >= least and t - first_s >= over_s:
            self._pod.effects.append(StartFailed(reason, message))

    def failures_of(self, reason: str) -> tuple[int, float]:
        """Return how often the start has failed for a reason, and when first; (0, 0.0) if never."""
        return self._counts.get(reason, (0, 0.0))

    def stops_container(self, container: Container, t: float) -> bool:
        """Return whether a fault stops the creation of this container; if so, it waits for the pod's next sync."""
        if container.faults is None and not self.node:
            return False
        for stage, reason in _REASONS.items():
            if self.fails_until(stage, t, container.faults or NO_FAULTS) is None:
                continue
            if stage == START:
                self._pod.event("Created", "Container created", of=container)
            self.stop_container(container, reason, _ERRORS[stage].format(container.name), t)
            return True
        return False

    def stop_container(self, container: Container, reason: str, text: str, t: float) -> None:
        """Let a container that cannot be created wait for the next sync of its pod."""
        self._pod.event("Failed", f"Error: {text}", "Warning", of=container)
        container.wait_for_sync(self.retry_at_s(t), reason, text)
        self.count("RunContainerError", text, t)


class ClaimState(IntEnum):
    """The progress of a pod's claims."""

    NONE = 0
    """The claims were never requested."""
    READING = 1
    """The claims are being read and checked, anew for each try."""
    SAVING = 2
    """The list of claims is being saved before a driver is called: the next kubelet has to know them."""
    CALLING = 3
    """Drivers are preparing them."""
    FAILED = 4
    """A try failed; another follows."""
    PREPARED = 5
    """Containers may use their devices."""
    RELEASING = 6
    """Drivers are unpreparing them."""
    RELEASED = 7
    """No claim is held any more."""


class Stage(IntEnum):
    """The stages of a pod's start; each waits for something."""

    WORKER = 0
    """Waits for the pod worker, or the next sync after a failure."""
    REFERENCES = 1
    """Waits for the next look at the objects of its volumes.

    Without `due_s` it waits for the answers of the present look.
    """
    UNMOUNTED = 2
    """Waits for volumes, in a try that fails; without `due_s` the pod is being rejected for them."""
    ATTACH = 3
    """Waits for the attach/detach controller, until `due_s` at most."""
    MOUNT = 4
    """Waits for volumes, in a try that succeeds."""
    CLAIMS = 5
    """Waits for the pod's claims, or their next try."""
    SANDBOX = 6
    """Waits for the sandbox and its network."""
    CONTAINERS = 7
    """Waits for nothing more: containers may start."""


class Startup:
    """The start of one pod: `stage` ends at `due_s`; None: nothing happens by itself.

    Claims that are prepared here are also unprepared here, after the last container. Invariant: the pod ends
    only when `claims` is NONE or RELEASED.
    """

    __slots__ = ("_besides", "_pod", "_seq", "_until_s", "claims", "due_s", "faults", "mounts", "stage", "unattached")

    def __init__(self, pod: PodContext, now: float) -> None:
        self._pod = pod
        self.faults = Faults(pod)
        self.stage = Stage.WORKER
        self.due_s: float | None = now + pod.latency.of("worker")
        self.claims = ClaimState.NONE
        self.unattached: tuple[Key, ...] = ()
        """Claims whose volumes the controller had not attached when that was last looked at."""
        self._seq = 0
        """The record that has to be durable before drivers are called."""
        self.mounts = Mounts(pod.pod, now, reads_claims=not pod.node.volumes.is_controlled)
        self._until_s = now
        """So long volumes are waited for in this sync."""
        self._besides: Answers = {}
        """What was read of the pod's pull secrets and its runtime class."""

    @property
    def is_done(self) -> bool:
        """Whether containers may start."""
        return self.stage == Stage.CONTAINERS

    @property
    def _uses_claims(self) -> bool:
        pod = self._pod.pod
        return bool(pod.spec.resource_claims) or pod.status.extended_resource_claim_status is not None

    def step(self, t: float) -> bool:
        """Perform the due steps; return whether containers may start."""
        match self.stage:
            case Stage.WORKER:
                self._pod.reach("worker")
                self._mount(t)
            case Stage.REFERENCES if t + EARLY_S < self._until_s:
                self._resolve(t)
            case Stage.REFERENCES | Stage.UNMOUNTED:
                self._not_mounted(LATE, t)
            case Stage.ATTACH:
                self._pod.effects.append(AttachGivenUp())
                self._not_mounted(LATE, t, unattached=self._names_of(self.unattached))
            case Stage.MOUNT | Stage.CLAIMS if self._uses_claims and self.claims != ClaimState.PREPARED:
                self._pod.reach("mount")
                self.stage, self.due_s = Stage.CLAIMS, None
                self.claims = ClaimState.READING
                self._pod.effects.append(PrepareClaims())
            case Stage.MOUNT:
                self._pod.reach("mount")
                self.stage, self.due_s = Stage.SANDBOX, t + self._pod.latency.of("sandbox")
            case _:
                return self._make_sandbox(t)
        return False

    def _mount(self, t: float) -> None:
        """Begin a try, which waits for all volumes; claims that another pod of the node uses are attached already."""
        pod, faults = self._pod, self.faults
        if not pod.pod.spec.host_network and faults.fails_until(NETWORK, t) is not None:
            pod.event("NetworkNotReady", f"network is not ready: {NETWORK_DOWN}", "Warning")
            self.stage, self.due_s = Stage.WORKER, faults.retry_at_s(t, TRANSIENT_RETRY_S)
            return
        self.stage, self.due_s = Stage.UNMOUNTED, None
        claims = claims_of(pod.pod)
        if claims and pod.node.volumes.refuses(claims):
            pod.effects.append(PodRejected(REASON, MESSAGE))
            return
        self._until_s, self._besides = t + VOLUME_WAIT_S, {}
        self._resolve(t)

    def _resolve(self, t: float) -> None:
        """Look at what the volumes refer to that are not mounted yet; at nothing, where they refer to nothing."""
        pod = self._pod.pod
        wanted = self.mounts.references(pod, t) + ([] if self._besides else extras(pod))
        if not wanted:
            self._on_resolved({}, t)
            return
        self.stage, self.due_s = Stage.REFERENCES, None
        self._pod.effects.append(ResolveReferences("", tuple(dict.fromkeys(wanted))))

    def references_read(self, answers: Answers, now: float) -> None:
        """Take the objects that were read for the volumes."""
        if self.stage == Stage.REFERENCES and self.due_s is None and self._pod.termination is None:
            self._on_resolved(answers, now)

    def _on_resolved(self, answers: Answers, t: float) -> None:
        pod = self._pod
        self._besides = self._besides or {each: answers[each] for each in extras(pod.pod)}
        tried = self.mounts.take(pod.pod, answers, t)
        for text in tried.failures:
            pod.event("FailedMount", text, "Warning")
        if tried.problem:
            self._not_mounted(tried.problem, t, unprocessed=tried.unprocessed)
        elif self.mounts.names:
            self.stage, self.due_s = Stage.REFERENCES, min(self.mounts.next_s, self._until_s)
        else:
            self._attach(t)

    def _attach(self, t: float) -> None:
        claims = claims_of(self._pod.pod)
        if claims and self._pod.node.volumes.is_controlled:
            self.stage, self.due_s = Stage.ATTACH, max(self._until_s, t)
            self._pod.effects.append(AttachVolumes())
            return
        self._set_up(claims, (), t)

    def volumes_attached(self, attached: Sequence[Key], now: float) -> None:
        """Take the claims whose volumes the controller has attached; the node itself attaches the pod's others."""
        if self.stage == Stage.ATTACH and self._pod.termination is None:
            claims = claims_of(self._pod.pod)
            self._pod.node.volumes.take(self._pod.key, attached)
            self._set_up(claims, attached, now)

    def volumes_failed(self, problem: str, now: float) -> None:
        """End this try, because it is not known which volumes the pod's claims are bound to."""
        if self.stage == Stage.ATTACH and self._pod.termination is None:
            self._not_mounted(problem, now, unprocessed=self._names_of(claims_of(self._pod.pod)))

    def _names_of(self, claims: Sequence[Key]) -> list[str]:
        """Return the names that the pod gives the volumes of these claims."""
        volumes, name = self._pod.pod.spec.volumes, self._pod.pod.metadata.name
        wanted = {claim.name for claim in claims}
        return [volume.name for volume in volumes if volume.claim_name(name) in wanted]

    def _not_mounted(
        self, problem: str, t: float, *, unattached: Sequence[str] = (), unprocessed: Sequence[str] = ()
    ) -> None:
        """End the sync: the pod's volumes were not mounted. That they were waited for in vain is no event of its own
        (upstream's syncPod says nothing of a wait that was interrupted)."""
        text = (
            f"Unable to attach or mount volumes: unmounted volumes=[{' '.join(self._unmounted_volumes())}], "
            f"unattached volumes=[{' '.join(unattached)}], "
            f"failed to process volumes=[{' '.join(unprocessed)}]: {problem}"
        )
        if problem != LATE:
            self._pod.event("FailedMount", text, "Warning")
        self.stage, self.due_s = Stage.WORKER, self.faults.retry_at_s(t)
        self.faults.count("FailedMount", text, t)

    def _set_up(self, claims: Sequence[Key], attached: Sequence[Key], t: float) -> None:
        """Mount the volumes, of which `attached` wait for nothing else."""
        pod, faults = self._pod, self.faults
        self.stage, self.due_s = Stage.UNMOUNTED, None
        takes_s = pod.latency.of("mount-claim" if claims else "mount")
        if claims and pod.node.volumes.take(pod.key, [claim for claim in claims if claim not in attached]):
            takes_s += pod.latency.of("attach")
        if (until := faults.fails_until(ATTACH, t)) is not None:
            problem, error = "AttachVolume.Attach", "rpc error: code = Internal desc = emulated"
            text = f'{problem} failed for volume "{self._volume_names()[0]}" : {error}'
            pod.event("FailedAttachVolume", text, "Warning")
        elif (until := faults.fails_until(MOUNT, t)) is not None:
            text = f'MountVolume.SetUp failed for volume "{self._volume_names()[0]}" : mount failed: exit status 32'
            pod.event("FailedMount", text, "Warning")
        # Mounting is tried over and over within the wait; it succeeds as soon as it can.
        if until is None or until + takes_s < max(self._until_s, t + takes_s):
            self.stage, self.due_s = Stage.MOUNT, (t if until is None else until) + takes_s
        else:
            self.due_s = max(self._until_s, t)

    def _unmounted_volumes(self) -> list[str]:
        return self.mounts.names or self._volume_names()

    def _volume_names(self) -> list[str]:
        return [volume.name for volume in self._pod.pod.spec.volumes] or ["kube-api-access"]

    def claims_listed(self, claims: tuple[HeldClaim, ...]) -> None:
        """Take the pod's claims."""
        if self.claims == ClaimState.READING:
            self._pod.claims, self.claims = claims, ClaimState.SAVING
            self._pod.save()
            self._seq = self._pod.saved_seq

    def on_saved(self, now: float) -> None:
        """Call the drivers if the record they wait for is durable now."""
        if self.claims == ClaimState.SAVING and self._seq <= self._pod.durable_seq:
            self.claims = ClaimState.CALLING
            self._pod.effects.append(CallDrivers(self.faults.fails_until(PREPARE, now) is not None))

    def claims_prepared(self, problem: str, now: float) -> None:
        """Take the result of preparing the claims. A problem never fails the pod: it is tried again later."""
        if self.stage != Stage.CLAIMS or self._pod.termination is not None:
            return
        if problem:
            self.claims = ClaimState.FAILED
            text = f"Failed to prepare dynamic resources: prepare dynamic resources: {problem}"
            self.due_s = self.faults.fail(CLAIMS_FAILED, text, now)
        else:
            self.claims = ClaimState.PREPARED
            self._pod.reach("claims")
            self.stage, self.due_s = Stage.MOUNT, now

    def release_claims(self) -> bool:
        """Unprepare the claims, once; return whether the end of the pod has to wait for that."""
        if self.claims in (ClaimState.NONE, ClaimState.RELEASED):
            return False
        if self.claims != ClaimState.RELEASING:
            self.claims = ClaimState.RELEASING
            self._pod.effects.append(UnprepareClaims())
        return True

    def _make_sandbox(self, t: float) -> bool:
        lacking = [each.name for each, read in self._besides.items() if each.resource == SECRETS and read.problem]
        if lacking:
            text = f"Unable to retrieve some image pull secrets ({', '.join(lacking)})"
            text += "; attempting to pull the image may not succeed."
            self._pod.event("FailedToRetrieveImagePullSecret", text, "Warning")
        for reference, read in self._besides.items():
            if reference.resource == RUNTIME_CLASSES and read.problem:
                text = f"Failed to create pod sandbox: {read.problem}"
                self.stage, self.due_s = Stage.WORKER, self.faults.fail("FailedCreatePodSandBox", text, t)
                return False
        if self.faults.fails_until(SANDBOX, t) is None:
            self._pod.reach("sandbox")
            self._finish()
            return True
        text = (
            "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup network for sandbox "
            f'"{self._pod.key.uid}": emulated'
        )
        self.stage, self.due_s = Stage.MOUNT, self.faults.fail("FailedCreatePodSandBox", text, t)
        return False

    def _finish(self) -> None:
        self.stage, self.due_s = Stage.CONTAINERS, None
        self._pod.has_ip = True

    def make_sandbox_again(self, now: float) -> None:
        """Make another sandbox, because the former one ended with the machine."""
        self._pod.event("SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
        self._pod.has_ip = False
        self.mounts.begin(self._pod.pod, now)
        if self._uses_claims:
            # A new sandbox: whether the pod may use its claims is asked again, and drivers prepare them again.
            self.claims = ClaimState.FAILED
        if self.mounts.names:
            self.stage, self.due_s = Stage.WORKER, now
            return
        if self._uses_claims:
            self.stage, self.due_s = Stage.CLAIMS, now
            return
        self.stage, self.due_s = Stage.SANDBOX, now + self._pod.latency.of("sandbox")

    def recover(self, claims: tuple[HeldClaim, ...], *, is_finished: bool) -> None:
        """Mark the volumes, claims and sandbox as present, because an earlier kubelet started the pod."""
        if not is_finished:
            self._pod.node.volumes.take(self._pod.key, claims_of(self._pod.pod))
        self._pod.claims = claims
        if claims:
            self.claims = ClaimState.PREPARED
        self._finish()

    def faults_changed(self, faults: StartFaults, now: float) -> None:
        """Replace the node's start faults; a pod that waits for volumes looks again."""
        self.faults.node = faults
        if self.stage == Stage.UNMOUNTED and self._pod.termination is None:
            self._mount(now)
