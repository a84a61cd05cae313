"""Preemption: which pods may be evicted for which, from which node, and what stays.

All of it is pure. A cycle without a feasible node asks `eligibility` whether the pod may preempt at all, visits
nodes as `candidates` says, finds on each who must go (budgets say whose eviction hurts), and picks the node. Victims
are `units`: one pod, or a group that is evicted as a whole. What follows, the calls and the waiting, is
`scheduler.preemption.evictions`.

Source: preemption 3; upstream `pkg/scheduler/framework/preemption`.
"""
