"""`keplab bench rest` measures a real server over TLS."""

import msgspec

from lab.benchmarks.rest import FORMS, bench_rest


def test_every_operation_and_every_form_of_a_list_is_measured():
    result = bench_rest(pods=30, calls=5)

    assert set(result.operations) == {"pod", "deployment"}
    for costs in result.operations.values():
        assert {"create", "get", "update", "JSON patch", "merge patch", "strategic patch"} < set(costs)
        assert costs["get"].of_get == 1
        assert all(cost.cpu_us > 0 and cost.p50_us > 0 for cost in costs.values())
    assert set(result.lists) == set(FORMS)
    sizes = {name: cost.bytes for name, cost in result.lists.items()}
    assert sizes["JSON, gzip"] < sizes["Table"] < sizes["JSON"], "30 pods of 8 KB, of which rows show the metadata"
    assert msgspec.json.encode(result.document())
