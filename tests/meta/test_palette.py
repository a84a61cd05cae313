"""Pages and pictures have one palette: no module but the style's names a colour."""

import re
from pathlib import Path

from lab.experiments import style

ROOT = Path(__file__).parents[2]
COLOUR = re.compile(r"""[:'"=]\s*\#(?:[0-9a-f]{3,4}|[0-9a-f]{6}|[0-9a-f]{8})\b|\b(?:rgba?|hsla?)\(\s*\d""", re.I | re.X)
COLOUR_NAME = re.compile(r"#[0-9a-f]{6}\b")
TREES = ("lab", "services", "docs")
STYLE = "lab/experiments/style.py"
PAGE = "lab/ui/static/app.css"


def test_what_is_a_colour():
    lines = ("fill: #1c2430;", "x='#FFF'", 'y="#8884"', "color:rgb(1, 2, 3)")

    assert all(map(COLOUR.search, lines))
    assert not COLOUR.search("ReplicaSet waits (PR #130411), kubernetes/kubernetes #135900; {{#each}}")


def test_colours_stand_in_the_palette_alone():
    files = [path for tree in TREES for end in ("py", "css", "html", "js") for path in (ROOT / tree).rglob(f"*.{end}")]
    own = [path for path in files if path.parent.name != "vendor"]
    named = {str(path.relative_to(ROOT)) for path in own if COLOUR.search(path.read_text(encoding="utf-8"))}

    assert named == {STYLE, PAGE}


def test_the_live_page_has_the_palette_of_reports():
    themes = re.findall(
        r":root(?:\[data-theme='dark'\])? \{(.*?)\}", (ROOT / PAGE).read_text(encoding="utf-8"), re.DOTALL
    )
    light, dark = (dict(re.findall(r"--([\w-]+): (#\w+);", each)) for each in themes[:2])
    palette = {"paper": style.PAPER, "line": style.LINE, **style.TEXTS, **style.GRAPHICS, **style.COMPONENTS}

    assert {name: colour.light for name, colour in palette.items()} == {name: light[name] for name in palette}
    assert {name: colour.dark for name, colour in palette.items()} == {name: dark[name] for name in palette}


def test_pictures_that_are_kept_have_the_palettes_colours():
    known = set(COLOUR_NAME.findall((ROOT / "lab/experiments/style.py").read_text(encoding="utf-8")))
    pictures = list((ROOT / "docs" / "pictures").rglob("*.svg"))
    other = {path.name: set(COLOUR_NAME.findall(path.read_text(encoding="utf-8").lower())) - known for path in pictures}

    assert {name: colours for name, colours in other.items() if colours} == {}
    assert pictures
