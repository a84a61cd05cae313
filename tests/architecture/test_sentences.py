"""Sentences of README.md, ARCHITECTURE.md, CONTRIBUTING.md, the reading order and every how-to page are short: 25 words at most."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS_MAX = 25
PAGES = (
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "docs/explanation/reading.md",
    *sorted(f"docs/how-to/{path.name}" for path in (ROOT / "docs" / "how-to").glob("*.md")),
)


def _is_code(paragraph):
    return all(line.startswith("    ") for line in paragraph.splitlines() if line.strip())


def long_sentences(text):
    """Yield the sentences of a page with too many words. A code span counts as one word; tables, headings and code blocks do not count."""
    text = re.sub(r"```.*?```|<picture>.*?</picture>", "", text, flags=re.DOTALL)
    for paragraph in re.split(r"\n\s*\n|\n(?=\||#|[*-] |\d+\. )", text):
        if paragraph.startswith(("|", "!", "#")) or _is_code(paragraph):
            continue
        plain = re.sub(r"`[^`]*`", "X", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph)).replace("\n", " ")
        for sentence in re.split(r"(?<=[.!?:])\s+", plain):
            if len(sentence.split()) > WORDS_MAX:
                yield sentence


@pytest.mark.parametrize("page", PAGES)
def test_sentences_of_a_page_are_short(page):
    assert [] == list(long_sentences((ROOT / page).read_text()))


def test_a_long_sentence_is_found_and_code_is_a_word():
    long = " ".join(["word"] * 26) + "."

    assert list(long_sentences(f"Short one. {long}")) == [long]
    assert list(long_sentences("`" + long + "` is code.")) == []


def test_a_line_that_begins_with_a_number_does_not_end_a_sentence():
    assert len(list(long_sentences(" ".join(["word"] * 20) + "\n10 s " + " ".join(["word"] * 5) + "."))) == 1


def test_an_indented_block_is_code():
    long = " ".join(["word"] * 26)

    assert list(long_sentences(f"Type:\n\n    keplab {long}\n    keplab down\n")) == []
    assert list(long_sentences(f"* An item:\n  {long}")) != []
