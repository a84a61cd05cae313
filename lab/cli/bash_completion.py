"""Completion in bash, which splits words at `=` and `:` and so sees several in NAME=VALUE and NAME:SWITCH=VALUE.

The line up to the cursor is passed on whole. Of a completed word only the part after the last `=` or `:` is
returned. No space follows a name whose value is still to come.
"""

import os
import re
from typing import Any

from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

_WORDS, _REPLY = 'COMP_WORDS="${COMP_WORDS[*]}"', "COMPREPLY+=($value)"


class Bash(BashComplete):
    """Bash completion that takes the line as it is typed."""

    source_template = BashComplete.source_template.replace(_WORDS, 'COMP_WORDS="${COMP_LINE:0:$COMP_POINT}"').replace(
        _REPLY, f"{_REPLY}\n            [[ $value == *= ]] && compopt -o nospace"
    )
    _typed = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one being typed, and the part of that word typed so far."""
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        if line[-1:].isspace() or not words:
            return words, ""
        self._typed = words[-1]
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Return type and text of a completion, without the part that bash takes for earlier words."""
        done = re.match(r".*[=:]", self._typed)
        text = item.value.removeprefix(done[0]) if done and item.type == "plain" else item.value
        return f"{item.type},{text}"


def register() -> None:
    """Have click use this completion for bash."""
    add_completion_class(Bash)
