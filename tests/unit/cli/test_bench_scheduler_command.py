import json

import pytest

from lab.benchmarks import scheduler
from lab.cli.__main__ import run

KEYS = {"workload", "form", "nodes", "pods", "pods_per_s", "cpu_us_per_pod", "p50_ms", "p99_ms", "rss_mib",
        "by_plugin", "by_extension_point"}  # fmt: skip


def test_the_document_of_a_workload_has_the_documented_keys(capsys):
    code = run(["bench", "scheduler", "--workload", "schedulingbasic", "--nodes", "5", "--pods", "5", "-o", "json"])

    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert set(document) >= KEYS
    assert (document["workload"], document["form"], document["pods"]) == ("SchedulingBasic", "algorithm", 5)


def test_an_unknown_workload_is_wrong_usage_and_near_ones_are_named(capsys):
    with pytest.raises(SystemExit) as end:
        run(["bench", "scheduler", "--workload", "TopologySpread"])

    assert end.value.code == 2
    assert "did you mean TopologySpreading" in capsys.readouterr().err


def test_the_list_names_every_workload(capsys):
    assert run(["bench", "scheduler", "--list"]) == 0

    out = capsys.readouterr().out
    assert "SchedulingBasic" in out
    assert "PreemptionAsync" in out


def test_a_workload_that_cannot_end_fails_and_says_how_far_it_got(capsys, monkeypatch):
    # 600 pods of 900m on ten nodes of 4 CPUs: most find no node, and no pod may be preempted for them. Such pods are
    # refused beforehand; what no capacity shows, such as constraints that exclude each other, is seen only here.
    monkeypatch.setattr(scheduler, "check_fits", lambda workload, size: None)
    code = run(["bench", "scheduler", "--workload", "PreemptionBasic", "--nodes", "10", "--init-pods", "600"])

    assert code == 1
    assert "40 of 600 pods have a node" in capsys.readouterr().err
