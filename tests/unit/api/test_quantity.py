"""Exact resource arithmetic (guarantees V5)."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.api.quantity import amount, format_amount, milli, units

SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("100m", 100), ("2", 2000), ("1.5", 1500), ("0.1", 100), ("1e3", 1_000_000), (".5", 500), ("-1", -1000)],
)
def test_cpu_is_counted_in_thousandths(text, wanted):
    assert wanted == milli(text)


@pytest.mark.parametrize(
    ("text", "wanted"), [("1Ki", 1024), ("1Gi", 2**30), ("1.5Gi", 3 * 2**29), ("100m", 1), ("1e3", 1000)]
)
def test_memory_is_counted_in_whole_units_rounded_up(text, wanted):
    assert wanted == units(text)


@given(st.integers(0, 10**6), st.integers(0, 999), st.sampled_from(sorted(SUFFIXES)))
def test_every_quantity_is_its_fraction_rounded_up(whole, thousandths, suffix):
    exact = (whole + Fraction(thousandths, 1000)) * SUFFIXES[suffix]

    assert -(-exact.numerator // exact.denominator) == units(f"{whole}.{thousandths:03d}{suffix}")


@given(st.sampled_from(["cpu", "memory", "pods"]), st.integers(0, 2**50))
def test_a_formatted_amount_reads_back(resource, value):
    assert value == amount(resource, format_amount(resource, value))


@pytest.mark.parametrize(
    "text", ["", "abc", "1.2.3", "1 Gi", "1gi", "e3", "1e99", "9" * 70, "--1", "1Zi", "NaN", "9Ei000"]
)
def test_a_malformed_quantity_is_named(text):
    with pytest.raises(ValueError, match="quantity"):
        milli(text)


def test_a_quantity_above_63_bits_is_refused():
    with pytest.raises(ValueError, match="above 2"):
        units("16Ei")
