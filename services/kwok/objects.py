"""Files and objects of KWOK's kinds, combined. Pure.

An object takes precedence over the document of its kind and name in a file. Paths of files in objects are those
of the process that reads them.
Source: kubernetes-sigs/kwok pkg/kwok/server/server.go (`initWatchCRD`), pkg/kwok/controllers/stages_manager.go;
decision 0078.
"""

from collections.abc import Iterable

from services.api.meta import Document, Key
from services.kwok.definitions import problem_of, resource_of
from services.kwok.documents import STAGE, Configuration, KwokError, check_among, read_one
from services.kwok.kind import Rule
from services.kwok.stages.document import read_stage
from services.kwok.stages.stage import Stage


class KwokObjects:
    """Documents of files, and the current objects. `runs_commands`: forwards may run commands here."""

    def __init__(
        self, stages: Iterable[Stage] = (), configuration: Configuration | None = None, *, runs_commands: bool = True
    ) -> None:
        self._file_stages = tuple(stages)
        self._file_rules = configuration.all if configuration is not None else ()
        self._runs_commands = runs_commands
        self._stages: dict[str, Stage | None] = {}
        self._rules: dict[tuple[str, Key], Rule] = {}

    def put(self, document: Document) -> str:
        """Add or replace an object; return its problem, empty if it is used from now on.

        An invalid object has no effect, and its earlier valid state has none any more.
        """
        kind, metadata = str(document["kind"]), document["metadata"]
        key = Key(metadata.get("namespace") or "", metadata["name"])
        self.remove(kind, key)
        where = f"{resource_of(kind).name} {key}"
        if (problem := problem_of(document, runs_commands=self._runs_commands)) is not None:
            return f"{where}: {problem.path}: {problem.message}"
        if kind == STAGE:
            self._stages[key.name] = read_stage(document)
            return ""
        rule = read_one(document, where)
        try:
            check_among(rule, self._rules.values())
        except KwokError as error:
            return str(error)
        self._rules[(kind, key)] = rule
        return ""

    def remove(self, kind: str, key: Key) -> None:
        """Forget an object."""
        if kind == STAGE:
            self._stages.pop(key.name, None)
        else:
            self._rules.pop((kind, key), None)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of files, in their order, then those of objects by name."""
        objects = [stage for _, stage in sorted(self._stages.items()) if stage is not None]
        return (*(stage for stage in self._file_stages if stage.name not in self._stages), *objects)

    @property
    def configuration(self) -> Configuration:
        """The contents of the other kinds."""
        own = [rule for _, rule in sorted(self._rules.items())]
        taken = {(rule.kind, rule.key, rule.selector is None) for rule in own}
        files = (rule for rule in self._file_rules if (rule.kind, rule.key, rule.selector is None) not in taken)
        return Configuration((*files, *own))
