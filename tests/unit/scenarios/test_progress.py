"""Whoever watches a run may fail: that ends the run with the error, and a note of when."""

import pytest

from lab.scenarios.run import load_scenario, simulate

SCENARIO = """\
limit 600s
nodes n1 cpu=4
pod hello cpu=1
wait 500s
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "hello.txt"
    path.write_text(SCENARIO)
    return load_scenario(path)


def test_a_progress_callback_that_fails_ends_the_run_with_its_error(scenario):
    seen_s = []

    def progress(observer, line):
        seen_s.append(observer.now_s)
        if len(seen_s) == 5:
            raise ZeroDivisionError("no pods, no share")

    with pytest.raises(ZeroDivisionError, match="no pods, no share") as failed:
        simulate(scenario, progress=progress)

    assert len(seen_s) == 5
    assert failed.value.__notes__ == [
        f"{scenario.path}: the run ended {seen_s[-1]:.3f} s after its start, when it was shown at: wait 500s"
    ]


def test_the_run_does_not_go_on_to_its_end(scenario):
    lines = []

    def progress(observer, line):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        simulate(scenario, progress=progress, on_line=lines.append)

    assert lines[-1].mono_ns - lines[0].mono_ns < 10e9
