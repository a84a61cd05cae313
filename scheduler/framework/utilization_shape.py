"""The shape of scores: a line through points, from utilization to score (RequestedToCapacityRatio and its like).

Source: scheduler-queue-and-cycles 6; upstream `pkg/scheduler/framework/plugins/helper/shape_score.go`.
"""

import msgspec


class ShapePoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A point of the shape: at `utilization` (0 to 100) the score is `score` (0 to 10).

    Plugins' arguments have the same form.
    """

    utilization: int
    score: int


def broken_line(shape: tuple[ShapePoint, ...], utilization: int) -> int:
    """Return the score (0 to 100) on the line through the points, with Go's truncating division."""
    previous: ShapePoint | None = None
    for point in shape:
        if utilization <= point.utilization:
            if previous is None:
                return point.score * 10
            rise = (point.score - previous.score) * 10 * (utilization - previous.utilization)
            run = point.utilization - previous.utilization
            return previous.score * 10 + (rise // run if rise >= 0 else -(-rise // run))
        previous = point
    return shape[-1].score * 10
