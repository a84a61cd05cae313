"""NodeAffinity's PreScore: what it says of preferred terms that the API server let through, in upstream's words.

Source: upstream `staging/src/k8s.io/component-helpers/scheduling/corev1/nodeaffinity/nodeaffinity.go`.
"""

import msgspec
import pytest

from scheduler.cache.node_info import PodInfo
from scheduler.framework.cycle_state import CycleState
from scheduler.framework.status import Code
from scheduler.plugins.node_affinity import NodeAffinity, NodeAffinityArgs
from services.api.kinds.pod import Pod

LABEL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"


def term(*requirements, weight=1):
    expressions = [{"key": key, "operator": operator, "values": list(values)} for key, operator, values in requirements]
    return {"weight": weight, "preference": {"matchExpressions": expressions}}


@pytest.mark.parametrize(("terms", "text"), [
    ([term(("example.com/cores", "Gt", ["3"]), ("example.com/cores", "Gt", ["-5"]))],
     f'[0].matchExpressions[1].values[0][example.com/cores]: Invalid value: "-5": {LABEL}'),
    ([term(("a", "In", ["ok", "-x", "x" * 64]))],
     (f'[[0].matchExpressions[0].values[1][a]: Invalid value: "-x": {LABEL}, '
     f'[0].matchExpressions[0].values[2][a]: Invalid value: "{"x" * 64}": must be no more than 63 bytes]')),
    ([term(("a", "Exists", [])), term(("b", "Lt", ["many"]), ("c", "In", ["_"]))],
     (f'[[1].matchExpressions[0].values[0]: Invalid value: "many": {INTEGER}, '
     f'[1].matchExpressions[1].values[0][c]: Invalid value: "_": {LABEL}]')),
    ([term(("b", "Gt", ["-"]))],
     (f'[[0].matchExpressions[0].values[0]: Invalid value: "-": {INTEGER}, '
     f'[0].matchExpressions[0].values[0][b]: Invalid value: "-": {LABEL}]')),
    ([term(("b", "Lt", ["1", "2"]))],
     "[0].matchExpressions[0].values: Invalid value: [\"1\",\"2\"]: for 'Gt', 'Lt' operators, exactly one value is required"),
    ([term(("a", "In", ["-x"]), weight=0), term(("a", "In", ["x"]))], ""),
])  # fmt: skip
def test_all_that_is_wrong_is_said_with_its_path(a, cluster, terms, text):
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}
    pod = PodInfo(msgspec.convert({"metadata": {"name": "p"}, "spec": {"affinity": affinity}}, Pod))
    columns = cluster().nodes(a.node("n1")).cache.columns

    status = NodeAffinity(NodeAffinityArgs(), None).pre_score(CycleState(0.0), pod, columns, columns.valid)

    assert (status.code, status.message) == ((Code.ERROR, text) if text else (Code.SUCCESS, ""))
