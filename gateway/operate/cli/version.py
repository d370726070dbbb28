"""`holdfast version`."""

import json
import platform
from importlib.metadata import version as installed

import click


@click.command(help="Print the version.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
def version(*, as_json: bool) -> None:
    """See the help."""
    found = installed("holdfast")
    if as_json:
        click.echo(json.dumps({"version": found, "python": platform.python_version()}, indent=2))
    else:
        click.echo(f"holdfast {found}")
