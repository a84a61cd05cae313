import msgspec

from lab.benchmarks.report import Figures, Run, write
from lab.benchmarks.result import SchedulerBench


def test_a_report_shows_every_figure_beside_its_aim(tmp_path):
    found = Figures(cores=2, load=0.1)
    found.add("a.per_s", "things done", 2_500, "pods/s", at_least=2_000)
    found.add("a.ms", "and how late", 12.345, "ms", at_most=10)
    found.add("a.us", "at what cost", 400, "µs")

    write(found, tmp_path, command="make bench", is_preliminary=False)

    text = (tmp_path / "README.md").read_text()
    assert "| things done | 2,500 pods/s | ≥ 2,000: met |" in text
    assert "| and how late | 12.35 ms | ≤ 10: missed |" in text
    assert "| at what cost | 400 µs | – |" in text
    assert "on 2 cores" in text
    assert "Preliminary" not in text


def test_figures_are_there_for_programs_too(tmp_path):
    found = Figures(cores=2, load=3.0)
    found.add("a.per_s", "things done", 1_500, "pods/s", at_least=2_000)

    write(found, tmp_path, command="make bench", is_preliminary=True)

    document = msgspec.json.decode((tmp_path / "figures.json").read_bytes())
    assert document["machine"] == "2 cores"
    assert document["preliminary"] is True
    assert [(f["name"], f["value"], f["aim"], f["met"]) for f in document["figures"]] == [
        ("a.per_s", 1_500, 2_000, False)
    ]
    assert "load average 3" in (tmp_path / "README.md").read_text()


def test_the_scheduler_has_a_table_of_its_own_with_aims_and_where_the_time_goes(tmp_path):
    found = Figures(cores=2, load=0.1)
    for nodes, cpu_us in ((500, 60.0), (15_000, 90.0)):
        result = SchedulerBench(
            workload="SchedulingBasic", form="algorithm", nodes=nodes, pods=10, init_pods=0, switches=(),
            pods_per_s=12_000, cpu_us_per_pod=cpu_us, p50_ms=0.05, p99_ms=0.1, rss_mib={},
            by_plugin={"NodeResourcesFit": 9.4}, by_part={"cycle": 40.0},
        )  # fmt: skip
        found.scheduler[Run("SchedulingBasic", nodes, aim=10_000)] = result

    write(found, tmp_path, command="make bench", is_preliminary=False)

    text = (tmp_path / "README.md").read_text()
    assert "| SchedulingBasic | 15,000 | algorithm | 12,000 | 90 | 0.05 | 0.1 | ≥ 10,000: met |" in text
    assert "| SchedulingBasic | 500 | NodeResourcesFit 9 | cycle 40 |" in text
    assert "times that at 500 (30 times the nodes): SchedulingBasic 1.5." in text
