"""Batches without padding: the tokens of all sequences in one row, and back."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # an older torch
    varlen_attn = None


@dataclass(frozen=True)
class Unpadding:
    """Where the tokens of a padded batch are.

    Args:
        indices (`torch.LongTensor` of shape `(tokens,)`):
            Positions of the tokens in the flattened batch, sequence by sequence.
        lengths (`list[int]`):
            Number of tokens of each sequence.
        shape (`tuple[int, int]`):
            Batch size and padded length.
    """

    indices: torch.LongTensor
    lengths: list[int]
    shape: tuple[int, int]

    @classmethod
    def of(cls, attention_mask: torch.Tensor, tokens: torch.Tensor) -> "Unpadding | None":
        """Reads an attention mask; gives `None` where nothing is padding.

        Args:
            attention_mask (`torch.Tensor` of shape `(batch, length)`):
                1 for tokens, 0 for padding.
            tokens (`torch.Tensor` of shape `(batch, length, ...)`):
                What it is the mask of.

        Raises:
            ValueError: If the mask has another shape, or a sequence without any token.
        """
        if attention_mask.shape != tokens.shape[:2]:  # one of pairs
            raise ValueError(
                f"unpad_inputs needs an attention_mask of shape {tuple(tokens.shape[:2])}, as the input, not "
                f"{tuple(attention_mask.shape)}: give such a mask, or unpad_inputs=False."
            )
        is_token = attention_mask.bool()
        lengths = is_token.sum(dim=1).tolist()
        if min(lengths) == 0:
            raise ValueError(f"Sequence {lengths.index(0)} of the batch has no token: leave it out.")
        if min(lengths) == attention_mask.shape[1]:
            return None
        return cls(is_token.flatten().nonzero().flatten(), lengths, tuple(attention_mask.shape))

    def unpad(self, tensor: torch.Tensor | None) -> torch.Tensor | None:
        """Takes the padding out: `(batch or 1, length, ...)` becomes `(1, tokens, ...)`."""
        if tensor is None:
            return None
        tensor = tensor.expand(self.shape[0], *tensor.shape[1:])
        return tensor.flatten(0, 1)[self.indices].unsqueeze(0)

    def pad(self, tensor: torch.Tensor) -> torch.Tensor:
        """Puts the padding back, as zeros: `(1, tokens, ...)` becomes `(batch, length, ...)`."""
        padded = tensor.new_zeros(self.shape[0] * self.shape[1], *tensor.shape[2:])
        return padded.index_copy(0, self.indices, tensor[0]).unflatten(0, self.shape)

    def flash_arguments(self) -> dict[str, torch.Tensor | int]:
        """Gives what flash attention needs to keep the sequences apart, under the names of transformers."""
        lengths = torch.tensor([0, *self.lengths], device=self.indices.device)
        boundaries = lengths.cumsum(0, dtype=torch.int32)
        longest = max(self.lengths)
        return {
            "cu_seq_lens_q": boundaries,
            "cu_seq_lens_k": boundaries,
            "max_length_q": longest,
            "max_length_k": longest,
        }

    def attend(
        self, attention: Callable[..., torch.Tensor], query: torch.Tensor, key: torch.Tensor, value: torch.Tensor
    ) -> torch.Tensor:
        """Lets every sequence attend to itself alone.

        One call per sequence is the fastest way on a CPU: a mask that keeps the sequences apart would compute all
        pairs of them.

        Args:
            attention (`Callable`):
                Takes queries, keys and values of shape `(1, heads, length, head_dim)`, gives the context of shape
                `(1, length, heads, head_dim)`.
            query, key, value (`torch.Tensor` of shape `(1, heads, tokens, head_dim)`):
                Those of all sequences.

        Returns:
            `torch.Tensor` of shape `(1, tokens, heads, head_dim)`.
        """
        parts = zip(*(states.split(self.lengths, dim=2) for states in (query, key, value)), strict=True)
        return torch.cat([attention(*part) for part in parts], dim=1)

    def attend_in_one_kernel(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float, window: int | None
    ) -> torch.Tensor:
        """Does that on a GPU with torch's flash attention for sequences of different lengths.

        Args:
            query, key, value (`torch.Tensor` of shape `(1, heads, tokens, head_dim)`):
                Those of all sequences, in half precision.
            scaling (`float`):
                Factor of the scores.
            window (`int`, *optional*):
                How far a token sees to each side; everything by default.

        Returns:
            `torch.Tensor` of shape `(1, tokens, heads, head_dim)`.
        """
        flash = self.flash_arguments()
        sides = (-1, -1) if window is None else (window, window)
        states = [states[0].transpose(0, 1) for states in (query, key, value)]
        boundaries = (flash["cu_seq_lens_q"], flash["cu_seq_lens_k"], flash["max_length_q"], flash["max_length_k"])
        return varlen_attn(*states, *boundaries, scale=scaling, window_size=sides).unsqueeze(0)


def can_attend_in_one_kernel(states: torch.Tensor, dropout: float) -> bool:
    """Whether torch has that kernel for queries, keys and values like these."""
    half = states.dtype in (torch.float16, torch.bfloat16)
    return varlen_attn is not None and states.is_cuda and half and dropout == 0


__all__ = ["Unpadding", "can_attend_in_one_kernel"]
