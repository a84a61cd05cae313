"""A scenario whose kubelets may not work with its API server is refused, with line, node and both releases."""

import pytest

from lab.scenarios.run import plan_of
from lab.scenarios.script.scenario import ScriptError
from lab.scenarios.script.verbs import read_scenario

NEWER = "a kubelet of 1.37 is newer than the API server of 1.36"


@pytest.mark.parametrize(("lines", "why"), [
    ("nodes n1 cpu=1 version=1.37\nwait 1s", f"s.txt:2: node n1: {NEWER}"),
    ("set apiserver: emulate.version=1.36\nset emulate.version=1.37\nnodes n1 cpu=1\nwait 1s",
     f"s.txt:4: node n1: {NEWER}"),
    ("nodes n1 cpu=1\nrestart kubelet/n1 with emulate.version=1.37", f"s.txt:3: restart kubelet/n1: node n1: {NEWER}"),
    ("nodes n1 cpu=1\nrestart kubelet/* with emulate.version=1.37", f"s.txt:3: restart kubelet/*: node n1: {NEWER}"),
    ("set emulate.version=1.37\nnodes n1 cpu=1\nrestart apiserver with emulate.version=1.36",
     f"s.txt:4: restart apiserver: node n1: {NEWER}"),
])  # fmt: skip
def test_a_kubelet_newer_than_its_api_server_is_refused(lines, why):
    with pytest.raises(ScriptError) as error:
        plan_of(read_scenario(f"# A skew\n{lines}\n", "s.txt"), seed=0)

    assert why == str(error.value)


@pytest.mark.parametrize("lines", [
    "set emulate.version=1.37\nnodes n1 cpu=1 version=1.34\nwait 1s",
    "nodes n1 cpu=1\nrestart apiserver with emulate.version=1.37\nrestart kubelet/n1 with emulate.version=1.37",
    "nodes n1 cpu=1 version=1.35\nrestart kubelet/n1 with emulate.version=1.34",
])  # fmt: skip
def test_older_kubelets_and_an_upgrade_in_order_are_accepted(lines):
    assert plan_of(read_scenario(f"# A skew\n{lines}\n", "s.txt"), seed=0).nodes
