"""What the page takes from others is what its makers published, and the page is not too large (check 24)."""

import shutil

import pytest

from lab.ui import vendor


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the page's files that a test may change."""
    shutil.copytree(vendor.STATIC, tmp_path / "static")
    monkeypatch.setattr(vendor, "STATIC", tmp_path / "static")
    monkeypatch.setattr(vendor, "VENDOR", tmp_path / "static" / "vendor")
    monkeypatch.setattr(vendor, "LIST", tmp_path / "static" / "vendor" / "vendor.toml")
    return tmp_path / "static" / "vendor"


def test_vendored_files_are_as_published_and_the_page_is_within_its_limit():
    assert [] == vendor.problems()
    assert vendor.bundle_bytes() <= vendor.GOAL


def test_each_package_has_its_licence_beside_it():
    for package in vendor.packages():
        assert any(row["file"].startswith("LICENSE.") for row in package["files"]), package["name"]
        assert package["licence"] in ("MIT", "Apache-2.0")


def test_a_changed_a_missing_and_an_unlisted_file_are_named(copy, capsys):
    (copy / "htm.mjs").write_text("export default 1")
    (copy / "preact.mjs").unlink()
    (copy / "other.mjs").write_text("")
    found = vendor.problems()

    assert found[0].startswith("vendor/htm.mjs: sha256 is ")
    assert found[1].startswith("vendor/htm.mjs: size is 16, vendor.toml says ")
    assert found[2:] == ["vendor/other.mjs is not in vendor.toml", "vendor/preact.mjs of preact 11.2.0 is missing"]
    assert 1 == vendor.main(["--check"])
    assert "htm.mjs" in capsys.readouterr().err


def test_a_page_that_is_too_large_is_named(copy, monkeypatch):
    monkeypatch.setattr(vendor, "LIMIT", 1000)

    assert [line for line in vendor.problems() if line.startswith("the page has ") and line.endswith("may have 1000")]


def test_the_list_is_written_as_it_is_read(copy):
    before = vendor.LIST.read_text(encoding="utf-8")

    assert before == vendor._toml_text(vendor.packages())


def test_other_words_are_refused(capsys):
    assert 2 == vendor.main(["--chek"])
    assert "usage" in capsys.readouterr().err
