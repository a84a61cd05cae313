"""Usage of containers at a moment, from ResourceUsages. Pure.

Source: kubernetes-sigs/kwok pkg/kwok/server/metrics_resource_usage.go; decision 0073.
"""

from services.api.meta import Document, Key, key_of
from services.api.metrics.usage import ANNOTATION
from services.kwok.expressions import Draws, Expressions, Moment, go_object
from services.kwok.kind import Match, Rules
from services.kwok.kinds.resource_usage import Use


class Usages:
    """Usage of containers from documents. `failures`: the last error of each expression that failed."""

    def __init__(self, rules: Rules, seed: int = 0) -> None:
        self._rules, self._seed = rules, seed
        self._expressions = Expressions()
        self.failures: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def find(self, key: Key, container: str) -> Match | None:
        """Return the entry for this container."""
        return self._rules.find(key, container)

    def says(self, pod: Document, container: str) -> bool:
        """Whether a document gives the container's usage and the pod's own annotation does not."""
        annotations = pod["metadata"].get("annotations") or {}
        has_own = ANNOTATION in annotations or f"{ANNOTATION}.{container}" in annotations
        return not has_own and self.find(key_of(pod), container) is not None

    def container_usage(self, resource: str, node: Document, pod: Document, container: str, wall_s: float) -> float:
        """Return how much of a resource a container uses, in cores or bytes.

        The documents are those of the API server. A missing entry, or a failed evaluation, counts as 0, as in KWOK.
        """
        key = key_of(pod)
        rule_match = self._rules.find(key, container)
        use: Use | None = rule_match.entry.usage.get(resource) if rule_match is not None else None
        if rule_match is None or use is None:
            return 0.0
        if (value := use.quantity()) is not None:
            return max(0.0, value.as_float())
        assert use.expression is not None
        spec: Document = next((each for each in pod["spec"].get("containers", ()) if each.get("name") == container), {})
        objects = {
            "node": go_object("node", node),
            "pod": go_object("pod", pod),
            "container": go_object("container", spec),
        }
        moment = Moment(wall_s, Draws((self._seed, "usage", resource, key, container, wall_s)))
        try:
            return max(0.0, self._expressions.number(use.expression, objects, moment))
        except ValueError as error:
            self.failures[use.expression] = f"{rule_match.rule.where}: usage of {resource}: {error}"
            return 0.0
