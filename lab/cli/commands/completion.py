"""`keplab completion`: print the script with which a shell completes commands, options and their values."""

import click
from click.shell_completion import get_completion_class

from lab.cli import completing
from lab.cli.groups import COMPLETING
from lab.cli.output import EXIT_OK

INSTALL = {
    "bash": '# Add to ~/.bashrc:  eval "$(keplab completion bash)"',
    "zsh": '# Add to ~/.zshrc, after compinit:  eval "$(keplab completion zsh)"',
    "fish": "# Once:  keplab completion fish > ~/.config/fish/completions/keplab.fish",
}
EPILOG = """\
\b
Examples:
  keplab completion bash
  eval "$(keplab completion zsh)"
  keplab completion fish > ~/.config/fish/completions/keplab.fish
"""


@click.command("completion", epilog=EPILOG)
@click.argument("shell", type=click.Choice(list(INSTALL)))
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print the script that completes commands in a shell.

    The script completes commands, options, switches and their values, scenarios, kinds, and the processes of the
    running mesh. The first line of the script says where to put it.
    """
    completing.register_bash()
    completer_class = get_completion_class(shell)
    assert completer_class is not None, shell
    root = context.find_root()
    click.echo(INSTALL[shell])
    click.echo(completer_class(root.command, {}, root.info_name or "keplab", COMPLETING).source())
    return EXIT_OK
