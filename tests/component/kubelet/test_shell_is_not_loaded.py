"""The emulated shell is loaded with the first command of a container, and not before."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLAIN = "nodes n1\npod a\nexpect within 10s each pods name=a phase == Running\n"
COMMAND = "nodes n1\napply pod.yaml\nexpect within 10s each pods name=a phase == Running\n"
POD = """
apiVersion: v1
kind: Pod
metadata: {name: a}
spec: {containers: [{name: main, image: busybox, command: [sleep, "30"]}]}
"""
ALONE = """
import sys
from lab.scenarios.run import load_scenario, simulate

result = simulate(load_scenario(sys.argv[1]), seed=1)
assert result.passed, (result.error, result.expectations)
print("kubelet.runtime.shell" in sys.modules)
"""


@pytest.mark.parametrize(("text", "is_loaded"), [(PLAIN, "False"), (COMMAND, "True")], ids=["plain", "command"])
def test_a_simulation_loads_the_shell_only_for_a_container_with_a_command(tmp_path, text, is_loaded):
    (tmp_path / "one.txt").write_text(text)
    (tmp_path / "pod.yaml").write_text(POD)
    command = [sys.executable, "-c", ALONE, str(tmp_path / "one.txt")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert (done.returncode, done.stdout.strip()) == (0, is_loaded), done.stderr
