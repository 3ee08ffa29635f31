"""``dockwork completion``: the script that lets a shell complete commands, options and queues."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

#: What click asks the environment for, by the program's name.
VARIABLE = "_DOCKWORK_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what SHELL has to run, so that the Tab key completes commands, options and queues.

    bash: eval "$(dockwork completion bash)" in ~/.bashrc; zsh: the same in ~/.zshrc, after compinit; fish:
    dockwork completion fish > ~/.config/fish/completions/dockwork.fish
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(ctx.find_root().command, {}, "dockwork", VARIABLE).source())
