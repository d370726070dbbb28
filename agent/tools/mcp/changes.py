"""Sans-IO: the claims of a server about its tools, and what has changed in them, in words."""

import hashlib
import json

import msgspec

from agent.tools.mcp.contract import ListedTool

RISKS = ("only reads", "only reads, also from the network", "may have effects")
_MAX_DESCRIPTION = 4_000  # characters kept for a comparison
_MAX_SHOWN = 300  # characters of a description in a question
_MAX_ARGUMENTS = 20  # names kept and shown
_MAX_ARGUMENT_NAME = 60
_LEAD = 40  # characters shown before the first difference


class ToolClaims(msgspec.Struct, frozen=True, omit_defaults=True):
    """The claims of a server about one tool; records of older versions have no words."""

    risk: int  # 0 reads, 1 reads from the network, 2 has side effects
    digest: str  # of name, description and schema
    description: str | None = None  # its beginning
    arguments: tuple[str, ...] | None = None  # names of the first ones


def claims_of(tool: ListedTool) -> ToolClaims:
    """Return the claims of a listed tool."""
    risk = 2 if not tool.read_only else int(tool.open_world)
    try:
        said = json.dumps((tool.name, tool.description, tool.schema), sort_keys=True)
    except RecursionError:  # the model is not shown a schema that is nested too deeply
        said = json.dumps((tool.name, tool.description))
    names = tool.schema.get("properties")
    return ToolClaims(
        risk,
        digest_of(said),
        tool.description[:_MAX_DESCRIPTION],
        tuple(str(name)[:_MAX_ARGUMENT_NAME] for name in names)[:_MAX_ARGUMENTS]
        if isinstance(names, dict)
        else (),
    )


def digest_of(text: str) -> str:
    """Return the SHA-256 digest of a text."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def is_change(trusted: ToolClaims, claims: ToolClaims) -> bool:
    """True if an admin has to accept the claims; more risk alone is believed at once."""
    return claims.digest != trusted.digest or claims.risk < trusted.risk


def describe_change(trusted: ToolClaims, claims: ToolClaims) -> str:
    """Return what has changed, one change per line; each names the old and the new state."""
    lines = []
    if claims.risk != trusted.risk:
        lines.append(f"risk: was: {RISKS[trusted.risk]}, now: {RISKS[claims.risk]}")
    if claims.digest != trusted.digest:
        lines += _describe_words(trusted, claims)
    return "\n".join(lines)


def describe_text_change(old: str, new: str) -> str:
    """Return two versions of a text, each shortened to the part around the first difference."""
    before, now = _around_difference(old, new)
    return f"was: {before}\nnow: {now}"


def _describe_words(trusted: ToolClaims, claims: ToolClaims) -> list[str]:
    if trusted.description is None or trusted.arguments is None:
        return [f"its description or its arguments; now: {_quote(claims.description or '')}"]
    lines = []
    if trusted.description != claims.description:
        old, new = _around_difference(trusted.description, claims.description or "")
        lines.append(f"description: was: {old}, now: {new}")
    before, after = trusted.arguments, claims.arguments or ()
    if added := [name for name in after if name not in before]:
        lines.append(f"new arguments: {', '.join(added)}")
    if removed := [name for name in before if name not in after]:
        lines.append(f"removed arguments: {', '.join(removed)}")
    return lines or ["its arguments are described in other words, or are of other types"]


def _around_difference(old: str, new: str) -> tuple[str, str]:
    """Return both texts, shortened to the part around their first difference."""
    same = next(
        (at for at, (left, right) in enumerate(zip(old, new, strict=False)) if left != right),
        min(len(old), len(new)),
    )
    start = max(0, same - _LEAD) if max(len(old), len(new)) > _MAX_SHOWN else 0
    return _quote(old[start:], cut=start > 0), _quote(new[start:], cut=start > 0)


def _quote(text: str, *, cut: bool = False) -> str:
    plain = " ".join(text.split())
    shown = plain if len(plain) <= _MAX_SHOWN else f"{plain[:_MAX_SHOWN]} …"
    return f"“{'… ' if cut else ''}{shown}”"
