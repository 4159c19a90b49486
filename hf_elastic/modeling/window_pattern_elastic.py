"""Which keys a query sees: a sliding window, global tokens and random blocks.

What is distinctive: a pattern holds for every length, and everything about it follows from one definition,
[`WindowPattern.visibility`].

The patterns are those of Longformer (Beltagy et al. 2020, https://arxiv.org/abs/2004.05150), BigBird (Zaheer et al.
2020, https://arxiv.org/abs/2007.14062) and ModernBERT's local layers (Warner et al. 2024,
https://arxiv.org/abs/2412.13663).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class WindowPattern:
    """Which keys a query sees, whatever the length.

    Args:
        window (`int`):
            Distance up to which a query sees keys on either side: `|query - key| <= window`, as in ModernBERT's
            `sliding_window`.
        num_global_tokens (`int`, defaults to 0):
            That many first positions see everything and are seen by everything.
        num_random_blocks (`int`, defaults to 0):
            Every block of queries sees that many more blocks of keys, drawn once and for all among those that neither
            the window reaches nor the global tokens fill; fewer near the end of an input.
        block_size (`int`, defaults to 64):
            Positions in a block, of the random ones as well as of the computation.
        seed (`int`, defaults to 0):
            Sets the random blocks apart, e.g. the layer's index.

    Raises:
        ValueError: If a count is negative or the block size is not positive.
    """

    window: int
    num_global_tokens: int = 0
    num_random_blocks: int = 0
    block_size: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        for name, smallest in (("window", 0), ("num_global_tokens", 0), ("num_random_blocks", 0), ("block_size", 1)):
            value = getattr(self, name)
            if value < smallest:
                raise ValueError(f"{name}={value} is not possible: give {smallest} or more.")

    @property
    def reach(self) -> int:
        """Blocks that the window touches on either side of a block of queries."""
        return -(-self.window // self.block_size)

    def random_blocks(self, length: int, device: torch.device | str) -> torch.LongTensor:
        """Draws the random blocks: the same ones on every device and in every process.

        Which ones a query block has depends on its position alone, not on the length: a text gets the same context in
        a batch of longer ones, where it is padded. They are drawn among the blocks from the first one to twice as far
        as the query block lies, so that as many are before it as after it.

        Args:
            length (`int`):
                Number of positions.
            device (`torch.device`):
                Where the result lies.

        Returns:
            `torch.LongTensor` of shape `(num_query_blocks, num_random_blocks)`: Indices of key blocks in ascending
            order. Those from the end of the input on do not exist, which leaves the last query blocks with fewer.
        """
        num_blocks = (length + self.block_size - 1) // self.block_size
        if self.num_random_blocks == 0:
            return torch.empty(num_blocks, 0, dtype=torch.long, device=device)
        num_global_blocks = self.num_global_tokens // self.block_size
        queries = torch.arange(num_blocks, device=device)[:, None]
        # As many as the window and the global tokens cover, and as many more as are drawn, are there in any case.
        reachable = 2 * (queries + self.reach) + 1 + num_global_blocks + self.num_random_blocks
        keys = torch.arange(2 * (num_blocks + self.reach) + num_global_blocks + self.num_random_blocks, device=device)
        covered = ((queries - keys).abs() <= self.reach) | (keys < num_global_blocks) | (keys >= reachable)
        lots = scramble(scramble(queries + scramble(self.seed)) + keys)
        lots = lots.masked_fill(covered, torch.iinfo(lots.dtype).max)
        return lots.topk(self.num_random_blocks, largest=False).indices.sort().values

    def visibility(
        self, length: int, device: torch.device | str
    ) -> Callable[[torch.LongTensor, torch.LongTensor], torch.BoolTensor]:
        """Gives the function of positions of queries and of keys, which broadcast, that tells who sees whom."""
        random_blocks = self.random_blocks(length, device)
        count = random_blocks.shape[1]
        random_blocks = random_blocks.flatten()  # not all of FlexAttention's backends look things up in a table

        def sees(queries: torch.LongTensor, keys: torch.LongTensor) -> torch.BoolTensor:
            visible = (queries - keys).abs() <= self.window
            visible = visible | (queries < self.num_global_tokens) | (keys < self.num_global_tokens)
            for choice in range(count):
                drawn = random_blocks[queries // self.block_size * count + choice]
                visible = visible | (drawn == keys // self.block_size)
            return visible

        return sees

    def dense_mask(self, length: int, device: torch.device | str) -> torch.BoolTensor:
        """Writes the pattern out as a tensor of shape `(length, length)`, `True` where a query sees a key."""
        positions = torch.arange(length, device=device)
        return self.visibility(length, device)(positions[:, None], positions)


def scramble(values: torch.LongTensor | int) -> torch.LongTensor | int:
    """Hashes to 32 bits: unlike a random generator, alike on all devices and part of compiled graphs."""
    for _ in range(2):
        values = ((values ^ (values >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return values ^ (values >> 16)


__all__ = ["WindowPattern"]
