"""Sans-IO: which of the configured models is asked next, within one turn."""

from collections.abc import Callable, Hashable, Sequence


class Chain:
    """The models of one turn in the order of the configuration: the first, then who takes over.

    A turn has a chain of its own, so the next turn begins with the first model again.
    """

    def __init__(self, count: int, same: Sequence[Hashable] = ()) -> None:
        """Take `count` targets; `same` has a key for each, targets with equal keys are one."""
        if same and len(same) != count:
            msg = f"{count} targets, but {len(same)} keys"
            raise ValueError(msg)
        keys = same or range(count)
        first: dict[Hashable, int] = {}
        self._stands_for = [first.setdefault(key, index) for index, key in enumerate(keys)]
        self._failed: set[int] = set()

    def failed(self, index: int) -> None:
        """Note that this target is not to be asked again in this turn."""
        self._failed.add(self._stands_for[index])

    def has_other(self, index: int) -> bool:
        """Tell whether there is anybody left but this one."""
        return any(other != self._stands_for[index] for other in self._left())

    def pick(self, allows: Callable[[int], bool], present: int = 0) -> int | None:
        """Give the first target that has not failed and that `allows` lets pass.

        The `present` one goes before all others: a turn does not go back to a target that is well
        again a little later.

        `allows` is the targets' breaker; it is asked once each and in order, and not again after a
        yes. When it bars all that are left, the first of them is given all the same: there is
        nobody to turn to, and an attempt may succeed where a refusal cannot. None when every
        target has failed.
        """
        present = self._stands_for[present]
        left = sorted(self._left(), key=lambda index: index != present)
        return next((index for index in left if allows(index)), left[0] if left else None)

    def _left(self) -> list[int]:
        each = dict.fromkeys(self._stands_for)
        return [index for index in each if index not in self._failed]
