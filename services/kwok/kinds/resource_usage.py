"""ResourceUsage and ClusterResourceUsage: usage of containers. Pure.

Source: kubernetes-sigs/kwok pkg/apis/v1alpha1/resource_usage_types.go.
"""

from typing import TYPE_CHECKING

from services.kwok.kind import Entry, Kind, Part

if TYPE_CHECKING:
    from services.cel.quantities import Quantity


class Use(Part, frozen=True):
    """Amount of usage: a quantity, or an expression; the quantity takes precedence."""

    value: str | int | float | None = None
    expression: str | None = None

    def check(self, path: str) -> None:
        """Raise ValueError, beginning with the path of the invalid part."""
        if self.value is None and self.expression is None:
            raise ValueError(f"{path}: want value or expression")
        # Only here, and below: CEL is large, and few meshes have such documents.
        from services.cel.values import EvaluationError
        from services.kwok import expressions

        if self.value is not None:
            try:
                self.quantity()
            except EvaluationError as error:
                raise ValueError(f"{path}.value {self.value!r}: {error}") from None
        if self.expression is not None:
            try:
                expressions.compile_program(self.expression)
            except ValueError as error:
                raise ValueError(f"{path}.expression: {error}") from None

    def quantity(self) -> "Quantity | None":
        """Return the quantity; None if it is not set. Raises: EvaluationError."""
        from services.cel.quantities import quantity

        return quantity(str(self.value)) if self.value is not None else None


class Usage(Entry, frozen=True):
    """Usage of some containers, by resource."""

    usage: dict[str, Use] = {}

    def __post_init__(self) -> None:
        for resource, use in self.usage.items():
            use.check(f".usage.{resource}")


class Spec(Part, frozen=True):
    """Spec of the document."""

    usages: tuple[Usage, ...]


KIND = Kind("ResourceUsage", Spec, "usages")
