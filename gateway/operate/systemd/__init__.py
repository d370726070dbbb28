"""Holdfast as a service of systemd, for `holdfast service`.

unit        the text of the unit file, from plain values
scope       the service of the machine, and the service of one user: where their files are
plan        which files and commands install it and take it away; pure
program     where the program lies, and what a service can see of it
manager     carries a plan out, and asks systemd
"""
