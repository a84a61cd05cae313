"""CronJobs at the API server: what is completed, what is refused and in which words, and what is shown."""

import pytest

from services.api.printing import cells
from services.api.resources import resources

CRON_JOBS = "cronjobs.batch"
TEMPLATE = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}}}


def a_cron_job(name="tick", **spec):
    return {"metadata": {"name": name}, "spec": {"schedule": "*/5 * * * *", "jobTemplate": TEMPLATE, **spec}}


def messages(found):
    return [f"{cause.path}: {cause.message}" for cause in found[0]]


def test_a_cron_job_is_completed_and_its_template_only_as_far_as_the_pod(world):
    spec = world.create(CRON_JOBS, a_cron_job())["spec"]
    job = spec.pop("jobTemplate")["spec"]

    assert spec == {
        "schedule": "*/5 * * * *", "concurrencyPolicy": "Allow", "suspend": False, "successfulJobsHistoryLimit": 3,
        "failedJobsHistoryLimit": 1}  # fmt: skip
    assert list(job) == ["template"]
    assert job["template"]["spec"]["dnsPolicy"] == "ClusterFirst"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"schedule": ""}, "spec.schedule: Required value"),
        ({"schedule": "* * *"},
         'spec.schedule: Invalid value: "* * *": expected exactly 5 fields, found 3: [* * *]'),
        ({"schedule": "TZ=UTC * * * * *"},
         ('spec.schedule: Invalid value: "TZ=UTC * * * * *": cannot use TZ or CRON_TZ in schedule, use timeZone field '
         "instead")),
        ({"timeZone": ""}, 'spec.timeZone: Invalid value: "": timeZone must be nil or non-empty string'),
        ({"timeZone": "local"},
         ('spec.timeZone: Invalid value: "local": timeZone must be an explicit time zone as defined in '
         "https://www.iana.org/time-zones")),
        ({"timeZone": "Mars/Crater"}, 'spec.timeZone: Invalid value: "Mars/Crater": unknown time zone Mars/Crater'),
        ({"timeZone": "../UTC"}, 'spec.timeZone: Invalid value: "../UTC": unknown time zone ../UTC'),
        ({"concurrencyPolicy": "Queue"},
         'spec.concurrencyPolicy: Unsupported value: "Queue": supported values: "Allow", "Forbid", "Replace"'),
        ({"startingDeadlineSeconds": -1},
         "spec.startingDeadlineSeconds: Invalid value: -1: must be greater than or equal to 0"),
        ({"failedJobsHistoryLimit": -1},
         "spec.failedJobsHistoryLimit: Invalid value: -1: must be greater than or equal to 0"),
        ({"jobTemplate": {"spec": {}}}, "spec.jobTemplate.spec.template.spec.containers: Required value"),
        ({"jobTemplate": {"spec": {**TEMPLATE["spec"], "selector": {"matchLabels": {"a": "b"}}}}},
         "`selector` will be auto-generated"),
        ({"jobTemplate": {"spec": {**TEMPLATE["spec"], "completions": -1}}},
         "spec.jobTemplate.spec.completions: Invalid value: -1"),
        ({"jobTemplate": {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}}},
         'spec.jobTemplate.spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'),
    ],
)  # fmt: skip
def test_what_a_cron_job_may_not_say_is_refused_by_its_field(world, spec, said):
    found = messages(world.try_create(CRON_JOBS, a_cron_job(**spec)))

    assert any(said in text for text in found), found


def test_a_name_leaves_a_place_for_the_minutes_of_its_jobs(world):
    assert messages(world.try_create(CRON_JOBS, a_cron_job("n" * 52))) == []
    assert messages(world.try_create(CRON_JOBS, a_cron_job("n" * 53))) == [
        f'metadata.name: Invalid value: "{"n" * 53}": must be no more than 52 characters'
    ]


def test_a_stored_schedule_that_names_its_zone_may_stay_but_not_beside_the_field(world):
    stored = world.create(CRON_JOBS, a_cron_job())
    old = {**stored, "spec": {**stored["spec"], "schedule": "TZ=UTC 0 * * * *"}}

    def changed(**spec):
        return messages(world.try_update(CRON_JOBS, old, {**old, "spec": {**old["spec"], **spec}}))

    assert changed(suspend=True) == []
    assert "cannot use both timeZone field and TZ or CRON_TZ in schedule" in changed(timeZone="UTC")[0]


def test_columns_show_the_schedule_and_how_many_jobs_run():
    columns = resources()[CRON_JOBS].columns
    document = {
        **a_cron_job(suspend=True),
        "status": {"active": [{"name": "tick-1"}], "lastScheduleTime": "2026-01-01T00:00:00Z"},
    }
    document["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"

    found = dict(zip([c.name for c in columns], cells(columns, document, 1_767_225_690.0), strict=True))
    shown = ("Name", "Schedule", "Timezone", "Suspend", "Active", "Last Schedule", "Age", "Containers", "Images")
    assert [found[name] for name in shown] == [
        "tick", "*/5 * * * *", "<none>", "True", 1, "90s", "90s", "c", "i:1"]  # fmt: skip
    assert found["Selector"] == "<none>"
