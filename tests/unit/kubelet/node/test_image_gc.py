"""Which images leave a node. Times and sizes are plain numbers."""

import math

import pytest

from kubelet.node.image_gc import AGE, SPACE, ImageCollector, ImagePolicy
from kubelet.pod.states import ContainerState
from kubelet.runtime.images import NodeImages
from tests.unit.kubelet.pod.test_pod import Life

IMAGES = {"a": 30, "b": 30, "c": 30}


def collector(**policy):
    made = ImageCollector(ImagePolicy(**policy), 100)
    made.look(0.0, {}, ())
    return made


def test_the_longest_unused_images_leave_until_the_disk_is_at_the_low_mark():
    disk = collector()
    disk.look(300.0, IMAGES, {"a", "b"})
    disk.look(600.0, IMAGES, {"b"})

    found = disk.collect(900.0, IMAGES, (), 0)

    assert (found.images, found.error) == ((("c", SPACE),), "")


@pytest.mark.parametrize(("other", "leaves"), [(0, True), (-6, False), (40, True)])
def test_nothing_leaves_below_the_high_mark(other, leaves):
    disk = collector()
    disk.look(300.0, IMAGES, ())

    assert bool(disk.collect(600.0, IMAGES, (), other).images) is leaves


def test_images_in_use_or_new_stay_and_the_second_failure_is_an_event_of_the_node():
    disk = collector()
    disk.look(300.0, {"a": 30, "b": 30}, ())
    text = (
        "Failed to garbage collect required amount of images. "
        "Attempted to free 10 bytes, but only found 0 bytes eligible to free."
    )

    first = disk.collect(600.0, IMAGES, {"a", "b"}, 0)
    second = disk.collect(900.0, IMAGES, {"a", "b", "c"}, 0)

    assert (first.images, first.error, first.has_failed_twice) == ((), text, False)
    assert (second.error, second.has_failed_twice) == (text, True)


def test_what_a_short_disk_takes_is_no_second_failure_of_the_collection():
    disk = collector()
    disk.look(300.0, IMAGES, ())
    failed = disk.collect(400.0, IMAGES, IMAGES, 0)

    found = disk.delete_unused(900.0, IMAGES, {"a", "b"})

    assert failed.error
    assert (found.images, found.error, found.has_failed_twice) == ((("c", SPACE),), "", False)


def test_images_that_were_unused_for_too_long_leave_once_the_node_has_run_for_as_long():
    disk = collector(max_age_s=1000.0)
    disk.look(300.0, {"a": 1, "b": 1}, {"a"})

    assert [disk.collect(t, {"a": 1, "b": 1}, {"a"}, 0).images for t in (900.0, 1200.0)] == [(), (("b", AGE),)]


def test_a_node_that_is_short_of_disk_deletes_all_unused_images():
    disk = collector()
    disk.look(300.0, IMAGES, ())

    assert [name for name, _ in disk.delete_unused(600.0, IMAGES, {"b"}).images] == ["a", "c"]


@pytest.mark.parametrize(
    ("fields", "reported"),
    [
        ({"imageGCHighThresholdPercent": 70}, "imageGCHighThresholdPercent: 70, imageGCLowThresholdPercent: 80"),
        ({"imageMaximumGCAge": 60}, "imageMaximumGCAge: 60 s, imageMinimumGCAge: 120 s"),
    ],
)
def test_marks_and_ages_that_no_kubelet_takes_are_refused(a_node, fields, reported):
    with pytest.raises(ValueError, match=reported):
        a_node(**fields)


def test_an_image_that_was_deleted_is_pulled_again_and_has_its_size(a_pod):
    images = NodeImages({"img": 500_000_000})
    images.delete("img", 0.0)

    life = Life(a_pod(), images=images).run(5)
    assert life.worker.containers[0].state == ContainerState.PULLING
    life.run(20)

    assert life.recorded("Started") == [pytest.approx(10.2)]
    assert images.present == {"img": 500_000_000}
    assert math.isclose(images.takes_s("img"), 0.2)
