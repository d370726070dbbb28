"""`holdfast pair`: grants and revokes access."""

import click

from gateway.operate.cli.common import call_daemon, json_option, print_json, print_table, print_text

_WITHOUT_BOT = frozenset({"api", "console", "web"})
"""Platforms whose person is the owner without a claim."""


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
        (tuple(each[head] or "-" for head in heads) for each in found),
        "No one has access yet, and no one has asked for it.",
    )


@pair.command()
@json_option
def claim(*, as_json: bool) -> None:
    """Print a code that makes its sender the owner.

    Send the code to the bot in a direct message.
    """
    made = call_daemon("pair_claim")
    if as_json:
        print_json(made)
        return
    click.echo(f"claim {made['code']}")
    for link in made["links"].values():
        click.echo(link)
    how = "Send this line to the bot in a direct message."
    if _WITHOUT_BOT.issuperset(call_daemon("status")["platforms"]):
        how = (
            "No chat platform is configured, so there is no bot to send this line to yet. On this "
            "machine you are the owner already: see holdfast link and holdfast chat."
        )
    elif made["links"]:
        where = ", ".join(made["links"])
        how = f"Open the link ({where}) and press Start, or send the line to the bot in a direct message."
    click.echo(f"{how} The code works once, within an hour.", err=True)


@pair.command(short_help="Give access to a person who has asked for it.")
@click.argument("code", metavar="CODE|ID")
@json_option
def approve(code: str, *, as_json: bool) -> None:
    """Give access to the person with this pairing CODE, or with this stable id.

    The id, such as telegram:1001, must have an open request; `holdfast pair list` shows them.
    """
    found = call_daemon("pair_approve", code=code)
    if as_json:
        print_json(found)
        return
    print_text(f"{found['principal']} ({found['name']}) now has access.")


@pair.command()
@click.argument("principal")
@json_option
def revoke(principal: str, *, as_json: bool) -> None:
    """Take access away from PRINCIPAL, such as telegram:1001."""
    found = call_daemon("pair_revoke", principal=principal)
    if as_json:
        print_json(found)
        return
    click.echo(f"{found['principal']} no longer has access.")
