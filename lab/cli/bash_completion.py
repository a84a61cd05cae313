"""Completion in bash, which ends words at `=` and `:`, so that NAME=VALUE and NAME:SWITCH=VALUE are several to it.

The line up to the cursor is handed on whole, and of what completes a word only the part after the last `=` or `:` goes
back; no space follows a name whose value is still to come.
"""

import os
import re
from typing import Any

from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

_WORDS, _REPLY = 'COMP_WORDS="${COMP_WORDS[*]}"', "COMPREPLY+=($value)"


class Bash(BashComplete):
    """Takes the line as it is typed."""

    source_template = BashComplete.source_template.replace(_WORDS, 'COMP_WORDS="${COMP_LINE:0:$COMP_POINT}"').replace(
        _REPLY, f"{_REPLY}\n            [[ $value == *= ]] && compopt -o nospace"
    )
    _typed = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """Return the words before the one that is being typed, and what there is of it."""
        line = os.environ["COMP_WORDS"]
        words = split_arg_string(line)[1:]
        if line[-1:].isspace() or not words:
            return words, ""
        self._typed = words[-1]
        return words[:-1], words[-1]

    def format_completion(self, item: CompletionItem[Any]) -> str:
        """Return kind and text, without what bash takes for words of its own."""
        done = re.match(r".*[=:]", self._typed)
        text = item.value.removeprefix(done[0]) if done and item.type == "plain" else item.value
        return f"{item.type},{text}"


def register() -> None:
    """Have click complete in bash so."""
    add_completion_class(Bash)
