"""Training arguments that say which subnets a step runs, and how their gradients come together."""

import json
from dataclasses import dataclass, field
from typing import Any

from .argument_checks import check_choice, check_fraction, check_not_negative, check_whole_number
from .gradient_surgery import CONFLICT_HANDLING
from .sampling import SAMPLING_STRATEGIES
from .subnet_weights import SUBNET_WEIGHTINGS


@dataclass(repr=False)
class CoTrainingArguments:
    """Which subnets a step trains together, and how.

    Args:
        sampling (`str`, defaults to `"sandwich"`):
            Which subnets a step runs: `"joint"` (all), `"sandwich"` (the largest, the smallest and
            `num_random_subnets` between; Yu and Huang 2019, https://arxiv.org/abs/1903.05134) or `"one_per_step"`.
        num_random_subnets (`int`, defaults to 1):
            How many subnets `"sandwich"` draws between the largest and the smallest.
        subnet_weights (`dict[str, float]` or `str`, *optional*):
            Weight of each subnet's loss by name, 1 where it is missing; a dictionary or its JSON text.
        subnet_weighting (`str`, defaults to `"uniform"`):
            What these weights are multiplied by: `"uniform"` (1), `"toward_largest"` (from 1 for all to weights in
            the ratio of the sizes' ranks, as the training goes on) or `"by_loss"` (the ratio of a subnet's loss to
            the mean of all, so that sizes which lag behind count more). The last two are this project's own.
        subnet_max_lengths (`dict[str, int]` or `str`, *optional*):
            Number of tokens that the inputs of a subnet are cut to in training, by name; for heads that give one
            prediction for a text.
        core_gradient_scale (`float`, defaults to 1.0):
            Factor of what a smaller subnet adds to the gradient of the weights that it shares with the largest one of
            the step; the head is left out. Below 1 it disturbs the larger ones less. This project's own.
        gradient_conflicts (`str`, defaults to `"add"`):
            How gradients of the subnets of a step come together: `"add"`, or in a way that lets them conflict less:
            `"pcgrad"` (Yu et al. 2020, https://arxiv.org/abs/2001.06782) or `"upgrad"` (Quinton and Rey 2024,
            https://arxiv.org/abs/2406.16232). The latter need `pip install "hf_elastic[surgery]"` and the memory of
            one more gradient per subnet.
        layer_drop (`float`, defaults to 0.0):
            How likely each layer of a subnet is left out of a step (LayerDrop; Fan et al. 2020,
            https://arxiv.org/abs/1909.11556), which prepares a model for sizes of fewer layers.
        group_penalty (`float`, defaults to 0.0):
            Strength of the group lasso on the heads and neurons of the encoder (Wen et al. 2016,
            https://arxiv.org/abs/1608.03665), see [`GroupLasso`].
    """

    sampling: str = field(
        default="sandwich",
        metadata={"help": f"Which subnets a training step runs: {', '.join(SAMPLING_STRATEGIES)}."},
    )
    num_random_subnets: int = field(
        default=1,
        metadata={"help": "How many subnets 'sandwich' sampling draws between the largest and the smallest."},
    )
    subnet_weights: dict[str, float] | str | None = field(
        default=None,
        metadata={"help": "Weight of each subnet's loss by name, 1 where it is missing; a dictionary or JSON."},
    )
    subnet_weighting: str = field(
        default="uniform", metadata={"help": f"What these weights are multiplied by: {', '.join(SUBNET_WEIGHTINGS)}."}
    )
    subnet_max_lengths: dict[str, int] | str | None = field(
        default=None, metadata={"help": "Tokens that a subnet's inputs are cut to, by name; a dictionary or JSON."}
    )
    core_gradient_scale: float = field(
        default=1.0, metadata={"help": "Factor of what smaller subnets add to the gradient of shared weights."}
    )
    gradient_conflicts: str = field(
        default="add", metadata={"help": f"How the subnets' gradients come together: {', '.join(CONFLICT_HANDLING)}."}
    )
    layer_drop: float = field(default=0.0, metadata={"help": "How likely each layer is left out of a step."})
    group_penalty: float = field(
        default=0.0, metadata={"help": "Strength of the group lasso on attention heads and feed-forward neurons."}
    )

    def check_co_training(self) -> None:
        """Raises TypeError or ValueError for a value that is out of range."""
        check_choice("sampling", self.sampling, SAMPLING_STRATEGIES)
        check_choice("subnet_weighting", self.subnet_weighting, SUBNET_WEIGHTINGS)
        check_choice("gradient_conflicts", self.gradient_conflicts, CONFLICT_HANDLING)
        check_whole_number("num_random_subnets", self.num_random_subnets)
        self.subnet_weights = _read_mapping("subnet_weights", self.subnet_weights, 0.5)
        self.subnet_max_lengths = _read_mapping("subnet_max_lengths", self.subnet_max_lengths, 64)
        for name, weight in self.subnet_weights.items():
            check_not_negative(f"subnet_weights[{name!r}]", weight)
        for name, length in self.subnet_max_lengths.items():
            check_whole_number(f"subnet_max_lengths[{name!r}]", length, smallest=2)
        check_not_negative("core_gradient_scale", self.core_gradient_scale)
        check_not_negative("group_penalty", self.group_penalty)
        check_fraction("layer_drop", self.layer_drop)


def _read_mapping(name: str, given: dict[str, Any] | str | None, example: Any) -> dict[str, Any]:
    """Gives an argument that maps names of subnets to values, which a command line gives as JSON."""
    hint = f"""Write it as '{{"small": {example}}}'."""
    values = given
    if isinstance(given, str):
        try:
            values = json.loads(given)
        except json.JSONDecodeError as error:
            raise ValueError(f"{name}={given!r} is not JSON ({error}). {hint}") from None
    if not isinstance(values or {}, dict):
        raise ValueError(f"{name}={given!r} is not a dictionary. {hint}")
    return values or {}
