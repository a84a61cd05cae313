"""Preemption: which pods may be evicted for which, from which node, and what stays.

All of it is pure. A cycle without a feasible node asks `eligibility` whether the pod may preempt at all, visits
nodes as `candidates` says, has `victims` find on each who must go (with `budgets` saying whose eviction hurts), and
lets `choice` pick the node. Victims are `units`: one pod, or a group that is evicted as a whole. What follows,
the calls and the waiting, is `scheduler.preemption.evictions`.

Source: preemption 3; upstream `pkg/scheduler/framework/preemption`.
"""
