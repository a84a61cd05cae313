"""Sentences that a newcomer reads first are short: 25 words at most."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS_MAX = 25
FIRST = (
    "README.md",
    "ARCHITECTURE.md",
    "docs/explanation/reading.md",
    "docs/how-to/debugging.md",
    "docs/how-to/install.md",
)
LONG_MAX = 168
"""Long sentences of the other how-to pages at present; the number only falls."""


def long_sentences(text):
    """Yield the sentences of a page with too many words; code counts as one word, and tables and fenced blocks do not count."""
    text = re.sub(r"```.*?```|<picture>.*?</picture>", "", text, flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n|\n(?=[|*#\d-])", text):
        if paragraph.startswith(("|", "!", "#")):
            continue
        plain = re.sub(r"`[^`]*`", "X", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)).replace("\n", " ")
        for sentence in re.split(r"(?<=[.!?:])\s+", plain):
            if len(sentence.split()) > WORDS_MAX:
                yield sentence


@pytest.mark.parametrize("page", FIRST)
def test_what_is_read_first_has_short_sentences(page):
    assert [] == list(long_sentences((ROOT / page).read_text()))


def test_other_pages_have_fewer_and_fewer_long_ones():
    pages = [path for path in (ROOT / "docs" / "how-to").glob("*.md") if f"docs/how-to/{path.name}" not in FIRST]

    assert sum(len(list(long_sentences(path.read_text()))) for path in pages) <= LONG_MAX


def test_a_long_sentence_is_found_and_code_is_a_word():
    long = " ".join(["word"] * 26) + "."

    assert list(long_sentences(f"Short one. {long}")) == [long]
    assert list(long_sentences("`" + long + "` is code.")) == []
