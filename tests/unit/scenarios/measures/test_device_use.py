"""How many of the drivers' devices are allocated, from slices and claims."""

import msgspec
import pytest

from lab.scenarios.measures.device_use import DeviceUse
from services.api.kinds.resourceclaim import ResourceClaim
from services.api.kinds.resourceslice import ResourceSlice
from services.reconcile.controller import Change


class Seen:
    """What a run's observer sees of slices and claims."""

    def __init__(self):
        self.use = DeviceUse()
        self._objects = {}

    def slice(self, at, name, *devices, pool="n1", generation=1, driver="gpu.example.com"):
        spec = {
            "driver": driver,
            "pool": {"name": pool, "generation": generation},
            "devices": [{"name": d} for d in devices],
        }
        return self._change(at, ResourceSlice, name, {"spec": spec})

    def claim(self, at, name, *devices, pool="n1", driver="gpu.example.com", **more):
        results = [{"request": "r", "driver": driver, "pool": pool, "device": d, **more} for d in devices]
        return self._change(
            at, ResourceClaim, name, {"status": {"allocation": {"devices": {"results": results}}} if devices else {}}
        )

    def gone(self, at, view, name):
        self._take(view)(Change(self._objects.pop((view, name)), None), at)
        return self

    def _change(self, at, view, name, document):
        new = msgspec.convert({"metadata": {"name": name, "namespace": "default", "uid": name}, **document}, view)
        self._take(view)(Change(self._objects.get((view, name)), new), at)
        self._objects[view, name] = new
        return self

    def _take(self, view):
        return self.use.on_slice if view is ResourceSlice else self.use.on_claim

    def utilization(self, at=10.0, driver="gpu.example.com"):
        found = self.use.measures(0.0, at)
        return tuple(found[f"{driver}_utilization_{when}"] for when in ("end", "mean", "max"))


def test_devices_allocated_of_those_offered_at_the_end_over_time_and_at_most():
    seen = (
        Seen().slice(0, "s", "a", "b", "c", "d").claim(2, "x", "a").claim(4, "y", "b", "c").gone(8, ResourceClaim, "x")
    )

    assert (0.5, pytest.approx((2 * 0.25 + 4 * 0.75 + 2 * 0.5) / 10), 0.75) == seen.utilization()


def test_a_device_that_claims_share_counts_once():
    seen = Seen().slice(0, "s", "a", "b").claim(0, "x", "a").claim(0, "y", "a")
    shared = seen.utilization()[0]
    one_left = seen.gone(1, ResourceClaim, "x").utilization()[0]

    assert (0.5, 0.5, 0.0) == (shared, one_left, seen.claim(2, "y").utilization()[0])


def test_of_a_pool_the_newest_generation_is_what_is_offered():
    seen = Seen().slice(0, "old", "a", "b", "c", "d").slice(0, "new", "a", "b", generation=2).claim(0, "x", "a")

    assert seen.utilization()[0] == 0.5
    assert seen.gone(1, ResourceSlice, "new").utilization()[0] == 0.25


def test_devices_for_administration_are_not_in_use():
    assert Seen().slice(0, "s", "a").claim(0, "x", "a", adminAccess=True).use.measures(0.0, 9.0) == {}


def test_drivers_are_apart():
    seen = Seen().slice(0, "s", "a", "b").slice(0, "t", "a", driver="nic.example.com", pool="p")
    seen.claim(0, "x", "a").claim(0, "y", "a", driver="nic.example.com", pool="p")

    assert (0.5, 1.0) == (seen.utilization()[0], seen.utilization(driver="nic.example.com")[0])
