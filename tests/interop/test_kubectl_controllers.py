"""kubectl and what controllers act on: made from the command line, shown, described and refused."""

import re


def test_a_cron_job_is_made_shown_and_run_by_hand(kubectl, namespace):
    made = ("create", "cronjob", "tick", "--image=busybox:1", "--schedule=*/5 * * * *", "-n", namespace, "--", "date")
    kubectl(*made)
    shown = kubectl("get", "cj", "-n", namespace)
    wide = kubectl("get", "cronjobs", "-n", namespace, "-o", "wide")
    described = kubectl("describe", "cronjob", "tick", "-n", namespace)
    kubectl("create", "job", "now", "--from=cronjob/tick", "-n", namespace)
    kubectl("patch", "cronjob", "tick", "-n", namespace, "-p", '{"spec": {"suspend": true, "timeZone": "Etc/UTC"}}')
    owner = kubectl("get", "job", "now", "-n", namespace, "-o", "jsonpath={.metadata.ownerReferences[0].kind}")

    assert shown.split("\n")[0].split() == [
        "NAME", "SCHEDULE", "TIMEZONE", "SUSPEND", "ACTIVE", "LAST", "SCHEDULE", "AGE"]  # fmt: skip
    assert re.search(r"^tick +\*/5 \* \* \* \* +<none> +False +0 +<none> ", shown, re.M)
    assert re.search(r" tick +busybox:1 +<none>$", wide, re.M)
    assert re.search(r"^Concurrency Policy: +Allow$", described, re.M)
    assert re.search(r"^tick +.* Etc/UTC +True ", kubectl("get", "cj", "tick", "-n", namespace), re.M)
    assert owner == "CronJob"
    assert re.search(r"^cronjobs +cj +batch/v1 +true +CronJob$", kubectl("api-resources"), re.M)
    assert "timeZone\t<string>" in kubectl("explain", "cronjob.spec")


def test_a_schedule_that_cannot_be_read_is_refused_in_upstreams_words(kubectl, namespace):
    made = ("create", "cronjob", "bad", "--image=i:1", "--schedule=61 * * * *", "-n", namespace)

    assert (
        kubectl(*made, code=1)
        .strip()
        .endswith('spec.schedule: Invalid value: "61 * * * *": end of range (61) above maximum (59): 61')
    )
