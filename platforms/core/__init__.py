"""The parts shared by all platforms.

contract  the adapter protocol and the records that adapters exchange
actions   actions of buttons; written_command: commands that people write as `!WORD`
errors    adapter errors, sorted by what the caller does about them; error_table: which failure
          of a platform becomes which of them
retry     retries of idempotent calls that are no ops
registry  lookup of platforms by name
guide     tokens to ask for during setup; probed: probe results; asking: their deadline
document  Markdown parsed into a tree that each platform renders
markdown  code blocks and marks still open in Markdown text
split     long texts cut into messages that each render correctly
"""
