"""`keplab record`: what becomes of a mesh, or of a cluster, written with its times until Ctrl-C."""

from __future__ import annotations

import asyncio
import importlib
from contextlib import suppress
from pathlib import Path

import click

from services.cli.exchange import access_of, cluster_options, writing
from services.cli.output import EXIT_OK, data_option, fail, refusing
from services.exchange.cluster import Cluster
from services.exchange.kubeconfig import Access
from services.exchange.recorder import LEFT_OUT, Recorder
from services.exchange.stream import Refused
from services.runtime.real import RealClock
from services.scenarios.script.value_types import parse_duration

EPILOG = """\
\b
Examples:
  keplab record -o day.yaml --format kwok                   until Ctrl-C
  keplab record -o minute.yaml --format kwok --duration 60s
  keplab record --kubeconfig ~/.kube/config -o cluster.yaml.gz --format kwok
  keplab replay day.yaml --virtual                          and again, in virtual time

\b
First all objects are written, then each change with its time. Of a cluster nothing but get, list and watch is asked,
and what Secrets hold is left out. The file can be read however the recording ends.
"""
LIVE = "services.recordings.live"


@click.command("record", epilog=EPILOG)
@click.option("-o", "--output", "path", type=click.Path(path_type=Path), required=True, help="the file to write")
@click.option("--format", "format_name", default="keprec", show_default=True, metavar="FORMAT", help="keprec or kwok")
@click.option("--duration", default="", metavar="DURATION", help="how long, for example 60s [until Ctrl-C]")
@cluster_options
@data_option
def COMMAND(  # noqa: N802
    path: Path,
    format_name: str,
    duration: str,
    kubeconfig: Path | None,
    context: str,
    as_user: str,
    kinds: str,
    selector: str,
    data: Path,
) -> int:
    """Write what becomes of the mesh, or of a cluster, as it happens.

    It ends after --duration or with Ctrl-C, and what was written until then is a whole recording.
    """
    with refusing(Refused, ValueError):
        seconds = parse_duration(duration) if duration else None
        access = access_of(kubeconfig, context, data)
        if format_name == "keprec":
            return _record_keprec(path, seconds, kubeconfig, data)
        names = [word for word in kinds.split(",") if word]
        made: list[Recorder] = []
        with suppress(KeyboardInterrupt):
            asyncio.run(_record(access, as_user, names, selector, path, format_name, seconds, kubeconfig is None, made))
    for recorder in made:
        for line in recorder.failures:
            click.echo(f"left out: {line}", err=True)
        click.echo(f"{recorder.objects} objects and {recorder.changes} changes are in {path}")
    return EXIT_OK


async def _record(
    access: Access,
    as_user: str,
    names: list[str],
    selector: str,
    path: Path,
    format_name: str,
    seconds: float | None,
    is_own: bool,
    made: list[Recorder],
) -> None:
    clock = RealClock()
    async with Cluster(access, as_user=as_user) as cluster:
        kinds = [each for each in await cluster.kinds(names) if names or each.name not in LEFT_OUT]
        with writing(path, format_name, clock.wall()) as writer:
            recorder = Recorder(cluster, writer, clock, selector=selector, has_secrets=is_own)
            made.append(recorder)
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    versions = await recorder.snapshot(kinds)
                    click.echo(f"{recorder.objects} objects; recording until Ctrl-C", err=True)
                    await recorder.follow(versions)


def _record_keprec(path: Path, seconds: float | None, kubeconfig: Path | None, data: Path) -> int:
    """Have `services/recordings` write its own form. A function there takes the mesh's directory or a kubeconfig."""
    try:
        live = importlib.import_module(LIVE)
    except ModuleNotFoundError:
        fail("--format keprec: this release records a mesh so while it runs a scenario; want --format kwok")
    return int(live.record(path, seconds=seconds, kubeconfig=kubeconfig, data=data))
