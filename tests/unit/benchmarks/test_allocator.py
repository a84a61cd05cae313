from lab.benchmarks.allocator import bench_allocator


def test_the_allocators_figures_are_of_allocations_that_were_found():
    result = bench_allocator(devices=())

    assert result.searches_per_s > 0
    assert result.back_ms > 0
    assert set(result.document()) == {"searches_per_s", "back_ms", "mib"}
