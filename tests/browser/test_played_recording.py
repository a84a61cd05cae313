"""A recording that `keplab ui` plays to the page, and the same in the page of one file: moments, and time between them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser import recorded

ROOT = Path(__file__).resolve().parents[2]
SHOWN = "() => [__keplab.state.rv.value, __keplab.state.time.value, __keplab.state.playing.value]"


@pytest.fixture(scope="module")
def recording(tmp_path_factory, history):
    return recorded.record(tmp_path_factory.mktemp("played") / "a.keprec", history)


@pytest.fixture(scope="module", params=["served", "in one file"])
def address(request, recording):
    """Where the recording is shown."""
    if request.param != "served":
        yield recorded.page_of(recording.parent, recording)
        return
    process = subprocess.Popen(
        [sys.executable, "-m", "lab.cli", "ui", "--run", str(recording), "--data", str(recording.parent / "none")],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    yield process.stdout.readline().strip()
    process.terminate()
    process.wait(30)


def opened(new_page, address):
    page = new_page()
    page.open(address, shows="!__keplab.view.value.history.value.estimated")
    page.until("() => __keplab.state.marks.value.length > 3")
    return page


def test_playing_ends_at_the_end_and_begins_again_from_there(address, new_page, history):
    page = opened(new_page, address)
    page.seek(history.rv - 2)
    page.keys("Space")
    page.until("(last) => __keplab.state.rv.value === last && __keplab.state.playing.value === 0", history.rv)
    page.keys("Space")
    page.until("(last) => __keplab.state.rv.value < last && __keplab.state.playing.value === 1", history.rv)
    page.keys("Space")

    assert page.ask(SHOWN)[2] == 0


def test_time_passes_between_two_versions(address, new_page, history):
    page = opened(new_page, address)
    page.seek(10)
    page.keys("<", "<")
    assert page.until(
        """() => { const {rv, time} = __keplab.state, of = __keplab.view.value.history.value, at = of.rv.indexOf(rv.value);
        return rv.value > 10 && at >= 0 && time.value > of.t[at] + 1e-3 && time.value < of.t[at + 1]; }"""
    )


def test_a_mark_between_two_versions_is_shown_at_its_own_time(address, new_page):
    page = opened(new_page, address)
    rejected = "__keplab.state.marks.value.find((mark) => mark.kind === 'reject')"
    page.keys("Home")
    page.until("() => __keplab.state.rv.value === 1")
    for _ in range(3):
        page.keys(".")
        if page.ask("() => __keplab.state.notice.value.text").startswith("reject: "):
            break
    page.until(f"() => Math.abs(__keplab.state.time.value - {rejected}.time) < 1e-9")
    page.keys("g", "m")
    page.until("() => document.querySelector('.newest .vrow')")

    assert "kubelet.reject" in page.text(".newest .vrow >> nth=0")
