"""The files of the page, and nothing beside them."""

import base64
import hashlib

import pytest

from lab.ui.static_files import StaticFiles
from services.api.errors import NotFound

MAP = '{"imports": {"a": "./js/a.js"}}'


@pytest.fixture
def files(tmp_path):
    (tmp_path / "static" / "js").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "static" / "index.html").write_text(f'<script type="importmap">{MAP}</script>')
    (tmp_path / "static" / "js" / "a.js").write_text("1")
    (tmp_path / "static" / "js" / "a.py").write_text("1")
    return StaticFiles(tmp_path / "static")


def test_a_file_has_its_type(files):
    assert (b"1", "text/javascript") == files.find("js/a.js")


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "js/../../secret.txt",
        "/etc/hostname.txt",
        "js/a.py",
        "js/none.js",
        "js",
        "",
        ".hidden.js",
        "a\x00.js",
    ],
)
def test_nothing_else_is_served(files, path):
    with pytest.raises(NotFound):
        files.find(path)


def test_the_import_map_is_known_by_its_hash(files):
    assert ["sha256-" + base64.b64encode(hashlib.sha256(MAP.encode()).digest()).decode()] == files.import_map_hashes
