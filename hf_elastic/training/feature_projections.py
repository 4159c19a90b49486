"""Learned maps from a student's features to those of teachers with another hidden size."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class FeatureProjections(nn.Module):
    """One linear map per teacher, for comparing hidden states where the hidden sizes differ.

    All layers share the map of a teacher. A size with a smaller hidden size uses the leading columns of its weight, as
    it uses those of every other weight. Where the hidden sizes of the full student and of a teacher are equal there is
    no weight, and hidden states are left as they are.

    It is a part of the training and not of the model: it stays beside the model, its parameters are optimized with
    the model's, and no checkpoint of a model holds them. `state_dict` and `load_state_dict` carry it over to a
    resumed run.

    Args:
        student_size: Hidden size of the full student.
        teacher_sizes: Hidden size of each teacher.
        seed: Seed of the initial weights, which depend on nothing but it and the sizes.

    Raises:
        ValueError: If a size is not positive.

    References:
        Romero et al. 2015, FitNets, https://arxiv.org/abs/1412.6550
        Jiao et al. 2020, TinyBERT, https://arxiv.org/abs/1909.10351

    Example:
        >>> projections = FeatureProjections(32, teacher_sizes=[48, 32])
        >>> projections(torch.zeros(2, 5, 24), teacher=0).shape
        torch.Size([2, 5, 48])
    """

    def __init__(self, student_size: int, teacher_sizes: Sequence[int], seed: int = 0) -> None:
        super().__init__()
        if min([student_size, *teacher_sizes]) < 1:
            raise ValueError(f"Hidden sizes are positive: student_size={student_size}, teacher_sizes={teacher_sizes}.")
        self.student_size = student_size
        self.teacher_sizes = tuple(teacher_sizes)
        generator = torch.Generator().manual_seed(seed)
        self.weights = nn.ParameterDict()
        for teacher, size in enumerate(self.teacher_sizes):
            if size != student_size:
                weight = torch.empty(size, student_size, dtype=torch.float32)
                # Projected features are as large as the student's.
                self.weights[str(teacher)] = nn.Parameter(weight.normal_(std=student_size**-0.5, generator=generator))

    def forward(self, hidden_states: Tensor, teacher: int) -> Tensor:
        """Projects hidden states of any size of the student.

        Args:
            hidden_states: Hidden states of the student.
            teacher: Which of the teachers they are compared with, from 0.

        Shape:
            hidden_states: `[*, hidden]` with the hidden size of the student or less; output: `[*, teacher_hidden]`.

        Returns:
            Hidden states of the teacher's hidden size, in the precision of the weight; those of the student unchanged
            if the teacher's hidden size is that of the full student.
        """
        if self.teacher_sizes[teacher] == self.student_size:
            return hidden_states
        weight = self.weights[str(teacher)]
        return F.linear(hidden_states.to(weight.dtype), weight[:, : hidden_states.shape[-1]])
