"""When a subnet learns from the labels alone: a draw that is the same in every process and after a resume."""

import random


def is_detached(name: str, step: int, probability: float, interval: int, seed: int) -> bool:
    """Tells whether a subnet is detached from what it learns from, for the time being.

    A student that is always led by its teacher may depend on it. Dropping the signal now and then, like dropout drops
    a unit, makes it find the labels by itself as well. The rule is this project's own.

    Args:
        name: Name of the subnet. Each is drawn by itself.
        step: Number of the optimizer step.
        probability: How likely it is, in [0, 1).
        interval: Number of steps that a draw holds for.
        seed: The draw depends on it, on the interval that the step lies in and on the name, on nothing else.

    Returns:
        Whether it is.

    Example:
        >>> is_detached("small", step=7, probability=0.0, interval=5, seed=0)
        False
    """
    # Text, because its hash is the same everywhere and neighbouring numbers give related draws.
    return random.Random(f"detachment-{seed}-{step // interval}-{name}").random() < probability
