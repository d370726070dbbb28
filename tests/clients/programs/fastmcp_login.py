"""An MCP server of fastmcp with its in-memory OAuth provider: `python fastmcp_login.py PORT`."""

import sys

from fastmcp import FastMCP  # type: ignore[import-not-found]  # in its own environment
from fastmcp.server.auth.auth import (  # type: ignore[import-not-found]  # the same
    ClientRegistrationOptions,
)
from fastmcp.server.auth.providers.in_memory import (  # type: ignore[import-not-found]  # the same
    InMemoryOAuthProvider,
)


def main() -> None:
    """Serve until killed."""
    port = int(sys.argv[1])
    provider = InMemoryOAuthProvider(
        base_url=f"http://127.0.0.1:{port}",
        client_registration_options=ClientRegistrationOptions(enabled=True),
    )
    server = FastMCP("vault", auth=provider)

    @server.tool  # type: ignore[untyped-decorator]  # theirs
    def open_sesame() -> str:
        """Show the treasure."""
        return "gold"

    server.run(transport="http", host="127.0.0.1", port=port)


if __name__ == "__main__":
    main()
