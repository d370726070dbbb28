"""`holdfast pair`: who is let in."""

import click

from gateway.operate.cli.common import call_daemon, json_option, print_json, print_table


@click.group(help="Let people in, or no more.")
def pair() -> None:
    """See the help."""


@pair.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List who asks to be let in and who was."""
    found = call_daemon("pair_list")
    if as_json:
        print_json(found)
        return
    heads = ("principal", "name", "state")
    print_table(
        tuple(head.upper() for head in heads),
        (tuple(each.get(head, "") for head in heads) for each in found),
        "Nobody has asked to be let in, and nobody was.",
    )


@pair.command()
def claim() -> None:
    """Print a code that makes whoever sends it to the bot in a DM the owner."""
    made = call_daemon("pair_claim")
    click.echo(f"claim {made['code']}")
    for link in made["links"].values():
        click.echo(link)
    how = "Send this line to the bot in a DM."
    if made["links"]:
        where = ", ".join(made["links"])
        how = f"Open the link ({where}) and press Start, or send the line to the bot in a DM."
    click.echo(f"{how} It works once, within an hour.", err=True)


@pair.command()
@click.argument("code")
def approve(code: str) -> None:
    """Let in the person who was given CODE."""
    found = call_daemon("pair_approve", code=code)
    click.echo(f"Let in {found['principal']} ({found['name']}).")


@pair.command()
@click.argument("principal")
def revoke(principal: str) -> None:
    """Let PRINCIPAL, such as telegram:1001, in no more."""
    found = call_daemon("pair_revoke", principal=principal)
    click.echo(f"{found['principal']} is let in no more.")
