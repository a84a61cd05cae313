"""`keplab import`: load files of other tools, or the objects of a cluster, into a running mesh or a scenario."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from lab.cli.exchange.files import (
    anonymise_option,
    anonymised_copy,
    controllers_paused,
    format_option,
    loaded_document,
    mesh_client,
    options_of,
    options_option,
    say_guess,
    show_loaded,
    show_notes,
    source_of,
    writing,
)
from lab.cli.live import progress_bar
from lab.cli.output import EXIT_FAILED, EXIT_OK, data_option, fail, output_option, print_json, print_table, refusing
from lab.exchange.anonymiser import WALL_S, anonymise_files, ranking, read_salt
from lab.exchange.cluster import Cluster
from lab.exchange.format import NO_OPTIONS, Format, Reading, format_of, open_stream
from lab.exchange.load import Loaded, Loader
from lab.exchange.reading import Source
from lab.exchange.recorder import LEFT_OUT, Recorder
from lab.exchange.rest.kubeconfig import read_access
from lab.exchange.rules import Rules
from lab.exchange.spool import Spool
from lab.exchange.stream import Change, Placed, Refused, Stream
from lab.experiments.wording import count_text
from lab.scenarios.initial_state import StateError
from services.api.errors import BadRequest, UnknownOutcome
from services.api.meta import Document, metadata_of
from services.api.resources import resource_of_kind
from services.api.selectors import parse_label_selector
from services.api.times import format_time
from services.runtime.real import RealClock

EPILOG = """\
\b
Examples:
  keplab import snapshot.yaml                          what `kwokctl snapshot save --format k8s` wrote
  keplab import snapshot.yaml --pods pending           its pods are scheduled anew
  keplab import --kubeconfig ~/.kube/config --dry-run  how many objects of each kind a cluster has
  keplab import --kubeconfig ~/.kube/config --namespaces shop,default --keep-owners
  keplab import snapshot.yaml --into-scenario shop     a folder with a scenario that begins from it
  keplab import nodes.csv pods.csv --from 1d --to 2d --compress 24x --into-scenario gpus    of Alibaba's trace
  keplab import snapshot.yaml --anonymise salt --into-scenario shop                    without its names
  keplab import day.yaml --into day.keprec             a recording, for `keplab ui --run day.keprec`

\b
Nothing is deleted. An object waits until its owners are there and gets their new uids; an object whose owners are
missing is reported and left out. Controllers and schedulers are paused meanwhile. A cluster is asked for nothing but
get and list; Leases, Events and the values of Secrets are not copied.
"""
Wanted = Callable[[Document], bool]
LIMIT = "10000h"
"""Time limit of a scenario that plays a recording; long, because the recording itself says how long it runs."""


@click.command("import", epilog=EPILOG)
@click.argument("files", metavar="[FILE]...", nargs=-1, type=click.Path(path_type=Path, allow_dash=True))
@click.option(
    "--kubeconfig",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="kubeconfig of a cluster whose objects are imported",
)
@click.option("--context", default="", metavar="NAME", help="context of the kubeconfig [its current context]")
@format_option("format of the files [recognised by their content]")
@click.option("--kinds", default="", metavar="KIND,…", help="only objects of these kinds")
@click.option("--namespaces", default="", metavar="NAME,…", help="only namespaced objects in these namespaces")
@click.option("-l", "--selector", default="", metavar="SELECTOR", help="only objects with these labels")
@click.option(
    "--pods",
    type=click.Choice(["as-they-are", "pending"]),
    default="as-they-are",
    show_default=True,
    help="as-they-are: pods keep their nodes and statuses; pending: pods are scheduled anew",
)
@click.option(
    "--keep-owners/--drop-owners",
    default=None,
    help="keep or drop the owners of pods [--keep-owners for files of kwokctl, else --drop-owners]",
)
@click.option(
    "--from", "begin", default="", metavar="DURATION", help="start of the part that is imported (public traces)"
)
@click.option("--to", "end", default="", metavar="DURATION", help="end of the part that is imported (public traces)")
@click.option("--sample", default="", metavar="SHARE", help="share of the collections that is imported (public traces)")
@click.option("--seed", default="", metavar="N", help="seed of the sample [0]")
@click.option("--compress", default="", metavar="24x", help="factor by which time is compressed (public traces)")
@click.option("--scale", default="", metavar="cpu=N,memory=N", help="capacity of a machine of size 1.0 (borg, azure)")
@click.option("--machine", default="", metavar="ID", help="machine type of all nodes (azure)")
@click.option(
    "--gpu-share", default="", metavar="up|milli|dra", help="form of a share of a GPU in the mesh (alibaba) [up]"
)
@options_option
@anonymise_option
@click.option("--lenient", is_flag=True, help="leave out and count entries that cannot be read")
@click.option("--dry-run", is_flag=True, help="print how many objects there are, and load nothing")
@click.option(
    "--into-scenario",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="make a scenario that begins from the file, instead of loading it",
)
@click.option(
    "--into",
    "into",
    type=click.Path(path_type=Path),
    metavar="FILE.keprec",
    help="make a recording of the files, for `keplab ui --run`, instead of loading them",
)
@data_option
@output_option
def import_objects(
    files: tuple[Path, ...],
    kubeconfig: Path | None,
    context: str,
    format_name: str | None,
    kinds: str,
    namespaces: str,
    selector: str,
    pods: str,
    keep_owners: bool | None,
    begin: str,
    end: str,
    sample: str,
    seed: str,
    compress: str,
    scale: str,
    machine: str,
    gpu_share: str,
    options: tuple[str, ...],
    salt: Path | None,
    lenient: bool,
    dry_run: bool,
    folder: Path | None,
    into: Path | None,
    data: Path,
    output: str,
) -> int:
    """Load files of other tools, or a cluster, into the mesh.

    The command recognises the format by the content, and prints its guesses. The exit code is 1 when the API server
    refused an object; the other objects are loaded.
    """
    if bool(files) == bool(kubeconfig):
        fail("want files or --kubeconfig" + (", not both" if files else ""))
    with refusing(Refused, StateError, ValueError):
        wanted = _import_filter(kinds, namespaces, selector)
        trace_options = {"from": begin, "to": end, "sample": sample, "seed": seed, "compress": compress, "scale": scale}
        trace_options |= {"machine": machine, "gpu-share": gpu_share, **options_of(options)}
        given = {name: value for name, value in trace_options.items() if value}
        if folder is not None:
            return _into_scenario(files, format_name or "", folder, pods, given, salt, is_lenient=lenient)
        if salt is not None and files:
            copy = anonymised_copy([source_of(path) for path in files], salt, format_name or "", given)
            files, format_name, given = (copy.path,), None, {}
        if into is not None:
            if not files:
                fail("--into: want files; `keplab record --kubeconfig` records a cluster into a file to import")
            is_all = not (kinds or namespaces or selector)
            return _into_recording(files, format_name or "", into, given, None if is_all else wanted, lenient)
        rules = Rules("pending" if pods == "pending" else "as-they-are", keep_owners is not False)
        key = read_salt(salt) if salt is not None else None
        asked = _ImportOptions(
            files,
            kubeconfig,
            context,
            format_name or "",
            kinds,
            selector,
            rules,
            lenient,
            dry_run,
            data,
            output,
            given,
            key,
        )
        try:
            return asyncio.run(_run(asked, wanted, keep_owners))
        except UnknownOutcome as error:
            fail(f"the mesh on {data}: {error}", EXIT_FAILED)


@dataclass(frozen=True)
class _ImportOptions:
    """Options of the import, from the command line."""

    files: tuple[Path, ...]
    kubeconfig: Path | None
    context: str
    format_name: str
    kinds: str
    selector: str
    rules: Rules
    is_lenient: bool
    is_dry: bool
    data: Path
    output: str
    options: Mapping[str, str]
    salt: bytes | None


async def _run(asked: _ImportOptions, wanted: Wanted, keep_owners: bool | None) -> int:
    with Spool() as spool:
        if asked.kubeconfig is not None:
            is_kept = bool(keep_owners)
            await _collect(asked, asked.kubeconfig, wanted, spool)
        else:
            streams = _open_streams(asked)
            is_kept = keep_owners if keep_owners is not None else all(s.origin.format == "kwok" for s in streams)
            for stream in streams:
                spool.put_all(each for each in stream.objects if wanted(each.document))
                if next(stream.changes, None) is not None:
                    click.echo("it goes on with changes, which `keplab replay` plays", err=True)
                show_notes(stream, err=True)
        objects = (spool.get(number) for number in range(len(spool)))
        if asked.salt is not None:
            by = ranking((spool.get(number).document for number in range(len(spool))), asked.salt)
            objects = (replace(each, document=by.document(each.document)) for each in objects)
        if asked.is_dry:
            return _count(objects, asked.output)
        loaded = await _load(
            objects, len(spool), replace(asked.rules, keep_owners=is_kept, has_kubelets=True), asked.data
        )
    if asked.output == "json":
        print_json(loaded_document(loaded))
    else:
        show_loaded(loaded)
    return EXIT_FAILED if loaded.failures else EXIT_OK


def _open_streams(asked: _ImportOptions) -> list[Stream]:
    reading = Reading(RealClock().wall(), asked.is_lenient, asked.options)
    return [stream for _, stream in _streams(asked.files, asked.format_name, reading)]


def _streams(files: Sequence[Path], format_name: str, reading: Reading) -> list[tuple[Format, Stream]]:
    """Return the files' streams; tables of one trace are one stream."""
    sources = [source_of(path) for path in files]
    formats = [format_of(source, format_name) for source in sources]
    for source, file_format in zip(sources, formats, strict=True):
        say_guess(source, file_format, format_name)
    if formats[0].read_many is not None and all(each is formats[0] for each in formats):
        unknown = next((name for name in reading.options if name not in formats[0].options), None)
        if unknown is not None:
            raise Refused(f"{sources[0].file}: format {formats[0].name} has no option {unknown!r}")
        return [(formats[0], formats[0].read_many(sources, reading))]
    return [open_stream(source, reading, each.name) for source, each in zip(sources, formats, strict=True)]


class _Collecting:
    """A writer that puts the objects of a cluster into a spool."""

    def __init__(self, spool: Spool, wanted: Wanted, server: str) -> None:
        self._spool, self._wanted, self._server = spool, wanted, server

    def put(self, document: Document) -> None:
        if self._wanted(document):
            self._spool.put(Placed(document, self._server))

    def change(self, change: Change) -> None:
        raise AssertionError("nothing is watched")

    def close(self) -> None:
        pass


async def _collect(asked: _ImportOptions, kubeconfig: Path, wanted: Wanted, spool: Spool) -> None:
    access = read_access(kubeconfig, asked.context)
    async with Cluster(access) as cluster:
        kinds = [each for each in await cluster.kinds(_words(asked.kinds)) if each.name not in LEFT_OUT]
        writer = _Collecting(spool, wanted, access.server)
        recorder = Recorder(cluster, writer, RealClock(), selector=asked.selector, has_secrets=False)
        await recorder.snapshot(kinds)
    for line in recorder.failures:
        click.echo(f"left out: {line}", err=True)


async def _load(objects: Iterator[Placed], count: int, rules: Rules, data: Path) -> Loaded:
    async with mesh_client(data) as client:
        with progress_bar("loading", quiet=False, is_transient=True) as bar:
            task = bar.add_task("", total=count)
            loader = Loader(client, rules, progress=lambda done, _: bar.update(task, completed=done))
            async with controllers_paused(data) as noted:
                try:
                    return await loader.load(noted.of(objects))
                except asyncio.CancelledError:
                    done = loader.loaded.created + loader.loaded.updated
                    whole = count_text(count, "object is", "objects are")
                    click.echo(f"{done} of {whole} loaded; import again to go on", err=True)
                    raise


def _count(objects: Iterator[Placed], output: str) -> int:
    counts = Counter(f"{each.document.get('apiVersion')} {each.document.get('kind')}" for each in objects)
    if output == "json":
        print_json({"objects": dict(sorted(counts.items()))})
    else:
        print_table(("KIND", "OBJECTS"), [*sorted(counts.items()), ("in all", sum(counts.values()))], texts=1)
    return EXIT_OK


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _import_filter(kinds: str, namespaces: str, selector: str) -> Wanted:
    """Return what is to be imported. Raises: ValueError for a selector that cannot be read."""
    places = frozenset(_words(namespaces))
    names = [word.lower() for word in _words(kinds)]
    try:
        selected = parse_label_selector(selector) if selector else None
    except BadRequest as error:
        raise ValueError(f"--selector: {error.message}") from None

    def is_wanted(document: Document) -> bool:
        metadata = metadata_of(document)
        kind = str(document.get("kind") or "").lower()
        if names:
            resource = resource_of_kind(str(document.get("apiVersion")), str(document.get("kind")))
            own = {kind, f"{kind}s", *((resource.plural, resource.name, *resource.short_names) if resource else ())}
            if not own.intersection(names):
                return False
        if places and metadata.get("namespace") and metadata["namespace"] not in places:
            return False
        if places and kind == "namespace" and metadata.get("name") not in places:
            return False
        return selected is None or selected.matches(metadata.get("labels") or {})

    return is_wanted


def _into_scenario(
    files: tuple[Path, ...],
    format_name: str,
    folder: Path,
    pods: str,
    options: Mapping[str, str],
    salt: Path | None,
    *,
    is_lenient: bool,
) -> int:
    """Make a folder with the file, or what a public trace becomes, and a scenario that begins from it and plays it."""
    if not files or any(str(path) == "-" for path in files):
        fail("--into-scenario: want files")
    reading = Reading(WALL_S, is_lenient, options)
    (file_format, stream), *others = _streams(files, format_name, reading)
    if others:
        fail(f"--into-scenario: want one file, or the tables of one trace, not {files[1]} beside {files[0]}")
    scenario = folder / f"{folder.name}.txt"
    if scenario.exists():
        fail(f"{scenario} is there already")
    about: list[str] = []
    name, written = files[0].name, file_format.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if file_format.source:
            name, written = f"{folder.name}.yaml", "kwok"
            has_nodes, has_changes = _convert(stream, folder / name)
            about += [file_format.source, *(f"{count} {what}" for what, count in stream.notes.items())]
            options = NO_OPTIONS
        else:
            has_nodes = [each.document.get("kind") for each in stream.objects].count("Node") > 0
            has_changes = next(stream.changes, None) is not None
            shutil.copyfile(files[0], folder / name)
            has_nodes = has_nodes or not file_format.is_virtual
        if salt is not None:
            plain = Source(folder / name)
            anonymised_name = f"anonymised-{name}"
            written = anonymise_files([plain], read_salt(salt), folder / anonymised_name, written, options)
            (folder / name).unlink()
            name = anonymised_name
        text = scenario_text(
            name,
            written,
            pods,
            "1",
            has_changes=has_changes,
            after="60s",
            nodes="" if has_nodes else "n01..n10 cpu=32 memory=128Gi",
            options=options,
            about=[line for text in about for line in textwrap.wrap(text, 110)],
        )
        scenario.write_text(text)
    except OSError as error:
        fail(f"cannot write {folder}: {error.strerror or error}")
    show_notes(stream)
    click.echo(f"{scenario} begins from {name}; try: keplab run {scenario}")
    return EXIT_OK


def _convert(stream: Stream, path: Path) -> tuple[bool, bool]:
    """Write a stream in kwokctl's format, and return whether it has nodes, and whether it has changes."""
    has_nodes = has_changes = False
    with writing(path, "kwok", WALL_S) as writer:
        for placed in stream.objects:
            has_nodes = has_nodes or placed.document.get("kind") == "Node"
            writer.put(placed.document)
        for change in stream.changes:
            has_changes = True
            has_nodes = has_nodes or change.is_new_node
            writer.change(change)
    return has_nodes, has_changes


def _into_recording(
    files: Sequence[Path],
    format_name: str,
    path: Path,
    options: Mapping[str, str],
    wanted: Wanted | None,
    lenient: bool,
) -> int:
    """Make a recording of the files, and return the exit code."""
    from lab.exchange.into_recording import NOT_RECORDED, write_recording
    from lab.recordings.format import Meta
    from lab.scenarios.revision import revision

    reading = Reading(RealClock().wall(), lenient, options)
    streams = _streams(files, format_name, reading)
    now = format_time(reading.began_wall_s)
    meta = Meta(
        title=", ".join(each.name for each in files),
        versions={"keplab": revision().version, "revision": revision().text},
        started=now,
        ended=now,
        command=shlex.join(["keplab", *sys.argv[1:]]),
        not_recorded=[NOT_RECORDED],
        about=[each.source for each, _ in streams if each.source],
    )
    summary = write_recording(path, meta, [stream for _, stream in streams], reading.began_wall_s, wanted)
    for _, stream in streams:
        show_notes(stream)
    for line in summary.left_out.lines():
        click.echo(f"  left out: {line}")
    if summary.failure:
        fail(summary.failure, EXIT_FAILED)
    click.echo(f"{count_text(summary.versions, 'version is', 'versions are')} in {path}; try: keplab ui --run {path}")
    return EXIT_OK


def scenario_text(
    name: str,
    format_name: str,
    pods: str,
    speed: str,
    *,
    has_changes: bool,
    after: str,
    nodes: str = "",
    options: Mapping[str, str] = NO_OPTIONS,
    about: Sequence[str] = (),
) -> str:
    """Return the scenario that begins from a file beside it and plays its changes.

    `nodes`: the nodes to begin with, for a file that has no nodes; the whole file is then played, objects included.
    `about`: further lines of the comment on top.
    """
    given = ",".join(f"{key}:{value.replace(',', ';')}" for key, value in options.items())
    given = f" options={given}" if given else ""
    lines = [f"# {name}, replayed", *(f"# {line}".rstrip() for line in about)]
    lines.append(f"nodes {nodes}" if nodes else f"begin {name} pods={pods} format={format_name}{given}")
    if has_changes or nodes:
        lines.insert(-1, f"limit {LIMIT}")
        lines.append(f"play {name} pods={pods} speed={speed} format={format_name}{given}")
    return "\n".join((*lines, f"wait {after}", ""))
