"""The hook that reads subjects of commits: component first, the imperative, 72 characters."""

import subprocess
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[2] / ".githooks" / "commit-msg"


def refusal(tmp_path, subject):
    (tmp_path / "message").write_text(f"{subject}\n\nA body.\n# a comment\n")
    done = subprocess.run([HOOK, tmp_path / "message"], capture_output=True, text=True)
    return done.stderr.partition("\n")[0] if done.returncode else ""


@pytest.mark.parametrize(
    "subject",
    [
        "scheduler: assume before reserve",
        "cel, kwok: make subjects of their own of two folders",
        "tests: process what workers send",
        "kubelet: embed the ledger",
        "Merge branch 'main' into topic",
        'Revert "scheduler: assume before reserve"',
    ],
)
def test_a_subject_in_the_imperative_passes(tmp_path, subject):
    assert refusal(tmp_path, subject) == ""


@pytest.mark.parametrize(
    ("subject", "why"),
    [
        ("page: what nobody reads is gone", "'what' is none"),
        ("scheduler: assumes before reserve", "'assumes' is none"),
        ("scheduler: assumed before reserve", "'assumed' is none"),
        ("scheduler: assuming before reserve", "'assuming' is none"),
        ("Fix it", "names the component first"),
        ("wip", "names the component first"),
        ("scheduler: " + "a" * 70, "has 81 characters"),
    ],
)
def test_another_subject_is_refused_with_the_reason(tmp_path, subject, why):
    assert why in refusal(tmp_path, subject)
