"""The disk of a simulated process: a file keeps what was appended, however little memory that takes."""

import random
import sys

from lab.scenarios.simulation.disk import BLOCK_BYTES, DiskFile


def test_a_file_has_all_bytes_that_were_appended_in_their_order():
    chance, file, plain = random.Random(5), DiskFile(b"head"), bytearray(b"head")

    for _ in range(400):
        part = chance.randbytes(chance.choice((0, 1, 300, 9_000)))
        file.append(part)
        plain += part
        assert len(plain) > 2 * BLOCK_BYTES or bytes(file) == plain

    assert len(plain) > 5 * BLOCK_BYTES
    assert bytes(file) == plain


def test_a_long_log_of_like_lines_takes_a_tenth_of_its_length_at_most():
    file, lines = DiskFile(), 20_000

    for number in range(lines):
        file.append(b'{"kind":"Pod","metadata":{"name":"pod-%06d","namespace":"default"}}\n' % number)

    kept = sum(map(sys.getsizeof, file._blocks)) + sys.getsizeof(file._tail)
    assert len(bytes(file)) > 1_000_000
    assert kept < len(bytes(file)) / 10 + BLOCK_BYTES
