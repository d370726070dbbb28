"""Sans-IO: what a tool can do to the world."""

import enum


class Risk(enum.StrEnum):
    """What a call can do to the world; everything but `READ` has side effects."""

    READ = "read"
    WRITE = "write"
    EXEC = "exec"
    NET = "net"
