"""Corruption of the files that a kubelet keeps on its machine, between two lives of its process. Pure.

The kubelet's checkpoint records its decisions about pods; the runtime's record lists what runs. Each is
corrupted separately.
"""

import re
from collections.abc import Mapping

DAMAGES = ("missing", "truncated", "foreign")
_FILES = {
    "checkpoint": re.compile(r"checkpoint[.-].*|managers\.state"),
    "runtime": re.compile(r"runtime(-\d+\.log|\.snapshot)"),
}
VICTIMS = tuple(_FILES)


def corrupt_files(files: Mapping[str, bytes], how: str, what: str = "checkpoint") -> dict[str, bytes | None]:
    """Return the files after this damage; None for a file that is gone. Raises: ValueError.

    `truncated` keeps the first half of each file; `foreign` leaves what another machine's nodes would have.
    """
    if how not in DAMAGES:
        raise ValueError(f"how={how}: want {', '.join(DAMAGES)}")
    if what not in _FILES:
        raise ValueError(f"what={what}: want {', '.join(VICTIMS)}")
    record = {name: data for name, data in files.items() if _FILES[what].fullmatch(name)}
    if how == "missing":
        return dict.fromkeys(record)
    if how == "truncated":
        return {name: data[: len(data) // 2] for name, data in record.items()}
    return {name: b"\n".join(_of_another(line) for line in data.split(b"\n")) for name, data in record.items()}


def _of_another(line: bytes) -> bytes:
    """Lines begin with their node, as a list's first member or, in `managers.state`, as a name."""
    head = line[:2]
    return head + b"other-" + line[2:] if head in (b'["', b'{"') and not line.startswith(b'{"log"') else line
