"""The commands of `keplab`: name, section, module and one line of `keplab --help` for each.

`keplab --help` is this table, so that it imports no command. To add a command, add a module of
`lab/cli/commands/` that has a function of the module's name, and a row here; the first line of its docstring is
the row's.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PACKAGE = "lab.cli.commands"


@dataclass(frozen=True)
class Row:
    """A command: its name, its purpose in one line without a period, and its module."""

    name: str
    line: str
    module: str = ""
    """Module of a command that lives outside `lab.cli.commands`, or there under another name; empty otherwise."""

    @property
    def path(self) -> str:
        """Return the module to import."""
        return self.module or f"{PACKAGE}.{self.name.replace('-', '_')}"

    @property
    def function(self) -> str:
        """Return the name of the command in its module, which is the module's own name."""
        return self.path.rpartition(".")[2]


SECTIONS: dict[str, tuple[Row, ...]] = {
    "Run a mesh": (
        Row("up", "Start a mesh of processes on this machine"),
        Row("status", "Show the processes of the mesh and where to reach it"),
        Row("ui", "Show a running mesh in a browser"),
        Row("down", "Stop the mesh and keep its stored state"),
        Row("restart", "Restart processes of the mesh"),
        Row("rotate", "Renew the certificates of the mesh now"),
        Row("store", "Inspect the store of a mesh that does not run"),
        Row("snapshot", "Save the state of the mesh, and restore it"),
        Row("component", "Run one component of a mesh, as in a container"),
        Row("device-plugin", "Run an emulated device plugin, or command a running one"),
        Row("dra-driver", "Run an emulated DRA driver, or command a running one"),
    ),
    "Run scenarios": (
        Row("scenarios", "List the scenarios below a folder"),
        Row("run", "Run scenarios and judge expectations and invariants"),
        Row("compare", "Run a scenario in several arms and show what differs"),
        Row("chaos", "Run a scenario while components are killed and links break"),
        Row("explore", "Run a scenario in other orders of the same messages"),
        Row("fork", "Simulate from the state of a mesh"),
        Row("switches", "List the switches: every choice between designs"),
        Row("measures", "List the measures of a run, and which direction is better"),
        Row("verbs", "List the verbs, settings and expectations of scenarios"),
    ),
    "Ask why": (
        Row("explain", "Explain why a pod is on its node, or on none"),
        Row("trace", "Print the life of a pod from create to Running"),
    ),
    "Look back": (
        Row("get", "Show objects of the mesh as they are or were"),
        Row("history", "List the changes of an object: who wrote what, and when"),
        Row("diff", "Compare two versions of the mesh, or two runs"),
        Row("runs", "List the recorded runs"),
        Row("report", "Write the page of a run or a comparison again"),
        Row("logs", "Print the logs of the mesh's processes"),
        Row("events", "Print the event log: what components did, line by line"),
    ),
    "Exchange with other tools": (
        Row("import", "Load files of other tools, or a cluster, into the mesh", f"{PACKAGE}.import_objects"),
        Row("sync", "Follow a real cluster, and make its changes in the mesh"),
        Row("export", "Write the objects of the mesh, or of a cluster, for other tools"),
        Row("record", "Record the changes of the mesh, or of a cluster, as they happen"),
        Row("scale", "Scale the objects of a template to a number"),
        Row("raw", "Read and write objects in the store, past admission"),
        Row("replay", "Play a recording, in a running mesh or in virtual time"),
        Row("trace-check", "Check a snapshot, recording or trace for mistakes"),
        Row("anonymise", "Write a snapshot, recording or trace without its names"),
    ),
    "Extend": (Row("new", "Make the skeleton of an experiment, plugin, controller or kind"),),
    "Measure": (Row("bench", "Measure this machine's mesh and its parts"),),
    "Set up": (
        Row("doctor", "Check what keplab needs of this machine"),
        Row("completion", "Print the script that completes commands in a shell"),
    ),
}

COMMANDS: dict[str, Row] = {row.name: row for rows in SECTIONS.values() for row in rows}


@contextmanager
def no_collection() -> Iterator[None]:
    """Import what a command needs without garbage collections, and leave it out of later ones: modules stay.

    Where nothing is imported, because an earlier call of this process did it, nothing is left out.
    """
    modules_before, was_enabled = len(sys.modules), gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) > modules_before:
            gc.freeze()
        if was_enabled:
            gc.enable()
