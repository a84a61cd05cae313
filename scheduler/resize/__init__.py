"""Preemption for deferred resizes: a running pod requests more than its node has left (KEP-5836).

Its kubelet reports that by the condition PodResizePending, reason Deferred. The pod then joins the
scheduling queue as a pod with a node: `deferred_pods` decides when it comes, goes and is tried again,
`cycle` makes an attempt on that one node (with an `outcome`), `fit` checks whether it fits there,
`out_of_tree` calls plugins that are not kube-scheduler's own, and `rules` select the generation of the
proposal. The victims are chosen by the functions of `scheduler.preemption`; `scheduler.resize.resize_loop`
evicts them.

The scheduler never grants a resize: it frees capacity and lets the kubelet find it. No reservation is
needed for that, because a pod on a node counts with all it requests (KEP-1287).
"""
