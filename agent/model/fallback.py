"""Sans-IO: choice of the next target within one turn."""

from collections.abc import Callable, Hashable, Sequence


class FallbackChain:
    """Targets of one turn in configuration order: the primary, then its fallbacks.

    Each turn has its own chain, so the next turn starts with the primary again.
    """

    def __init__(self, count: int, target_keys: Sequence[Hashable] = ()) -> None:
        """Create a chain of `count` targets; targets with equal keys count as the same one."""
        if target_keys and len(target_keys) != count:
            msg = f"{count} targets, but {len(target_keys)} keys"
            raise ValueError(msg)
        keys = target_keys or range(count)
        first: dict[Hashable, int] = {}
        self._canonical_index = [first.setdefault(key, index) for index, key in enumerate(keys)]
        self._failed: set[int] = set()

    def mark_failed(self, index: int) -> None:
        """Exclude this target for the rest of the turn."""
        self._failed.add(self._canonical_index[index])

    def has_other(self, index: int) -> bool:
        """Return True if a different target is left."""
        return any(other != self._canonical_index[index] for other in self._remaining())

    def pick(self, is_allowed: Callable[[int], bool], current: int = 0) -> int | None:
        """Return the first target that has not failed and that `is_allowed` accepts.

        The `current` target comes first: a turn does not return to an earlier target that has
        recovered in the meantime.

        `is_allowed` asks the target's circuit breaker, at most once per target, in
        order, until one is accepted. If all remaining targets are rejected, the first of them is
        returned, because an attempt may still succeed. Return None if every target has failed.
        """
        current = self._canonical_index[current]
        left = sorted(self._remaining(), key=lambda index: index != current)
        return next((index for index in left if is_allowed(index)), left[0] if left else None)

    def _remaining(self) -> list[int]:
        unique = dict.fromkeys(self._canonical_index)
        return [index for index in unique if index not in self._failed]
