"""Keys, focus, themes and access (checks 19 and 20)."""

import pytest
from axe_playwright_python.sync_playwright import Axe

from lab.experiments import style
from lab.ui.documents import PAGES

SETTLE = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
FOCUS = """() => { const at = document.activeElement, look = getComputedStyle(at);
  return at === document.body || at.tagName === 'MAIN' || (look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) > 0); }"""


def luminance(colour):
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one, other):
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_servers_offer_the_pages_of_the_rail(replay, new_page):
    page = new_page()
    page.open(replay)
    imported = "async () => (await import('keplab/pages/index.js')).pages"
    ids = page.ask(f"{imported}.filter((page) => !page.overlay && page.rail !== false).map((page) => page.id)")

    assert list(PAGES) == ids


def test_from_the_start_to_a_pending_pods_document_and_back_by_keys_alone(replay, new_page):
    page = new_page()
    page.open(replay)
    page.keys("/")
    page.type("web-33")
    page.until("() => document.querySelector('[role=option]')")
    assert page.ask(FOCUS)
    page.keys("Enter")
    page.until("() => document.querySelector('.card h2')?.textContent === 'web-33'")
    assert "Pending" in page.text(".card")
    page.keys("g", "o")
    page.until("() => document.querySelector('pre.yaml')")
    assert "name: web-33" in page.text("pre.yaml")
    page.keys("d")
    page.until("() => document.querySelector('[role=tab][aria-selected=true]').textContent.startsWith('describe')")
    page.keys("v")
    page.until("() => document.querySelector('table.versions')")
    page.keys("Escape")
    page.until("() => !document.querySelector('.detail')")
    page.keys("g", "c")
    page.until("() => document.querySelector('.picture canvas')")
    page.keys("Escape")
    page.until("() => __keplab.state.selected.value === null")


def test_the_focus_is_always_seen(replay, new_page):
    page = new_page()
    page.open(replay)
    for route in PAGES:
        page.ask("(id) => __keplab.go(id)", route)
        page.ask(SETTLE)
        unseen = []
        for _ in range(24):
            page.keys("Tab")
            if not page.ask(FOCUS):
                unseen.append(page.ask("() => document.activeElement.outerHTML.slice(0, 120)"))
        assert unseen == []


def test_enter_takes_what_is_typed_and_not_what_was_found_before(replay, new_page):
    page = new_page()
    page.open(replay)
    page.keys("/")
    page.type("web-3")
    page.until("() => document.querySelector('[role=option]')")
    page.type("3")
    page.keys("Enter")
    assert page.until("() => __keplab.state.selected.value?.name === 'web-33'")
    page.keys("/")
    page.type("no-such-pod")
    page.keys("Enter")
    assert page.until(
        "() => __keplab.state.notice.value.text === 'No pod and no node has \"no-such-pod\" in its name.'"
    )


def test_a_kind_is_jumped_to_as_in_k9s(replay, new_page):
    page = new_page()
    page.open(replay)
    page.keys(":")
    page.type("po -n shop web-3")
    page.keys("Enter")
    page.until("() => document.querySelectorAll('.vrow').length === 11")

    assert "#/objects/po?ns=shop&q=web-3" == page.ask("() => location.hash") or page.ask(
        "() => location.hash"
    ).startswith("#/objects/pods?")


def test_every_command_is_in_the_palette_and_those_with_keys_in_the_help(replay, new_page):
    page = new_page()
    page.open(replay)
    page.keys("Control+Shift+P")
    page.until("() => document.querySelector('.palette li')")
    ids = page.ask("() => [...document.querySelectorAll('.palette code')].map((code) => code.textContent)")
    assert len(ids) == len(set(ids)) > 25
    page.type("fit whole")
    page.until("() => document.querySelectorAll('.palette li').length === 1")
    page.keys("Enter")
    page.until("() => !document.querySelector('dialog')")
    page.keys("?")
    page.until("() => document.querySelector('dialog kbd')")
    assert "To the next mark" in page.text("dialog")
    assert "" not in page.ask("() => [...document.querySelectorAll('dialog kbd')].map((key) => key.textContent)")
    page.keys("Escape")
    page.until("() => !document.querySelector('dialog')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(replay, new_page, scheme):
    page = new_page(scheme=scheme)
    page.open(replay)
    found = {}
    for route in (
        *PAGES,
        "objects/pods/shop/odd",
        "objects/pods/shop/odd?tab=versions",
        "objects/pods/shop/odd?tab=describe",
    ):
        page.ask("(route) => { location.hash = `#/${route}`; }", route)
        page.ask(SETTLE)
        page.until(
            "() => !document.querySelector('main .empty') || !/loading/.test(document.querySelector('main .empty').textContent)"
        )
        if route == "cluster":
            page.ask("() => __keplab.select({kind: 'nodes', ns: '', name: 'n0'})")
            page.until("() => document.querySelector('.card')")
        violations = Axe().run(page.raw).response["violations"]
        found[route] = [(each["id"], [node["html"][:160] for node in each["nodes"]][:3]) for each in violations]
    page.ask("() => __keplab.go('cluster')")
    page.until("() => document.querySelector('.picture canvas')")
    page.ask(SETTLE)
    page.keys("T")
    page.until("() => document.querySelector('.vtable')")
    found["table"] = [
        (each["id"], [node["html"][:160] for node in each["nodes"]][:3])
        for each in Axe().run(page.raw).response["violations"]
    ]

    assert {route: each for route, each in found.items() if each} == {}


def test_graphics_and_texts_stand_out_from_their_ground():
    low = {}
    for at in ("light", "dark"):
        for name, colour in {**style.GRAPHICS, **style.COMPONENTS}.items():
            if contrast(getattr(colour, at), getattr(style.PAPER, at)) < 3:
                low[name, at] = colour
        for name, colour in style.TEXTS.items():
            if contrast(getattr(colour, at), getattr(style.PAPER, at)) < 4.5:
                low[name, at] = colour

    assert low == {}


def test_with_reduced_motion_nothing_moves(replay, new_page):
    page = new_page(motion="reduce")
    page.open(replay)
    for route in PAGES:
        page.ask("(id) => __keplab.go(id)", route)
        page.ask(SETTLE)
        assert 0 == page.ask("() => document.getAnimations().length")
    drawn = page.ask(
        "() => new Promise((done) => { const before = __keplab.counters.patches; let frames = 0; const next = () => (++frames < 60 ? requestAnimationFrame(next) : done(__keplab.counters.patches - before)); next(); })"
    )
    assert drawn == 0


@pytest.mark.parametrize("width", [320, 700])
def test_nothing_is_lost_on_a_narrow_page(replay, new_page, width):
    """A page of 1,400 pixels at 200 % has 700; 320 is what WCAG 1.4.10 asks for."""
    page = new_page(width=width)
    page.open(replay)
    for route in PAGES:
        page.ask("(id) => __keplab.go(id)", route)
        page.ask(SETTLE)
        assert page.ask("() => document.documentElement.scrollWidth <= innerWidth"), route
        assert page.ask("() => document.querySelector('main').clientHeight > 150")


def test_the_theme_is_a_choice_that_stays(serve, new_page):
    served = serve(nodes=3, pods=5)
    page = new_page(scheme="light")
    page.open(served.address)
    page.ask("() => { __keplab.run('shell.theme'); __keplab.run('shell.theme'); }")
    assert "dark" == page.ask("() => document.documentElement.dataset.theme")
    page.open(served.address)
    assert "dark" == page.ask("() => document.documentElement.dataset.theme")
    assert style.PAPER.dark == page.ask(
        "() => getComputedStyle(document.documentElement).getPropertyValue('--paper').trim()"
    )


def test_one_origin_is_asked(serve, new_page):
    served = serve(nodes=3, pods=5)
    page = new_page()
    page.open(served.address)

    assert page.requests
    assert [each for each in page.requests if not each.startswith((served.address, "data:"))] == []


def test_after_a_choice_with_the_pointer_keys_are_the_pages(replay, new_page):
    page = new_page()
    page.open(replay)
    colour = "main .toolbar select >> nth=0"
    page.raw.click(colour)
    page.raw.select_option(colour, "cpu")
    assert page.ask("() => document.activeElement.id") == "main"
    page.keys("g", "o")
    page.until("() => location.hash === '#/objects'")


def test_a_choice_with_keys_keeps_the_focus_in_its_list(replay, new_page):
    page = new_page()
    page.open(replay)
    page.raw.focus("main .toolbar select >> nth=0")
    page.keys("ArrowDown")
    page.raw.select_option("main .toolbar select >> nth=0", "cpu")

    assert page.ask("() => document.activeElement.tagName") == "SELECT"
