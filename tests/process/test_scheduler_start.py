"""What a scheduler refuses to start with."""

from __future__ import annotations

import subprocess
import sys


def test_preenqueue_13_a_gate_without_the_gate_it_needs_ends_the_process_naming_both():
    """KEP-5501: the dependency is checked at start, because what is not reported is in no log."""
    switch = "SchedulerPreEnqueuePodStatus=true"

    ended = subprocess.run(
        [sys.executable, "-m", "scheduler", "--set", switch], capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode not in (0, 1)
    assert "SchedulerPreEnqueuePodStatus=true requires SchedulerAsyncAPICalls=true" in ended.stderr
    assert "Traceback" not in ended.stderr
