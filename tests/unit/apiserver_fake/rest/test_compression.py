"""Compression of answers: parts that are joined, and parts that are kept."""

import asyncio
import gzip
import zlib

from hypothesis import given
from hypothesis import strategies as st

from apiserver_fake.rest import compression
from apiserver_fake.rest.compression import GzipBody, Parts, gzip_of, part_of


@given(st.lists(st.binary(max_size=3000), max_size=6))
def test_parts_that_were_compressed_apart_are_one_gzip_body_together(texts):
    body = GzipBody()
    sent = body.begin() + b"".join([body.add(part_of(text)) for text in texts]) + body.end()

    reader = zlib.decompressobj(16 + zlib.MAX_WBITS)
    assert reader.decompress(sent) == b"".join(texts)
    assert reader.eof, "length and checksum are right, and nothing follows"
    assert reader.unused_data == b""


def test_a_part_can_follow_another_one_more_than_once():
    part, body = part_of(b"abc" * 100_000), GzipBody()

    sent = body.begin() + body.add(part) + body.add(part) + body.end()

    assert gzip.decompress(sent) == b"abc" * 200_000


def test_answers_are_compressed_at_the_level_of_upstream_s_server():
    assert compression.LEVEL == 1
    text = b"a long answer " * 1000

    assert gzip.decompress(gzip_of(text)) == text
    assert gzip_of(text)[8] == 4, "the header of gzip names the fastest level"


def test_the_parts_that_were_used_last_are_kept_within_the_limit():
    async def scenario():
        text = bytes(range(256)) * 4
        size = len(part_of(text).deflated)
        parts = Parts(3 * size)
        for key in "abc":
            await parts.make(key, text)
        assert parts.find("a") is not None
        await parts.make("d", text)
        return [parts.find(key) is not None for key in "abcd"]

    assert asyncio.run(scenario()) == [True, False, True, True]
