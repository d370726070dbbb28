"""State of the receiver that outlives a connection, persisted on the shelf."""

from platforms.core.contract import Shelf
from platforms.discord.authors import MessageAuthors, load_authors
from platforms.discord.read_marks import ReadMarks, load_marks

_READ_MARKS_KEY, _AUTHORS_KEY = "seen", "authors"
"""Keys on the shelf."""


class ReceiverState:
    """Read marks of the channels in use, and authors of addressed messages."""

    def __init__(self, marks: ReadMarks, authors: MessageAuthors) -> None:
        self.marks = marks
        self.authors = authors

    async def save(self, shelf: Shelf) -> None:
        """Write the parts that changed since the last save."""
        if self.marks.dirty:
            await shelf.put(_READ_MARKS_KEY, self.marks.dump())
        if self.authors.dirty:
            await shelf.put(_AUTHORS_KEY, self.authors.dump())


async def load_state(shelf: Shelf) -> ReceiverState:
    """Return the state that the last connection saved."""
    return ReceiverState(
        load_marks(await shelf.get(_READ_MARKS_KEY)), load_authors(await shelf.get(_AUTHORS_KEY))
    )
