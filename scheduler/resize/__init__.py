"""Preemption for deferred resizes: a pod that runs asks for more than its node has left (KEP-5836).

Its kubelet says so in the condition PodResizePending, reason Deferred. The pod then joins the scheduling queue as
what it is, a pod with a node: `deferred_pods` says when it comes, goes and is looked at again, `cycle` what an attempt
finds on that one node (an `outcome`), `fit` whether it fits there, `out_of_tree` what plugins say that are not
kube-scheduler's own, and `rules` which generation of the proposal is at work. Who must leave is chosen by the functions
of `scheduler.preemption`; `scheduler.resize.resize_loop` performs it.

The scheduler never grants a resize: it frees capacity and lets the kubelet find it. No reservation is needed for that,
because a pod on a node counts with all it asks for (KEP-1287).
"""
