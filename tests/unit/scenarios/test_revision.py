"""Which code this is: a commit, what was changed since, or a version where the code lies in no repository."""

import os
import subprocess

import pytest

from lab.scenarios.revision import Revision, revision


@pytest.fixture
def repository(tmp_path):
    """A repository with the product's package, at one commit."""

    def git(*words):
        who = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "core.hooksPath=/dev/null")
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, env=environ)

    (tmp_path / "services").mkdir()
    (tmp_path / "services" / "__init__.py").write_text("")
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    revision.cache_clear()
    yield tmp_path
    revision.cache_clear()


def again(folder):
    revision.cache_clear()
    return revision(folder)


def test_a_commit_is_named_and_code_that_was_changed_since(repository):
    clean = again(repository)
    (repository / "services" / "__init__.py").write_text("1\n")
    changed = again(repository)
    (repository / "services" / "__init__.py").write_text("2\n")

    assert (len(clean.commit), clean.changes, clean.text) == (40, "", clean.commit)
    assert changed.commit == clean.commit
    assert changed.text == f"{clean.commit}+{changed.changes}"
    assert again(repository).changes not in ("", changed.changes)


def test_a_module_that_is_new_counts_and_a_document_does_not(repository):
    (repository / "notes.md").write_text("x")
    assert again(repository).changes == ""

    (repository / "plugin.py").write_text("x = 1\n")
    first = again(repository).changes
    (repository / "plugin.py").write_text("x = 2\n")
    assert again(repository).changes not in ("", first)


def test_what_is_tracked_in_no_repository_has_its_version(repository, monkeypatch):
    inside = repository / "lib"
    (inside / "services").mkdir(parents=True)
    (inside / "services" / "__init__.py").write_text("")

    found = again(inside)
    assert found == Revision(found.version)
    assert found.text == f"version {found.version}"
    monkeypatch.setenv("PATH", "/nowhere")
    assert again(repository).commit == ""


def test_a_hook_s_environment_does_not_lead_elsewhere(repository, monkeypatch):
    expected = again(repository)
    monkeypatch.setenv("GIT_DIR", "/nowhere")

    assert again(repository) == expected
