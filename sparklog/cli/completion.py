"""``sparklog completion``: the script that makes a shell complete commands, options, topics and groups."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from sparklog.cli.options import ENVIRONMENT

__all__ = ["completion"]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that makes the shell complete commands, options, topics and groups.

    \b
      bash:  echo 'eval "$(sparklog completion bash)"' >> ~/.bashrc
      zsh:   echo 'eval "$(sparklog completion zsh)"' >> ~/.zshrc
      fish:  sparklog completion fish > ~/.config/fish/completions/sparklog.fish
    """
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    click.echo(kind(ctx.find_root().command, {}, "sparklog", ENVIRONMENT["completion"]).source())
