"""An exploration that is interrupted keeps what was found by then."""

from lab.explore.moments import parse_event
from lab.explore.search import Task, explore

SCENARIO = "nodes n1 cpu=4\npod p cpu=1\nexpect within 20s each pods name=p phase == Running\nexpect count pods == 2\n"


def test_an_interrupt_ends_the_trying_and_the_shrinking_and_loses_nothing(tmp_path):
    path = tmp_path / "scenario.txt"
    path.write_text(SCENARIO)

    def progress(done, total, found):
        if done == 3:
            raise KeyboardInterrupt

    report = explore(Task(str(path), parse_event("sched.bind_call"), budget=50, workers=1), progress)

    assert (report.is_interrupted, report.runs, report.shrink_runs) == (True, 3, 0)
    assert [found.broke.broke for found in report.found] == ["line 4"]
