"""Where a server records a mesh: beside the recording of another one, unless a file was named."""

from pathlib import Path

import pytest

from lab.recordings.writer import BeingRecorded, NotRecordable
from lab.ui import run
from lab.ui.run import Options


@pytest.fixture
def begin(monkeypatch):
    """Begin a recording while others write these."""

    def recorder(taken, **options):
        def begun(live, rest, path, version):
            if path.name in taken:
                raise BeingRecorded(f"{path} is being written by another command")
            return path.name

        monkeypatch.setattr(run, "LiveRecorder", begun)
        return run._recorder(Options(recording=Path("mesh/ui.keprec"), **options), None, None, "1")

    return recorder


def test_a_second_server_records_beside_the_first(begin):
    assert "ui.keprec" == begin(())
    assert "ui-2.keprec" == begin(("ui.keprec",))
    assert "ui-4.keprec" == begin(("ui.keprec", "ui-2.keprec", "ui-3.keprec"))


def test_a_file_that_was_named_is_that_one_or_none_and_so_many_servers_are_enough(begin):
    with pytest.raises(NotRecordable, match=r"ui\.keprec is being written"):
        begin(("ui.keprec",), must_record=True)
    every = ("ui.keprec", *(f"ui-{number}.keprec" for number in range(2, 10)))
    with pytest.raises(NotRecordable, match=r"ui-9\.keprec is being written"):
        begin(every)
