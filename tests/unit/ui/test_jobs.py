"""A job is a scenario below the folders that are allowed, as a list of words (design 10)."""

import asyncio
import json

import pytest

from lab.ui.jobs import WAITING_MAX, Jobs
from services.api.errors import BadRequest, Conflict, NotFound, TooManyRequests


@pytest.fixture
def tops(tmp_path):
    top = tmp_path / "experiments"
    (top / "runaway").mkdir(parents=True)
    (top / "runaway" / "one.txt").write_text("# One pod runs away\n#\n# and another.\nnode n1\n")
    (top / "notes.md").write_text("no scenario")
    (tmp_path / "outside.txt").write_text("# outside\n")
    (top / "link.txt").symlink_to(tmp_path / "outside.txt")
    return tmp_path


def jobs(tops):
    return Jobs([tops / "experiments", tops / "none"], tops / "results", lambda job: None)


def request(**given):
    return json.dumps({"scenario": "experiments/runaway/one.txt", "arms": [{"name": "a"}], **given}).encode()


def test_the_scenarios_are_named_with_their_first_comment(tops):
    (tops / "experiments" / "link.txt").unlink()
    about = {"title": "One pod runs away", "about": "and another."}
    assert [{"path": "experiments/runaway/one.txt", **about, "arms": []}] == jobs(tops).scenarios()


COMPARED = b"`keplab compare experiments/runaway/one.txt --arm g3:resize.generation=G3 --arm plain`"
ARMS = [{"name": "g3", "switches": ["resize.generation=G3"]}, {"name": "plain", "switches": []}]


@pytest.mark.parametrize(
    ("readme", "arms"),
    [(COMPARED, ARMS), (COMPARED.replace(b"resize.", b"no."), []), (b"\xff" + COMPARED, [])],
    ids=["both", "switches that are gone", "not UTF-8"],
)
def test_a_scenario_is_offered_with_the_arms_of_the_readme_beside_it(tops, readme, arms):
    (tops / "experiments/runaway/README.md").write_bytes(readme)
    found = {each["path"]: each["arms"] for each in jobs(tops).scenarios()}
    assert arms == found["experiments/runaway/one.txt"]


def test_the_command_line_is_a_list_of_words_that_can_be_typed(tops):
    arms = [{"name": "g3", "switches": ["resize.generation=G3"]}, {"name": "plain"}]
    job = jobs(tops).start(request(arms=arms, seeds=3, processes=True))

    assert ("Waiting", 0, 6) == (job.state, job.done, job.total)
    words = job.words()
    assert [
        "compare",
        str(tops / "experiments/runaway/one.txt"),
        "--arm",
        "g3:resize.generation=G3",
        "--arm",
        "plain",
    ] == words[:6]
    assert ["--seeds", "3", "--processes"] == words[6:9]
    assert job.document()["command"].startswith("keplab compare ")


@pytest.mark.parametrize(
    "path",
    ["outside.txt", "../outside.txt", "experiments/../outside.txt", "experiments/link.txt", "experiments/notes.md", "/etc/passwd", "", "--help", "experiments/none.txt", "a\x00b"],
)  # fmt: skip
def test_what_is_not_below_the_folders_is_refused(tops, path):
    with pytest.raises(BadRequest, match=r"scenario: .* is no file"):
        jobs(tops).start(request(scenario=path))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"arms": []}, "arms: want 1 to 20, not 0"),
        ({"arms": [{"name": "a"}, {"name": "a"}]}, "arms: two arms are called 'a'"),
        ({"arms": [{"name": "a", "switches": ["no.switch=1"]}]}, "arms: "),
        ({"arms": [{"name": "--help"}]}, "arms: "),
        ({"seeds": 0}, "seeds: want 1 to 1000, not 0"),
        ({"seeds": "x"}, "body: "),
        ({"shell": "rm"}, "body: "),
    ],
)
def test_what_cannot_be_run_is_refused_by_its_field(tops, given, why):
    with pytest.raises(BadRequest) as refusal:
        jobs(tops).start(request(**given))
    assert refusal.value.message.startswith(why)


def test_a_job_that_waits_is_cancelled_at_once_and_only_once(tops):
    found = jobs(tops)
    job = found.start(request())

    assert "Cancelled" == found.cancel(job.id).state
    with pytest.raises(Conflict, match="job-1 has ended: Cancelled"):
        found.cancel(job.id)
    with pytest.raises(NotFound):
        found.of("job-7")


def test_a_cancelled_job_is_never_begun(tops):
    found = jobs(tops)
    found.cancel(found.start(request()).id)

    async def run():
        task = asyncio.create_task(found.run())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(run())
    assert not (tops / "results").exists()


def test_jobs_that_have_ended_are_forgotten_those_that_never_began_as_well(tops):
    found = jobs(tops)
    for _ in range(60):
        found.cancel(found.start(request()).id)
    waiting = found.start(request())

    assert len(found.jobs) == 51
    assert [waiting.id] == [job.id for job in found.jobs.values() if job.state == "Waiting"]


def test_one_job_more_than_may_wait_is_refused_until_one_is_cancelled(tops):
    found = jobs(tops)
    first, *_ = [found.start(request()) for _ in range(WAITING_MAX)]

    with pytest.raises(TooManyRequests, match="100 jobs wait already"):
        found.start(request())

    found.cancel(first.id)
    assert "Waiting" == found.start(request()).state
