"""Pods and nodes that stages move, against the real API server in virtual time."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from services.api.meta import Key
from services.client.link_faults import LinkFaults
from services.runtime.config import StartError

STAGES = Path(__file__).parents[3] / "experiments" / "stages"
FAST = str(STAGES / "pod-fast.yaml")
NODE = str(STAGES / "node-heartbeat.yaml")
JOB = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "11111111-1111-4111-8111-111111111111"}]
HEAD = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {{name: {name}}}
spec:
  resourceRef: {{apiGroup: v1, kind: {kind}}}
"""


def stages_file(folder, *specs, kind="Pod"):
    """Write stages s0, s1 and so on whose specs go on after the resourceRef."""
    path = folder / "stages.yaml"
    path.write_text("\n---\n".join(HEAD.format(name=f"s{i}", kind=kind) + spec for i, spec in enumerate(specs)))
    return str(path)


def phase(wanted):
    return lambda pod: pod is not None and pod["status"].get("phase") == wanted


def gone(pod):
    return pod is None


def test_fast_stages_make_a_pod_run_and_a_deletion_removes_it_at_once(simulate):
    async def scenario(world):
        uid = await world.create("web", run="exit 1 after 1s")
        pod = await world.until_pod("web", phase("Running"))
        await asyncio.sleep(30.0)
        still = await world.pod("web")
        await world.delete("web")
        deleted_s = world.clock.now()
        await world.until_pod("web", gone)
        return pod, still, world.clock.now() - deleted_s, [
            (x.ev, x.data.get("stage")) for x in world.events.lines
            if x.ev.startswith("kubelet.") and (x.obj or {}).get("uid") == uid
        ]  # fmt: skip

    pod, still, took_s, lines = simulate(scenario, stages=(FAST,))

    assert pod["status"]["podIP"].startswith("10.")
    assert pod["status"]["observedGeneration"] == pod["metadata"]["generation"]
    # No container runs, so the script that would have ended it does not count.
    assert still["status"]["phase"] == "Running"
    assert took_s < 1.0
    assert lines == [("kubelet.admit", None), ("kubelet.stage", "pod-ready"), ("kubelet.stage", "pod-delete")]


def test_a_pod_of_a_job_succeeds_and_its_capacity_is_free(simulate):
    async def scenario(world):
        await world.create("work", cpu="3", ownerReferences=JOB)
        done = await world.until_pod("work", phase("Succeeded"))
        await world.create("next", cpu="3")
        await world.until_pod("next", phase("Running"))
        return done

    done = simulate(scenario, stages=(FAST,))

    assert done["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 0


def test_admission_stays_the_kubelet_s(simulate):
    async def scenario(world):
        await world.create("first", cpu="3")
        await world.until_pod("first", phase("Running"))
        await world.create("second", cpu="3")
        rejected = await world.until_pod("second", phase("Failed"))
        await world.delete("second")
        await world.until_pod("second", gone)
        return rejected["status"]["reason"]

    assert simulate(scenario, stages=(FAST,)) == "OutOfcpu"


def test_a_restarted_kubelet_goes_on_where_the_stages_were(simulate):
    async def scenario(world):
        await world.create("web")
        before = await world.until_pod("web", phase("Running"))
        world.kill_kubelet()
        await world.create("later", cpu="3")
        await world.start_kubelet()
        await world.until_pod("later", phase("Running"))
        after = await world.pod("web")
        await world.delete("web")
        await world.until_pod("web", gone)
        return before["status"], after["status"], len(world.lines("kubelet.start"))

    before, after, starts = simulate(scenario, stages=(FAST,))

    assert before == after
    assert starts == 0


def test_only_chosen_pods_are_staged_and_the_others_run_in_containers(simulate, tmp_path):
    spec = """\
  selector:
    matchLabels: {staged: "yes"}
    matchExpressions: [{key: .status.startTime, operator: DoesNotExist}]
  delay: {durationMilliseconds: 5000}
  next:
    event: {type: Normal, reason: Staged, message: 'on {{ .spec.nodeName }}'}
    statusTemplate: 'startTime: {{ Now }}'
"""

    async def scenario(world):
        await world.create("plain")
        await world.create("staged", labels={"staged": "yes"})
        began_s = world.clock.now()
        await world.until_pod("plain", phase("Running"))
        plain_s = world.clock.now() - began_s
        await world.until_pod("staged", lambda p: p["status"].get("startTime"))
        await asyncio.sleep(1.0)
        events = (await world.admin.list("events"))[0]
        return plain_s, world.clock.now() - began_s, [e["message"] for e in events if e["reason"] == "Staged"]

    plain_s, staged_s, said = simulate(scenario, stages=(stages_file(tmp_path, spec),))

    assert plain_s < 1.0
    assert 5.0 <= staged_s < 7.0
    assert said == ["on n1"]


def test_finalizers_are_set_and_taken_in_the_host_s_name(simulate, tmp_path):
    path = stages_file(
        tmp_path,
        "  selector: {matchExpressions: [{key: .status.phase, operator: In, values: [Pending]}]}\n"
        "  steps:\n"
        "  - finalizers: {add: [{value: keplab.dev/held}]}\n"
        "  - patch: {root: metadata, type: merge, template: 'labels: {seen: \"yes\"}'}\n"
        "  - patch: {root: status, subresource: status, template: 'phase: Running'}\n",
        "  selector: {matchExpressions: [{key: .metadata.deletionTimestamp, operator: Exists}]}\n"
        "  delay: {durationMilliseconds: 3000}\n"
        "  steps: [{finalizers: {remove: [{value: keplab.dev/held}]}}, {delete: true}]\n",
    )

    async def scenario(world):
        await world.create("web")
        running = await world.until_pod("web", phase("Running"))
        await world.delete("web", 0)
        deleted_s = world.clock.now()
        await world.until_pod("web", gone)
        return running["metadata"], world.clock.now() - deleted_s

    meta, took_s = simulate(scenario, stages=(path,))

    assert (meta["finalizers"], meta["labels"]) == (["keplab.dev/held"], {"seen": "yes"})
    assert 3.0 <= took_s < 4.0


def test_a_stage_may_end_a_pod_that_was_not_deleted(simulate, tmp_path):
    path = stages_file(tmp_path, "  selector: {}\n  delay: {durationMilliseconds: 2000}\n  next: {delete: true}\n")

    async def scenario(world):
        await world.create("web")
        await world.until_pod("web", gone)
        return world.clock.now()

    assert simulate(scenario, stages=(path,)) < 5.0


def test_a_template_that_fails_is_an_event_and_the_pod_stays(simulate, tmp_path):
    path = stages_file(tmp_path, "  selector: {}\n  next: {statusTemplate: 'phase: {{ .none.x }}'}\n")

    async def scenario(world):
        await world.create("web")
        await asyncio.sleep(5.0)
        events = (await world.admin.list("events"))[0]
        return [e["message"] for e in events if e["reason"] == "StageFailed"], (await world.pod("web"))["status"][
            "phase"
        ]

    assert simulate(scenario, stages=(path,)) == (["stage s0: line 1: nil has no field .x"], "Pending")


def test_what_the_api_server_refuses_is_recorded_and_not_repeated(simulate, tmp_path):
    path = stages_file(tmp_path, "  selector: {}\n  steps: [{patch: {root: spec, template: 'nodeName: other'}}]\n")

    async def scenario(world):
        await world.create("web")
        await asyncio.sleep(60.0)
        events = (await world.admin.list("events"))[0]
        return [(e.get("count"), e["message"]) for e in events if e["reason"] == "StageFailed"]

    ((count, message),) = simulate(scenario, stages=(path,))

    assert count == 1
    assert "stage s0: " in message
    assert "spec.nodeName" in message


def test_a_critical_pod_preempts_a_staged_one(simulate):
    async def scenario(world):
        await world.create("low", cpu="3")
        await world.until_pod("low", phase("Running"))
        await world.create("critical", cpu="3", spec={"priorityClassName": "system-node-critical"})
        await world.until_pod("critical", phase("Running"))
        return (await world.until_pod("low", phase("Failed")))["status"]

    status = simulate(scenario, stages=(FAST,))

    assert status["reason"] == "Preempting"
    assert [c["reason"] for c in status["conditions"] if c["type"] == "DisruptionTarget"] == ["TerminationByKubelet"]


def test_a_node_s_stages_make_it_ready_and_beat_in_their_own_time(simulate):
    async def scenario(world):
        await asyncio.sleep(5.0)
        node = await world.admin.get("nodes", Key("", "n1"))
        await asyncio.sleep(120.0)
        later = await world.admin.get("nodes", Key("", "n1"))
        return node["status"], later["status"], [
            (x.data["stage"], round(x.mono_ns / 1e9)) for x in world.events.lines if x.ev == "node.stage"
        ]  # fmt: skip

    first, later, stages = simulate(scenario, stages=(NODE,))

    assert first["phase"] == "Running"
    assert {c["type"]: c["status"] for c in first["conditions"]}["Ready"] == "True"
    assert first["nodeInfo"]["kubeletSession"]
    assert first["conditions"][0]["lastTransitionTime"] == later["conditions"][0]["lastTransitionTime"]
    assert first["conditions"][0]["lastHeartbeatTime"] < later["conditions"][0]["lastHeartbeatTime"]
    names = [name for name, _ in stages]
    assert names[0] == "node-initialize"
    beats = [at for name, at in stages if name == "node-heartbeat"]
    assert len(beats) >= 4
    assert all(20 <= b - a <= 26 for a, b in pairwise(beats))


def test_a_label_of_a_node_leads_its_stages_elsewhere_within_one_reading(simulate, tmp_path):
    path = stages_file(
        tmp_path,
        "  selector: {matchExpressions: [{key: '.status.conditions.[]', operator: DoesNotExist}]}\n"
        "  next: {statusTemplate: 'conditions: [{type: Ready, status: \"True\"}]'}\n",
        "  selector:\n"
        "    matchExpressions:\n"
        "    - {key: '.metadata.labels[\"broken\"]', operator: Exists}\n"
        "    - {key: '.status.conditions.[] | select(.type == \"Ready\") | .status', operator: In, values: ['True']}\n"
        "  next: {statusTemplate: 'conditions: [{type: Ready, status: \"False\", reason: Broken}]'}\n",
        kind="Node",
    )

    async def scenario(world):
        await asyncio.sleep(2.0)
        await world.admin.patch("nodes", Key("", "n1"), {"metadata": {"labels": {"broken": "yes"}}})
        await asyncio.sleep(11.0)
        return (await world.admin.get("nodes", Key("", "n1")))["status"]["conditions"]

    (ready,) = [c for c in simulate(scenario, stages=(path,)) if c["type"] == "Ready"]

    assert (ready["status"], ready["reason"]) == ("False", "Broken")


def test_one_seed_gives_one_log_and_lost_answers_are_tried_again(simulate):
    async def scenario(world):
        world.network.profile("kubelet/h0").faults = LinkFaults(loss=0.3)
        for i in range(6):
            await world.create(f"p{i}", cpu="100m")
        for i in range(6):
            await world.until_pod(f"p{i}", phase("Running"), limit_s=300.0)
        return [(x.ev, x.mono_ns, (x.obj or {}).get("name")) for x in world.events.lines]

    assert simulate(scenario, stages=(FAST, NODE)) == simulate(scenario, stages=(FAST, NODE))


def test_a_wrong_file_stops_the_process_before_it_begins(simulate, tmp_path):
    async def scenario(world):
        pass

    with pytest.raises(StartError, match=r"--stages .*none.yaml: No such file or directory"):
        simulate(scenario, stages=(str(tmp_path / "none.yaml"),))


def test_the_general_stages_take_a_pod_with_init_containers_through_every_step(simulate):
    init = [{"name": "setup", "image": "i"}, {"name": "side", "image": "s", "restartPolicy": "Always"}]

    async def scenario(world):
        await world.create("web", spec={"initContainers": init})
        created = await world.until_pod("web", lambda p: p["status"].get("startTime"))
        ready = await world.until_pod("web", phase("Running"))
        await world.delete("web", 10)
        await world.until_pod("web", gone)
        await asyncio.sleep(1.0)
        events = (await world.admin.list("events"))[0]
        return created, ready, [x.data["stage"] for x in world.lines("kubelet.stage")], [
            e["message"] for e in events if e["reason"] == "Killing"
        ]  # fmt: skip

    created, ready, names, killed = simulate(scenario, stages=(str(STAGES / "pod-general.yaml"),))

    initialized = next(c for c in created["status"]["conditions"] if c["type"] == "Initialized")
    assert initialized["message"] == "containers with incomplete status: [setup side]"
    assert [c["state"] for c in created["status"]["containerStatuses"]] == [{"waiting": {"reason": "PodInitializing"}}]
    assert [list(c["state"]) for c in ready["status"]["initContainerStatuses"]] == [["terminated"], ["running"]]
    assert ready["status"]["podIPs"] == [{"ip": ready["status"]["podIP"]}]
    assert ready["metadata"]["finalizers"] == ["kwok.x-k8s.io/fake"]
    assert names == [
        "pod-create", "pod-init-container-running", "pod-init-container-completed", "pod-ready",
        "pod-remove-finalizer", "pod-delete",
    ]  # fmt: skip
    assert killed == ["Stopping container main"]


GPUS = """\
  selector:
    matchExpressions:
    - cel: {expression: "has(self.metadata.annotations) && 'example.com/gpus' in self.metadata.annotations"}
    - cel: {expression: "int(self.metadata.annotations['example.com/gpus']) <= 8"}
    - cel:
        expression: "!('example.com/published' in self.metadata.annotations) ||
          self.metadata.annotations['example.com/published'] != self.metadata.annotations['example.com/gpus']"
  steps:
  - apply:
      template: |
        {{ $node := .metadata.name }}
        apiVersion: resource.k8s.io/v1
        kind: ResourceSlice
        metadata:
          name: {{ $node }}-gpus
          ownerReferences: [{apiVersion: v1, kind: Node, name: {{ $node }}, uid: {{ .metadata.uid | Quote }}}]
        spec:
          driver: gpu.example.com
          nodeName: {{ $node }}
          pool: {name: {{ $node }}, generation: 1, resourceSliceCount: 1}
          devices:
          {{ range $index := until (atoi (index $.metadata.annotations "example.com/gpus")) }}
          - name: gpu-{{ $index }}
          {{ end }}
  - patch:
      root: metadata
      template: |
        annotations:
          example.com/published: {{ index .metadata.annotations "example.com/gpus" | Quote }}
"""


def test_a_stage_publishes_the_devices_that_a_nodes_annotation_counts_and_again_when_it_changes(simulate, tmp_path):
    async def scenario(world):
        devices = []
        for count in ("2", "3", "9"):
            await world.admin.patch("nodes", Key("", "n1"), {"metadata": {"annotations": {"example.com/gpus": count}}})
            await asyncio.sleep(25.0)
            slices, _ = await world.admin.list("resourceslices.resource.k8s.io")
            devices.append([device["name"] for each in slices for device in each["spec"]["devices"]])
        return devices, await world.admin.get("nodes", Key("", "n1"))

    devices, node = simulate(scenario, stages=(stages_file(tmp_path, GPUS, kind="Node"),))

    assert devices == [["gpu-0", "gpu-1"], ["gpu-0", "gpu-1", "gpu-2"], ["gpu-0", "gpu-1", "gpu-2"]]
    assert node["metadata"]["annotations"]["example.com/published"] == "3"
    # Stages that say nothing of the status leave it to the kubelet.
    assert {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][-1].items()


def test_what_a_stage_applies_is_a_slice_or_refused(simulate, tmp_path):
    spec = """\
  selector: {matchExpressions: [{cel: {expression: "self.metadata.name == 'n1'"}}]}
  steps: [{apply: {template: '{apiVersion: v1, kind: ConfigMap, metadata: {name: x}}'}}]
"""

    async def scenario(world):
        await asyncio.sleep(20.0)
        events, _ = await world.admin.list("events")
        return [each["message"] for each in events if each["reason"] == "StageFailed"]

    (said, *_) = simulate(scenario, stages=(stages_file(tmp_path, spec, kind="Node"),))

    assert "v1 ConfigMap is not applied; resource.k8s.io/v1 ResourceSlice is" in said


CPUS = """\
  selector:
    matchExpressions:
    - cel: {expression: "has(self.metadata.annotations) && 'example.com/cpus' in self.metadata.annotations"}
    - key: '.status.conditions.[] | select( .type == "Ready" ) | .status'
      operator: In
      values: ['True']
    - cel: {expression: "!('example.com/published' in self.metadata.annotations)"}
  weight: 1
  steps:
  - apply:
      template: |
        {{ $node := .metadata.name }}
        {{ $cpus := atoi (index .metadata.annotations "example.com/cpus") }}
        {{ $zones := atoi (index .metadata.annotations "example.com/zones" | default "1") }}
        {{ $base := div $cpus $zones }}
        {{ $rem := mod $cpus $zones }}
        apiVersion: resource.k8s.io/v1
        kind: ResourceSlice
        metadata:
          name: {{ $node }}-cpus
          annotations: {example.com/zones: {{ $zones | Quote }}}
          ownerReferences: [{apiVersion: v1, kind: Node, name: {{ $node }}, uid: {{ .metadata.uid | Quote }}}]
        spec:
          driver: cpu.example.com
          nodeName: {{ $node }}
          pool: {name: {{ $node }}, generation: 1, resourceSliceCount: 1}
          devices:
          {{ range $zone := until $zones }}
          {{ $count := add $base (ternary 1 0 (lt $zone $rem)) }}
          - name: zone{{ printf "%03d" $zone }}
            attributes:
              example.com/cpus: {int: {{ $count }}}
              example.com/least: {int: {{ int (ceil (divf $cpus $zones)) }}}
          {{ end }}
  - patch:
      root: metadata
      template: |
        annotations:
          example.com/published: {{ printf "%s/%s" (index .metadata.annotations "example.com/cpus") "x" | Quote }}
"""
REPAIR = """\
  selector:
    matchExpressions:
    - cel: {expression: "!has(self.metadata.deletionTimestamp)"}
    - cel: {expression: "self.spec.driver == 'cpu.example.com'"}
    - cel:
        expression: "!has(self.spec.devices) || size(self.spec.devices) != int(self.metadata.annotations['example.com/zones'])"
  delay: {durationFrom: {cel: {expression: "duration('2s')"}}}
  steps:
  - patch:
      root: spec
      template: |
        devices:
        {{ range $zone := until (atoi (index .metadata.annotations "example.com/zones")) }}
        - name: zone{{ printf "%03d" $zone }}
        {{ end }}
"""


def test_a_slice_that_stages_published_is_repaired_by_stages_of_slices(simulate, tmp_path):
    slices = "resourceslices.resource.k8s.io"

    async def scenario(world):
        said = {"example.com/cpus": "5", "example.com/zones": "2"}
        await world.admin.patch("nodes", Key("", "n1"), {"metadata": {"annotations": said}})
        await asyncio.sleep(15.0)
        published = await world.admin.get(slices, Key("", "n1-cpus"))
        # What another client writes is seen within ten seconds; the stage's own delay is two.
        await world.admin.patch(slices, Key("", "n1-cpus"), {"spec": {"devices": [{"name": "other"}]}})
        broken_s = world.clock.now()
        while len((await world.admin.get(slices, Key("", "n1-cpus")))["spec"]["devices"]) == 1:
            assert world.clock.now() < broken_s + 15
            await asyncio.sleep(0.1)
        repaired_s = world.clock.now() - broken_s
        await asyncio.sleep(30.0)
        played = [line.data["stage"] for line in world.lines("node.stage")]
        return published, repaired_s, await world.admin.get(slices, Key("", "n1-cpus")), played

    publish = HEAD.format(name="publish", kind="Node") + CPUS
    repair = (
        HEAD.format(name="repair", kind="ResourceSlice").replace("apiGroup: v1", "apiGroup: resource.k8s.io/v1")
        + REPAIR
    )
    file = tmp_path / "stages.yaml"
    file.write_text(f"{publish}---\n{repair}")

    published, repaired_s, repaired, played = simulate(scenario, stages=(str(file),))

    devices = published["spec"]["devices"]
    assert [device["name"] for device in devices] == ["zone000", "zone001"]
    assert [device["attributes"]["example.com/cpus"]["int"] for device in devices] == [3, 2]
    assert [device["attributes"]["example.com/least"]["int"] for device in devices] == [3, 3]
    assert 2.0 <= repaired_s <= 12.2
    assert [device["name"] for device in repaired["spec"]["devices"]] == ["zone000", "zone001"]
    assert played == ["publish", "repair"]
