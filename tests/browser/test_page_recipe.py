"""The recipe of CONTRIBUTING for a page, done in a copy of the page's files as it is written there, and seen to work."""

import shutil

from axe_playwright_python.sync_playwright import Axe

from tests.browser.feed import STATIC

PRESSURE = """\
// How many marks there are, by kind.
import {html} from 'keplab/html.js';
import {state} from 'keplab/state.js';

function Pressure() {
  return html`<div class="toolbar"><h1>Pressure</h1></div><p class="pressure">${state.marks.value.length} marks</p>`;
}

export const page = {id: 'pressure', key: 'p', title: 'Pressure', icon: 'M3 12h18', Component: Pressure, commands: []};
"""


def _static(folder):
    static = folder / "static"
    shutil.copytree(STATIC, static)
    (static / "js/pages/pressure.js").write_text(PRESSURE)
    index = static / "js/pages/index.js"
    text = index.read_text()
    row = "import {page as pressure} from 'keplab/pages/pressure.js';"
    text = text.replace("import {page as queue}", f"{row}\nimport {{page as queue}}")
    index.write_text(text.replace("queue, trace", "queue, pressure, trace"))
    return static


def test_a_page_of_ones_own_stands_in_the_rail_opens_by_its_key_and_has_no_fault_of_access(serve, new_page, tmp_path):
    served = serve(static=_static(tmp_path))
    page = new_page()
    page.open(served.address)

    assert "Pressure" in page.text("nav.rail")
    page.keys("g", "p")
    page.until("() => location.hash.startsWith('#/pressure') && document.querySelector('p.pressure')")
    assert page.text("p.pressure").endswith(" marks")
    assert [] == [each["id"] for each in Axe().run(page.raw).response["violations"]]
