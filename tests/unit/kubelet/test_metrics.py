"""What a host of nodes shows when it is scraped: one table, read from the machines of its nodes."""

import pytest

from kubelet.kubelet import Kubelet
from kubelet.metrics import METRICS, HostState
from kubelet.node.definition import NodeDefinition
from kubelet.pod.context import RESIZE_PENDING, Condition
from kubelet.resize.manager import BOUNDS_MS, TOOK_MS
from kubelet.runtime.pleg import EVENTED, GENERIC, Pleg
from kubelet.switches import KubeletSwitches
from services.api.switches import Switches
from tests.unit.kubelet.pod.test_pod import Life, a_runtime

NOTHING = dict.fromkeys(
    (
        *("nodes_ready", "timers", "status_writes", "status_failures", "lease_renewals", "node_writes"),
        *("checkpoint_batches", "checkpoint_syncs", "checkpoint_useless", "checkpoint_lost"),
    ),
    0,
)


def a_kubelet(**shared):
    definition, switches = NodeDefinition.parse({"name": "n1"}), Switches.parse(()).of(KubeletSwitches)
    return Kubelet(definition, a_runtime(**shared), switches=switches, pod_network="10.64.0")


def shown(*kubelets, now=0.0, has_resize_preemption=False):
    return METRICS.of(HostState(kubelets, now, has_resize_preemption, **NOTHING))


@pytest.mark.parametrize(
    ("name", "label"), [("kubelet_evictions", "eviction_signal"), ("kubelet_preemptions", "preemption_signal")]
)
def test_what_only_grows_is_a_counter_by_upstreams_name(name, label):
    kubelet = a_kubelet()
    kubelet.out.counts.add(name, "memory.available")

    (series,) = (each for each in shown(kubelet).series.values() if each.name == name)

    assert (series.pairs, series.metric.kind) == (((label, "memory.available"),), "counter")


def test_nodes_of_one_process_are_counted_together():
    one, other = a_kubelet(), a_kubelet()
    for kubelet, reasons in ((one, ("OutOfcpu", "NodePorts")), (other, ("OutOfcpu",))):
        for reason in reasons:
            kubelet.out.counts.add("kubelet_admission_rejections_total", reason)

    found = shown(one, other)

    assert found["keplab_kubelet_nodes"] == 2
    assert found['kubelet_admission_rejections_total{reason="OutOfcpu"}'] == 2
    assert found['kubelet_admission_rejections_total{reason="NodePorts"}'] == 1


def test_a_value_with_bounds_is_counted_in_each_bucket_it_fits_into():
    one, other = a_kubelet(), a_kubelet()
    one.out.observe(TOOK_MS, 300.0, "true", bounds=BOUNDS_MS)
    other.out.observe(TOOK_MS, 30_000.5, "true", bounds=BOUNDS_MS)

    found = {name: value for name, value in shown(one, other).items() if name.startswith(TOOK_MS)}

    assert found[f'{TOOK_MS}_bucket{{success="true",le="500"}}'] == 1
    assert found[f'{TOOK_MS}_bucket{{success="true",le="60000"}}'] == 2
    assert found[f'{TOOK_MS}_bucket{{success="true",le="100"}}'] == 0
    assert found[f'{TOOK_MS}_sum{{success="true"}}'] == 30_300.5
    assert found[f'{TOOK_MS}_count{{success="true"}}'] == 2


def test_relists_are_counted_by_upstreams_names():
    generic, evented = (a_kubelet(pleg=Pleg(mode, relist_s=0.25)) for mode in (GENERIC, EVENTED))
    evented.runtime.pleg.fail_stream(2.0, 1)

    found = {name: value for name, value in shown(generic, evented, now=10.3).items() if "pleg" in name}

    assert found == {
        'kubelet_pleg_relist_duration_seconds_bucket{le="+Inf"}': 11,
        'kubelet_pleg_relist_interval_seconds_bucket{le="+Inf"}': 9,
        "kubelet_pleg_relist_duration_seconds_sum": 11 * 0.25,
        "kubelet_pleg_relist_duration_seconds_count": 11,
        "kubelet_pleg_relist_interval_seconds_sum": 10.0,
        "kubelet_pleg_relist_interval_seconds_count": 9,
        "kubelet_evented_pleg_connection_success_count": 2,
        "kubelet_evented_pleg_connection_error_count": 1,
    }


@pytest.mark.parametrize(
    ("has_resize_preemption", "expected"),
    [
        (False, {'reason="deferred"': 2, 'reason="infeasible"': 1}),
        (True, {'priority_bucket="medium",reason="deferred"': 2, 'priority_bucket="normal",reason="infeasible"': 1}),
    ],
)
def test_pending_resizes_are_counted_by_reason_and_with_kep_5836_by_priority(a_pod, has_resize_preemption, expected):
    kubelet = a_kubelet()
    for name, reason, priority in (("a", "Deferred", 5), ("b", "Deferred", 7), ("c", "Infeasible", 0)):
        pod = Life(a_pod(name, spec={"priority": priority})).worker
        pod.conditions[RESIZE_PENDING] = Condition("True", "", reason)
        kubelet.table.add(pod)

    found = shown(kubelet, has_resize_preemption=has_resize_preemption)

    pending = {name: value for name, value in found.items() if name.startswith("kubelet_pod_pending_resizes")}
    assert pending == {f"kubelet_pod_pending_resizes{{{labels}}}": count for labels, count in expected.items()}
