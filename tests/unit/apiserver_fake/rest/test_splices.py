"""Insertions that make one text of another."""

import random

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from apiserver_fake.rest.encoding import complete, type_of
from apiserver_fake.rest.splices import INSERTIONS_MAX, splice, splices_of

TEXTS = st.text(alphabet='{}",:a', max_size=40).map(str.encode)


@given(TEXTS, st.lists(st.tuples(st.integers(0, 40), TEXTS), max_size=5))
def test_what_was_found_by_insertions_gives_the_whole_text_again(text, insertions):
    whole = text
    for at, inserted in insertions:
        whole = whole[:at] + inserted + whole[at:]

    splices = splices_of(text, whole)

    assert splices is None or splice(text, splices) == whole


@given(TEXTS, TEXTS)
def test_any_two_texts_are_never_mistaken_for_each_other(text, whole):
    splices = splices_of(text, whole)

    assert splices is None or splice(text, splices) == whole


def test_the_zero_values_of_a_pod_are_a_few_short_insertions():
    generator = random.Random(7)
    conditions = [{"type": name, "status": "True"} for name in ("Ready", "PodScheduled", "Initialized")]
    for count in range(1, 6):
        names = [f"c{generator.randrange(10**6)}" for _ in range(count)]
        containers = [{"name": name, "image": f"registry.example/{name}:1"} for name in names]
        pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers}}
        pod["status"] = {"conditions": conditions}
        text = msgspec.json.encode(pod)
        whole_pod = msgspec.json.decode(text)
        complete(whole_pod, type_of("v1", "Pod"))
        whole = msgspec.json.encode(whole_pod)

        splices = splices_of(text, whole)

        assert splices is not None
        assert splice(text, splices) == whole
        assert sum(len(inserted) for _, inserted in splices) == len(whole) - len(text)


def test_a_text_with_too_many_insertions_or_another_text_has_none():
    text, whole = b"(x)" * (INSERTIONS_MAX + 1), b"(xy)" * (INSERTIONS_MAX + 1)

    assert splices_of(text, whole) is None
    assert splices_of(b'{"a":null}', b'{"a":{}}') is None
    assert splices_of(b"abc", b"abd") is None
    assert splices_of(b"abc", b"abcd") is None
