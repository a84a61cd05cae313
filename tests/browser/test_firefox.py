"""The page in one file opens from disk in Firefox too."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.browser.firefox import ask, firefox
from tests.browser.test_comparison import a_comparison, recorded_pair, written

UNTIL = """(async () => { for (;;) { const found = document.querySelector(%r); if (found) return found.textContent;
  await new Promise((then) => setTimeout(then, 20)); } })()"""


def test_it_opens_from_disk_and_its_recordings_are_compared(tmp_path):
    path = firefox()
    if not path:
        pytest.skip("no Firefox: apt-get install firefox-esr, or name one in KEPLAB_FIREFOX")
    made = a_comparison(recordings=str(recorded_pair(tmp_path)), scenario="made-up")
    (profile := tmp_path / "profile").mkdir()
    scripts = [
        UNTIL % ".comparison .result",
        "document.querySelectorAll('.phase-plot .median').length",
        "document.querySelector('.recorded button:last-of-type').click()",
        UNTIL % "[data-differences]",
    ]
    # The other browser's driver has the loop of this thread.
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(ask, path, profile, written(tmp_path, made).as_uri(), scripts)
        (result, lines, _, difference), complaints = asked.result()

    assert (made.result, 5, []) == (result, lines, complaints)
    assert "differences" in difference
