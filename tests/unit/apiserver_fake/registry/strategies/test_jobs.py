"""Jobs at the API server: what is completed, what is refused, what may change, and what no client may take back."""

import pytest

from apiserver_fake.registry.strategy import strategy_for
from services.api.kinds.job import format_indexes, parse_indexes
from services.api.printing import cells
from services.api.resources import resources

TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}


def a_job(name="work", template=None, **spec):
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {"template": template or TEMPLATE, **spec}}


def made(world, **spec):
    return world.create("jobs.batch", a_job(**spec))


def changed(world, job, **spec):
    causes, _ = world.try_update("jobs.batch", job, {**job, "spec": {**job["spec"], **spec}})
    return [f"{cause.path}: {cause.message}" for cause in causes]


def test_a_job_is_completed_and_selects_its_own_pods_by_its_uid(world):
    job = made(world)
    spec, uid = job["spec"], job["metadata"]["uid"]

    assert {n: spec[n] for n in ("completions", "parallelism", "backoffLimit", "completionMode", "suspend",
                                 "podReplacementPolicy")} == {
        "completions": 1, "parallelism": 1, "backoffLimit": 6, "completionMode": "NonIndexed", "suspend": False,
        "podReplacementPolicy": "TerminatingOrFailed"}  # fmt: skip
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    labels = spec["template"]["metadata"]["labels"]
    assert labels == {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "work",
                      "controller-uid": uid, "job-name": "work"}  # fmt: skip


def test_with_parallelism_alone_there_are_no_completions(world):
    assert "completions" not in made(world, parallelism=3)["spec"]


def test_a_failure_policy_replaces_ended_pods_only_and_a_limit_per_index_lifts_the_other(world):
    rules = [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    spec = made(world, podFailurePolicy={"rules": rules})["spec"]

    assert spec["podReplacementPolicy"] == "Failed"
    assert spec["podFailurePolicy"]["rules"][0]["onPodConditions"][0]["status"] == "True"
    other = world.create("jobs.batch", a_job("other", completionMode="Indexed", completions=2, backoffLimitPerIndex=1))
    assert other["spec"]["backoffLimit"] == 2**31 - 1


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"template": {"spec": {"containers": TEMPLATE["spec"]["containers"]}}},
         'restartPolicy: Required value: valid values: "OnFailure", "Never"'),
        ({"completions": -1}, "spec.completions: Invalid value: -1"),
        ({"completionMode": "Indexed", "parallelism": 1}, "spec.completions: Required value"),
        ({"completionMode": "Indexed", "completions": 1, "parallelism": 100_001}, "spec.parallelism: Invalid value"),
        ({"backoffLimitPerIndex": 1}, "spec.backoffLimitPerIndex: Invalid value"),
        ({"completionMode": "Indexed", "completions": 1, "maxFailedIndexes": 1}, "spec.backoffLimitPerIndex: Required"),
        ({"podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [0]}}]}},
         "values[0]: Invalid value: 0: must not be 0 for the In operator"),
        ({"podFailurePolicy": {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [2, 1]}}]}},
         "must be ordered"),
        ({"podFailurePolicy": {"rules": [{"action": "Ignore"}]}}, "specifying one of OnExitCodes and OnPodConditions"),
        ({"podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}}]}},
         "requires the backoffLimitPerIndex to be set"),
        ({"podFailurePolicy": {"rules": []}, "podReplacementPolicy": "TerminatingOrFailed"}, "TerminatingOrFailed"),
        ({"podReplacementPolicy": "Never"}, 'Unsupported value: "Never"'),
        ({"successPolicy": {"rules": [{"succeededCount": 1}]}}, "spec.successPolicy: Invalid value"),
        ({"completionMode": "Indexed", "completions": 3, "successPolicy": {"rules": [{"succeededIndexes": "2-1"}]}},
         "non-increasing order, previous: 2, current: 1"),
        ({"managedBy": "me"}, "must be a domain-prefixed path"),
    ],
)  # fmt: skip
def test_what_a_job_may_not_say_is_refused_by_its_field(world, spec, said):
    causes, _ = world.try_create("jobs.batch", a_job(**spec))
    messages = [f"{cause.path}: {cause.message}" for cause in causes]

    assert any(said in text for text in messages), messages


def test_little_of_a_job_changes(world):
    job = made(world, completions=2)
    template = {
        **job["spec"]["template"],
        "spec": {**job["spec"]["template"]["spec"], "nodeSelector": {"disk": "slow"}},
    }

    assert changed(world, job, suspend=True, parallelism=5, activeDeadlineSeconds=9) == []
    assert "spec.completions" in changed(world, job, completions=3)[0]
    assert "spec.template" in changed(world, job, template=template)[0]


def test_kep_2926_the_template_of_a_job_that_never_started_may_still_be_directed(world):
    job = made(world, suspend=True)
    template = job["spec"]["template"]
    directed = {**template, "spec": {**template["spec"], "nodeSelector": {"disk": "fast"}}}
    other = {**template, "spec": {**template["spec"], "priority": 5}}

    assert changed(world, job, template=directed) == []
    assert "spec.template" in changed(world, job, template=other)[0]
    started = {**job, "status": {"startTime": "2026-01-01T00:00:00Z"}}
    assert "spec.template" in changed(world, started, template=directed)[0]


def test_an_indexed_job_grows_when_both_numbers_do(world):
    job = made(world, completionMode="Indexed", completions=2, parallelism=2)

    assert changed(world, job, completions=4, parallelism=4) == []
    assert changed(world, job, completions=4) != []


def test_an_end_is_final_and_there_is_only_one(world):
    failed = {**made(world), "status": {"failed": 2, "conditions": [{"type": "Failed", "status": "True"}]}}

    def wrong(*types, **status):
        conditions = [{"type": each, "status": "True"} for each in types]
        new = {**failed, "status": {"conditions": conditions, "failed": 2, **status}}
        return [cause.path for cause in strategy_for("jobs.batch").validate_status(failed, new, None)]

    assert wrong("Failed") == []
    assert wrong() == ["status.conditions"]
    assert wrong("Failed", "Complete") == [
        "status.conditions", "status.completionTime", "status.conditions"
    ]  # fmt: skip
    assert wrong("Failed", failed=1) == ["status.failed"]
    assert wrong("Failed", active=1) == ["status.active"]


def test_a_table_says_what_a_job_is_doing(world):
    job = made(world, completions=3)
    columns = resources()["jobs.batch"].columns
    assert cells(columns, job, 2_000_000_000.0)[:4] == ["work", "Running", "0/3", ""]
    job["status"] = {"succeeded": 3, "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:30Z",
                     "conditions": [{"type": "SuccessCriteriaMet", "status": "True"},
                                    {"type": "Complete", "status": "True"}]}  # fmt: skip
    assert cells(columns, job, 2_000_000_000.0)[:4] == ["work", "Complete", "3/3", "90s"]


@pytest.mark.parametrize("text", ["", "0", "1,3-5,7", "0-99", "0,1,3,4"])
def test_indexes_are_read_and_written_alike(text):
    assert format_indexes(parse_indexes(text, 100)) == text


@pytest.mark.parametrize("text", ["x", "3-1", "2,1", "-", "1-", "1,,1"])
def test_what_are_no_indexes_is_an_error(text):
    with pytest.raises(ValueError, match=r"order|index"):
        parse_indexes(text, 100)


def test_kep_3329_a_rule_on_exit_codes_names_a_container_of_the_pod(world):
    codes = {"containerName": "other", "operator": "In", "values": [1]}

    causes, _ = world.try_create(
        "jobs.batch", a_job(podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": codes}]})
    )

    assert [f"{cause.path}: {cause.message}" for cause in causes] == [
        (
            'spec.podFailurePolicy.rules[0].onExitCodes.containerName: Invalid value: "other": '
            "must be one of the container or initContainer names in the pod template"
        )
    ]
    codes["containerName"] = "c"
    assert made(world, podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": codes}]})


def test_kep_5440_a_suspended_job_at_rest_may_be_given_other_resources_and_node_affinity(world):
    job = made(world, suspend=True)
    pod = job["spec"]["template"]["spec"]
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
    near = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}}

    def with_pod(job=job, **spec):
        return changed(world, job, template={**job["spec"]["template"], "spec": {**pod, **spec}})

    larger = [{**pod["containers"][0], "resources": {"requests": {"cpu": "4"}}}]
    busy = {**job, "status": {"active": 1}}
    started = {**job, "status": {"startTime": "2026-01-01T00:00:00Z"}}
    at_rest = {**job, "status": {**started["status"], "conditions": [{"type": "Suspended", "status": "True"}]}}
    assert with_pod(containers=larger) == with_pod(affinity=near) == with_pod(at_rest, containers=larger) == []
    for refused in (
        with_pod(affinity=apart),
        with_pod(busy, containers=larger),
        with_pod(started, containers=larger),
        with_pod(containers=[{**pod["containers"][0], "image": "other:1"}]),
    ):
        assert refused[0].startswith("spec.template: Invalid value")
    world.switch(MutablePodResourcesForSuspendedJobs=False)
    assert "spec.template" in with_pod(containers=larger)[0]
