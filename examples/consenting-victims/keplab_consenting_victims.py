"""PostFilter, for pods that want to grow where they are: evict who consents before anybody else is.

A pod consents by a label, `example.com/may-be-evicted`. Where those are not enough, the next PostFilter plugin has
its turn, which is DefaultPreemption.
"""

from scheduler.entry import Args, PluginEntry
from scheduler.framework.plugin import PostFilterResult
from scheduler.framework.status import SKIP, SUCCESS, unschedulable
from scheduler.preemption.progress import Eviction, Preemptor
from scheduler.preemption.units import pod_unit
from scheduler.resize.fit import NodeCapacity
from services.api.podresources import pod_requests


class ConsentingVictimsArgs(Args, frozen=True):
    """`label`: pods that carry it may be evicted for any pod of higher priority."""

    label: str = "example.com/may-be-evicted"


class ConsentingVictims:
    name = "ConsentingVictims"

    def __init__(self, args, handle):
        self.label, self.cache = args.label, handle.cache

    def should_handle_deferred_resize(self, pod, node_name):  # the first draft of KEP-5836 asks this
        return True

    def is_relevant_for_pod(self, state, pod):  # and the beta this
        return SUCCESS if pod.spec.node_name else SKIP

    def post_filter(self, state, pod, columns, diagnosis):
        if not pod.spec.node_name:  # the drafts between do not ask
            return PostFilterResult(unschedulable())
        node = self.cache.nodes[pod.spec.node_name]
        capacity, victims = NodeCapacity(node, pod, pod_requests(pod.pod)), []
        for victim in sorted(self.consenting(pod, node), key=lambda each: (each.priority, each.uid)):
            if capacity.fits().is_success:
                break
            capacity.remove(pod_unit(victim))
            victims.append(victim)
        if not capacity.fits().is_success:
            return PostFilterResult(unschedulable("those who may be evicted hold too little"))
        preemptor = Preemptor(pod.uid, pod.priority, (pod,))
        eviction = Eviction(preemptor, node.name, tuple(victims), (node.name,), self.name)
        return PostFilterResult(SUCCESS, actions=(eviction,))

    def consenting(self, pod, node):
        return [p for p in node.pods.values() if self.label in p.metadata.labels and p.priority < pod.priority]


PLUGIN = PluginEntry("ConsentingVictims", ConsentingVictims, args=ConsentingVictimsArgs)
