"""What a scenario may break, and how it is refused when it asks for what cannot be."""

import pytest

from services.scenarios.run import load_scenario
from services.scenarios.script.scenario import ScriptError


def scenario(tmp_path, line):
    path = tmp_path / "t.txt"
    path.write_text(f"# T\nnodes n1..n2 cpu=4\n{line}\n")
    return path


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("link node/n1 cut=up", "cut=up: want requests, replies or both"),
        ("link node/n1 drop=pods", "drop=pods: want of lease"),
        ("link node/n1 speed=1s", "link has no option 'speed'; there are: cut, drop"),
        ("link node/n1 late=pods:1s", "late=pods: want of lease"),
        ("link node/n1 late=unbind", "'unbind': want key:value"),
        ("link kubelet/n1 late=unbind:1s", "late=unbind: kubelet/n1 has many callers, want link node/NAME late=…"),
        ("ended scheduler", "code=: want an exit code: ended scheduler code=1"),
        ("ended scheduler code=one", "code=one: want an exit code"),
        ("clock kubelet/n1 by=soon", "'soon' is no duration"),
        ("disk kubelet/n1 error=EBUSY", "'EBUSY' is no error of a disk"),
        ("kill kubelet/n1 at=kubelet.start count=0", "count=0: want a number from 1"),
        ("kill", "kill wants a component"),
        ("pause kubelet/n1", "pause wants for=DURATION"),
        ("starve * share=2 for=5s", "share=2: want more than 0 and less than 1"),
        ("corrupt kubelet/n1 how=away", "how=away: want missing, truncated, foreign"),
        ("hosts none", "'none': want a number from 1"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_before_anything_starts(tmp_path, line, message):
    with pytest.raises(ScriptError, match=r"t\.txt:3: .*") as caught:
        load_scenario(scenario(tmp_path, line))

    assert message in str(caught.value)
