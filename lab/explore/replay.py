"""A saved schedule: a file with the inputs of one run, and the digest by which a repeated run is compared."""

from pathlib import Path

import msgspec

from lab.explore.deliveries import display_name, is_about
from lab.explore.recorder import Finding, Recording, Trial
from lab.explore.schedules import Hold
from services.api.errors import UNREADABLE
from services.api.switches import SwitchError, Switches


class ReplayError(ValueError):
    """The file is no saved schedule; the message names it and says why."""


class Replay(Trial, frozen=True, kw_only=True):
    """All inputs of one run, as `--save` writes them. `digest`: of the run's event log, to compare."""

    around: str = ""
    broke: str = ""
    digest: str = ""


def write_replay(found: Finding, around: str) -> str:
    """Return the text of the file for a finding."""
    trial = msgspec.structs.asdict(found.run.trial)
    saved = Replay(**trial, around=around, broke=found.broke.broke, digest=found.run.result.digest)
    return msgspec.json.format(msgspec.json.encode(saved), indent=2).decode() + "\n"


def read_replay(path: Path) -> Replay:
    """Return the saved schedule in a file. Raises: ReplayError."""
    try:
        saved = msgspec.json.decode(path.read_bytes(), type=Replay)
        Switches.parse(saved.switches)
    except OSError as error:
        raise ReplayError(f"{path}: {error.strerror}") from None
    except (*UNREADABLE, SwitchError) as error:
        raise ReplayError(f"{path}: no schedule that `keplab explore --save` wrote: {error}") from None
    return saved


def overtaken_by(run: Recording, hold: Hold) -> str:
    """Return the messages that arrived at the same receiver during a hold, at most four by name.

    Those about the same objects come first.
    """
    delivery = next((d for d in run.held if hold.delivery in d.names), None)
    if delivery is None:
        return ""
    past = [
        d
        for d in run.deliveries
        if d.receiver == delivery.receiver
        and d.stream != delivery.stream
        and d.about
        and delivery.due_s <= d.arrives_s < delivery.arrives_s
    ]
    names = frozenset(path.partition("/")[2] for path in delivery.about)
    past.sort(key=lambda d: (not is_about(d, names), not d.about[0].startswith("pods"), d.arrives_s))
    shown = list(dict.fromkeys(display_name(d.names[0]) for d in past))
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")
