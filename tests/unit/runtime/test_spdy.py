"""SPDY/3.1 frames to bytes and back."""

import contextlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.runtime.spdy import frames as spdy
from services.runtime.spdy.frames import Decoder, Encoder, Frame, SpdyError

numbers = st.integers(1, 2**31 - 1)
names = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=20)
headers = st.dictionaries(names, st.text(st.characters(max_codepoint=126, min_codepoint=32), max_size=50), max_size=8)
frames = st.one_of(
    st.builds(Frame, st.just(0), numbers, st.sampled_from([0, spdy.FIN]), st.binary(max_size=3000)),
    st.builds(Frame, st.sampled_from([1, 2, 8]), numbers, st.sampled_from([0, spdy.FIN]), headers=headers),
    st.builds(Frame, st.just(3), numbers, status=st.integers(1, 11)),
    st.builds(Frame, st.just(6), number=numbers),
    st.builds(Frame, st.just(7), number=numbers, status=st.integers(0, 2)),
)


@given(st.lists(frames, max_size=12), st.integers(1, 200))
def test_what_is_encoded_is_decoded_however_the_bytes_are_cut(sent, size):
    encoder, decoder = Encoder(), Decoder()
    data = b"".join(encoder.encode(frame) for frame in sent)
    found = [f for at in range(0, len(data), size) for f in decoder.feed(data[at : at + size])]
    assert found == sent


def test_the_dictionary_is_that_of_the_specification():
    assert (len(spdy.DICTIONARY), zlib.adler32(spdy.DICTIONARY)) == (1423, 0xE3C6A7C2)


@given(st.binary(max_size=300))
def test_whatever_bytes_come_they_are_frames_or_an_error(data):
    with contextlib.suppress(SpdyError):
        assert all(frame.kind <= spdy.HEADERS for frame in Decoder().feed(data))


def test_headers_are_compressed_with_what_came_before():
    encoder = Encoder()
    frame = Frame(spdy.SYN_STREAM, 1, headers={"streamtype": "data", "port": "80", "requestid": "0"})
    assert len(encoder.encode(frame)) > len(encoder.encode(frame))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x80\x02\x00\x01\x00\x00\x00\x00", "SPDY version 2"),
        (b"\x00\x00\x00\x01\x00\xff\xff\xff", "a frame of 16777215 bytes"),
        (b"\x80\x03\x00\x01\x00\x00\x00\x02ab", "kind 1 with 2 bytes"),
        (b"\x80\x03\x00\x02\x00\x00\x00\x0c\x00\x00\x00\x01nonsense", "header block"),
    ],
)
def test_what_is_no_frame_is_refused(data, why):
    with pytest.raises(SpdyError, match=why):
        list(Decoder().feed(data))


def test_a_header_block_does_not_inflate_without_bound():
    frame = Encoder().encode(Frame(spdy.SYN_REPLY, 1, headers={"a": "x" * 200_000}))
    assert len(frame) < 1000
    with pytest.raises(SpdyError, match="more than 65536 bytes"):
        list(Decoder().feed(frame))
