"""A simulation that begins from the state of another: what runs goes on, what is undone goes its own way."""

from pathlib import Path

import msgspec
import pytest

from lab.recordings.format import Parts
from lab.recordings.reader import Recording
from lab.scenarios.initial_state import State, StateError, StoredObject, newest_moment, read_state, write_state
from lab.scenarios.recording import run_recorder
from lab.scenarios.recording_summary import state_at
from lab.scenarios.run import load_scenario, simulate
from lab.scenarios.script.scenario import parse_scenario
from lab.scenarios.script.verbs import VERBS

CLAIMS = Path(__file__).parents[2] / "experiments" / "claims"
WORK = """
nodes n1..n2 cpu=8
replicaset web replicas=3 cpu=1
job once completions=1 run="exit 0 after 40s"
pod crashes run="exit 1 after 1s"
expect within 10s count pods phase=Running == 5
wait 10s
"""
DEVICE = """
nodes n1 cpu=8 drivers=gpu.example.com:1
apply gpus.yaml
wait 1s
pod a claim-templates=gpu grace=1
expect within 20s count pods phase=Running == 1
wait 5s
"""


def scenario_of(text):
    return parse_scenario(text, str(CLAIMS / "text.txt"), VERBS)


def ran(text, *, state=None, at=None, seed=0):
    """Run a scenario; return the result and the state that its store has at the end, or had at a version."""
    states = []

    def look(mesh):
        store = mesh.instance("apiserver").server.store
        rv = at(store) if at is not None else store.rv
        records = store.state_at(rv)
        objects = tuple(StoredObject(r.resource, msgspec.json.decode(r.body)) for r in records)
        states.append(State(rv=rv, wall_s=newest_moment(objects), objects=objects))

    result = simulate(scenario_of(text), seed=seed, state=state, afterwards=look)
    assert result.passed, (result.error, result.violations, [j for j in result.expectations if not j.passed])
    return result, states[0]


def pods(state):
    return {pod["metadata"]["name"]: pod for pod in state.of("pods")}


def runs(pod):
    """Where a pod runs, as which object, since when, and how often its containers were started."""
    running = [
        each["state"]["running"]["startedAt"]
        for each in pod["status"]["containerStatuses"]
        if "running" in each["state"]
    ]
    restarts = [each["restartCount"] for each in pod["status"]["containerStatuses"]]
    return pod["metadata"]["uid"], pod["spec"]["nodeName"], pod["status"]["podIP"], running, restarts


def test_a_fork_goes_on_with_what_runs_and_with_the_versions():
    _, before = ran(WORK)

    result, after = ran("wait 15s", state=before)

    was, now = pods(before), pods(after)
    kept = [name for name in was if name.startswith(("web-", "once-"))]
    assert len(kept) == 4
    assert {name: runs(was[name]) for name in kept} == {name: runs(now[name]) for name in kept}
    assert after.rv > before.rv
    assert all(int(each.document["metadata"]["resourceVersion"]) <= after.rv for each in after.objects)
    assert result.violation_count == 0


def test_what_a_container_does_goes_on_where_it_was():
    """The Job's pod ends 40 s after its start, not 40 s after the fork; the container that crashes has its back-off."""
    _, before = ran(WORK)

    _, after = ran(
        "expect within 40s count pods phase=Succeeded == 1\nexpect count pods phase=Succeeded == 1", state=before
    )
    _, later = ran("wait 60s", state=before)

    ended = pods(after)[next(name for name in pods(after) if name.startswith("once-"))]
    state = ended["status"]["containerStatuses"][0]["state"]["terminated"]
    assert state["startedAt"] == runs(pods(before)[ended["metadata"]["name"]])[3][0]
    assert runs(pods(later)["crashes"])[4][0] > runs(pods(before)["crashes"])[4][0] > 0


def test_the_same_fork_twice_is_the_same_and_another_seed_is_not():
    _, before = ran(WORK)

    digests = [ran("wait 30s", state=before, seed=seed)[0].digest for seed in (1, 1, 2)]

    assert digests[0] == digests[1] != digests[2]


def test_what_if_the_node_had_refused():
    """From the version before the pod was bound, with a node that cannot align its CPUs: it fails there."""
    text = "nodes n1 cpu=8\npod p cpu=6\nwait 5s"

    def before_binding(store):
        bound = next(c for c in store.changes_of("pods", "default", "p") if c.cause.subresource == "binding")
        return bound.rv - 1

    _, before = ran(text, at=before_binding)
    assert "nodeName" not in pods(before)["p"]["spec"]

    _, same = ran("wait 5s", state=before)
    _, other = ran("nodes n1 numa=2x4 policy=single-numa-node\nwait 5s", state=before)

    assert pods(same)["p"]["status"]["phase"] == "Running"
    assert (pods(other)["p"]["status"]["phase"], pods(other)["p"]["status"]["reason"]) == (
        "Failed",
        "TopologyAffinityError",
    )


def test_a_claim_in_use_stays_prepared_and_is_freed_with_its_pod():
    _, before = ran(DEVICE)
    nodes = {"n1": {"drivers": "gpu.example.com:1"}}

    _, after = ran(
        "wait 5s\ndelete pod/a\ngone pod/a\nexpect within 60s count resourceclaims.resource.k8s.io == 0",
        state=msgspec.structs.replace(before, parts=Parts(nodes=nodes)),
    )

    assert before.of("resourceclaims.resource.k8s.io")[0]["status"]["allocation"]
    assert after.of("resourceclaims.resource.k8s.io") == []


def test_a_node_that_boots_in_a_fork_starts_its_pods_again():
    _, before = ran(WORK)

    _, after = ran("reboot kubelet/n1 down=2s\nwait 30s", state=before)

    was = {
        name: pod for name, pod in pods(before).items() if pod["spec"]["nodeName"] == "n1" and name.startswith("web-")
    }
    assert was
    assert all(runs(pods(after)[name])[4] == [1] for name in was)


@pytest.mark.parametrize("name", ["state.json", "state.json.gz"])
def test_a_state_is_written_and_read(tmp_path, name):
    _, before = ran(WORK)
    parts = Parts(
        nodes={"n1": {"cpu": "4"}},
        own_switches={"scheduler-second": ["PodUnbinding=false"]},
        latencies=["sandbox=constant:1"],
        schedulers=["second"],
        file_lines=["stages slow.yaml"],
    )
    state = msgspec.structs.replace(before, parts=parts, switches=("unbind.api=condition",))

    write_state(tmp_path / name, state)

    assert read_state(tmp_path / name) == state


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "malformed|truncated"),
        ("[]", "want a file with kind State"),
        ('{"kind":"Pod"}', "want a file with kind State"),
        ('{"kind":"State","items":[{}],"metadata":{"resourceVersion":"1"}}', "resource"),
        ('{"kind":"State","items":[],"metadata":{"resourceVersion":"x"},"time":""}', "invalid literal"),
    ],
)
def test_a_file_that_is_no_state_is_refused_by_its_name(tmp_path, text, said):
    (tmp_path / "s").write_text(text)

    with pytest.raises(StateError, match=said) as refused:
        read_state(tmp_path / "s")

    assert str(tmp_path / "s") in str(refused.value)


@pytest.mark.parametrize("seed", [0, 7])
def test_a_fork_with_the_seed_of_its_run_never_draws_an_identifier_of_it_again(seed):
    """The run and its fork both draw with the seed; the fork also by the state that it begins from."""
    _, before = ran(WORK, seed=seed)
    result, after = ran(
        "scale replicaset/web replicas=6\nexpect within 20s count pods name=web-* phase=Running == 6\nwait 5s",
        state=before,
        seed=seed,
    )

    assert result.violation_count == 0
    kept = {each.document["metadata"]["uid"] for each in before.objects}
    born = [each.document["metadata"] for each in after.objects if each.document["metadata"]["uid"] not in kept]
    assert len([each for each in born if each["name"].startswith("web-")]) >= 3
    by_uid = {}
    for each in (*before.objects, *after.objects):
        metadata = each.document["metadata"]
        by_uid.setdefault(metadata["uid"], set()).add((each.resource, metadata.get("namespace", ""), metadata["name"]))
    assert [names for names in by_uid.values() if len(names) > 1] == []
    assert len({pod["status"]["podIP"] for pod in after.of("pods")}) == len(after.of("pods"))


def test_two_states_of_one_run_have_different_draws_and_one_state_always_the_same():
    _, before = ran(WORK)
    later = msgspec.structs.replace(before, rv=before.rv + 1)
    fewer = msgspec.structs.replace(before, objects=before.objects[1:])

    assert before.fingerprint == msgspec.structs.replace(before, wall_s=0.0).fingerprint
    assert len({before.fingerprint, later.fingerprint, fewer.fingerprint}) == 3


KEP_5194 = Path(__file__).parents[2] / "experiments" / "kep-5194"


@pytest.fixture(scope="module")
def race(tmp_path_factory):
    """Return the recording of a Deployment whose pods share one claim of a driver without devices of a node's own."""
    path = tmp_path_factory.mktemp("race") / "race.keprec"
    scenario = load_scenario(KEP_5194 / "scale-race.txt")
    with run_recorder(path, scenario, seed=0) as recorder:
        assert simulate(scenario, recorder=recorder).passed
    return path


def test_a_fork_of_a_recording_has_the_nodes_of_its_scenario_with_their_drivers(race):
    with Recording.open(race) as recording:
        state = state_at(recording, 100)

    result, _ = ran("scale deployment/web replicas=6\nexpect within 20s count pods phase=Running == 6", state=state)

    assert result.absent == []


def test_a_state_that_does_not_know_its_drivers_says_which_claims_lack_them(race):
    with Recording.open(race) as recording:
        state = msgspec.structs.replace(state_at(recording, 100), parts=Parts())

    result = simulate(scenario_of("wait 1s"), state=state)

    sentence = (
        "claim default/net is allocated from net.example.com, which no node of this mesh has: pods with it will not start; "
        "declare nodes … drivers=net.example.com:0"
    )
    assert result.absent == [sentence]
    assert result.document()["absent"] == [sentence]
    with_drivers = simulate(scenario_of("nodes n1..n2 cpu=16 drivers=net.example.com:0\nwait 1s"), state=state)
    assert with_drivers.absent == []
