"""Numbers in sentences."""

import pytest

from lab.experiments.wording import count_text


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [
        (0, ("pod",), "0 pods"),
        (1, ("pod",), "1 pod"),
        (1200, ("pod",), "1,200 pods"),
        (1, ("process", "processes"), "1 process"),
        (2, ("object is", "objects are"), "2 objects are"),
    ],
)
def test_one_is_singular_and_everything_else_plural(count, words, text):
    assert text == count_text(count, *words)
