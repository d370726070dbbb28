"""Errors of the store, sorted by what the caller does about them.

StoreError             the operation failed; nothing of it was stored
├── StoreUnavailable   locked, full, gone or missing: try again later
│   └── CommitOutcomeUnknown  the connection broke during a commit, and the store was closed before
│                      asking the server: the next start finds out
├── StoreTooNew        written by a newer version of the program: the operator must act
├── StoreTooOld        opened read-only and not migrated: start the gateway once
├── StoreCorrupt       the file is damaged: restore a backup
├── AmbiguousSession   a shortened id matches several sessions
└── Conflict           the stored state is not what the change expects: read again, decide again
    ├── ToolAlreadyStarted  this tool call was started before: never run it again
    └── RecordNotFound      the record to change does not exist

Every message is one sentence and names the file or the address, never a password. Exceptions of
SQLAlchemy and of drivers never leave the store.
"""

from sessions.values.exceptions import docstring_summary


class StoreError(Exception):
    """The database operation failed."""

    def __str__(self) -> str:
        return super().__str__() or docstring_summary(self)


class StoreUnavailable(StoreError):
    """The database cannot be used at the moment."""


class CommitOutcomeUnknown(StoreUnavailable):
    """The connection to the database broke during a commit; the changes may have been stored."""


class StoreTooNew(StoreError):
    """The database was written by a newer version of Holdfast."""


class StoreTooOld(StoreError):
    """The database was written by an older version of Holdfast; start the gateway once."""


class StoreCorrupt(StoreError):
    """The database is damaged; restore a backup."""


class AmbiguousSession(StoreError):
    """A shortened id matches several sessions."""


class Conflict(StoreError):
    """The stored state is not what the change expects."""


class ToolAlreadyStarted(Conflict):
    """This tool call was started before."""


class RecordNotFound(Conflict):
    """The record to change does not exist."""
