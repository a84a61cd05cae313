"""Each command of `keplab bench` is made of its benchmark's record, and the help is a table that agrees with them."""

import importlib
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lab.benchmarks.bench import Bench, Table, option, switch_option
from lab.cli.bench.command_table import BENCHES
from lab.cli.bench.commands import command_of
from lab.cli.commands.bench import bench as bench_group
from lab.cli.groups import first_line


@dataclass(frozen=True, kw_only=True)
class Options:
    nodes: int = option(3, "nodes", least=1, most=9)
    seconds: float = option(1.5, "of each round", least=0.5)
    pods: int | None = option(None, "pods; default: three a node", least=0, most=99)
    engine: str = option("memory", choices=("memory", "sqlite"))
    out: Path = option(Path("runs"), "where it goes")
    is_list: bool = option(False, "name them", flag="--list")
    assignments: tuple[str, ...] = switch_option()


class Refusal(ValueError):
    pass


def run_with(words, run=lambda options, reporter: options, **parts):
    record = Bench(
        name="x", help="Measure x.", options=Options, run=run, document=lambda options: {"nodes": options.nodes},
        table=lambda options, _: [f"{options.nodes} nodes", Table(("A", "B"), [("a", 1)], texts=1)], **parts,
    )  # fmt: skip
    return CliRunner().invoke(command_of(record, "Examples:"), words, standalone_mode=False)


@pytest.mark.parametrize("row", BENCHES.values(), ids=lambda row: row.name)
def test_a_benchmark_has_the_name_and_the_first_line_of_the_table(row):
    record = importlib.import_module(row.path).BENCH
    command = bench_group.get_command(click.Context(bench_group), row.name)

    assert (row.name, row.line) == (record.name, first_line(command))


def test_the_table_is_in_the_order_of_the_names():
    assert sorted(BENCHES) == list(BENCHES)


def test_options_become_the_record_with_its_types():
    words = ["--nodes", "4", "--seconds", "2", "--pods", "7", "--engine", "sqlite", "--out", "o", "--list"]
    seen = []

    answer = run_with([*words, "--set", "a=b", "--set", "c=d"], run=lambda options, _: seen.append(options) or options)

    expected = Options(
        nodes=4, seconds=2.0, pods=7, engine="sqlite", out=Path("o"), is_list=True, assignments=("a=b", "c=d")
    )
    assert answer.return_value == 0
    assert seen == [expected]


def test_defaults_are_those_of_the_record():
    seen = []

    run_with([], run=lambda options, _: seen.append(options) or options)

    assert seen == [Options()]


@pytest.mark.parametrize(
    "words", [["--nodes", "10"], ["--seconds", "0.1"], ["--engine", "etcd"], ["--pods", "-1"], ["--nodes", "x"]]
)
def test_values_out_of_bounds_are_wrong_usage(words):
    assert isinstance(run_with(words).exception, click.BadParameter)


def test_figures_are_lines_and_tables_or_a_document():
    assert run_with([]).output == "3 nodes\nA   B\na   1\n"
    assert run_with(["-o", "json"]).output == '{\n  "nodes": 3\n}\n'


def test_a_failure_is_exit_code_1_once_it_is_printed():
    answer = run_with([], is_failed=lambda options: True)

    assert (answer.return_value, answer.output.splitlines()[0]) == (1, "3 nodes")


def test_an_interrupted_run_is_printed_before_it_counts_as_interrupted():
    answer = run_with([], is_interrupted=lambda options: True)

    assert isinstance(answer.exception, click.Abort)
    assert answer.output.startswith("3 nodes\n")


def test_a_timeout_is_one_line_where_the_benchmark_may_have_one():
    def run(options, reporter):
        raise TimeoutError

    late = run_with([], run=run, late="it did not come")

    assert "Error: it did not come\n" in late.output
    assert late.return_value == 1
    assert isinstance(run_with([], run=run).exception, TimeoutError)


def test_a_refusal_is_one_line_and_wrong_usage():
    def run(options, reporter):
        raise Refusal("no such workload")

    answer = run_with([], run=run, refusals=(Refusal,))

    assert (answer.exit_code, answer.output) == (2, "keplab: no such workload\n")


def test_what_a_benchmark_says_goes_beside_the_document():
    answer = run_with(["-o", "json"], run=lambda options, reporter: reporter.say("halfway") or options)

    assert answer.stderr == "halfway\n"
    assert answer.stdout.startswith("{")
