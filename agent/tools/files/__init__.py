"""Tools for files in the workspace.

reading    `read_file`, `list_dir`
writing    `write_file`, `write_file_continue`, `edit_file`
nearest    hints for `edit_file` when the text to replace is not found
searching  `search_files`
scan       the search itself, also as a separate program for regular expressions
sending    `send_file`
"""
