"""What can become of the record that a kubelet keeps on disk while nobody looks. Pure: files in, files out."""

from __future__ import annotations

from collections.abc import Mapping

DAMAGES = ("missing", "truncated", "foreign")
_RECORD = "runtime"
_BOOT = ".boot"


def spoiled(files: Mapping[str, bytes], how: str) -> dict[str, bytes | None]:
    """Return the files of the record as they are after this damage; None: gone. Raises: ValueError.

    `truncated` leaves the first half of each file, `foreign` the record of another machine's nodes.
    """
    if how not in DAMAGES:
        raise ValueError(f"how={how}: want {', '.join(DAMAGES)}")
    record = {name: data for name, data in files.items() if name.startswith(_RECORD) and not name.endswith(_BOOT)}
    if how == "missing":
        return dict.fromkeys(record)
    if how == "truncated":
        return {name: data[: len(data) // 2] for name, data in record.items()}
    return {name: b"\n".join(_of_another(line) for line in data.split(b"\n")) for name, data in record.items()}


def _of_another(line: bytes) -> bytes:
    return line.replace(b'["', b'["other-', 1) if line.startswith(b'["') else line
