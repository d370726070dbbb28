"""Backups: the whole state in one archive, for `holdfast backup` and `holdfast restore`.

contents   Sans-IO: which files belong in a backup, and which names an archive may contain
manifest   the table of contents, the last member of an archive
writing    copies the database and the state folder into an archive
reading    verifies and unpacks an archive
restoring  prepares and applies a restore; `gateway.process.state_swap` does the moves
"""
