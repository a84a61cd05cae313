"""Declarations of a scenario's lines: the words and options of each, declared once and parsed accordingly.
Pure.

Each verb, setting and form of `expect` is a `Declaration`. The parser reads a line by its declaration, so
an undeclared option never reaches the code that performs the line.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from lab.scenarios.script.value_types import ValueType, suggestion, words_of

EXAMPLES = Path(__file__).parent / "examples"
_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9_.\-/]*")
_COUNTS: Mapping[str, tuple[int, int | None]] = {"one": (1, 1), "optional": (0, 1), "some": (1, None), "any": (0, None)}


@dataclass(frozen=True)
class Option:
    """A `name=value` word. `default`: the text that applies if the option is missing; None: `otherwise`
    describes what applies, and the value is None.

    `field`: the field of the object that it sets, if any.
    """

    name: str
    type: ValueType
    meaning: str
    default: str | None = None
    otherwise: str = ""
    field: str = ""
    is_required: bool = False

    def read(self, text: str) -> Any:
        """Parse the value. Raises: ValueError naming the option, its text and what is wanted."""
        try:
            if not text:
                raise ValueError(f"want {self.name}={self.type.name}")
            return self.type.read(text)
        except ValueError as error:
            message = str(error)
            raise ValueError(
                message if message.startswith(f"{self.name}=") else f"{self.name}={text}: {message}"
            ) from None


@dataclass(frozen=True)
class Argument:
    """A positional word. `count`: one, optional, some (at least one) or any."""

    name: str
    meaning: str
    count: Literal["one", "optional", "some", "any"] = "one"
    type: ValueType | None = None

    @property
    def usage(self) -> str:
        """Form of the argument in a usage line."""
        return {"one": "{}", "optional": "[{}]", "some": "{} …", "any": "[{} …]"}[self.count].format(self.name)

    def read(self, text: str) -> Any:
        """Parse the value of a word. Raises: ValueError with the word and what is wanted."""
        if self.type is None:
            return text
        try:
            return self.type.read(text)
        except ValueError as error:
            message = str(error)
            raise ValueError(message if repr(text) in message or text in message else f"{text!r}: {message}") from None


@dataclass(frozen=True)
class Words:
    """Content of a line after its first word.

    `values`: parsed values by the names of options and arguments, defaults included; `body`: the text after
    the arguments where the declaration takes text.
    """

    args: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    body: str = ""


@dataclass(frozen=True)
class Declaration:
    """Syntax of one verb, setting or form of `expect`.

    `topic` groups it in the reference; `meaning` is one line; `notes` is further explanation. `others`:
    options of any name, such as labels. `text`: the rest after the arguments is one text, unsplit. `block`:
    the content of a block of the line, where one is allowed (`blocks.py`); the block replaces the argument
    FILE.
    """

    name: str
    topic: str
    meaning: str
    notes: str = ""
    arguments: tuple[Argument, ...] = ()
    options: tuple[Option, ...] = ()
    others: Argument | None = None
    text: Argument | None = None
    block: str = ""
    form: str = ""
    """Usage line, where arguments and options do not express it."""

    @property
    def examples(self) -> tuple[str, ...]:
        """Complete scenarios that pass: `examples/NAME.txt` beside this module, then `NAME-2.txt` and so on."""
        return _examples_of(self.name)

    @property
    def usage(self) -> str:
        """Form of the line, with optional options in brackets."""
        if self.form:
            return self.form
        words = [self.name, *(argument.usage for argument in self.arguments)]
        for option in self.options:
            word = f"{option.name}={'|'.join(option.type.values) or option.type.name}"
            words.append(word if option.is_required else f"[{word}]")
        words += [each.usage for each in (self.others, self.text) if each is not None]
        return " ".join(words)

    @property
    def short_usage(self) -> str:
        """Usage in which all optional options are one word."""
        shortened = [option for option in self.options if not option.is_required]
        if self.form or len(shortened) < 5:
            return self.usage
        needed = [f"{option.name}={option.type.name}" for option in self.options if option.is_required]
        return " ".join([self.name, *(argument.usage for argument in self.arguments), *needed, "[OPTION=VALUE …]"])

    def read(self, rest: str, *, has_block: bool = False) -> Words:
        """Parse the text after the first word. Raises: ValueError."""
        if self.text is not None:
            return self._read_text(rest)
        args, options = split(rest)
        if self.others is None:
            self.check_known(options)
        values = self.values_of(options)
        values |= self._arguments(args, has_block=has_block)
        return Words(args, options, values)

    def check_known(self, options: Iterable[str]) -> None:
        """Raise ValueError for the first option that is not declared."""
        check_known(options, self.options, self.name)

    def values_of(self, options: Mapping[str, str]) -> dict[str, Any]:
        """Return the value of every declared option. Raises: ValueError."""
        return read_options(options, self.options, self.name)

    def _read_text(self, rest: str) -> Words:
        assert self.text is not None
        words = rest.split(None, len(self.arguments))
        args = tuple(words[: len(self.arguments)])
        body = words[len(self.arguments)] if len(words) > len(self.arguments) else ""
        if len(args) < len(self.arguments) or (not body and self.text.count == "one"):
            raise ValueError(f"want: {self.usage}")
        return Words(args, {}, dict(zip((each.name for each in self.arguments), args, strict=True)), body)

    def _arguments(self, args: Sequence[str], *, has_block: bool) -> dict[str, Any]:
        values: dict[str, Any] = {}
        rest = list(args)
        wanted = [each for each in self.arguments if not (has_block and each.name == FILE)]
        for number, argument in enumerate(wanted):
            low, high = _COUNTS[argument.count]
            later = sum(_COUNTS[each.count][0] for each in wanted[number + 1 :])
            count = len(rest) - later if high is None else min(high, max(low, len(rest) - later))
            taken, rest = rest[: max(count, 0)], rest[max(count, 0) :]
            if len(taken) < low:
                raise ValueError(f"{self.name} wants {argument.name}, {argument.meaning}; {self.short_usage}")
            read = [argument.read(each) for each in taken]
            values[argument.name] = tuple(read) if high is None else (read[0] if read else None)
        if rest:
            raise ValueError(self._surplus(rest[0], wanted))
        return values

    def _surplus(self, word: str, wanted: Sequence[Argument]) -> str:
        """Return what is wrong with a word too many."""
        option = next((each for each in self.options if each.name == word.rstrip("=:")), None)
        if option is not None:
            return f"{word!r} has no value; want {option.name}={option.type.name}"
        if word.startswith("#"):
            return "a comment has a line of its own"
        few = " ".join(argument.usage for argument in wanted) or "nothing but options"
        return f"{word!r} is too much: {self.name} takes {few}: {self.short_usage}"


@cache
def _examples_of(name: str) -> tuple[str, ...]:
    numbered = (f"{name}-{number}.txt" for number in itertools.count(2))
    files = (EXAMPLES / each for each in itertools.chain((f"{name}.txt",), numbered))
    return tuple(file.read_text("utf-8") for file in itertools.takewhile(Path.is_file, files))


FILE = "FILE"
"""Name of the argument that a block may replace."""


def split(rest: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the words of a line and its options by name. Raises: ValueError."""
    args: list[str] = []
    options: dict[str, str] = {}
    for word in words_of(rest):
        name, sign, value = word.partition("=")
        if sign and _OPTION.fullmatch(name):
            if name in options:
                raise ValueError(f"option {name} is given twice: {name}={options[name]} and {name}={value}")
            options[name] = value
        else:
            args.append(word)
    return tuple(args), options


def check_known(options: Iterable[str], known: Iterable[Option], what: str) -> None:
    """Raise ValueError for the first unknown option; the message lists the known ones."""
    names = sorted(option.name for option in known)
    for name in options:
        if name not in names:
            there = f"there are: {', '.join(names)}" if names else "it has none"
            raise ValueError(f"{what} has no option {name!r}{suggestion(name, names)}; {there}")


def read_options(options: Mapping[str, str], declared: Iterable[Option], what: str) -> dict[str, Any]:
    """Return every declared option's value; None where it is neither given nor has a default. Raises: ValueError."""
    values: dict[str, Any] = {}
    for option in declared:
        if option.name in options:
            values[option.name] = option.read(options[option.name])
        elif option.is_required:
            raise ValueError(f"{what} wants {option.name}={option.type.name}: {option.meaning}")
        else:
            values[option.name] = None if option.default is None else option.type.read(option.default)
    return values


def fields(values: Mapping[str, Any], table: Iterable[Option]) -> dict[str, Any]:
    """Return the fields that the options set, in the table's order; lists of options for the same field are joined."""
    field_values: dict[str, Any] = {}
    for option in table:
        value, name = values.get(option.name), option.field.rpartition(".")[2]
        if value is not None:
            field_values[name] = [*field_values[name], *value] if name in field_values else value
    return field_values


def split_docstring(text: str | None) -> tuple[str, str]:
    """Split a docstring into meaning and notes: its first paragraph, and the rest."""
    head, _, rest = (text or "").strip().partition("\n\n")
    return " ".join(head.split()), "\n\n".join(" ".join(part.split()) for part in rest.split("\n\n")).strip()


def by_topic(declarations: Iterable[Declaration], topics: Sequence[str]) -> Iterator[tuple[str, list[Declaration]]]:
    """Yield each topic with its declarations, in the order of `topics`."""
    found = list(declarations)
    for topic in topics:
        if members := [each for each in found if each.topic == topic]:
            yield topic, members
