"""The reference of the scenario language, generated from its declarations: as a document, and as a Markdown
page. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from lab.scenarios.script.declaration import Argument, Declaration, Option, by_topic
from lab.scenarios.script.expectation import FORMS, MODES, OPERATORS, PATHS
from lab.scenarios.script.value_types import MEANINGS

SETTINGS_TOPIC: Final = "Settings"
EXPECT: Final = "expect"
HEAD: Final = """\
# The scenario language

<!-- Made of what verbs, settings and expectations declare, by `keplab verbs -o markdown`. -->

A scenario is a text file, read line by line. The first comment lines are its title and its explanation. Settings come
first and say what there is; every other line is an act or an expectation, and they are performed in order. The first
of them ends the settings.

```text
# A pod finds the node with a label
# n2 has it, so the pod runs there.
nodes n1..n2 cpu=4
label node/n2 disk=ssd
pod web cpu=1 node-selector=disk:ssd
expect within 10s each pods name=web spec.nodeName == n2
```

* A line begins with its verb. Words are split as a shell splits them: quote what has spaces, as in `run="exit 0"`.
  Spaces or tabs before a line, empty lines and Windows line ends make no difference. A comment (`#`) has a line of
  its own.
* `name=value` words are options, in any order, each once. Options that are not declared here are refused, with those
  that there are.
* `$name` stands for what `remember` has kept.
* A block stands where a file beside the scenario would: the line ends with `<<EOF`, and the block with a line that is
  `EOF` alone. Any word does. Nothing in a block is replaced. Whether text stands in a block or in a file makes no
  difference to a run or its digest.
* An error names the file and the line; one in a block names the line in the block, the object and the field.

`keplab verbs` lists what follows, `keplab verbs NAME` shows one with its examples, `keplab verbs --editor DIRECTORY`
writes what editors need to complete and colour scenarios.
"""


def every(settings: Mapping[str, Declaration], verbs: Mapping[str, Declaration]) -> dict[str, Declaration]:
    """Return all kinds of lines by their first words: settings, verbs and the forms of `expect`."""
    return {**settings, **verbs, **{f"{EXPECT} {name}": form for name, form in FORMS.items()}}


def document(name: str, declared: Declaration) -> dict[str, Any]:
    """Return a declaration as `keplab verbs -o json` prints it."""
    return {
        "name": name,
        "topic": declared.topic,
        "usage": usage(name, declared),
        "meaning": declared.meaning,
        "notes": plain(declared.notes),
        "arguments": [
            {"name": each.name, "count": each.count, "meaning": plain(each.meaning)} for each in _arguments(declared)
        ],
        "options": [_option(each) for each in declared.options],
        "block": declared.block,
        "examples": list(declared.examples),
    }


def _option(option: Option) -> dict[str, Any]:
    return {
        "name": option.name,
        "value": option.type.name,
        "values": list(option.type.values),
        "default": option.default,
        "otherwise": plain(option.otherwise),
        "required": option.is_required,
        "field": option.field,
        "meaning": plain(option.meaning),
    }


def _arguments(declared: Declaration) -> list[Argument]:
    return [*declared.arguments, *(each for each in (declared.others, declared.text) if each is not None)]


def usage(name: str, declared: Declaration) -> str:
    """Return the form of a line; for an expectation, with its modes."""
    if not name.startswith(EXPECT):
        return declared.short_usage
    modes = " | ".join(mode for mode in MODES if mode)
    return f"{EXPECT} [{modes}] {declared.short_usage}"


def plain(text: str) -> str:
    """Return a text without Markdown's backticks."""
    return text.replace("`", "")


def value_of(option: Option) -> str:
    """Return the allowed values of an option, in one word."""
    return "|".join(option.type.values) or option.type.name


def unless_given(option: Option) -> str:
    """Return what applies if the option is missing."""
    if option.is_required:
        return "required"
    return option.default if option.default is not None else plain(option.otherwise)


def markdown(everything: Mapping[str, Declaration], topics: Sequence[str]) -> str:
    """Return the page of the whole language."""
    pages = [HEAD, *_overview(everything, topics)]
    for topic in topics:
        members = {name: each for name, each in everything.items() if each.topic == topic}
        pages.append(f"\n## {topic}\n")
        if topic == FORMS["count"].topic:
            pages.append(_expectations())
        pages += [page(name, each, everything) for name, each in members.items()]
    pages.append(_values(everything))
    return "\n".join(pages).rstrip() + "\n"


def _overview(everything: Mapping[str, Declaration], topics: Sequence[str]) -> Iterator[str]:
    names = {id(each): name for name, each in everything.items()}
    yield "| Topic | Lines |\n|---|---|"
    for topic, members in by_topic(everything.values(), topics):
        links = ", ".join(f"[{names[id(each)]}](#{_anchor(names[id(each)])})" for each in members)
        yield f"| {topic} | {links} |"


def _anchor(name: str) -> str:
    return re.sub(r"[^a-z0-9-]", "", name.replace(" ", "-"))


def page(name: str, declared: Declaration, everything: Mapping[str, Declaration]) -> str:
    """Return the section of one declaration. Options that it shares with a pod or with `nodes` are links."""
    parts = [f"### {name}\n", f"`{usage(name, declared)}`\n", declared.meaning]
    if declared.notes:
        parts.append(f"\n{declared.notes}")
    if arguments := _arguments(declared):
        parts += [
            "\n| Word | What it is |\n|---|---|",
            *(f"| `{_cell(each.usage)}` | {_cell(each.meaning)} |" for each in arguments),
        ]
    if declared.block:
        parts.append(f"\nIts block has {declared.block}.")
    shared, of = _shared_options(name, declared, everything)
    own = [option for option in declared.options if option not in shared]
    if own:
        parts += ["\n| Option | Value | Unless given | What it says |\n|---|---|---|---|", *map(_row, own)]
    if shared:
        parts.append(f"\nIts other options are those of [{of}](#{_anchor(of)}).")
    parts += [f"\n```text\n{text.rstrip()}\n```" for text in declared.examples]
    return "\n".join(parts) + "\n"


def _shared_options(
    name: str, declared: Declaration, everything: Mapping[str, Declaration]
) -> tuple[Sequence[Option], str]:
    """Return the options that another section has, and which that is."""
    for of in ("job", "pod", "nodes"):
        theirs = everything[of].options if of in everything and of != name else ()
        common = [option for option in declared.options if option in theirs]
        if theirs and len(common) >= len(theirs) - 1:  # a CronJob has a suspend of its own
            return common, of
    return (), ""


def _row(option: Option) -> str:
    value = " ".join(f"`{each}`" for each in option.type.values) or f"`{option.type.name}`"
    field = f" (`{option.field}`)" if option.field else ""
    unless = (
        "required" if option.is_required else f"`{option.default}`" if option.default is not None else option.otherwise
    )
    return f"| `{option.name}` | {_cell(value)} | {_cell(unless)} | {_cell(option.meaning + field)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _expectations() -> str:
    tables: list[tuple[str, str, Mapping[str, str]]] = [
        ("Mode", "When it has to hold", {mode or "none": meaning for mode, meaning in MODES.items()}),
        ("OP", "How it compares", OPERATORS),
        ("PATH", "What it leads to", PATHS),
    ]
    lines = [
        "A failed expectation makes the run fail (exit code 1); the scenario goes on. Lines of this section without",
        "`expect` act as well, and are judged at once.\n",
    ]
    for head, meaning, rows in tables:
        lines += [
            f"| {head} | {meaning} |\n|---|---|",
            *(f"| `{_cell(word)}` | {_cell(what)} |" for word, what in rows.items()),
            "",
        ]
    return "\n".join(lines)


def _values(everything: Mapping[str, Declaration]) -> str:
    used = {option.type.name for each in everything.values() for option in each.options}
    used |= {argument.type.name for each in everything.values() for argument in each.arguments if argument.type}
    rows = [f"| `{_cell(name)}` | {meaning} |" for name, meaning in MEANINGS.items() if name in used]
    return "\n".join(["\n## Values\n", "| Value | What it is |\n|---|---|", *rows])


def names_near(word: str, names: Iterable[str]) -> list[str]:
    """Return the names that a word selects: that name itself, or all names with that first word, such as `expect`."""
    found = list(names)
    return [word] if word in found else [name for name in found if name.split(" ")[0] == word]
