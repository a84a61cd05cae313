"""The workflows: valid, with no right that a job does not need, of actions whose version is fixed."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / ".github"
WORKFLOWS = {path.name: path for path in sorted((FOLDER / "workflows").glob("*.yml"))}
WRITES = {("release.yml", "publish-image", "packages"), ("release.yml", "publish-wheel", "id-token")}
"""All that may be written, and by whom."""


def workflow(name):
    # YAML 1.1 reads `on` as true.
    document = yaml.safe_load(WORKFLOWS[name].read_text())
    return {("on" if key is True else key): value for key, value in document.items()}


def jobs(name):
    return workflow(name)["jobs"]


def steps(name):
    return [(job, step) for job, each in jobs(name).items() for step in each.get("steps", ())]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_job_has_a_machine_a_limit_and_jobs_before_it_that_there_are(name):
    for job, each in jobs(name).items():
        assert set(each.get("needs", ())) <= jobs(name).keys(), job
        if "uses" in each:
            assert (ROOT / each["uses"]).is_file(), job
        else:
            assert re.fullmatch(r"ubuntu-\d\d\.\d\d", each["runs-on"]), job
            assert 0 < each["timeout-minutes"] <= 60, job


@pytest.mark.parametrize("name", WORKFLOWS)
def test_only_what_is_published_may_be_written(name):
    top = workflow(name)["permissions"]
    assert set(top.values()) <= {"read"}
    found = {
        (name, job, right)
        for job, each in jobs(name).items()
        for right, level in each.get("permissions", {}).items()
        if level != "read"
    }
    assert found == {each for each in WRITES if each[0] == name}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_action_has_a_whole_version_and_no_checkout_keeps_its_credentials(name):
    for job, step in steps(name):
        if "uses" in step:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@v\d+\.\d+\.\d+", step["uses"]), (job, step)
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False, job


@pytest.mark.parametrize("name", WORKFLOWS)
def test_nothing_from_outside_is_put_into_a_script(name):
    assert "pull_request_target" not in WORKFLOWS[name].read_text()
    for job, step in steps(name):
        assert "${{" not in step.get("run", ""), job


def test_every_target_of_make_is_one():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    asked = {
        found
        for name in WORKFLOWS
        for _, step in steps(name)
        for found in re.findall(r"\bmake ([a-z-]+)", step.get("run", ""))
    }

    assert {"test", "compose-test"} == asked
    assert asked <= targets


def test_a_tag_publishes_only_what_was_tested_and_built():
    assert {"push": {"tags": ["v*"]}} == workflow("release.yml")["on"]
    for job in ("publish-wheel", "publish-image"):
        assert {"test", "wheel"} == set(jobs("release.yml")[job]["needs"])
    assert "pypi" == jobs("release.yml")["publish-wheel"]["environment"]
    assert not any("password" in str(step) for job, step in steps("release.yml") if job == "publish-wheel")


def test_forms_for_issues_ask_for_what_is_needed():
    for path in (FOLDER / "ISSUE_TEMPLATE").glob("*.yml"):
        form = yaml.safe_load(path.read_text())
        if path.name == "config.yml":
            continue
        assert form["name"], path.name
        assert form["description"], path.name
        assert any(part.get("validations", {}).get("required") for part in form["body"]), path.name
        assert all(part["attributes"]["label"] for part in form["body"]), path.name
