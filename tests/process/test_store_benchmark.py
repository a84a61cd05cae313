"""`keplab bench store` measures real servers of every engine."""

import pytest

from lab.benchmarks.store import WRITERS, bench_store
from tests.process import etcds


@pytest.mark.timeout(300)
def test_every_engine_is_measured_next_to_what_it_stands_on(monkeypatch):
    monkeypatch.setenv("PATH", str(etcds.binary().parent), prepend=":")

    result = bench_store(seconds=0.05)

    titles = {"memory", "sqlite", "etcd", "etcd, 2 API servers", "raw SQLite", "raw etcd"}
    assert set(result.by_engine) == titles
    assert all(set(rates) == set(WRITERS) and min(rates.values()) > 0 for rates in result.by_engine.values())
    assert set(result.document()["by_engine"]) == titles
