"""A terminal's processing of typed bytes: lines, echo, erasing, Ctrl-C and Ctrl-D. Pure."""

from typing import NamedTuple

_ERASE, _INTERRUPT, _END, _KILL_LINE, _ESCAPE = b"\x7f\x08", 3, 4, 0x15, 0x1B
LINE_BYTES_MAX = 4096


class Typed(NamedTuple):
    """The result of typed bytes: the echo, the complete input (b"" in it: its end), whether SIGINT was typed."""

    shown: bytes
    input: list[bytes]
    is_interrupted: bool = False


class Terminal:
    """A terminal in its usual mode: a program reads whole lines."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._in_sequence = False

    def type(self, data: bytes) -> Typed:
        """Take bytes as they are typed."""
        shown, lines, is_interrupted = bytearray(), [], False
        for byte in data:
            if self._in_sequence:
                # Arrow and function keys: nothing here edits within a line.
                self._in_sequence = byte == ord("[") or not 0x40 <= byte <= 0x7E
            elif byte in (13, 10):
                lines.append(bytes(self._line) + b"\n")
                self._line.clear()
                shown += b"\r\n"
            elif byte in _ERASE:
                if self._line:
                    while self._line and self._line.pop() & 0xC0 == 0x80:
                        pass
                    shown += b"\b \b"
            elif byte == _KILL_LINE:
                shown += b"\b \b" * len(self._line)
                self._line.clear()
            elif byte == _INTERRUPT:
                self._line.clear()
                shown += b"^C"
                is_interrupted = True
            elif byte == _END:
                lines.append(bytes(self._line))
                self._line.clear()
            elif byte == _ESCAPE:
                self._in_sequence = True
            elif byte >= 32 and len(self._line) < LINE_BYTES_MAX:
                self._line.append(byte)
                shown.append(byte)
        return Typed(bytes(shown), lines, is_interrupted)


def terminal_output(data: bytes) -> bytes:
    """Return output in a terminal's form: a line end also returns to the left."""
    return data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
