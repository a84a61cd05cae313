"""`keplab COMMAND`: find the command in the table, run it, and turn its outcome into an exit code.

0 all well; 1 an expectation, invariant or goal failed; 2 wrong usage or bad input; 3 the mesh could not
start; 130 interrupted, by Ctrl-C or SIGTERM.
"""

import errno
import importlib
import logging
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

import click

from lab.cli.command_table import COMMANDS, SECTIONS, no_collection
from lab.cli.groups import COMPLETING, WIDTH_MAX, Context, Group, option_refused
from lab.cli.output import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_NOT_STARTED, EXIT_OK, EXIT_USAGE
from lab.interrupts import raise_lost_interrupts
from services.api.switches import SwitchError
from services.runtime.config import MeshError

UNWRITABLE = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class _OutputLostError(Exception):
    """The output could not be printed; `args[0]` is the OSError."""


class _Commands(Group):
    """The commands of the table, and the examples shown before them; only the called command is imported."""

    def lines(self, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
        """Return the table."""
        return {title: [(row.name, row.line) for row in rows] for title, rows in SECTIONS.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None when it is not one."""
        row = COMMANDS.get(cmd_name)
        if row is None:
            return None
        with no_collection():
            command = getattr(importlib.import_module(row.path), row.function)
        assert isinstance(command, click.Command), row.path
        command.context_class = Context
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what to begin with, then the table."""
        with formatter.section("Start with"):
            formatter.write_dl(START, col_max=40)
        super().format_commands(ctx, formatter)

    def invoke(self, ctx: click.Context) -> object:
        """Run the command, and print all that it has said. Raises: _OutputLostError; an OSError of a closed pipe would
        end in click's hands as exit code 1."""
        try:
            code = super().invoke(ctx)
            sys.stdout.flush()
        except OSError as error:
            if error.filename is None and error.errno in UNWRITABLE:
                raise _OutputLostError(error) from None
            raise
        return code


START = (
    ("keplab up --nodes 5", "start a mesh on this machine, with a kubeconfig for kubectl"),
    ("keplab status ; keplab down", "show the processes; stop them"),
    ("keplab scenarios", "list the scenarios"),
    ("keplab run FILE", "run a scenario, in virtual time or as processes"),
    ("keplab compare FILE --arm …", "run the same scenario in several arms"),
    ("keplab switches", "list every alternative"),
)


@click.command(
    cls=_Commands,
    help="Run a Kubernetes control plane in pieces, simulated or as processes, and ask it what it did and why.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDTH_MAX},
)
@click.version_option(package_name="keplab", prog_name="keplab")
def cli() -> None:
    """Run one of the table's commands."""
    from services.telemetry import logs

    # Standard output belongs to the command; what libraries want to say goes beside it, in words.
    logs.set_up("keplab", "warning", is_plain=True)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if COMPLETING in os.environ:
        from lab.cli import completing

        completing.register_bash()
    try:
        words = None if arguments is None else list(arguments)
        color = False if os.environ.get("NO_COLOR") else None
        code = cli.main(args=words, prog_name="keplab", standalone_mode=False, color=color)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help() if error.ctx else "")
        return EXIT_USAGE
    except click.NoSuchOption as error:
        option_refused(error).show()
        return EXIT_USAGE
    except click.ClickException as error:
        error.show()
        return EXIT_USAGE
    except SwitchError as error:
        click.echo(f"Error: {error}", err=True)
        return EXIT_USAGE
    except MeshError as error:
        click.echo(f"Error: {error}", err=True)
        return EXIT_NOT_STARTED
    except (KeyboardInterrupt, click.Abort):
        # A simulation that is cut short leaves its tasks pending or not begun, and Python would complain of each.
        logging.getLogger("asyncio").disabled = True
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        click.echo("keplab: interrupted", err=True)
        return EXIT_INTERRUPTED
    except _OutputLostError as lost:
        return _end_without_reader(lost.args[0])
    except OSError as error:  # of the help, which click prints before any command is invoked
        if error.filename is not None or error.errno not in UNWRITABLE:
            raise
        return _end_without_reader(error)
    return code if isinstance(code, int) else EXIT_OK


def _end_without_reader(error: OSError) -> int:
    """Return the exit code when standard output takes nothing any more; what is left in it goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if error.errno == errno.EPIPE:
        return EXIT_OK  # the reader of our output has seen enough
    click.echo(f"keplab: cannot write the output: {os.strerror(error.errno or 0)}", err=True)
    return EXIT_FAILED


def main() -> NoReturn:
    """Run the command line and exit. SIGTERM ends it as Ctrl-C does, so that the processes it started are ended."""
    # A shell has what it runs in the background ignore Ctrl-C; the way it ends must be there all the same.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    raise_lost_interrupts()
    sys.exit(run())


if __name__ == "__main__":
    main()
