"""Which subnets a training step runs: the same draw in every process, largest first."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass


def joint(names: list[str], num_random: int, rng: random.Random) -> list[str]:
    """All subnets."""
    return names


def sandwich(names: list[str], num_random: int, rng: random.Random) -> list[str]:
    """The largest, the smallest and `num_random` of those between.

    References:
        Yu and Huang 2019, Universally Slimmable Networks and Improved Training Techniques,
        https://arxiv.org/abs/1903.05134
    """
    between = names[1:-1]
    drawn = rng.sample(range(len(between)), min(num_random, len(between)))
    return names[:1] + [between[i] for i in sorted(drawn)] + names[1:][-1:]


def one_per_step(names: list[str], num_random: int, rng: random.Random) -> list[str]:
    """One subnet, drawn uniformly."""
    return [rng.choice(names)]


# Takes the names (largest first), the number of random subnets and a source of randomness; keeps the order.
SAMPLING_STRATEGIES: dict[str, Callable[[list[str], int, random.Random], list[str]]] = {
    "joint": joint,
    "sandwich": sandwich,
    "one_per_step": one_per_step,
}


@dataclass(frozen=True)
class SubnetSampler:
    """Draws the subnets of a training step.

    Args:
        sizes: Number of encoder parameters of each subnet, by name. It decides which one is the largest.
        strategy: `"joint"`, `"sandwich"` or `"one_per_step"`.
        num_random: How many subnets `"sandwich"` draws between the largest and the smallest; all, if there are fewer.
        seed: The draw depends on it and on the step, on nothing else.

    Raises:
        ValueError: For an unknown strategy, a negative `num_random`, or no subnets.

    Example:
        >>> SubnetSampler({"small": 10, "large": 40, "base": 20}, "sandwich").draw(step=0)
        ['large', 'base', 'small']
    """

    sizes: Mapping[str, int]
    strategy: str = "sandwich"
    num_random: int = 1
    seed: int = 0

    def __post_init__(self) -> None:
        if self.strategy not in SAMPLING_STRATEGIES:
            raise ValueError(
                f"Unknown sampling strategy {self.strategy!r}. Choose one of {', '.join(SAMPLING_STRATEGIES)}."
            )
        if self.num_random < 0:
            raise ValueError(f"The number of random subnets is {self.num_random}. Give 0 or more.")
        if not self.sizes:
            raise ValueError("There are no subnets to draw from. Name at least one.")

    def draw(self, step: int, num_random: int | None = None) -> list[str]:
        """Names of the subnets to run at a step, largest first, each once.

        Args:
            step: Number of the step.
            num_random: In place of the sampler's own number.
        """
        largest_first = sorted(self.sizes, key=lambda name: -self.sizes[name])
        # Text, because neighbouring numbers as seeds give related draws, and because its hash is the same everywhere.
        rng = random.Random(f"{self.seed}-{step}")
        number = self.num_random if num_random is None else num_random
        return SAMPLING_STRATEGIES[self.strategy](largest_first, number, rng)
