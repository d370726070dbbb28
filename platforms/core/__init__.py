"""What all platforms share.

contract    what an adapter is, and the records that pass through it
errors      what it may raise, sorted by what the caller does about it
registry    which platforms there are
guide       what somebody who sets a platform up is asked for
probed      what a platform tells of a bot without connecting it; asking: with a deadline
document    what a Markdown text says, as a tree that each platform draws
markdown    what everybody must know of Markdown: code blocks, and what is still open
split       cuts a long text into messages that look right alone
"""
