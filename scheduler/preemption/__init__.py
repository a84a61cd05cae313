"""Preemption: which pods may be evicted for which, from which node, and which stay.

All of it is pure. A cycle without a feasible node uses `eligibility` to decide whether the pod may preempt
at all, visits nodes in the order of `candidates`, finds the victims on each (budgets show whose eviction
violates one), and picks the node. Victims are `units`: one pod, or a group that is evicted as a whole. The
calls and the waiting after that are in `scheduler.preemption.evictions`.

Source: preemption 3; upstream `pkg/scheduler/framework/preemption`.
"""
