"""Sans-IO: risk levels of tools."""

import enum


class Risk(enum.StrEnum):
    """Kind of side effects of a call; only `READ` has none."""

    READ = "read"
    WRITE = "write"
    EXEC = "exec"
    NET = "net"
