"""A node's images: whose turn it is to pull, and what the next pod finds. Time is a plain number."""

import pytest

from kubelet.runtime.images import NodeImages
from tests.unit.kubelet.pod.test_pod import Life
from tests.unit.kubelet.pod.test_pulls import recorded


@pytest.mark.parametrize(("pullers", "ends"), [(1, [5.0, 10.0, 15.0]), (2, [5.0, 5.0, 10.0]), (0, [5.0, 5.0, 5.0])])
def test_images_are_pulled_one_after_the_other_unless_the_node_pulls_in_parallel(pullers, ends):
    images = NodeImages(pullers=pullers)

    assert [images.pull(name, 0.0, 5.0)[1] for name in ("a", "b", "c")] == ends


@pytest.mark.parametrize(("pullers", "end_s"), [(1, 5.2), (0, 5.0)])
def test_an_image_that_is_coming_already_is_not_fetched_twice(pullers, end_s):
    images = NodeImages(pullers=pullers)
    images.expect("a", images.pull("a", 0.0, 5.0)[1])

    assert images.pull("a", 1.0, 5.0)[1] == end_s


def test_the_pull_of_one_pod_serves_the_next():
    images = NodeImages()
    images.add("a", 10.2, 0.0)

    assert images.pull("a", 20.0, 10.2) == (20.0, 20.2)
    assert images.status_images() == (("a", 500_000_000),)


def test_the_largest_images_are_reported_first_and_fifty_at_most():
    images = NodeImages({f"i{n:02}": n for n in range(60)})

    names = [name for name, _ in images.status_images()]
    assert (names[0], names[-1], len(names)) == ("i59", "i10", 50)


def test_a_pod_waits_for_the_pulls_before_its_own_and_says_how_long(a_pod):
    images = NodeImages()
    images.pull("other", 0.0, 10.0)

    life = Life(a_pod(run="pull 5s"), images=images).run(60)

    assert [t for t, reason in recorded(life) if reason == "Pulled"] == [15]
    assert any("in 5s (15s including waiting)" in a.message for _, a in life.log if hasattr(a, "message"))


def test_a_pod_finds_what_another_has_pulled(a_pod):
    images = NodeImages({"img": 1})

    assert recorded(Life(a_pod(run="pull 5s"), images=images).run(60))[0] == (0, "Pulled")
