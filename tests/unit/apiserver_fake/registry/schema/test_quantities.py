"""Quantities are stored as upstream's `Quantity` writes them, however they were sent."""

import random

import pytest

from apiserver_fake.registry.schema.schemas import conform, shape_of
from services.api.quantity import canonical

POD = shape_of("v1", "Pod")
SUFFIXES = ["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "e3", "E-2"]


def stored(amount):
    pod = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": amount}}}]}}
    return conform(POD, "v1", "Pod", pod)["spec"]["containers"][0]["resources"]["requests"]["cpu"]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("1000m", "1"), ("1500m", "1500m"), ("0.5", "500m"), ("1024Mi", "1Gi"), ("1536Mi", "1536Mi"), ("16384Mi", "16Gi"),
        ("1000", "1k"), ("1e3", "1e3"), ("+1", "1"), ("01", "1"), ("-0", "0"), ("0Ki", "0"), ("512", "512"), (2, "2"),
        (0.5, "500m"), (" 1 ", "1"), ("1000Ki", "1000Ki"), ("999Gi", "999Gi"),
    ],
)  # fmt: skip
def test_a_quantity_is_kept_in_the_one_form_that_kubernetes_writes(sent, kept):
    assert stored(sent) == kept
    assert stored(kept) == kept


def test_what_is_kept_as_it_was_sent_is_in_that_form():
    drawn = random.Random(0)
    for _ in range(5_000):
        whole = str(drawn.choice((0, 1, 10, 500, 1000, 1024, drawn.randrange(10**6), drawn.randrange(10**6) * 1000)))
        text = f"{drawn.choice(('', '', '-'))}{whole}{drawn.choice(('', '', '.5'))}{drawn.choice(SUFFIXES)}"
        assert stored(text) == canonical(text), text
