"""KWOK's kinds besides Stage are refused by name, and what would act on the machine with its reason."""

import pytest

from kubelet.stages.document import StageError, read_stages

HEAD = "apiVersion: kwok.x-k8s.io/v1alpha1\nkind: {kind}\nmetadata: {{name: x}}\nspec: {spec}\n"


@pytest.mark.parametrize(
    ("kind", "spec", "said"),
    [
        ("Exec", "{execs: [{local: {workDir: /tmp}}]}", "spec.execs[0].local: it would run a command on this machine"),
        ("ClusterExec", "{execs: [{}, {local: {}}]}", "spec.execs[1].local: it would run a command on this machine"),
        (
            "PortForward",
            "{forwards: [{target: {port: 80, address: 10.0.0.1}}]}",
            "spec.forwards[0].target.address '10.0.0.1': want a loopback address",
        ),
        ("ClusterPortForward", "{forwards: [{command: [nc]}]}", "spec.forwards[0].command: it would run a command"),
        ("PortForward", "{forwards: [{target: {port: 80, address: 127.0.0.1}}]}", "PortForward is not read; Stage is"),
        ("ClusterResourceUsage", "{}", "ClusterResourceUsage is not read; Stage is"),
        ("Metric", "{path: /metrics/x}", "Metric is not read; Stage is"),
    ],
)
def test_21_a_kind_that_is_not_a_stage_is_refused_with_its_reason(kind, spec, said):
    with pytest.raises(StageError) as refused:
        read_stages([("f.yaml", HEAD.format(kind=kind, spec=spec))])

    assert f"f.yaml: document 1: {kind} x: {said}" in str(refused.value)
