"""Style shared by all pictures: the palette, and the CSS of a self-contained SVG. Pure.

The hues are Okabe and Ito's, two of them darkened, so that they stay distinct for readers with red-green
colour blindness; those of arms follow Paul Tol's muted scheme. Graphics have a contrast of 3:1 or more to
their background, texts 4.5:1. Colour is never the only distinction: a sign or a dash pattern accompanies
it.
"""

from typing import Final, NamedTuple


class Colour(NamedTuple):
    """One colour, for a light background and for a dark one."""

    light: str
    dark: str


PAPER: Final = Colour("#fbfaf7", "#16191d")
TEXTS: Final = {"ink": Colour("#1c2430", "#e7e5df"), "soft": Colour("#5f6672", "#9aa0a8")}
"""Colours of text; contrast 4.5:1."""
GRAPHICS: Final = {
    "pending": Colour("#a86500", "#e69f00"),
    "running": Colour("#0072b2", "#56b4e9"),
    "failed": Colour("#d55e00", "#d55e00"),
    "succeeded": Colour("#6b7280", "#9aa0a8"),
    "unbound": Colour("#a3497d", "#cc79a7"),
}
"""Colours of graphics; contrast 3:1."""
COMPONENTS: Final = {
    "apiserver": Colour("#0072b2", "#56b4e9"),
    "scheduler": Colour("#a86500", "#e69f00"),
    "kubelet": Colour("#00795a", "#009e73"),
    "controllers": Colour("#a3497d", "#cc79a7"),
    "claim-controller": Colour("#d55e00", "#d55e00"),
    "other": Colour("#6b7280", "#9aa0a8"),
}
"""Colours of components; contrast 3:1."""
ARMS: Final = (
    Colour("#332288", "#8a73e8"),
    Colour("#11806f", "#5fd0bd"),
    Colour("#882255", "#d0507a"),
    Colour("#6b6b00", "#d6d060"),
    Colour("#7b4f2c", "#c9a27c"),
    Colour("#1c2430", "#ffffff"),
)
"""Colours of a comparison's arms, in their order; none is the colour of a phase, as both appear together."""
LINE: Final = Colour("#d8d4c8", "#3a3f46")
"""Colour of rules between rows and behind plots; they carry no information."""


def variables(*, is_dark: bool) -> str:
    """Return the palette as CSS variables."""
    arms = {f"arm-{at}": each for at, each in enumerate(ARMS)}
    colours = {"paper": PAPER, "line": LINE, **TEXTS, **GRAPHICS, **COMPONENTS, **arms}
    return " ".join(f"--{name}: {colour.dark if is_dark else colour.light};" for name, colour in colours.items())


def of_svg(more: str = "") -> str:
    """Return the CSS of a self-contained SVG that follows the colour scheme its viewer prefers. `more`: rules of
    this picture alone.
    """
    return (
        f"svg {{ {variables(is_dark=False)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ svg {{ {variables(is_dark=True)} }} }}\n"
        "text { font: 11px system-ui, sans-serif; fill: var(--soft); } .back { fill: var(--paper); }\n"
        f".axis {{ stroke: var(--line); }} .name, .head {{ fill: var(--ink); }} .head {{ font-weight: 600; }}\n{more}"
    )


def colour_of(component: str) -> str:
    """Return the colour of a component as CSS, by its service's name."""
    return f"var(--{component if component in COMPONENTS else 'other'})"
