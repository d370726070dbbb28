"""`holdfast pair`: grants and revokes access."""

import click

from gateway.operate.cli.common import call_daemon, json_option, print_json, print_table


@click.group(help="Give people access, or take it away.")
def pair() -> None:
    """See the help."""


@pair.command("list")
@json_option
def list_(*, as_json: bool) -> None:
    """List people with access, and people who have asked for it."""
    found = call_daemon("pair_list")
    if as_json:
        print_json(found)
        return
    heads = ("principal", "name", "state")
    print_table(
        tuple(head.upper() for head in heads),
        (tuple(each.get(head, "") for head in heads) for each in found),
        "No one has access yet, and no one has asked for it.",
    )


@pair.command()
def claim() -> None:
    """Print a code that makes its sender the owner.

    Send the code to the bot in a direct message.
    """
    made = call_daemon("pair_claim")
    click.echo(f"claim {made['code']}")
    for link in made["links"].values():
        click.echo(link)
    how = "Send this line to the bot in a direct message."
    if made["links"]:
        where = ", ".join(made["links"])
        how = f"Open the link ({where}) and press Start, or send the line to the bot in a direct message."
    click.echo(f"{how} The code works once, within an hour.", err=True)


@pair.command()
@click.argument("code")
def approve(code: str) -> None:
    """Give access to the person with this pairing CODE."""
    found = call_daemon("pair_approve", code=code)
    click.echo(f"{found['principal']} ({found['name']}) now has access.")


@pair.command()
@click.argument("principal")
def revoke(principal: str) -> None:
    """Take access away from PRINCIPAL, such as telegram:1001."""
    found = call_daemon("pair_revoke", principal=principal)
    click.echo(f"{found['principal']} no longer has access.")
