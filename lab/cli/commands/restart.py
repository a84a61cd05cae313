"""`keplab restart`: restart processes of a mesh now."""

from pathlib import Path

import click

from lab.cli import completing
from lab.cli.output import EXIT_FAILED, EXIT_OK, EXIT_USAGE, data_option, fail, no_mesh, output_option, print_json
from services.runtime.control import NoAnswer, ask
from services.runtime.mesh_directory import holder

ANSWER_MAX_S = 600.0

EPILOG = """\
\b
Examples:
  keplab restart scheduler
  keplab restart kubelet/h0 kubelet/h1
  keplab restart --all --data /tmp/mesh
"""


@click.command("restart", epilog=EPILOG)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=completing.processes)
@click.option("--all", "is_all", is_flag=True, help="restart every process, one after the other")
@data_option
@output_option
def restart(names: tuple[str, ...], is_all: bool, data: Path, output: str) -> int:
    """Restart processes of the mesh.

    The command returns when the processes are ready. It stops a running process in good order (SIGTERM, and SIGKILL
    after 12 s). It starts a process at once that is in CrashLoopBackOff or was given up, and forgets its earlier
    failures. `keplab status` lists the names.
    """
    if bool(names) == is_all:
        raise click.UsageError("want the names of processes, or --all")
    if not holder(data):
        no_mesh(data)
    try:
        answer = ask(data, {"verb": "restart", "names": list(names)}, ANSWER_MAX_S)
    except NoAnswer as error:
        fail(str(error), EXIT_FAILED)
    restarted = list(answer.get("restarted", ()))
    if output == "json":
        print_json({"restarted": restarted, "error": answer.get("error", "")})
    else:
        for name in restarted:
            click.echo(f"{name} restarted")
    if "error" in answer:
        fail(answer["error"], EXIT_USAGE if answer.get("is_usage") else EXIT_FAILED)
    return EXIT_OK
