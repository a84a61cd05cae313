"""Admission: the ledger and the predicate handler, with Kubernetes' reasons and texts."""

import pytest

from kubelet.admission.predicates import Admitted, Ledger, NodeFacts, PreemptionNeeded, admit
from kubelet.managers.allocation import NO_ALLOCATION, Rejection
from kubelet.managers.resource_managers import ResourceManagers
from kubelet.view import worker_key
from services.api.kinds.node import Taint


@pytest.fixture
def node_of(a_node):
    class OneNode:
        def __init__(self, labels=None, taints=(), **fields):
            definition = a_node(**{"cpu": "4", "memory": "8Gi", **fields})
            self.ledger = Ledger(definition.allocatable())
            self.managers = ResourceManagers(definition)
            self.facts = NodeFacts("n1", labels if labels is not None else {}, taints)

        def admit(self, pod, **options):
            return admit(pod, self.ledger, self.managers, self.facts, **options)

        def run(self, *pods):
            for pod in pods:
                outcome = self.admit(pod)
                assert isinstance(outcome, Admitted)
                self.ledger.add(worker_key(pod), pod, outcome.requests, outcome.allocation)

    return OneNode


def test_kubelet_9_the_second_pod_of_3_cpus_on_a_node_of_4_is_out_of_cpu(node_of, a_pod):
    node = node_of()
    node.run(a_pod("older", cpu="3"))

    assert node.admit(a_pod("younger", cpu="3")) == Rejection(
        "OutOfcpu", "Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000"
    )


def test_removing_a_pod_from_the_ledger_gives_back_exactly_what_it_held(node_of, a_pod):
    node = node_of()
    ports = [{"name": "c", "ports": [{"hostPort": 80}], "resources": {"requests": {"cpu": "2"}}}]
    pod = a_pod("a", containers=ports)
    node.run(pod)
    assert node.ledger.used["cpu"] == 2000

    node.ledger.remove(worker_key(pod))

    assert all(value == 0 for value in node.ledger.used.values())
    assert isinstance(node.admit(a_pod("b", containers=ports)), Admitted)


def test_pods_are_counted_before_cpu_is(node_of, a_pod):
    node = node_of(pods=1)
    node.run(a_pod("a"))

    assert node.admit(a_pod("b", cpu="9")) == Rejection(
        "OutOfpods", "Node didn't have enough resource: pods, requested: 1, used: 1, capacity: 1"
    )


def test_extended_resources_the_node_does_not_know_are_not_its_concern(node_of, a_pod):
    pod = a_pod(containers=[{"name": "c", "resources": {"limits": {"example.com/licence": "1"}}}])

    assert isinstance(node_of().admit(pod), Admitted)


def test_kubelet_14_a_label_that_is_gone_is_a_node_affinity_rejection(node_of, a_pod):
    pod = a_pod(spec={"nodeSelector": {"disk": "ssd"}})

    assert isinstance(node_of(labels={"disk": "ssd"}).admit(pod), Admitted)
    assert node_of().admit(pod) == Rejection(
        "NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    )


@pytest.mark.parametrize(
    ("operator", "values", "matches"),
    [("In", ["a"], True), ("NotIn", ["a"], False), ("NotIn", ["b"], True), ("Exists", [], True),
     ("DoesNotExist", [], False), ("Gt", ["1"], False)],
)  # fmt: skip
def test_required_node_affinity_is_read_as_the_scheduler_reads_it(node_of, a_pod, operator, values, matches):
    term = {"matchExpressions": [{"key": "zone", "operator": operator, "values": values}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    pod = a_pod(spec={"affinity": {"nodeAffinity": required}})

    assert isinstance(node_of(labels={"zone": "a"}).admit(pod), Admitted) is matches


def test_a_taint_that_evicts_refuses_and_one_that_only_repels_does_not(node_of, a_pod):
    evicting = node_of(taints=(Taint(key="k", effect="NoExecute"),))
    repelling = node_of(taints=(Taint(key="k", effect="NoSchedule"),))

    assert evicting.admit(a_pod()).reason == "TaintToleration"
    assert isinstance(repelling.admit(a_pod()), Admitted)
    assert isinstance(evicting.admit(a_pod(spec={"tolerations": [{"operator": "Exists"}]})), Admitted)


def test_a_taken_host_port_refuses_unless_the_addresses_differ(node_of, a_pod):
    def with_port(name, ip):
        return a_pod(name, containers=[{"name": "c", "ports": [{"hostPort": 80, "hostIP": ip}]}])

    node = node_of()
    node.run(with_port("a", "10.0.0.1"))

    assert isinstance(node.admit(with_port("b", "10.0.0.2")), Admitted)
    assert node.admit(with_port("c", "10.0.0.1")).reason == "NodePorts"
    assert node.admit(with_port("d", "")).reason == "NodePorts"


def test_a_pod_of_another_node_or_system_is_refused(node_of, a_pod):
    assert node_of().admit(a_pod(spec={"nodeName": "n2"})).reason == "NodeName"
    assert node_of().admit(a_pod(spec={"os": {"name": "windows"}})).reason == "PodOSNotSupported"
    labelled = a_pod(metadata={"labels": {"kubernetes.io/os": "windows"}})
    assert node_of().admit(labelled).reason == "PodOSSelectorNodeLabelDoesNotMatch"
    selector = a_pod(spec={"nodeSelector": {"kubernetes.io/os": "windows"}})
    assert node_of().admit(selector).reason == "NodeAffinity"


def test_without_its_node_a_kubelet_admits_nothing(node_of, a_pod):
    node = node_of()
    node.facts = NodeFacts("n1", None)

    assert node.admit(a_pod()) == Rejection("InvalidNodeInfo", "Kubelet cannot get node info.")


def test_kubelet_19_a_critical_pod_on_a_full_node_evicts_the_best_effort_pod_first(node_of, a_pod):
    node = node_of(pods=3)
    best_effort, burstable = a_pod("be"), a_pod("bu", cpu="1", limits=False)
    node.run(burstable, a_pod("g", cpu="1", memory="1Gi"), best_effort)

    outcome = node.admit(a_pod("critical", spec={"priority": 2_000_000_000}))

    assert outcome == PreemptionNeeded((worker_key(best_effort),), "pods")


def test_a_critical_pod_is_rejected_when_evicting_everything_would_not_help(node_of, a_pod):
    node = node_of()
    node.run(a_pod("a", cpu="1"))

    assert node.admit(a_pod("critical", cpu="9", spec={"priority": 2_000_000_000})).reason == "OutOfcpu"


def test_a_critical_pod_evicts_no_critical_pod_of_its_own_priority(node_of, a_pod):
    node = node_of()
    node.run(a_pod("a", cpu="3", spec={"priority": 2_000_000_000}))

    assert node.admit(a_pod("b", cpu="3", spec={"priority": 2_000_000_000})).reason == "OutOfcpu"
    assert isinstance(node.admit(a_pod("c", cpu="3", spec={"priority": 2_000_001_000})), PreemptionNeeded)


def test_a_request_of_nothing_fits_on_a_node_that_has_less_than_nothing_left(node_of, a_pod):
    node = node_of()
    node.run(a_pod("a", cpu="4"))
    node.ledger.allocatable["cpu"] = 2000

    assert isinstance(node.admit(a_pod("b", cpu="0")), Admitted)


def test_resource_managers_are_asked_before_the_predicates(node_of, guaranteed):
    node = node_of(cpu="", numa="2x2", topologyPolicy="single-numa-node", labels={})
    pod = guaranteed("p", "3", spec={"nodeSelector": {"disk": "ssd"}})

    assert node.admit(pod).reason == "TopologyAffinityError"


def test_a_predicate_that_refuses_leaves_no_cpu_allocated(node_of, guaranteed):
    node = node_of(cpu="", numa="1x4", cpuPolicy="static")
    free = set(node.managers.cpus.free)

    assert node.admit(guaranteed("p", "2", spec={"nodeSelector": {"disk": "ssd"}})).reason == "NodeAffinity"

    assert node.managers.cpus.free == free
    assert node.managers.admit(guaranteed("q", "4")) != NO_ALLOCATION
