"""Helpers of the commands that exchange files with other tools: files to read and write, and the mesh to write to."""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import click

from lab.cli.mesh_state import transport_of
from lab.cli.output import fail, no_mesh
from lab.exchange.anonymiser import anonymise_files, read_salt
from lab.exchange.format import Format, Writer, format_named, formats
from lab.exchange.load import Loaded
from lab.exchange.player import Played
from lab.exchange.reading import Source
from lab.exchange.rest.kubeconfig import Access, read_access
from lab.exchange.rules import owners_of
from lab.exchange.stream import Placed, Refused, Stream
from lab.experiments.wording import count_text
from services.api.identity import ADMIN, Identity
from services.api.wire import Api
from services.client.client import Client
from services.runtime.components import CLAIM_CONTROLLER, component_of
from services.runtime.faults.pausing import pause_components
from services.runtime.mesh_directory import read_state
from services.runtime.real import RealClock, seeded_random

SCHEDULER_PROCESS = "scheduler"
PAUSED = (SCHEDULER_PROCESS, "controllers", CLAIM_CONTROLLER)
F = TypeVar("F", bound=Callable[..., Any])
SHOWN_MAX = 10


def format_option(help_text: str, default: str | None = None) -> Callable[[F], F]:
    """Add `--format` to a command; the parameter is called `format_name`."""
    return click.option("--format", "format_name", default=default, metavar="FORMAT", help=help_text)


def options_option(command: F) -> F:
    """Add a repeatable `--option NAME=VALUE` to a command; the parameter is called `options`."""
    return click.option(
        "--option",
        "options",
        multiple=True,
        metavar="NAME=VALUE",
        help="option of the file's format, such as scale=cpu=64,memory=256Gi; may be repeated",
    )(command)


def options_of(assignments: Sequence[str]) -> dict[str, str]:
    """Return the values of `--option` by name. Raises: Refused."""
    options: dict[str, str] = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise Refused(f"--option {text}: want NAME=VALUE")
        options[name] = value
    return options


def anonymise_option(command: F) -> F:
    """Add `--anonymise SALTFILE` to a command; the parameter is called `salt`."""
    return click.option(
        "--anonymise",
        "salt",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="SALTFILE",
        help="file with a secret key; names are replaced by others of the same order",
    )(command)


def cluster_options(command: F) -> F:
    """Add the options to a command that name a cluster and select its objects."""
    for option in (
        click.option("-l", "--selector", default="", metavar="SELECTOR", help="only objects with these labels"),
        click.option("--kinds", default="", metavar="KIND,…", help="only objects of these kinds"),
        click.option(
            "--as", "as_user", default="", metavar="USER", help="user to impersonate in requests to the cluster"
        ),
        click.option("--context", default="", metavar="NAME", help="context of the kubeconfig [its current context]"),
        click.option(
            "--kubeconfig",
            type=click.Path(path_type=Path, dir_okay=False),
            metavar="FILE",
            help="kubeconfig of a cluster to read, instead of the mesh",
        ),
    ):
        command = option(command)
    return command


def secrets_option(command: F) -> F:
    """Add `--secrets` to a command; the parameter is called `has_secrets`."""
    text = "write the values of the mesh's Secrets too"
    return click.option("--secrets", "has_secrets", is_flag=True, help=text)(command)


def check_secrets(has_secrets: bool, kubeconfig: Path | None) -> None:
    """End a command that asks for the values of a cluster's Secrets."""
    if has_secrets and kubeconfig is not None:
        fail("--secrets: the values of a cluster's Secrets are never written")


def access_of(kubeconfig: Path | None, context: str, data: Path) -> Access:
    """Return the access to a cluster, or to the mesh on a directory if `kubeconfig` is None. Raises: Refused."""
    if kubeconfig is not None:
        return read_access(kubeconfig, context)
    running = read_state(data)
    if running is None:
        no_mesh(data, ", or say --kubeconfig")
    return read_access(Path(running["kubeconfig"]))


def source_of(path: Path) -> Source:
    """Return the source to read; `-` is standard input, kept in a file as long as the command runs."""
    if str(path) != "-":
        return Source(path)
    folder = tempfile.mkdtemp(prefix="keplab-input-")
    click.get_current_context().call_on_close(lambda: shutil.rmtree(folder, ignore_errors=True))
    copy = Path(folder) / "input"
    with copy.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return Source(copy, "standard input")


def say_guess(source: Source, found: Format, given: str | None) -> None:
    """Print the guessed format to standard error, unless the format was given."""
    if not given:
        click.echo(f"{source.file}: format {found.name}, {found.title}", err=True)


def _private(path: str, flags: int) -> int:
    fd = os.open(path, flags, 0o600)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        os.fchmod(fd, 0o600)
    return fd


@contextmanager
def writing(path: Path, name: str, began_wall_s: float) -> Iterator[Writer]:
    """Write a file in a format; only its owner may read it, and one that ends in .gz is compressed.

    The file is closed in good order however the block ends, so that what was recorded until then can be read.
    Raises: Refused, when it cannot be written in that format.
    """
    file_format = format_named(name)
    if file_format.write is None:
        able = ", ".join(each.name for each in formats().values() if each.write is not None)
        raise Refused(f"--format {name}: the format can only be read; want one of {able}")
    try:
        raw: BinaryIO = open(path, "wb", opener=_private)  # noqa: SIM115  # Path.open takes no opener
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror or error}") from None
    with raw:
        file = cast("BinaryIO", gzip.GzipFile(fileobj=raw, mode="wb")) if path.suffix == ".gz" else raw
        writer = file_format.write(file, began_wall_s)
        try:
            yield writer
        except OSError as error:
            raise Refused(f"cannot write {path}: {error.strerror or error}") from None
        finally:
            writer.close()
            if file is not raw:
                file.close()


def anonymised_copy(sources: Sequence[Source], salt: Path, format_name: str, options: Mapping[str, str]) -> Source:
    """Return an anonymised copy of files in kwokctl's format, kept as long as the command runs. Raises: Refused."""
    folder = tempfile.mkdtemp(prefix="keplab-anonymised-")
    click.get_current_context().call_on_close(lambda: shutil.rmtree(folder, ignore_errors=True))
    copy = Path(folder) / "anonymised.yaml"
    anonymise_files(sources, read_salt(salt), copy, format_name, options)
    return Source(copy)


@asynccontextmanager
async def mesh_api(data: Path, identity: Identity = ADMIN) -> AsyncIterator[Api]:
    """Connect to the mesh on a directory as its administrator or scheduler; end the command if there is none."""
    running = read_state(data)
    if running is None:
        no_mesh(data)
    transport = transport_of(data, running, identity)
    try:
        yield transport.api()
    finally:
        await transport.close()


@asynccontextmanager
async def mesh_client(data: Path, identity: Identity = ADMIN) -> AsyncIterator[Client]:
    """Connect to the mesh on a directory as a client that writes."""
    async with mesh_api(data, identity) as api:
        yield client_of(api)


def client_of(api: Api) -> Client:
    """Return a client whose field manager is keplab's."""
    return Client(api, RealClock(), seeded_random(None), field_manager="keplab-import")


@dataclass
class Noted:
    """Properties of the loaded objects that matter to controllers and schedulers. `bound`: True if pods with a node
    are among them, False if pods without a node are; both may be in the set.
    """

    is_owned: bool = False
    bound: set[bool] = field(default_factory=set)

    def of(self, objects: Iterable[Placed]) -> Iterator[Placed]:
        """Yield the objects, and note their properties."""
        for each in objects:
            self.is_owned = self.is_owned or bool(owners_of(each.document))
            if each.document.get("kind") == "Pod":
                self.bound.add(bool((each.document.get("spec") or {}).get("nodeName")))
            yield each

    def must_see_all(self, process: str) -> bool:
        """Return whether a process would decide wrongly on a part of the objects.

        That can happen because changes of different kinds come in any order.
        """
        return len(self.bound) > 1 if component_of(process) == SCHEDULER_PROCESS else self.is_owned


@asynccontextmanager
async def controllers_paused(data: Path) -> AsyncIterator[Noted]:
    """Pause the scheduler and controllers of the mesh on a directory while objects are loaded; yield notes on them.

    With a part of a snapshot, controllers would make another ReplicaSet of a Deployment before its own is there, or
    run a Job again that is over.
    """
    noted = Noted()
    async with pause_components(data, PAUSED, noted.must_see_all, lambda line: click.echo(line, err=True)):
        yield noted


def show_notes(stream: Stream, *, err: bool = False) -> None:
    """Print what a reader left out or changed."""
    for what, count in stream.notes.items():
        click.echo(f"  {count} {what}", err=err)


def show_loaded(loaded: Loaded) -> None:
    """Print the result of loading a snapshot."""
    click.echo(f"{loaded.created} created, {loaded.updated} updated")
    _show("left out, because owners are missing", loaded.orphans)
    _show("refused", loaded.failures)
    _show("of kinds that the mesh does not serve", [f"{kind}: {count}" for kind, count in loaded.unknown.items()])


def show_played(played: Played) -> None:
    """Print the result of playing changes."""
    click.echo(f"{count_text(played.applied, 'change')} made, the last at {played.last_s:.3f} s of the recording")
    for line in played.left_out.lines():
        click.echo(f"  left out: {line}")
    _show("could not be made", played.failures)
    if played.late:
        click.echo(f"  {played.late} were made late, by {played.late_s:.3f} s at most; --speed says how fast they come")


def loaded_document(loaded: Loaded) -> dict[str, Any]:
    """Return the result of loading a snapshot as `-o json` prints it."""
    return {
        "created": loaded.created,
        "updated": loaded.updated,
        "orphans": loaded.orphans,
        "failures": loaded.failures,
        "unknown": loaded.unknown,
    }


def played_document(played: Played) -> dict[str, Any]:
    """Return the result of playing changes as `-o json` prints it."""
    return {
        "applied": played.applied,
        "left_out": played.left_out.counts,
        "failures": played.failures,
        "late": played.late,
        "late_s": round(played.late_s, 6),
        "last_s": played.last_s,
    }


def _show(what: str, lines: list[str]) -> None:
    if not lines:
        return
    click.echo(f"  {len(lines)} {what}:")
    for line in lines[:SHOWN_MAX]:
        click.echo(f"    {line}")
    if len(lines) > SHOWN_MAX:
        click.echo(f"    … and {len(lines) - SHOWN_MAX} more; -o json has all")
