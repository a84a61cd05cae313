"""What the page is given as JSON, made of values: runs, switches, palette. Pure."""

from typing import Any, Final

from services.api.switches import REGISTER, Switch

PAGES: Final = ("mesh", "cluster", "queue", "trace", "objects", "experiments", "difference")
PALETTE: Final = {
    "pending": {"light": "#A86500", "dark": "#E69F00", "sign": "hollow"},
    "running": {"light": "#0072B2", "dark": "#56B4E9", "sign": "solid"},
    "failed": {"light": "#D55E00", "dark": "#D55E00", "sign": "cross"},
    "succeeded": {"light": "#6B7280", "dark": "#9AA0A8", "sign": "tick"},
    "terminating": {"light": "#A3497D", "dark": "#CC79A7", "sign": "stripe"},
}
"""By phase or state; the hues are Okabe and Ito's, two of them darkened."""


def switch_documents() -> list[dict[str, Any]]:
    """Return the register of switches, for the picker of arms."""
    return [_switch(each) for each in REGISTER]


def _switch(switch: Switch) -> dict[str, Any]:
    return {
        "name": switch.name,
        "type": switch.type,
        "default": switch.default,
        "values": list(switch.values),
        "meaning": switch.meaning,
        "source": switch.source,
        "scenario": switch.shown_by,
    }
