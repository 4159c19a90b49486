"""Training arguments of transformers, plus which subnets a step runs and what they learn from."""

import json
from dataclasses import dataclass, field

from transformers import TrainingArguments

from .argument_checks import check_choice, check_number
from .sampling import SAMPLING_STRATEGIES
from .schedules import SCHEDULES, weight_at

_WEIGHTS_EXAMPLE = """Write it as '{"large": 1.0, "small": 0.5}'."""


@dataclass(repr=False)  # the parent's hides tokens
class ElasticTrainingArguments(TrainingArguments):
    """[`~transformers.TrainingArguments`] for a supernet.

    The loss of one subnet is `subnet_weight * (task_weight * task + distillation_weight * soft + hidden_weight *
    hidden)`, averaged over what it learns from: the largest subnet of the step and the external teachers. A subnet
    that has nothing to learn from, such as the largest one without teachers, has the task loss alone.

    The defaults follow DynaBERT (Hou et al. 2020, https://arxiv.org/abs/2004.04037) and the sandwich rule (Yu and
    Huang 2019, https://arxiv.org/abs/1903.05134). `ddp_find_unused_parameters` is always False, because the trainer
    gives every parameter a gradient itself.

    Args:
        sampling (`str`, defaults to `"sandwich"`):
            Which subnets a step runs: `"joint"` (all), `"sandwich"` (the largest, the smallest and
            `num_random_subnets` between) or `"one_per_step"`.
        num_random_subnets (`int`, defaults to 1):
            How many subnets `"sandwich"` draws between the largest and the smallest.
        inplace_distillation (`bool`, defaults to `True`):
            Whether the largest subnet of a step teaches the smaller ones.
        task_weight (`float`, defaults to 1.0):
            Weight of the loss against the labels.
        distillation_weight (`float`, defaults to 1.0):
            Weight of the loss against the teacher's predictions, at the start of the training.
        distillation_weight_end (`float`, *optional*):
            Weight of the same loss at the end of the training, for a schedule other than `"constant"`.
        distillation_schedule (`str`, defaults to `"constant"`):
            How the distillation weight gets from its start to its end: `"constant"`, `"linear"` or `"cosine"`.
        temperature (`float`, defaults to 1.0):
            Divides the logits of both sides before they are compared; above 1 it softens the teacher's predictions.
        hidden_weight (`float`, defaults to 0.1):
            Weight of the loss against the teacher's hidden states; 0 switches it off, and with it their computation.
        subnet_weights (`dict[str, float]` or `str`, *optional*):
            Weight of each subnet's loss by name, 1 where it is missing; a dictionary or its JSON text.

    Raises:
        TypeError: If a weight or the temperature is not a number.
        ValueError: If a value is out of range or two do not go together.

    Example:
        >>> args = ElasticTrainingArguments("out", sampling="joint", subnet_weights={"large": 2.0})
    """

    sampling: str = field(
        default="sandwich",
        metadata={"help": f"Which subnets a training step runs: {', '.join(SAMPLING_STRATEGIES)}."},
    )
    num_random_subnets: int = field(
        default=1,
        metadata={"help": "How many subnets 'sandwich' sampling draws between the largest and the smallest."},
    )
    inplace_distillation: bool = field(
        default=True, metadata={"help": "Whether the largest subnet of a step teaches the smaller ones."}
    )
    task_weight: float = field(default=1.0, metadata={"help": "Weight of the loss against the labels."})
    distillation_weight: float = field(
        default=1.0,
        metadata={"help": "Weight of the loss against the teacher's predictions, at the start of the training."},
    )
    distillation_weight_end: float | None = field(
        default=None,
        metadata={"help": "Weight of the same loss at the end of the training, where a schedule changes it."},
    )
    distillation_schedule: str = field(
        default="constant",
        metadata={"help": f"How the distillation weight gets to its end: {', '.join(SCHEDULES)}."},
    )
    temperature: float = field(
        default=1.0, metadata={"help": "Divides the logits of both sides before they are compared."}
    )
    hidden_weight: float = field(
        default=0.1, metadata={"help": "Weight of the loss against the teacher's hidden states; 0 switches it off."}
    )
    subnet_weights: dict[str, float] | str | None = field(
        default=None,
        metadata={"help": "Weight of each subnet's loss by name, 1 where it is missing; a dictionary or JSON."},
    )

    def __post_init__(self) -> None:
        self.subnet_weights = _read_weights(self.subnet_weights)
        check_choice("sampling", self.sampling, list(SAMPLING_STRATEGIES))
        check_choice("distillation_schedule", self.distillation_schedule, list(SCHEDULES))
        number = self.num_random_subnets
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            raise ValueError(f"num_random_subnets={number!r} is no number of subnets. Give a whole number, 0 or more.")
        check_number("temperature", self.temperature)
        if self.temperature <= 0:
            raise ValueError(f"temperature={self.temperature} is not positive. 1 leaves the predictions as they are.")
        self._check_weights()
        if self.ddp_find_unused_parameters:
            raise ValueError(
                "ddp_find_unused_parameters=True does not work with several backward passes per step. Leave it out: "
                "every parameter gets a gradient without it."
            )
        self.ddp_find_unused_parameters = False
        super().__post_init__()

    def distillation_weight_at(self, progress: float) -> float:
        """The distillation weight at a point of the training, its share in [0, 1]."""
        start, end = self.distillation_weight, self.distillation_weight_end
        return weight_at(self.distillation_schedule, start, start if end is None else end, progress)

    def _check_weights(self) -> None:
        weights = {
            "task_weight": self.task_weight,
            "distillation_weight": self.distillation_weight,
            "distillation_weight_end": 0.0 if self.distillation_weight_end is None else self.distillation_weight_end,
            "hidden_weight": self.hidden_weight,
        }
        of_subnets = {f"subnet_weights[{name!r}]": weight for name, weight in self.subnet_weights.items()}
        for name, weight in {**weights, **of_subnets}.items():
            check_number(name, weight)
            if weight < 0:
                raise ValueError(f"{name}={weight} is negative. Give 0 to switch a loss off, or a positive weight.")
        if not any(weights.values()):
            raise ValueError(f"All loss weights are 0: {', '.join(weights)}. Give at least one a positive weight.")
        if (self.distillation_weight_end is None) != (self.distillation_schedule == "constant"):
            raise ValueError(
                f"distillation_schedule={self.distillation_schedule!r} does not go together with "
                f"distillation_weight_end={self.distillation_weight_end}. Give an end for 'linear' and 'cosine', none "
                "for 'constant'."
            )


def _read_weights(weights: dict[str, float] | str | None) -> dict[str, float]:
    if isinstance(weights, str):
        try:
            weights = json.loads(weights)
        except json.JSONDecodeError as error:
            raise ValueError(f"subnet_weights={weights!r} is not JSON ({error}). {_WEIGHTS_EXAMPLE}") from None
    if not isinstance(weights or {}, dict):
        raise ValueError(f"subnet_weights={weights!r} is not a dictionary. {_WEIGHTS_EXAMPLE}")
    return weights or {}
