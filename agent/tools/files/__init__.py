"""Tools for the files of the workspace.

reading    read_file, list_dir
writing    write_file, write_file_continue, edit_file; `nearest` helps with texts not found
searching  search_files; `scan` looks through the files, if need be in a process of its own
"""
