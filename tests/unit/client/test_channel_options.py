"""The arguments of both ends of a gRPC connection are those of the table of L-KA (guarantees 9)."""

import re
from pathlib import Path

from services.client.channel import CHANNEL_OPTIONS, SERVER_OPTIONS

GUARANTEES = Path(__file__).parents[3] / "docs" / "spec" / "guarantees.md"
UNITS = {"MiB": 1 << 20}


def table():
    """Yield name, client's value and server's value of each row; a value that an end does not have is None."""
    text = GUARANTEES.read_text().partition("**L-KA, mandatory channel arguments.**")[2].partition("\n\n|")[2]
    for line in text.partition("\n\n")[0].splitlines():
        names, *values = [cell.strip() for cell in line.strip("|").split("|")]
        words = re.findall(r"`([a-z0-9_.]+)`", names)
        if not words or not words[0].startswith("grpc."):
            continue
        prefix, _, last = words[0].rpartition(".")
        if last == "initial_reconnect_backoff_ms":
            words = [f"{prefix}.{each}_reconnect_backoff_ms" for each in ("initial", "min", "max")]
        client, server = ([each.strip() for each in value.partition("(")[0].split(",")] for value in values[:2])
        for place, name in enumerate(words):
            full = name if name.startswith("grpc.") else f"{prefix}.{name}"
            yield full, *(number(each[min(place, len(each) - 1)]) for each in (client, server))


def number(text):
    if text == "-":
        return None
    digits, _, unit = text.replace("\u00a0", " ").rpartition(" ") if text[-1].isalpha() else (text, "", "")
    return int(digits.replace(" ", "")) * UNITS.get(unit, 1)


def test_l_ka_each_end_has_the_arguments_of_the_table_with_their_values():
    rows = list(table())

    assert len(rows) >= 12
    for place, options in ((1, dict(CHANNEL_OPTIONS)), (2, dict(SERVER_OPTIONS))):
        expected = {row[0]: row[place] for row in rows if row[place] is not None}
        assert expected == {name: options.get(name) for name in expected}


def test_a_port_that_is_taken_is_an_error_and_a_burst_of_opens_is_not_shed():
    """grpc sheds requests above about a thousand opens at once, and shares ports, unless it is configured otherwise."""
    server = dict(SERVER_OPTIONS)

    assert (0, 10_000) == (server["grpc.so_reuseport"], server["grpc.server.max_pending_requests"])
