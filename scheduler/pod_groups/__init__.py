"""Pod groups: pods that are scheduled together (KEP-4671) and may preempt together (KEP-5710).

Input: a group popped from the queue with all its waiting members, and the present nodes. Output: a
`GroupResult` with members placed (and assumed) or rejected, the group's condition, and perhaps evictions.
State: the members of each group (`membership`), and the waiting ones (`queue`). It never binds, writes or
waits; a member that is not to be bound leaves no trace in cache, nominations or plugins.

A group cycle sits beside the single-pod cycle: `cycle` runs the ordinary scheduling cycle for one member
after the other, assumes each in memory so that the next sees it, and calls PlacementFeasible after each:
can the group still be placed? The live columns are its snapshot, because nothing else runs meanwhile.
Source: preemption 6 and 7; upstream `pkg/scheduler/schedule_one_podgroup.go`.
"""
