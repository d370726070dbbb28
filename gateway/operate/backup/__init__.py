"""A whole state in one file, and back: `holdfast backup` and `holdfast restore`.

contents    what of a state folder belongs into a backup, and what may come out of one
manifest    what a backup says of itself
writing     makes a file; reading: checks one and unpacks it
swap        puts a new state in the place of an old one, whole or not at all
restoring   all of it in order
"""
