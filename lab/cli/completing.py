"""Shell completion beyond commands and options: switches, arms, kinds, and processes of the mesh that runs.

Each function that completes returns quickly and reports no errors: a shell waits for it at every press of the tab key.
"""

import os
import re
from typing import Any

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

from services.api.switches import REGISTER, Switch
from services.runtime.mesh_directory import read_state

_WORDS, _REPLY = 'COMP_WORDS="${COMP_WORDS[*]}"', "COMPREPLY+=($value)"


def assignments(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete NAME=VALUE: names of switches, then the values that a switch has."""
    return _assignment_items("", incomplete)


def arms(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the part after the name in NAME:SWITCH=VALUE[,…]."""
    name, colon, rest = incomplete.partition(":")
    head, comma, last = rest.rpartition(",")
    return _assignment_items(f"{name}:{head}{comma}", last) if colon else []


def _assignment_items(before: str, incomplete: str) -> list[CompletionItem]:
    name, sign, begun = incomplete.partition("=")
    if not sign:
        found = [each for each in REGISTER if each.name.startswith(name)]
        return [CompletionItem(f"{before}{each.name}=", help=each.meaning) for each in found]
    values = (value for each in REGISTER if each.name == name for value in _values(each))
    return [CompletionItem(f"{before}{name}={value}") for value in values if value.startswith(begun)]


def _values(switch: Switch) -> tuple[str, ...]:
    return ("true", "false") if switch.type == "flag" else switch.values


def switch_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a switch."""
    return [CompletionItem(each.name, help=each.meaning) for each in REGISTER if each.name.startswith(incomplete)]


def processes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the name of a process of the mesh that runs on --data."""
    data = ctx.params.get("data")
    if data is None:
        data = next((each.get_default(ctx) for each in ctx.command.params if each.name == "data"), None)
    try:
        state = read_state(data) if data is not None else None
    except OSError:
        return []
    names = [str(process["name"]) for process in (state or {}).get("processes", ())]
    return [name for name in names if name.startswith(incomplete)]


def kinds(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a kind by its plural, also in KIND/NAME up to the slash."""
    from services.api.resources import resources

    return sorted(each.plural for each in resources().values() if each.plural.startswith(incomplete))


class Bash(BashComplete):
    """Bash completion that takes the line as it is typed.

    Bash splits words at `=` and `:` and so sees several in NAME=VALUE and NAME:SWITCH=VALUE. The line up to the cursor
    is passed on whole. Of a completed word only the part after the last `=` or `:` is returned. No space follows a
    name whose value is still to come.
    """

    source_template = BashComplete.source_template.replace(_WORDS, 'COMP_WORDS="${COMP_LINE:0:$COMP_POINT}"').replace(
        _REPLY, f"{_REPLY}\n            [[ $value == *= ]] && compopt -o nospace"
    )
    _typed = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one being typed, and the part of that word typed so far."""
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        if line[-1:].isspace() or not words:
            return words, ""
        self._typed = words[-1]
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Return type and text of a completion, without the part that bash takes for earlier words."""
        done = re.match(r".*[=:]", self._typed)
        text = item.value.removeprefix(done[0]) if done and item.type == "plain" else item.value
        return f"{item.type},{text}"


def register_bash() -> None:
    """Have click use this completion for bash."""
    add_completion_class(Bash)
