"""`keplab record`: record the changes of a mesh, or of a cluster, with their times until Ctrl-C."""

from __future__ import annotations

import asyncio
import shlex
import sys
import time
from contextlib import suppress
from pathlib import Path

import click
import msgspec

from lab.cli.exchange.files import access_of, anonymise_option, check_secrets, cluster_options, secrets_option, writing
from lab.cli.mesh_state import parts_of, transport_of
from lab.cli.output import EXIT_FAILED, EXIT_OK, data_option, fail, refusing
from lab.exchange.anonymiser import Anonymising, read_salt, shift_of
from lab.exchange.cluster import Cluster
from lab.exchange.format import format_named
from lab.exchange.recorder import LEFT_OUT, Recorder
from lab.exchange.rest.kubeconfig import Access
from lab.exchange.stream import Refused
from lab.experiments.wording import count_text
from lab.recordings.format import Meta
from lab.recordings.live import record_mesh
from lab.recordings.writer import NotRecordable, Writer
from lab.scenarios.initial_state import StateError
from lab.scenarios.revision import revision
from lab.scenarios.script.value_types import parse_duration
from services.api.times import format_time
from services.runtime.mesh_directory import read_state
from services.runtime.real import RealClock, seeded_random

EPILOG = """\
\b
Examples:
  keplab record -o day.keprec                               until Ctrl-C: every version, event line and span
  keplab record -o day.yaml                                 as kwokctl does
  keplab record -o minute.yaml --duration 60s
  keplab record --kubeconfig ~/.kube/config -o cluster.yaml.gz
  keplab record -o record.jsonl                             as kube-scheduler-simulator records its seven kinds
  keplab replay day.yaml --virtual                          and again, in virtual time

\b
The command first writes all objects, then each change with its time. A cluster is asked for nothing but get, list and
watch. The values of Secrets are left out; --secrets writes those of the mesh. Only the file's owner may read the file.
It can be read however the recording ends.
"""
BY_NAME = {".keprec": "keprec", ".yaml": "kwok", ".yml": "kwok", ".jsonl": "kss", ".json": "kss", ".sktrace": "sktrace"}
"""Format by the ending of the file's name, used unless --format is given."""
SIMULATORS = {"kss": "kss-record"}
"""Format in which a recording is written, by the format named: kube-scheduler-simulator has one for snapshots and
one for records.
"""


@click.command("record", epilog=EPILOG)
@click.option("-o", "--output", "path", type=click.Path(path_type=Path), required=True, help="file to write")
@click.option(
    "--format",
    "format_name",
    default="",
    metavar="FORMAT",
    help="format of the file: keprec, kwok, kss or sktrace [by the file's name, else keprec]",
)
@click.option(
    "--duration", default="", metavar="DURATION", help="length of the recording, for example 60s [until Ctrl-C]"
)
@anonymise_option
@cluster_options
@secrets_option
@data_option
def record(
    path: Path,
    format_name: str,
    duration: str,
    salt: Path | None,
    kubeconfig: Path | None,
    context: str,
    as_user: str,
    kinds: str,
    selector: str,
    has_secrets: bool,
    data: Path,
) -> int:
    """Record the changes of the mesh, or of a cluster, as they happen.

    The recording ends after --duration or with Ctrl-C, and is complete up to that moment.
    """
    check_secrets(has_secrets, kubeconfig)
    with refusing(Refused, StateError, ValueError):
        seconds = parse_duration(duration) if duration else None
        if not format_name:
            format_name = BY_NAME.get(Path(path.name.removesuffix(".gz")).suffix, "keprec")
        access = access_of(kubeconfig, context, data)
        key = read_salt(salt) if salt is not None else b""
        if key:
            if format_name == "keprec":
                fail("--anonymise: a .keprec keeps its names; want --format kwok")
            click.echo("names are replaced as they come (HMAC-SHA256): their order is not kept", err=True)
        if format_name == "keprec":
            return _record_keprec(path, seconds, kubeconfig, data, shlex.join(["keplab", *sys.argv[1:]]))
        format_name = SIMULATORS.get(format_name, format_name)
        if not format_named(format_name).has_changes:
            fail(f"--format {format_name}: it has no changes; `keplab export` writes it")
        names = [word for word in kinds.split(",") if word] or list(format_named(format_name).kinds)
        recorders: list[Recorder] = []
        with suppress(KeyboardInterrupt):
            asyncio.run(
                _record(access, as_user, names, selector, path, format_name, seconds, has_secrets, recorders, key)
            )
    for recorder in recorders:
        for line in recorder.failures:
            click.echo(f"left out: {line}", err=True)
        click.echo(
            f"{count_text(recorder.objects, 'object')} and {count_text(recorder.changes, 'change')} are in {path}"
        )
    return EXIT_OK


async def _record(
    access: Access,
    as_user: str,
    names: list[str],
    selector: str,
    path: Path,
    format_name: str,
    seconds: float | None,
    has_secrets: bool,
    recorders: list[Recorder],
    key: bytes,
) -> None:
    clock = RealClock()
    async with Cluster(access, as_user=as_user) as cluster:
        kinds = [each for each in await cluster.kinds(names) if names or each.name not in LEFT_OUT]
        # Times of kwokctl's files are relative to their beginning.
        shift_s = shift_of(key) if key and format_name != "kwok" else 0.0
        with writing(path, format_name, clock.wall() + shift_s) as writer:
            shown = Anonymising(writer, key, shift_s) if key else writer
            recorder = Recorder(cluster, shown, clock, selector=selector, has_secrets=has_secrets)
            recorders.append(recorder)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    versions = await recorder.snapshot(kinds)
                    click.echo(f"{count_text(recorder.objects, 'object')}; recording until Ctrl-C", err=True)
                    await recorder.follow(versions)


def _record_keprec(path: Path, seconds: float | None, kubeconfig: Path | None, data: Path, command: str) -> int:
    """Record the mesh on a directory in keplab's own form: versions, event lines and spans. Raises: Refused."""
    if kubeconfig is not None:
        raise Refused("--format keprec records a mesh with its event log; for a cluster want --format kwok")
    running = read_state(data)
    assert running is not None, "it was looked at before"
    meta = Meta(
        title=f"the mesh on {data}",
        switches=list(running["switches"]),
        parts=parts_of(data),
        versions={"keplab": revision().version, "revision": revision().text},
        started=format_time(time.time()),
        command=command,
    )
    try:
        writer = Writer(path, meta)
    except NotRecordable as error:
        raise Refused(str(error)) from None
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(_follow(writer, data, seconds))
    finally:
        writer.close(msgspec.structs.replace(writer.meta, ended=format_time(time.time())))
    versions, lines = count_text(writer.version_count, "version"), count_text(writer.line_count, "event line")
    click.echo(f"{versions} and {lines} are in {path}")
    return fail(writer.failure, EXIT_FAILED) if writer.failure else EXIT_OK


async def _follow(writer: Writer, data: Path, seconds: float | None) -> None:
    running = read_state(data)
    assert running is not None, "it was looked at before"
    transport = transport_of(data, running)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                click.echo("recording until Ctrl-C", err=True)
                await record_mesh(
                    writer,
                    transport.api(),
                    clock=RealClock(),
                    random=seeded_random(None),
                    events=data / "events",
                    spans=data / "spans",
                )
    finally:
        await transport.close()
