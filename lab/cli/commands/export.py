"""`keplab export`: write the objects of a mesh, or of a cluster, in the format of another tool."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from lab.cli.exchange.files import (
    access_of,
    anonymise_option,
    check_secrets,
    cluster_options,
    format_option,
    secrets_option,
    writing,
)
from lab.cli.output import EXIT_FAILED, EXIT_OK, data_option, fail, refusing
from lab.exchange.anonymiser import anonymise_files, read_salt
from lab.exchange.cluster import Cluster
from lab.exchange.format import format_named
from lab.exchange.reading import Source
from lab.exchange.recorder import LEFT_OUT, Recorder
from lab.exchange.rest.kubeconfig import Access
from lab.exchange.stream import Refused
from lab.experiments.wording import count_text
from services.runtime.real import RealClock

EPILOG = """\
\b
Examples:
  keplab export -o snapshot.yaml                        for `kwokctl snapshot restore --format k8s`
  keplab export -o pods.yaml.gz --kinds pods,nodes
  keplab export --kubeconfig ~/.kube/config -o cluster.yaml
"""


@click.command("export", epilog=EPILOG)
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path),
    required=True,
    help="file to write; - for standard output",
)
@format_option("format of the file [kwok]", default="kwok")
@anonymise_option
@cluster_options
@secrets_option
@data_option
def export(
    path: Path,
    format_name: str,
    salt: Path | None,
    kubeconfig: Path | None,
    context: str,
    as_user: str,
    kinds: str,
    selector: str,
    has_secrets: bool,
    data: Path,
) -> int:
    """Write the objects of the mesh, or of a cluster, for other tools.

    A cluster is asked for nothing but get and list. The values of Secrets are left out unless --secrets is given; their
    names and keys are written. Only the file's owner may read it.
    """
    check_secrets(has_secrets, kubeconfig)
    with refusing(Refused):
        access = access_of(kubeconfig, context, data)
        names = [word for word in kinds.split(",") if word] or list(format_named(format_name).kinds)
        key = read_salt(salt) if salt is not None else b""
        if salt is not None and format_named(format_name).rewrite is None:
            fail(f"--anonymise: format {format_name} cannot be anonymised; export it as kwok")
        if str(path) == "-":
            path = Path("/dev/stdout")
            if salt is not None:
                fail("--anonymise: the command reads the file that it wrote; want -o FILE")
        if path.is_dir() or not path.parent.is_dir():
            fail(f"cannot write {path}: {'Is a directory' if path.is_dir() else 'No such file or directory'}")
        # A file has all or is as it was; pipes, devices and what links lead to are written as they are.
        is_stream = path.is_symlink() or (path.exists() and not path.is_file())
        plain = path if is_stream and salt is None else path.with_name(f".part.{path.name}")
        try:
            code = asyncio.run(
                _export(access, as_user, names, selector, plain, path, format_name, has_secrets=has_secrets)
            )
            if salt is not None:
                anonymise_files([Source(plain)], key, path, format_name)
            elif plain is not path:
                plain.replace(path)
        finally:
            if plain is not path:
                plain.unlink(missing_ok=True)
        return code


async def _export(
    access: Access,
    as_user: str,
    names: list[str],
    selector: str,
    path: Path,
    shown: Path,
    format_name: str,
    *,
    has_secrets: bool,
) -> int:
    clock = RealClock()
    async with Cluster(access, as_user=as_user) as cluster:
        kinds = [each for each in await cluster.kinds(names) if names or each.name not in LEFT_OUT]
        with writing(path, format_name, clock.wall()) as writer:
            recorder = Recorder(cluster, writer, clock, selector=selector, has_secrets=has_secrets)
            await recorder.snapshot(kinds)
    for line in recorder.failures:
        click.echo(f"left out: {line}", err=True)
    other: dict[str, int] = getattr(writer, "left_out", {})
    if other:
        named = ", ".join(f"{count} {kind}" for kind, count in sorted(other.items()))
        click.echo(f"left out: kinds that the format does not have: {named}", err=True)
    written = getattr(writer, "written", recorder.objects - sum(other.values()))
    click.echo(f"{count_text(written, 'object is', 'objects are')} in {shown}", err=path is shown)
    return EXIT_FAILED if recorder.failures and not recorder.objects else EXIT_OK
