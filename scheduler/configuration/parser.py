"""From YAML text to the typed document, strictly: unknown fields are refused with their paths.

All unknown and repeated fields of a file are named at once, because a user who mistyped one often mistyped
two. Source: upstream decodes strictly since v1beta1 (KEP-785).
"""

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
import yaml
from msgspec.structs import replace

from scheduler.configuration.document import (
    API_VERSION,
    KIND,
    ClientConnection,
    KubeSchedulerConfiguration,
    LeaderElection,
    Part,
    Profile,
    from_json,
)
from services.api.documents import yaml_text

T = TypeVar("T")
P = TypeVar("P", bound=Part)

UNKNOWN_FIELDS_MAX: Final = 100
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<name>.*)`", re.S)
_MISSING: Final = re.compile(r"Object missing required field `(?P<name>.*)`", re.S)
_STEP: Final = re.compile(r"\.([^.\[]+)|\[(\d+)\]")


class ConfigurationError(ValueError):
    """Error: the configuration is refused; each of `problems` begins with the path of the bad field."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def read(text: str) -> KubeSchedulerConfiguration:
    """Return the file as a document. Raises: ConfigurationError naming every unknown or repeated field."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        repeated = list(_repeated_keys(root, "")) if root is not None else []
        document = yaml_text.load(text)
    except yaml.YAMLError as error:
        line, column, problem = yaml_text.mistake_of(error)
        place = f"line {line}, column {column}: " if line else ""
        raise ConfigurationError([f"not YAML: {place}{problem}"]) from None
    except RecursionError:
        raise ConfigurationError(["nested too deeply"]) from None
    except ValueError as error:
        raise ConfigurationError([f"not YAML: {error}"]) from None
    if root is None:
        raise ConfigurationError(["the file is empty"])
    if repeated:
        raise ConfigurationError(repeated)
    if not isinstance(document, dict):
        raise ConfigurationError([f"want a {KIND}, not a {type(document).__name__}"])
    for name, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(name) != wanted:
            raise ConfigurationError([f"{name}: want {wanted}, not {document.get(name)!r}"])
    return decode(KubeSchedulerConfiguration, document, "")


def decode(kind: type[T], value: Any, path: str) -> T:
    """Return JSON values at `path` as the typed document or part.

    A null is a field not given. Raises: ConfigurationError with all unknown fields, or the first misfit.
    """
    rest = _without_nulls(copy.deepcopy(value))
    problems: list[str] = []
    while len(problems) < UNKNOWN_FIELDS_MAX:
        try:
            decoded: T = from_json(kind, rest)
        except msgspec.ValidationError as error:
            what, below = _place(str(error))
            unknown = _UNKNOWN.fullmatch(what)
            if unknown is None:
                problems.append(_misfit(join(path, below), what))
                break
            name = unknown["name"]
            problems.append(f"{join(path, f'{below}.{name}')}: unknown field")
            # Without it, the next one shows itself.
            del _at(rest, below)[name]
        else:
            # Views of API objects pass over what they do not know; here that is a mistake, too.
            problems += _unknown_fields(decoded, rest, path)
            if problems:
                break
            return decoded
    raise ConfigurationError(problems)


def join(path: str, below: str) -> str:
    """Return a path with `.field` or `[3]` steps added, without a leading dot."""
    return f"{path}{below}".removeprefix(".")


def _place(text: str) -> tuple[str, str]:
    """Return what is wrong and where, below the value: `.profiles[0]`."""
    what, _, path = text.rstrip("`").partition(" - at `$")
    return what if path else text, path


def _unknown_fields(decoded: Any, value: Any, path: str) -> Iterator[str]:
    if isinstance(decoded, msgspec.Struct) and isinstance(value, dict):
        fields = dict(zip(decoded.__struct_encode_fields__, decoded.__struct_fields__, strict=True))
        for name, field_value in value.items():
            here = join(path, f".{name}")
            if name not in fields:
                yield f"{here}: unknown field"
            else:
                yield from _unknown_fields(getattr(decoded, fields[name]), field_value, here)
    elif isinstance(decoded, tuple) and isinstance(value, list):
        for index, (one, field_value) in enumerate(zip(decoded, value, strict=True)):
            yield from _unknown_fields(one, field_value, f"{path}[{index}]")


def _misfit(path: str, what: str) -> str:
    missing = _MISSING.fullmatch(what)
    if missing is not None:
        return f"{join(path, '.' + missing['name'])}: Required value"
    return f"{path or 'the file'}: {what[:1].lower()}{what[1:]}"


def _at(value: Any, path: str) -> Any:
    for name, index in _STEP.findall(path):
        value = value[name] if name else value[int(index)]
    return value


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _repeated_keys(node: yaml.Node, path: str) -> Iterator[str]:
    """Yield the path of each key that a mapping has twice; YAML itself would keep the last."""
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _repeated_keys(child, f"{path}[{index}]")
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            below = join(path, f".{name}")
            if name in lines:
                yield f"{below}: given twice, in lines {lines[name]} and {line}"
            lines.setdefault(name, line)
            yield from _repeated_keys(value, below)


def with_defaults(configuration: KubeSchedulerConfiguration, scheduler_name: str) -> KubeSchedulerConfiguration:
    """Return the document with upstream's defaults for zero or missing values.

    Without profiles one is added; a single one without a name gets `scheduler_name`. If there are several, each
    needs its name. Source: upstream `SetDefaults_KubeSchedulerConfiguration`.
    """
    profiles = configuration.profiles or (Profile(),)
    if len(profiles) == 1 and profiles[0].scheduler_name is None:
        profiles = (replace(profiles[0], scheduler_name=scheduler_name),)
    return replace(
        configuration,
        profiles=profiles,
        leader_election=_fill_zeros(configuration.leader_election, LeaderElection()),
        client_connection=_fill_zeros(configuration.client_connection, ClientConnection()),
    )


def _fill_zeros(given: P, default: P) -> P:
    """Return what is given, with defaults for zeros and empty texts; false is meant."""
    found = msgspec.structs.asdict(given)
    empty = [name for name, value in found.items() if not value and value is not False]
    return replace(given, **{name: getattr(default, name) for name in empty})
