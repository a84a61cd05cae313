"""How long plugins take, known from one attempt in ten: a runner with the same memory whose calls are timed.

The other nine attempts go through the plain runner and pay nothing. What is remembered of a template is not asked
and so not timed. Upstream samples plugins at 10 %, too. Source: scheduler-queue-and-cycles 1, 10.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from scheduler.framework.cycle_state import CycleState
from scheduler.framework.interface import Code, PostFilterResult, PreFilterResult, Scores, Status
from scheduler.framework.runner import Enabled, Feasible, Runner

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scheduler.cache.columns import Columns
    from scheduler.cache.node_info import PodInfo
    from scheduler.cache.nominator import Nominator
    from scheduler.framework.diagnosis import Diagnosis

EVERY: Final = 10
"""One attempt, hint or event of so many is timed: a count decides, so that a run can be repeated."""
STATUSES: Final = {code: code.name.title().replace("_", "") for code in Code}
"""Upstream's label values."""


class Watch(Protocol):
    """Where the times go. `now`: monotonic seconds."""

    def now(self) -> float: ...  # noqa: D102
    def plugin(self, plugin: str, point: str, status: str, took_s: float) -> None: ...  # noqa: D102
    def point(self, point: str, status: str, profile: str, took_s: float) -> None: ...  # noqa: D102


class Turns:
    """Says yes every `EVERY`-th time, the first included."""

    __slots__ = ("_count",)

    def __init__(self) -> None:
        self._count = -1

    def is_next(self) -> bool:
        """Count one more; say whether it is one to be timed."""
        self._count += 1
        return self._count % EVERY == 0


def status_of(answer: Any) -> str:
    """Return the status label of whatever a plugin answers; masks, scores and calls to make are successes."""
    if isinstance(answer, tuple) and answer:
        answer = answer[0]
    if isinstance(answer, PreFilterResult | PostFilterResult):
        answer = answer.status
    return STATUSES[answer.code] if isinstance(answer, Status) else STATUSES[Code.SUCCESS]


class _Timed:
    """A plugin whose calls at some points are timed; in all else it is the plugin."""

    def __init__(self, plugin: Any, calls: Mapping[str, str], told: Callable[[str, str, str, float], None],
                 now: Callable[[], float]) -> None:  # fmt: skip
        self._plugin = plugin
        self.name: str = plugin.name
        for method, point in calls.items():
            call = getattr(plugin, method, None)
            if call is not None:
                setattr(self, method, self._timed(call, point, told, now))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plugin, name)

    def _timed(self, call: Callable[..., Any], point: str, told: Callable[[str, str, str, float], None],
               now: Callable[[], float]) -> Callable[..., Any]:  # fmt: skip
        name = self.name

        def timed(*args: Any, **more: Any) -> Any:
            began = now()
            answer = call(*args, **more)
            told(name, point, status_of(answer), now() - began)
            return answer

        return timed


_CALLS: Final[dict[str, dict[str, str]]] = {
    "_pre_enqueue": {"pre_enqueue": "PreEnqueue"},
    "_pre_filter": {"pre_filter": "PreFilter"},
    "_other_filters": {"filter_all": "Filter", "filter_in": "Filter", "filter": "Filter"},
    "_post_filter": {"post_filter": "PostFilter"},
    "_pre_score": {"pre_score": "PreScore"},
    "_reserve": {"reserve": "Reserve", "unreserve": "Unreserve"},
    "_permit": {"permit": "Permit"},
    "_post_bind": {"post_bind": "PostBind"},
}
_SCORING: Final = {"score_all": "Score", "score": "Score", "normalize": "ScoreExtensionNormalize"}


class WatchedRunner(Runner):
    """The twin of a runner: same plugins, same memory, and a watch on every call."""

    def __init__(self, plain: Runner, watch: Watch, profile: str) -> None:
        # Everything is shared with the twin but the lists of plugins that are asked.
        self.__dict__.update(plain.__dict__)
        self._watch, self._profile = watch, profile
        self._spent: dict[str, float] = {}
        for attribute, calls in _CALLS.items():
            setattr(self, attribute, [self._with_watch(plugin, calls) for plugin in getattr(plain, attribute)])
        self._other_scores = self._scoring(plain._other_scores)
        filters = [p for p in plain._filters if p not in plain._other_filters]
        self._asked = ([self._with_watch(p, _CALLS["_other_filters"]) for p in filters],
                       self._scoring(plain._pure_scores), self._scoring(plain._normalized_pure))  # fmt: skip

    def _with_watch(self, plugin: Any, calls: Mapping[str, str]) -> _Timed:
        return _Timed(plugin, calls, self._told, self._watch.now)

    def _scoring(self, enabled: Sequence[Enabled]) -> list[Enabled]:
        return [Enabled(self._with_watch(each.plugin, _SCORING), each.weight) for each in enabled]

    def _told(self, plugin: str, point: str, status: str, took_s: float) -> None:
        self._spent[point] = self._spent.get(point, 0.0) + took_s
        self._watch.plugin(plugin, point, status, took_s)

    @contextmanager
    def _point(self, point: str, first: str = "") -> Iterator[list[Any]]:
        """Time a point; the answer is put into the list. What `first` takes of it is a point of its own."""
        answers: list[Any] = []
        self._spent.clear()
        began = self._watch.now()
        yield answers
        took_s, status = self._watch.now() - began, status_of(answers[-1]) if answers else STATUSES[Code.SUCCESS]
        if first and first in self._spent:
            took_s -= self._spent[first]
            self._watch.point(first, STATUSES[Code.SUCCESS], self._profile, self._spent[first])
        self._watch.point(point, status, self._profile, took_s)

    def pre_enqueue(self, pod: PodInfo, first: str = "") -> Status:
        """As Runner's."""
        with self._point("PreEnqueue") as answers:
            answers.append(super().pre_enqueue(pod, first))
        return answers[0]  # type: ignore[no-any-return]

    def filter(self, state: CycleState, pod: PodInfo, columns: Columns,
               nominator: Nominator | None = None) -> Feasible:  # fmt: skip
        """As Runner's; what templates have to ask is asked by the watched twins of their plugins."""
        with self._point("Filter", "PreFilter") as answers, self._templates.asking(*self._asked):
            found = super().filter(state, pod, columns, nominator)
            answers.append(found.rejection)
        return found

    def score(self, state: CycleState, pod: PodInfo, columns: Columns, found: Feasible) -> tuple[Scores, Status]:
        """As Runner's."""
        with self._point("Score", "PreScore") as answers:
            scores, status = super().score(state, pod, columns, found)
            answers.append(status)
        return scores, status

    def post_filter(self, state: CycleState, pod: PodInfo, columns: Columns,
                    diagnosis: Diagnosis) -> PostFilterResult | None:  # fmt: skip
        """As Runner's."""
        with self._point("PostFilter") as answers:
            answers.append(super().post_filter(state, pod, columns, diagnosis))
        return answers[0]  # type: ignore[no-any-return]

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """As Runner's."""
        with self._point("Reserve") as answers:
            answers.append(super().reserve(state, pod, node_name))
        return answers[0]  # type: ignore[no-any-return]

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status, dict[str, float]]:
        """As Runner's."""
        with self._point("Permit") as answers:
            answers.append(super().permit(state, pod, node_name))
        return answers[0]  # type: ignore[no-any-return]

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str, client: Any) -> Status:
        """As Runner's; it waits, so other attempts come in between."""
        began = self._watch.now()
        status = await super().pre_bind(state, pod, node_name, client)
        self._watch.point("PreBind", status_of(status), self._profile, self._watch.now() - began)
        return status

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """As Runner's."""
        with self._point("PostBind"):
            super().post_bind(state, pod, node_name)
