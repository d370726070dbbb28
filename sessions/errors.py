"""Errors of the store, sorted by what the caller does about them.

StoreError            the database did not do what was asked; nothing of it was stored
├── StoreUnavailable  locked, full, gone or not there: the machine is at fault, try again later
│   └── OutcomeUnknown  the connection broke while committing, and the store was closed before it
│                       could ask: the next start finds what became of it
├── StoreTooNew       a newer version of the program wrote it: the operator must act
├── StoreTooOld       opened read-only and not up to date: start the gateway once
├── StoreCorrupt      the file is damaged: restore a backup
├── Ambiguous         a shortened id means several sessions
└── Conflict          what is stored is not what the change supposes: read again, decide again
    ├── AlreadyStarted  this tool call was started before: never run it again
    └── Missing         what should be changed is not there

Every message is one sentence and names the file or the address, never a password. No exception of
SQLAlchemy or of a driver leaves the store.
"""


class StoreError(Exception):
    """The database did not do what was asked."""

    def __str__(self) -> str:
        return super().__str__() or (type(self).__doc__ or "").partition("\n")[0]


class StoreUnavailable(StoreError):
    """The database cannot be used at the moment."""


class CommitOutcomeUnknown(StoreUnavailable):
    """The connection to the database broke while it was committing; it may have been stored."""


class StoreTooNew(StoreError):
    """The database was written by a newer version of Holdfast."""


class StoreTooOld(StoreError):
    """The database was written by an older version of Holdfast; start the gateway once."""


class StoreCorrupt(StoreError):
    """The database is damaged; restore a backup."""


class AmbiguousSession(StoreError):
    """Several sessions are meant."""


class Conflict(StoreError):
    """What is stored is not what the change supposes."""


class ToolAlreadyStarted(Conflict):
    """This tool call was started before."""


class RecordNotFound(Conflict):
    """What should be changed is not there."""
