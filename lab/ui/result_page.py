"""The page of a comparison, runs or traces in one file, for `keplab compare`, `report`, `trace` and `ui --page`.

If runs were recorded, the file has the recordings of one seed, one for each arm: the seed whose runs are
nearest to the medians. It never becomes larger than `LARGE`: then objects are left out, and then the
recordings, and the page says so.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from lab.experiments.document import ArmRuns, Comparison, read_document, recording_name
from lab.experiments.page_document import page_document
from lab.experiments.representative import representative
from lab.experiments.run_page import RunPage, plain_runs, runs_document
from lab.experiments.static_html import plain
from lab.experiments.trace_page import TracePage, documents, plain_traces, traces_document
from lab.recordings.format import SUFFIX, Unreadable
from lab.recordings.reader import Recording
from lab.ui.page import DECISIONS, EVERYTHING, LARGE, TRACED, Embedded, page_text

RECORDED_MAX: Final = 16_000_000
"""Largest sum of recordings in bytes that are read: a page of more would take minutes, and be too large."""


class ComparisonPage(NamedTuple):
    """Text of a page, and one line about the recordings in it; empty if the comparison has none."""

    text: str
    recorded: str


def comparison_page(comparison: Comparison, *, large: int = LARGE) -> ComparisonPage:
    """Return the page of a comparison, with recordings of one seed if the runs were recorded. `large`: size in bytes
    above which recordings are left out.
    """
    if not comparison.recordings:
        return ComparisonPage(page_text((), result=embed_comparison(comparison))[0], "")
    folder = Path(comparison.recordings)
    choice = _recorded_seed(comparison, folder)
    if choice is None:
        return _without(comparison, f"There is no seed of which every arm has its recording in {folder}.")
    seed, why = choice
    paths = [_path(folder, arm.name, seed) for arm in comparison.arms]
    here = (
        f"Seed {seed}, {why}: " if why == "the only one" else f"Of {len(comparison.seeds)} seeds, seed {seed}, {why}: "
    )
    by_hand = f"keplab ui --page FILE.html {' '.join(map(str, paths))}"
    size = sum(path.stat().st_size for path in paths)
    if size > RECORDED_MAX:
        return _without(comparison, f"{here}its recordings have {size / 1e6:.0f} MB and are left out; {by_hand}")
    for detail, words in (
        (EVERYTHING, "a recording of each arm"),
        (DECISIONS, "decisions of each arm, without objects"),
    ):
        recorded = f"{here}{words} {'is' if detail == EVERYTHING else 'are'} in this file."
        try:
            text = page_text(paths, detail, embed_comparison(comparison, recorded, seed))[0]
        except (Unreadable, OSError) as error:
            return _without(comparison, f"{here}its recordings are left out: {error}")
        if len(text.encode()) <= large:
            return ComparisonPage(text, recorded)
    return _without(
        comparison, f"{here}with its recordings the file would be larger than {large / 1e6:.0f} MB; {by_hand}"
    )


def runs_page(runs: Sequence[RunPage]) -> str:
    """Return the page of runs, without recordings."""
    name = "Run" if len(runs) == 1 else "Runs"
    return page_text((), result=Embedded(runs_document(runs), plain_runs(runs), name))[0]


def traces_page(traces: TracePage) -> str:
    """Return the page of traces; it opens on the first pod's trace."""
    made = Embedded(traces_document(traces), plain_traces(traces), "Trace", TRACED, documents(traces))
    return page_text((), result=made)[0]


def embed_comparison(comparison: Comparison, recorded: str = "", seed: int | None = None) -> Embedded:
    """Return a comparison in the form that a file holds. `recorded`: text about its recordings; `seed`: the seed of
    the recordings, one for each arm.
    """
    document: dict[str, Any] = page_document(comparison)
    if recorded:
        document["recorded"] = {"words": recorded, "seed": seed}
    return Embedded(document, plain(comparison))


def recordings_text(count: int) -> str:
    """Return the text about recordings that were named one by one; empty string if there are none."""
    return (
        "" if not count else "A recording is in this file." if count == 1 else f"{count} recordings are in this file."
    )


def sorted_out(paths: Sequence[Path]) -> tuple[Comparison | None, list[Path]]:
    """Split the paths named for one file into the comparison and the recordings, by content, not by name.

    Raises: ValueError, for a second comparison or a document that is no comparison; OSError.
    """
    documents = [path for path in paths if path.is_file() and _is_json(path)]
    if len(documents) > 1:
        raise ValueError(f"a page holds one comparison; these are two: {documents[0]} and {documents[1]}")
    comparison = read_document(documents[0].read_bytes(), str(documents[0])) if documents else None
    return comparison, [path for path in paths if path not in documents]


def _is_json(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(64).lstrip().startswith((b"{", b"["))


def _without(made: Comparison, recorded: str) -> ComparisonPage:
    return ComparisonPage(page_text((), result=embed_comparison(made, recorded))[0], recorded)


def _recorded_seed(comparison: Comparison, folder: Path) -> tuple[int, str] | None:
    """Return the seed that stands for the others and why, of those of which there are recordings of these very runs."""
    seeds = {
        seed for seed in comparison.seeds if all(_path(folder, arm.name, seed).is_file() for arm in comparison.arms)
    }
    while (choice := representative(comparison, seeds)) is not None:
        if all(_is_of_run(arm, choice[0], folder) for arm in comparison.arms):
            return choice
        seeds.remove(choice[0])
    return None


def _is_of_run(arm: ArmRuns, seed: int, folder: Path) -> bool:
    """Whether the recording is of that run, and not of one that another command made later in the same folder."""
    run = next(run for run in arm.runs if run.seed == seed)
    try:
        with Recording.open(_path(folder, arm.name, seed)) as recording:
            return not recording.meta.digest or not run.digest or recording.meta.digest == run.digest
    except (Unreadable, OSError):
        return False


def _path(folder: Path, arm: str, seed: int) -> Path:
    return folder / f"{recording_name(arm, seed)}{SUFFIX}"
