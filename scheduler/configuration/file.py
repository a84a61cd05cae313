"""The configuration file for wiring: read, made into profiles, and merged with switches and flags.

Precedence: a switch that the user set, then the file, then the switch's default. So an arm of a comparison
differs from another in what it sets, whatever file both share. Plugin arguments are the exception: there
the file wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scheduler.configuration.assembly import MadeProfile, make_profiles
from scheduler.configuration.document import Extender, KubeSchedulerConfiguration, as_json
from scheduler.configuration.parser import ConfigurationError, read, with_defaults
from scheduler.configuration.plugins import PluginSourceError, defaults, known_plugins
from scheduler.entry import Handle
from scheduler.queue.preenqueue_status import GATE
from scheduler.switches import BACKOFF_INITIAL, BACKOFF_MAX, PERCENTAGE, REPORT_DELAY, ConfigurationSwitches
from services.api.switches import Switches
from services.runtime.config import StartError

NOTHING = KubeSchedulerConfiguration()


@dataclass(frozen=True)
class Configured:
    """A configuration together with these switches; `path` is empty when there is no file."""

    switches: Switches
    path: str = ""
    configuration: KubeSchedulerConfiguration = NOTHING

    @classmethod
    def read(cls, path: str, scheduler_name: str, switches: Switches) -> Configured:
        """Return the file's configuration, or the default one without a file.

        Raises: StartError naming every problem.
        """
        if not path:
            return cls(switches, "", with_defaults(KubeSchedulerConfiguration(), scheduler_name))
        try:
            config = cls(switches, path, with_defaults(read(Path(path).read_text(encoding="utf-8")), scheduler_name))
        except OSError as error:
            raise StartError(f"--config {path}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise StartError(f"--config {path}: not UTF-8") from None
        except ConfigurationError as error:
            raise StartError(f"--config {path}: {error}") from None
        if config.configuration.pre_enqueue_pod_status_delay is not None and not switches.flag(GATE):
            text = f"no release of Kubernetes has it; it is part of KEP-5501 and needs {GATE}=true, which is false"
            raise StartError(f"--config {path}: preEnqueuePodStatusDelay: {text}")
        return config

    def profiles(self, named: Sequence[str], handle: Handle) -> list[MadeProfile]:
        """Return the file's profiles; empty without a file. Raises: StartError that names every problem.

        `named`: plugins besides those of the folder and of installed packages, as `--plugin` gives them.
        """
        if not self.path:
            if named:
                raise StartError(f"--plugin {named[0]}: nothing turns it on: name it in a --config")
            return []
        try:
            return make_profiles(self.configuration, known_plugins(named), defaults(handle.switches), handle)
        except ConfigurationError as error:
            raise StartError(f"--config {self.path}: {error}") from None
        except PluginSourceError as error:
            raise StartError(str(error)) from None

    def election(self) -> dict[str, Any]:
        """Return the process's settings of leader election that the file gives; its flags give the rest."""
        given = self.configuration.leader_election
        if given.leader_elect is None:
            return {}
        return {
            "leader_elect": given.leader_elect,
            "leader_elect_resource_name": given.resource_name,
            "leader_elect_lease_duration_s": round(given.lease_duration),
            "leader_elect_renew_deadline_s": float(given.renew_deadline),
            "leader_elect_retry_period_s": float(given.retry_period),
        }

    def percentage(self, own: int | None = None) -> int:
        """Return a profile's percentage of nodes to score. `own`: the profile's own value, or None."""
        given = own if own is not None else self.configuration.percentage_of_nodes_to_score
        return int(self._choose(PERCENTAGE, self._own.percentage, given))

    @property
    def backoff_initial_s(self) -> float:
        """A pod's first back-off, in seconds."""
        return float(
            self._choose(BACKOFF_INITIAL, self._own.backoff_initial_s, self.configuration.pod_initial_backoff_seconds)
        )

    @property
    def backoff_max_s(self) -> float:
        """A pod's longest back-off, in seconds."""
        return float(self._choose(BACKOFF_MAX, self._own.backoff_max_s, self.configuration.pod_max_backoff_seconds))

    @property
    def report_delay_s(self) -> float:
        """Seconds that a rejection by PreEnqueue must last to be reported (KEP-5501)."""
        return float(
            self._choose(REPORT_DELAY, self._own.report_delay_s, self.configuration.pre_enqueue_pod_status_delay)
        )

    @property
    def extenders(self) -> tuple[Extender, ...]:
        """The extenders in the order of their calls: the ignorable ones come last."""
        return tuple(sorted(self.configuration.extenders, key=lambda extender: extender.ignorable))

    def document(self, lineups: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the effective configuration, for `/configz`, with defaults and switches.

        `lineups`: each profile's plugins.
        """
        document: dict[str, Any] = as_json(self.configuration)
        for given, lineup in zip(document["profiles"], lineups, strict=True):
            given["percentageOfNodesToScore"] = self.percentage(given["percentageOfNodesToScore"])
            given["plugins"] = lineup
        document["percentageOfNodesToScore"] = self.percentage()
        document["podInitialBackoffSeconds"] = self.backoff_initial_s
        document["podMaxBackoffSeconds"] = self.backoff_max_s
        if self.configuration.pre_enqueue_pod_status_delay is None:
            del document["preEnqueuePodStatusDelay"]
        return document

    @property
    def _own(self) -> ConfigurationSwitches:
        return self.switches.of(ConfigurationSwitches)

    def _choose(self, switch: str, own: float, of_file: float | None) -> float:
        """Return what the file says, or where it says nothing or the switch is set, the switch's value."""
        return own if of_file is None or self.switches.is_set(switch) else of_file
