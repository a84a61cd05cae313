import msgspec
import pytest

from lab.benchmarks.reporting.aims import Aim, Aims, last_figures, read_aims
from lab.benchmarks.reporting.machine import Machine, this_machine
from lab.benchmarks.reporting.report import Figures, Part, Run, write
from lab.benchmarks.result import SchedulerBench

MACHINE = Machine("Swift 9000", 2, "3.11.7", "abc123")


def test_a_report_shows_every_figure_beside_its_aim(tmp_path):
    found = Figures(MACHINE, load=0.1)
    found.add("a.per_s", "things done", 2_500, "pods/s", at_least=2_000)
    found.add("a.ms", "and how late", 12.345, "ms", at_most=10)
    found.add("a.us", "at what cost", 400, "µs")

    write(found, tmp_path, command="make bench", is_preliminary=False)

    text = (tmp_path / "README.md").read_text()
    assert "| things done | 2,500 pods/s |  | ≥ 2,000: met |  |" in text
    assert "| and how late | 12.35 ms |  | ≤ 10: missed |  |" in text
    assert "| at what cost | 400 µs |  | – |  |" in text
    assert "on 2 cores of Swift 9000" in text
    assert "revision abc123" in text
    assert "Preliminary" not in text


def test_figures_are_there_for_programs_too(tmp_path):
    found = Figures(MACHINE, load=3.0)
    found.add("a.per_s", "things done", 1_500, "pods/s", at_least=2_000)

    write(found, tmp_path, command="make bench", is_preliminary=True)

    document = msgspec.json.decode((tmp_path / "figures.json").read_bytes())
    assert (document["cores"], document["processor"], document["revision"]) == (2, "Swift 9000", "abc123")
    assert document["preliminary"] is True
    assert [(f["name"], f["value"], f["aim"], f["met"]) for f in document["figures"]] == [
        ("a.per_s", 1_500, 2_000, False)
    ]
    assert "load average 3" in (tmp_path / "README.md").read_text()


def test_the_scheduler_has_a_table_of_its_own_with_aims_and_where_the_time_goes(tmp_path):
    found = Figures(MACHINE, load=0.1)
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


def test_a_row_of_the_table_of_aims_goes_before_the_bound_in_the_code():
    found = Figures(MACHINE, 0.1, Aims((Aim(name="a.*.ms", at_most=5, then=3), Aim(name="b", at_least=2))))
    found.add("a.x.ms", "how late", 4, "ms", at_most=10)
    found.add("b", "how many", 1, "1/s")
    found.add("c", "no aim", 1, "1/s")

    assert [figure.aim_text for figure in found.figures] == ["≤ 5: met", "≥ 2: missed", "–"]


def test_a_figure_stands_beside_the_one_committed_last(tmp_path):
    before = Figures(MACHINE, 0.1)
    before.add("a.us", "at what cost", 500, "µs")
    write(before, tmp_path, command="make bench", is_preliminary=False)
    found = Figures(MACHINE, 0.1, last=last_figures(tmp_path))
    found.add("a.us", "at what cost", 400, "µs")
    found.end_part(Part("costs", 1.0, 2.0, 3.0), 0, unit_us=200.0)

    write(found, tmp_path, command="make bench", is_preliminary=False)

    assert "| at what cost | 400 µs | 2 | – | 500 |" in (tmp_path / "README.md").read_text()
    document = msgspec.json.decode((tmp_path / "figures.json").read_bytes())
    assert (document["figures"][0]["units"], document["figures"][0]["before"]) == (2.0, 500)
    assert document["parts"] == [{"name": "costs", "cpu_s": 1.0, "units": 2.0, "wall_s": 3.0}]


def test_a_folder_without_a_report_has_no_last_figures(tmp_path):
    assert last_figures(tmp_path) == {}


def test_an_aim_has_one_bound():
    with pytest.raises(ValueError, match="a: want at_most or at_least"):
        Aim(name="a", at_most=1, at_least=2)


def test_the_committed_table_has_an_aim_for_a_simulated_pod_and_names_no_figure_twice():
    aims = read_aims()

    assert aims.of("simulation.lives.20.500.units_per_pod").limit == 20
    assert len({row.name for row in aims.rows}) == len(aims.rows)


def test_a_machine_is_named_by_its_processor(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: Swift 9000\n")

    machine = this_machine(tmp_path / "cpuinfo")

    assert machine.processor == "Swift 9000"
    assert machine.revision
