"""The arms of a comparison: names with switches, in the syntax of the command line. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.api.switches import SwitchError, Switches, Value, find


@dataclass(frozen=True)
class Arm:
    """One alternative. An arm without switches is the unchanged scenario (an A/A comparison has two)."""

    name: str
    switches: Mapping[str, Value]

    @property
    def assignments(self) -> tuple[str, ...]:
        """`NAME=VALUE` texts, sorted."""
        return Switches(self.switches).assignments

    @property
    def text(self) -> str:
        """The arm as `--arm` takes it."""
        return f"{self.name}:{','.join(self.assignments)}" if self.switches else self.name


def parse_arm(text: str) -> Arm:
    """Parse `NAME` or `NAME:SWITCH=VALUE[,SWITCH=VALUE]`. Raises: SwitchError naming the arm and the error."""
    name, _, rest = text.partition(":")
    if not name or not name.replace("-", "").replace("_", "").isalnum():
        raise SwitchError(f"arm {text!r}: want NAME:SWITCH=VALUE[,SWITCH=VALUE]")
    values: dict[str, Value] = {}
    for part in filter(None, rest.split(",")):
        switch, sign, value = part.partition("=")
        switch = switch.strip()
        if not sign:
            raise SwitchError(f"arm {name}: {part!r}: want SWITCH=VALUE")
        try:
            parsed = find(switch).parse(value.strip())
        except SwitchError as error:
            raise SwitchError(f"arm {name}: {error}") from None
        if values.get(switch, parsed) != parsed:
            raise SwitchError(f"arm {name}: switch {switch} is set twice, to {values[switch]} and to {parsed}")
        values[switch] = parsed
    return Arm(name, values)


def parse_arms(texts: Sequence[str]) -> tuple[Arm, ...]:
    """Parse several arms, which must have different names. Raises: SwitchError."""
    arms = tuple(parse_arm(text) for text in texts)
    names = [arm.name for arm in arms]
    for name in names:
        if names.count(name) > 1:
            raise SwitchError(f"two arms are called {name!r}")
    return arms
