"""`holdfast version`."""

from importlib.metadata import version as installed

import click


@click.command(help="Print the version.")
def version() -> None:
    """See the help."""
    click.echo(f"holdfast {installed('holdfast')}")
