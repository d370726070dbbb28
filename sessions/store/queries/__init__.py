"""Reads the store, one file for each thing it holds, and `together` for what joins them.

Each statement finds its rows by an index, so that it takes as long with ten thousand sessions as
with ten; where a person asks for everything, it may take longer. All of this runs in the readers'
threads.
"""
