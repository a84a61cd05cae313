"""`keplab trace-check`: find mistakes in a file before it is replayed; fix them, or rewrite the file by SKEL."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, cast

import click

from lab.cli.exchange.files import (
    SHOWN_MAX,
    format_option,
    options_of,
    options_option,
    say_guess,
    show_notes,
    source_of,
)
from lab.cli.output import EXIT_FAILED, EXIT_OK, fail, output_option, print_json, refusing
from lab.exchange.check import RULES, Checker, Finding, Mender
from lab.exchange.format import Edit, Format, Reading, format_of, open_stream
from lab.exchange.reading import Source
from lab.exchange.skel import Command, apply, parse
from lab.exchange.stream import Refused
from services.runtime.real import RealClock

EPILOG = """\
\b
Examples:
  keplab trace-check week.sktrace
  keplab trace-check week.sktrace --fix                  corrects the file in place
  keplab trace-check week.sktrace --fix --write new.sktrace
  keplab trace-check --explain W0000
  keplab trace-check week.sktrace --skel smaller.skel --write small.sktrace

\b
Codes W0000 to E0005 are SimKube's. A file of SKEL holds delete(…); remove(…, PATH); modify(…, PATH = VALUE); and is
applied before the check. The exit code is 1 when a mistake is found and not corrected.
"""


@click.command("trace-check", epilog=EPILOG)
@click.argument("file", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--fix", is_flag=True, help="correct the mistakes that can be corrected")
@click.option("--explain", default="", metavar="CODE", help="explain a code, or all codes; no file is read")
@click.option(
    "--skel",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="file of SKEL commands that first rewrite the file",
)
@click.option("--write", type=click.Path(path_type=Path), metavar="FILE", help="path of the corrected file [in place]")
@format_option("format of the file [recognised by its content]")
@options_option
@output_option
def trace_check(
    file: Path | None,
    fix: bool,
    explain: str,
    skel: Path | None,
    write: Path | None,
    format_name: str | None,
    options: tuple[str, ...],
    output: str,
) -> int:
    """Check a snapshot, recording or trace for mistakes.

    The command finds statuses that are applied, missing ServiceAccounts, ConfigMaps and Secrets, times that go back,
    deletes of unknown objects, pods without a run time, requests above every node, and selectors that match nothing.
    """
    if explain:
        return _explain(explain)
    if file is None:
        fail("want a FILE, or --explain CODE")
    if write is not None and not (fix or skel):
        fail("--write is for --fix and --skel")
    if str(file) == "-" and (fix or skel) and write is None:
        fail("standard input cannot be written to; say --write FILE")
    with refusing(Refused):
        source = source_of(file)
        file_format = format_of(source, format_name or "")
        say_guess(source, file_format, format_name)
        if (fix or skel) and file_format.rewrite is None:
            fail(
                f"{source.file}: files of format {file_format.name} are only read; --fix and --skel are for "
                "kwok and sktrace"
            )
        target, given = write or file, options_of(options)
        if skel is not None:
            commands = parse(_text(skel), str(skel))
            _rewrite(file_format, source, target, _skel_edit(source, file_format, commands, str(skel)))
            source = Source(target)
        findings = _findings(source, file_format, given)
        mender = Mender(findings)
        if fix:
            _rewrite(file_format, source, target, mender)
    return _show(findings, mender, fix, target, output)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeError) as error:
        raise Refused(f"--skel {path}: {getattr(error, 'strerror', None) or error}") from None


def _explain(code: str) -> int:
    rules = list(RULES.values()) if code == "all" else [RULES[code]] if code in RULES else []
    if not rules:
        fail(f"--explain {code}: want all, or one of {', '.join(RULES)}")
    for rule in rules:
        click.echo(f"{rule.code} {rule.name} ({'error' if rule.is_error else 'warning'})")
        click.echo(f"  {rule.about}")
        click.echo(f"  --fix: {rule.fix or 'nothing is mended'}")
    return EXIT_OK


def _findings(source: Source, file_format: Format, options: dict[str, str]) -> list[Finding]:
    is_trace = "raw" in file_format.options
    reading = Reading(RealClock().wall(), options={**options, **({"raw": "yes"} if is_trace else {})})
    _, stream = open_stream(source, reading, file_format.name)
    timed = frozenset(
        (kind, f"{place}/{name}" if place else name)
        for kind, place, name in (each.owner for each in stream.runtimes if each.lives)
    )
    findings = list(Checker(has_statuses=not is_trace, is_trace=is_trace, timed=timed).check(stream))
    show_notes(stream, err=True)
    return findings


def _skel_edit(source: Source, file_format: Format, commands: Sequence[Command], file: str) -> Edit:
    _, stream = open_stream(
        source, Reading(options={"raw": "yes"} if "raw" in file_format.options else {}), file_format.name
    )
    began = stream.origin.started_wall_s or 0.0

    def edit(at_s: float, document: dict[str, object], *, is_deleted: bool = False, kind: str = "") -> object:
        return apply(commands, document, began + at_s, began, file)

    return cast("Edit", edit)


def _rewrite(file_format: Format, source: Source, target: Path, edit: Edit) -> None:
    """Write the file beside its place, then put it there."""
    assert file_format.rewrite is not None, "asked before"
    part = target.with_name(f".{target.name}.part")
    try:
        with part.open("wb") as raw:
            is_compressed = target.suffix == ".gz" or (source.data is None and _is_gzip(source.path))
            file = cast("BinaryIO", gzip.GzipFile(fileobj=raw, mode="wb")) if is_compressed else raw
            file_format.rewrite(source, file, edit)
            if file is not raw:
                file.close()
        os.replace(part, target)
    except OSError as error:
        raise Refused(f"cannot write {target}: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _show(findings: list[Finding], mender: Mender, is_fixed: bool, target: Path, output: str) -> int:
    counts = Counter(each.code for each in findings)
    left = sum(count for code, count in counts.items() if not (is_fixed and RULES[code].fix))
    if output == "json":
        print_json(
            {
                "findings": [{**each._asdict(), "name": RULES[each.code].name} for each in findings],
                "fixed": mender.fixed if is_fixed else {},
                "left": left,
            }
        )
        return EXIT_FAILED if left else EXIT_OK
    for code, count in sorted(counts.items()):
        rule = RULES[code]
        click.echo(f"{code} {rule.name} ({'error' if rule.is_error else 'warning'}): {count}")
        for finding in [each for each in findings if each.code == code][:SHOWN_MAX]:
            click.echo(f"  {finding.line()}")
        if count > SHOWN_MAX:
            click.echo(f"  … and {count - SHOWN_MAX} more; -o json has all")
        if is_fixed:
            click.echo(f"  mended: {rule.fix}" if rule.fix else "  not mended")
    if not findings:
        click.echo("nothing is wrong")
    elif is_fixed:
        click.echo(f"{sum(mender.fixed.values())} mended in {target}, {left} left")
    elif any(RULES[code].fix for code in counts):
        click.echo("--fix mends some of it; --explain CODE says more")
    return EXIT_FAILED if left else EXIT_OK
