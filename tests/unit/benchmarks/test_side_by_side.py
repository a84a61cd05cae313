"""Two control planes side by side: the table, the names of its figures, and what is refused before anything is called."""

import os

import click
import pytest
from click.testing import CliRunner

from lab.benchmarks.reporting.aims import read_aims
from lab.benchmarks.side_by_side.figures import (
    Row,
    Sizes,
    ahead_text,
    figures_of,
    measured_rows,
    rounds_text,
    rows_of,
    times_ahead,
)
from lab.benchmarks.side_by_side.phases import BoundPods
from lab.benchmarks.side_by_side.planes import NamedProcesses, pids_of
from lab.benchmarks.side_by_side.run import BENCH, SideBySideOptions
from lab.benchmarks.workloads.capacity import TooManyPods
from lab.cli.bench.commands import command_of
from lab.exchange.rest.endpoint import NoAnswer
from lab.exchange.stream import Refused

COST, RATE = Row("x", "a cost"), Row("x", "a rate", is_more_better=True)
KUBECONFIG = """
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: k, context: {cluster: c, user: u}}]
"""


def test_a_cost_is_ahead_when_it_is_less_and_a_rate_when_it_is_more():
    assert times_ahead(COST, [30.0], [10.0]) == 3.0
    assert times_ahead(RATE, [30.0], [10.0]) == 0.33


def test_rounds_are_compared_by_their_medians():
    assert times_ahead(COST, [10.0, 20.0, 900.0], [5.0, 1.0, 5.0]) == 4.0


@pytest.mark.parametrize("values", [([], [1.0]), ([1.0], []), ([0.0], [1.0]), ([1.0], [0.0])])
def test_what_was_not_measured_or_is_nothing_has_no_ratio(values):
    assert times_ahead(COST, *values) is None


def test_a_row_has_all_rounds_and_its_ratio_for_each_engine():
    values = {"other": {"get.p50": [2.0, 4.0]}, "sqlite": {"get.p50": [1.0, 1.0]}, "memory": {"get.p50": [0.5, 0.5]}}

    [row] = measured_rows(Sizes(), values)

    assert (row.title, row.values["other"]) == ("GET, p50 ms", [2.0, 4.0])
    assert row.times_ahead == {"sqlite": 3.0, "memory": 6.0}


def test_a_figure_is_the_least_of_its_rows_and_engines():
    values = {
        "other": {"get.p50": [6.0], "get.p99": [6.0], "post.p99": [6.0]},
        "sqlite": {"get.p50": [2.0], "get.p99": [3.0], "post.p99": [9.0]},
        "memory": {"get.p50": [1.0], "get.p99": [4.0], "post.p99": [9.0]},
    }

    assert figures_of(Sizes(), measured_rows(Sizes(), values)) == {"real.rest.get.p50": 1.5}


def test_the_figures_are_those_of_the_table_of_aims_but_for_the_start():
    aims = {row.name for row in read_aims().rows if row.name.startswith("real.")}

    assert aims - {"real.start.ready"} <= {row.aim for row in rows_of(Sizes())}


def test_names_of_rows_are_unique():
    names = [row.name for row in rows_of(Sizes())]

    assert len(names) == len(set(names))


def test_cells_have_as_many_digits_as_say_something():
    assert rounds_text([1905.4, 91.94, 331.0]) == "1,905 ; 91.94 ; 331.0"
    assert rounds_text([]) == "–"
    assert (ahead_text(2.5), ahead_text(None)) == ("2.50", "–")


def test_pods_count_once_each_when_they_have_a_node():
    pods = BoundPods(2)
    line = b'{"type":"%s","object":{"metadata":{"name":"%s"},"spec":{"nodeName":"%s"}}}'

    for event in ((b"ADDED", b"a", b""), (b"MODIFIED", b"a", b"n"), (b"MODIFIED", b"a", b"n")):
        pods.note(line % event)

    assert (list(pods.at_s), pods.are_complete.is_set()) == (["a"], False)
    pods.note(line % (b"ADDED", b"b", b"n"))
    assert pods.are_complete.is_set()


def test_a_watch_that_ends_with_an_error_says_so():
    with pytest.raises(NoAnswer, match="too old"):
        BoundPods(1).note(b'{"type":"ERROR","object":{"kind":"Status","message":"too old"}}')


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([], "name the processes"),
        (["scheduler=1"], "name the processes"),
        (["etcd"], "want NAME=PID"),
        (["etcd=x"], "want NAME=PID"),
        (["=1"], "want NAME=PID"),
        (["etcd=1", "etcd=2"], "named twice"),
    ],
)
def test_processes_are_names_with_ids(words, text):
    with pytest.raises(Refused, match=text):
        pids_of(words)


def test_a_process_has_to_be_there():
    with pytest.raises(Refused, match="--process etcd=4194999: there is no process 4194999"):
        NamedProcesses({"etcd": 4194999})


def test_a_plane_has_a_scheduler_where_one_is_named():
    own = os.getpid()

    assert not NamedProcesses({"kube-apiserver": own}).has_scheduler
    assert NamedProcesses({"kube-apiserver": own, "kube-scheduler": own}).has_scheduler
    assert not NamedProcesses({"kube-apiserver": own, "kube-scheduler": own}).can_restart
    assert NamedProcesses({"kube-apiserver": own}, "kube-scheduler --config c").can_restart


def test_sizes_are_lists_of_numbers_in_order():
    assert SideBySideOptions(nodes="300, 100", watchers="7", pods=5).sizes().nodes == (100, 300)


@pytest.mark.parametrize("nodes", ["", "0", "x", "1,,2", "15001", "1.5"])
def test_other_sizes_are_refused(nodes):
    with pytest.raises(Refused, match="--nodes"):
        SideBySideOptions(nodes=nodes).sizes()


def test_more_pods_than_the_smallest_cluster_holds_are_refused():
    with pytest.raises(TooManyPods, match="401 pods do not fit"):
        SideBySideOptions(nodes="10,100", pods=401).sizes()


def run(*words):
    return CliRunner().invoke(command_of(BENCH, ""), words, standalone_mode=False)


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        (None, [], "No such file or directory"),
        (KUBECONFIG, [], "no current context; name one with --context"),
        (KUBECONFIG, ["--context", "x"], "no 'x'"),
        (KUBECONFIG.replace("https", "http"), ["--context", "k"], "want https"),
        (KUBECONFIG, ["--context", "k"], "name the processes"),
        (KUBECONFIG, ["--context", "k", "--process", "a=4194999"], "there is no process"),
        (KUBECONFIG, ["--context", "k", "--process", f"a={os.getpid()}", "--scheduler", "'x"], "No closing quotation"),
        (
            KUBECONFIG,
            ["--context", "k", f"--process=a={os.getpid()}", f"--process=scheduler={os.getpid()}", "--scheduler", "x"],
            "give one of them",
        ),
        (KUBECONFIG, ["--context", "k", "--process", f"a={os.getpid()}", "--nodes", "x"], "--nodes x"),
    ],
)
def test_wrong_options_are_one_line_and_wrong_usage(tmp_path, text, words, message):
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)

    answer = run("--kubeconfig", str(path), *words)

    assert answer.exit_code == 2
    assert message in answer.output
    assert len(answer.output.splitlines()) == 1


def test_the_kubeconfig_has_to_be_given():
    assert run().output == "keplab: --kubeconfig: want that of the other control plane\n"


def test_an_option_of_several_texts_may_be_repeated():
    [option] = [each for each in command_of(BENCH, "").params if each.name == "processes"]

    assert isinstance(option, click.Option)
    assert option.multiple
