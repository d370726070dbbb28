"""Sans-IO: which of the configured models is asked next, within one turn."""

from collections.abc import Callable, Hashable, Sequence


class FallbackChain:
    """The models of one turn in the order of the configuration: the first, then who takes over.

    A turn has a chain of its own, so the next turn begins with the first model again.
    """

    def __init__(self, count: int, target_keys: Sequence[Hashable] = ()) -> None:
        """Take `count` targets; `same` has a key for each, targets with equal keys are one."""
        if target_keys and len(target_keys) != count:
            msg = f"{count} targets, but {len(target_keys)} keys"
            raise ValueError(msg)
        keys = target_keys or range(count)
        first: dict[Hashable, int] = {}
        self._canonical_index = [first.setdefault(key, index) for index, key in enumerate(keys)]
        self._failed: set[int] = set()

    def mark_failed(self, index: int) -> None:
        """Note that this target is not to be asked again in this turn."""
        self._failed.add(self._canonical_index[index])

    def has_other(self, index: int) -> bool:
        """Tell whether there is anybody left but this one."""
        return any(other != self._canonical_index[index] for other in self._remaining())

    def pick(self, is_allowed: Callable[[int], bool], current: int = 0) -> int | None:
        """Give the first target that has not failed and that `allows` lets pass.

        The `present` one goes before all others: a turn does not go back to a target that is well
        again a little later.

        `allows` is the targets' breaker; it is asked once each and in order, and not again after a
        yes. When it bars all that are left, the first of them is given all the same: there is
        nobody to turn to, and an attempt may succeed where a refusal cannot. None when every
        target has failed.
        """
        current = self._canonical_index[current]
        left = sorted(self._remaining(), key=lambda index: index != current)
        return next((index for index in left if is_allowed(index)), left[0] if left else None)

    def _remaining(self) -> list[int]:
        each = dict.fromkeys(self._canonical_index)
        return [index for index in each if index not in self._failed]
