"""Shell completion beyond commands and options: switches, arms, kinds, and processes of the mesh that runs.

Each function returns quickly and reports no errors: a shell waits for it at every press of the tab key.
"""

import click
from click.shell_completion import CompletionItem

from services.api.switches import REGISTER, Switch
from services.runtime.mesh_directory import read_state


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
