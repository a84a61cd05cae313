"""Pod groups: pods that are scheduled as one thing (KEP-4671) and may preempt as one (KEP-5710).

In: a group popped from the queue with all its waiting members, and the nodes as they are. Out: a `GroupResult`,
members placed (and assumed) or rejected, what to say of the group, and perhaps evictions. Remembers: which pods
belong to which group (`membership`), and which of them wait (`queue`). Never: binds, writes or waits; a member
that is not to be bound leaves no trace in cache, nominations or plugins.

A group cycle sits beside the single-pod cycle: `cycle` runs the ordinary scheduling cycle for one member after
the other, assumes each in memory so that the next sees it, and asks PlacementFeasible after each whether the
group can still come together. The live columns are its snapshot, because nothing else runs meanwhile.
Source: preemption 6 and 7; upstream `pkg/scheduler/schedule_one_podgroup.go`.
"""
