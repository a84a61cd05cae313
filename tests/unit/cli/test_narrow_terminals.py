"""Tables at every width: names stay whole, sentences wrap between words, and what is piped is whole."""

import re
import sys
from pathlib import Path

import pytest

from lab.cli import output, results
from lab.cli.__main__ import run
from lab.cli.command_table import COMMANDS
from lab.cli.tables import WIDE, fit_table, hanging, plain
from services.api.switches import REGISTER

WIDTHS = (40, 80, 120, 200)
ANSI = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")
PROCESSES = [
    ("kubelet/h0", 4711, "41999", "yes", "Running", "-", "12s", 0, ""),
    ("claim-controller", 4712, "-", "no", "CrashLoopBackOff (12s)", "standby", "0s", 17,
     "exit code 71: the port 127.0.0.1:7443 is taken by process 1234"),
]  # fmt: skip
STATUS = ("NAME", "PID", "PORT", "READY", "STATE", "LEADS", "UPTIME", "RESTARTS", "LAST ERROR")


@pytest.fixture
def terminal(monkeypatch, capsys):
    """Have commands print to a terminal of some columns; returns what one prints."""

    def shown(columns, print_it):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
        print_it()
        return capsys.readouterr().out

    return shown


def words(lines):
    """Return the words of lines, without what colours them."""
    return [word for line in lines for word in line.split()]


@pytest.mark.parametrize("columns", WIDTHS)
def test_no_name_or_default_of_a_switch_is_broken(terminal, columns):
    shown = terminal(columns, lambda: run(["switches"]))
    shown = ANSI.sub("", shown).splitlines()

    whole = set(words(shown))
    for switch in REGISTER:
        assert switch.name in whole
        assert set(str(switch.default).replace("True", "true").replace("False", "false").split()) <= whole
        assert set(switch.meaning.split()) <= whole
    assert [] == [line for line in shown if len(line) > columns and len(line.split()) > 1]


@pytest.mark.parametrize("columns", WIDTHS)
def test_no_file_of_a_scenario_is_broken(terminal, columns):
    shown = terminal(columns, lambda: run(["scenarios", "--dir", "experiments/gangs"]))
    shown = ANSI.sub("", shown).splitlines()

    assert {str(path) for path in Path("experiments/gangs").glob("*.txt")} <= set(words(shown))
    assert [] == [line for line in shown if len(line) > columns and len(line.split()) > 1]


def test_a_wide_terminal_has_a_line_a_switch_and_says_what_it_leaves_out(terminal):
    shown = ANSI.sub("", terminal(WIDE, lambda: run(["switches", "kubelet"]))).splitlines()

    assert shown[0].split() == ["NAME", "DEFAULT", "VALUES", "MEANING"]
    assert shown[-1].startswith("Not shown at this width: SINCE, SOURCE, SHOWN BY")


def test_piped_switches_are_one_whole_line_each(capsys):
    run(["switches"])
    shown = capsys.readouterr().out.splitlines()

    assert len(shown) == 1 + len(REGISTER)
    for line, switch in zip(shown[1:], REGISTER, strict=True):
        assert line.split()[0] == switch.name
        assert switch.meaning in line
        assert line.endswith(switch.shown_by)


@pytest.mark.parametrize("columns", WIDTHS)
def test_processes_are_a_table_where_it_fits_and_blocks_elsewhere(terminal, columns):
    shown = ANSI.sub("", terminal(columns, lambda: output.print_table(STATUS, PROCESSES))).splitlines()

    assert max(map(len, shown)) <= columns
    assert {"kubelet/h0", "claim-controller", "CrashLoopBackOff", "127.0.0.1:7443"} <= set(words(shown))
    assert (shown[0].split()[0] == "NAME") == (columns >= 120)


@pytest.mark.parametrize("columns", WIDTHS)
def test_figures_of_a_narrow_comparison_stand_beside_their_arm(columns):
    rows = [("pods that ran", "12", "14"), ("time until all pods ran", "3.512 s", "1.2 s")]
    lines = [line for line, _ in fit_table(("", "fail", "unbind"), rows, [True, False, False], columns)]

    assert max(map(len, lines)) <= columns
    assert {"3.512", "14"} <= set(words(lines))


@pytest.mark.parametrize("columns", WIDTHS)
def test_results_of_a_run_wrap_between_words(monkeypatch, capsys, columns):
    seen = "0/1 nodes are available: experiments/unbinding/no-alternative-at-all-for-this-one.txt"
    monkeypatch.setattr(results.console, "_width", columns)
    monkeypatch.setattr(results.console, "_force_terminal", True)
    results.print_judged("[green]✓[/] ", "   1.000 s  ", f"expect each pods name=a phase == Running   ({seen})")
    shown = [ANSI.sub("", line) for line in capsys.readouterr().out.splitlines()]

    assert "(0/1" in words(shown)
    assert "experiments/unbinding/no-alternative-at-all-for-this-one.txt)" in words(shown)
    assert [] == [line for line in shown if len(line) > columns and len(line.split()) > 1]


def test_no_color_takes_colour_away_and_leaves_the_layout(terminal, monkeypatch):
    coloured = terminal(120, lambda: run(["switches", "unbind"]))
    monkeypatch.setenv("NO_COLOR", "1")
    bare = terminal(120, lambda: run(["switches", "unbind"]))

    assert "\x1b" not in bare
    assert ANSI.sub("", coloured) == bare


def test_plain_lines_are_aligned_and_whole():
    rows = [("a", "1"), ("a-much-longer-name", "22")]

    assert plain(("NAME", "N"), rows, [True, False]) == [
        "NAME                  N",
        "a                     1",
        "a-much-longer-name   22",
    ]


def test_a_text_goes_on_under_its_beginning_and_a_long_word_stays_whole():
    assert hanging("  - ", "one two experiments/unbinding/no-alternative.txt", 20) == (
        "  - one two\n    experiments/unbinding/no-alternative.txt"
    )


@pytest.mark.parametrize("columns", [40, 60, 80])
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_only_commands_to_copy_are_longer_than_a_terminal_is_wide(monkeypatch, capsys, command, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    run([command, "--help"])

    shown = capsys.readouterr().out.splitlines()
    examples = shown.index("  Examples:") if "  Examples:" in shown else len(shown)
    long = [line for number, line in enumerate(shown) if len(line) > columns and number < examples]
    assert [] == [line for line in long if len(line.split()) > 1 and "[OPTIONS]" not in line]
    assert [] == [
        line
        for line in shown[examples:]
        if len(line) > columns and len(line.split()) > 1 and (not line.startswith("    ") or "   " in line.strip())
    ]


def test_what_an_example_is_for_goes_under_its_command(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "60")
    run(["history", "--help"])

    shown = capsys.readouterr().out
    assert "\n    keplab history pod/web-0\n" in shown or "keplab history pod/web-0  " in shown
    assert "\n  The history goes back as far as the API server's window\n  of changes: 5 minutes" in shown
