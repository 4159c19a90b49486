"""Which of several points no other one beats."""

from collections.abc import Sequence


def pareto_front(costs: Sequence[float], values: Sequence[float], greater_is_better: bool = True) -> list[int]:
    """Finds the points that no other point beats: none is at least as good at no more cost, and better in one of them.

    Args:
        costs (`Sequence[float]`):
            What each point costs; less is better.
        values (`Sequence[float]`):
            What each point achieves.
        greater_is_better (`bool`, defaults to `True`):
            Whether a larger value is better.

    Returns:
        `list[int]`: Indices of the points, by ascending cost.
    """
    gains = [value if greater_is_better else -value for value in values]
    front: list[int] = []
    for i in sorted(range(len(costs)), key=lambda i: (costs[i], -gains[i])):
        if not front or gains[i] > gains[front[-1]]:
            front.append(i)
    return front
