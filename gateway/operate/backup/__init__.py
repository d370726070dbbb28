"""Backups: the whole state in one archive, for `holdfast backup` and `holdfast restore`.

contents   Sans-IO: which files belong in a backup, and which names an archive may contain
manifest   the archive's table of contents, its last member
writing    copies the database and the state folder into an archive
reading    verifies an archive and unpacks it into an empty folder
restoring  prepares a backup and swaps it in; `gateway.process.state_swap` does the moves
"""
