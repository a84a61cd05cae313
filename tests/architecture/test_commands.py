"""Every `keplab` command that is printed somewhere is one that works: commands, options, switches and files exist.

Read are all Markdown pages, the scenarios' own comments, the Makefile and the examples of every `--help`. A line is parsed by the real
command line, without running it. One with a placeholder (`FILE`, `…`) is checked for its command and its options only.
"""

import re
import shlex
from dataclasses import fields
from functools import cache
from pathlib import Path

import click
import pytest

from kubelet.config import KubeletConfig
from lab.benchmarks.workloads.register import workload
from lab.cli.__main__ import cli, run
from lab.experiments.arms import parse_arms
from scheduler.config import SchedulerConfig
from services.api.switches import Switches

ROOT = Path(__file__).parents[2]
COMPONENTS = {"scheduler": SchedulerConfig, "kubelet": KubeletConfig}
NOT_OURS = {".git", ".venv", "runs", ".keplab", ".hypothesis", ".pytest_cache"}
FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)
INLINE = re.compile(r"`((?:\S*/)?keplab [^`]+)`")
PLACEHOLDER = re.compile(
    r"^[\[(]?[A-Z][A-Z_/|.-]*[\])]*$|…|\.\.\.|^\[|[A-Z]{3,}$|[<>|]|=(?:NAME|VALUE)|^(?:A|B|N)$|/[A-Z]+\.|\$"
)
"""What stands for something of the reader's: FILE, KIND/NAME, NAME:SWITCH=VALUE, `…`, [--option]."""
PATH = re.compile(r"^(?:experiments|docs|examples|deploy|tests)/")
RUN_ELSEWHERE = {"docs/tutorial/measure-your-own-kep.md"}
"""Makes the files and the switch that its commands name; tests/process/test_tutorial.py runs them all."""
SHELL_ENDS = {"|", ";", "&&", ">", "2>", "&", "||", "<", "2>/dev/null", ">/dev/null"}


def _joined(text):
    return re.sub(r"\\\n\s*", " ", text)


def _in_markdown(text):
    blocks = [line.strip() for fence in FENCE.findall(text) for line in _joined(fence).splitlines()]
    rest = FENCE.sub("", text)
    indented = [line.strip() for line in _joined(rest).splitlines() if line.startswith("    ")]
    inline = [" ".join(found.split()) for found in INLINE.findall(rest)]
    return [*blocks, *indented], inline


def _in_text(text):
    """Commands of a scenario's comments or a Makefile."""
    inline = [" ".join(re.sub(r"\n# ?", " ", found).split()) for found in INLINE.findall(text)]
    return [line.strip() for line in _joined(text).splitlines() if line.startswith(("\t", "#   "))], inline


def _commands(lines):
    """Yield the words after `keplab` of each command in these lines."""
    for line in lines:
        for part in re.split(r" && |; | \|\| ", line):
            found = re.match(
                r"^(?:\$ )?(?:[A-Z_]+=\S* )*(?:nice \S+ \S+ )?(?:\$\(BIN\)/|\S*/)?keplab (?P<words>.+)$", part.strip()
            )
            if found is None:
                continue
            text = re.sub(r"\$\([^)]* [^)]*\)", "…", re.sub(r"\$\(\w+\)", "1", found["words"]))
            text = re.sub(r"   +\(.*\)$|  +#.*$| # .*$", "", text)
            try:
                words = shlex.split(text)
            except ValueError:
                words = text.split()
            ends = [i for i, word in enumerate(words) if word in SHELL_ENDS or word.startswith((">", "2>"))]
            yield tuple(words[: min(ends, default=len(words))])


def _walk(command, path=()):
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from _walk(command.get_command(context, name), (*path, name))


@cache
def printed():
    """Every command that is printed: where, its words, and whether it is only mentioned in a sentence."""
    found = {}
    for path in sorted(ROOT.rglob("*.md")) + sorted(ROOT.glob("experiments/**/*.txt")) + [ROOT / "Makefile"]:
        place = path.relative_to(ROOT)
        if NOT_OURS & set(place.parts) or place.parts[:2] == ("docs", "spec") or str(place) in RUN_ELSEWHERE:
            continue
        text = path.read_text()
        for is_mention, lines in enumerate(_in_markdown(text) if path.suffix == ".md" else _in_text(text)):
            for words in _commands(lines):
                found.setdefault((str(place), words, bool(is_mention)))
    for path, command in _walk(cli):
        for text in (command.epilog, command.help):
            for words in _commands(re.sub(r"   +.*$", "", line).strip() for line in _joined(text or "").splitlines()):
                found.setdefault((" ".join(("keplab", *path, "--help")), words, False))
    return list(found)


def _resolve(words):
    """Return the click command that these words name and the words that are left."""
    command, rest = cli, list(words)
    while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
        name = rest[0]
        below = command.get_command(click.Context(command), name)
        assert below is not None, f"there is no command {name!r}"
        command, rest = below, rest[1:]
    return command, rest


def _check_values(parameters):
    """Check switches, arms, workloads and files."""
    Switches.parse(parameters.get("assignments") or ())
    if parameters.get("arms"):
        parse_arms(parameters["arms"])
    if parameters.get("workload"):
        workload(parameters["workload"])


def _check(words, is_mention=False):
    command, rest = _resolve(words)
    options = {name for option in command.params for name in (*option.opts, *option.secondary_opts)} | {
        "--help",
        "-h",
        "--version",
    }
    if command.name == "component" and rest:
        flags = (field.name for config in (COMPONENTS.get(rest[0]),) if config for field in fields(config))
        options |= {f"--{name.replace('_', '-')}" for name in flags}
    for word in rest:
        if word.startswith("-") and word != "-" and not re.match(r"^-\d", word):
            name = word.partition("=")[0].strip("[]")
            assert name in options, f"{command.name} has no option {name}"
    for word in rest:
        name = re.split(r"[:=]", word)[-1] if not PATH.match(word) else word
        if PATH.match(name) and not PLACEHOLDER.search(name):
            assert list(ROOT.glob(name)), f"there is no file {name}"
    if (
        any(PLACEHOLDER.search(word) for word in rest)
        or isinstance(command, click.Group)
        or {"--help", "-h"} & set(rest)
    ):
        return
    try:
        context = command.make_context(command.name, list(rest))
    except click.MissingParameter as error:
        if is_mention:
            return  # a sentence about `keplab run -o json` leaves out what it runs
        raise AssertionError(error.format_message()) from None
    except click.UsageError as error:
        raise AssertionError(error.format_message()) from None
    _check_values(context.params)


def test_every_command_that_is_printed_is_one_that_works(monkeypatch):
    monkeypatch.chdir(ROOT)
    wrong = []
    for place, words, is_mention in printed():
        try:
            _check(words, is_mention)
        except (AssertionError, ValueError, LookupError) as error:
            wrong.append(f"{place}: keplab {' '.join(words)}: {error}")

    assert [] == wrong


def test_commands_are_found_in_every_kind_of_place():
    places = {place for place, _, _ in printed()}

    assert len(printed()) > 100
    assert {
        "README.md",
        "Makefile",
        "docs/how-to/explore.md",
        "keplab run --help",
        "keplab bench scheduler --help",
    } <= places
    assert any(place.startswith("experiments/") and place.endswith("README.md") for place in places)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("keplab sing", "no command"),
        ("keplab run --loud experiments/runaway/runaway.txt", "no option"),
        ("keplab run experiments/runaway/walkaway.txt", "no file"),
        ("keplab run experiments/runaway/runaway.txt --set kubelet.on_reject=maybe", "maybe"),
        ("keplab run experiments/runaway/runaway.txt --seeds many", "many"),
        ("keplab compare experiments/runaway/runaway.txt --arm a:nothing=1", "nothing"),
        ("keplab bench scheduler --workload SchedulingBasics", "SchedulingBasics"),
        ("keplab compare FILE --arms a", "no option"),
    ],
)
def test_a_command_that_would_not_work_is_noticed(line, why, monkeypatch):
    monkeypatch.chdir(ROOT)
    (words,) = _commands([line])

    with pytest.raises((AssertionError, ValueError, LookupError), match=why):
        _check(words)


def test_commands_of_a_page_are_read_from_blocks_indented_lines_and_sentences():
    page = """Say `keplab run a.txt
    --seed 1` or

```sh
FOO=1 .venv/bin/keplab chaos b.txt \\
  --seeds 2 | tail   # all of them
keplab down; keplab up
```

    keplab status > file
"""

    lines, mentions = _in_markdown(page)

    assert list(_commands(lines)) == [("chaos", "b.txt", "--seeds", "2"), ("down",), ("up",), ("status",)]
    assert list(_commands(mentions)) == [("run", "a.txt", "--seed", "1")]


@pytest.mark.parametrize("path", [path for path, _ in _walk(cli)], ids=" ".join)
def test_every_command_explains_itself(path, capsys):
    assert run([*path, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"Usage: {' '.join(('keplab', *path))}")
