"""Training arguments that say what a subnet learns from others, and how much of it."""

from dataclasses import dataclass, field

from .argument_checks import check_choice, check_fraction, check_not_negative, check_number, check_whole_number
from .distillation import OUTPUT_LOSSES
from .feature_distillation import HIDDEN_LOSSES, OF_ATTENTION, OF_HIDDEN_STATES
from .layer_maps import LAYER_MAPS, read_layer_map
from .schedules import SCHEDULES, value_at

FEATURES = (*OF_HIDDEN_STATES, *OF_ATTENTION)


@dataclass(repr=False)
class DistillationArguments:
    """What a subnet learns from: the labels, and other models on the same inputs.

    The loss of a subnet is `task_weight * task + distillation_weight * output + hidden_weight * hidden + ...`. A
    subnet that has nothing to learn from, such as the largest one without teachers, has the task loss alone. Logs have
    that sum as `loss_<subnet>`, and its parts before they are weighted, e.g. `hidden_loss_<subnet>`.

    Args:
        inplace_distillation (`bool`, defaults to `True`):
            Whether the largest subnet of a step teaches the smaller ones (Yu and Huang 2019,
            https://arxiv.org/abs/1903.05134).
        task_weight (`float`, defaults to 1.0):
            Weight of the loss against the labels, at the start of the training.
        task_weight_end (`float`, *optional*):
            The same at the end of the training; as at the start by default.
        distillation_weight (`float`, defaults to 1.0):
            Weight of the loss against the predictions of what is learned from, at the start of the training.
        distillation_weight_end (`float`, *optional*):
            The same at the end of the training; as at the start by default.
        distillation_schedule (`str`, defaults to `"constant"`):
            How both weights get from start to end: `"constant"`, `"linear"` or `"cosine"`. The last two need an end
            of one of the weights, and an end needs one of these.
        output_loss (`str`, defaults to `"kl"`):
            How predictions of classes are compared: `"kl"`, `"cross_entropy"` (the same gradients, but a loss that
            has the entropy of the teacher in it), or `"mse"` of the logits (Ba and Caruana 2014,
            https://arxiv.org/abs/1312.6184), which the temperature does not change.
        temperature (`float`, defaults to 1.0):
            Divides the logits of both sides before they are compared, at the start of the training; above 1 it
            softens the teacher's predictions.
        temperature_end (`float`, *optional*):
            The same at the end of the training; as at the start by default.
        temperature_schedule (`str`, defaults to `"constant"`):
            How the temperature gets from start to end: `"constant"`, `"linear"` or `"cosine"`. The last two need
            `temperature_end`, which needs one of these.
        hidden_weight (`float`, defaults to 0.1):
            Weight of the loss against hidden states; 0 switches it off, and with it their computation.
        hidden_loss (`str`, defaults to `"mse"`):
            How hidden states are compared: `"mse"`, `"cosine"` or `"contrastive"` (Tian et al. 2020,
            https://arxiv.org/abs/1910.10699).
        embedding_weight (`float`, defaults to 0.0):
            Weight of the squared difference of the embeddings' outputs.
        attention_weight (`float`, defaults to 0.0):
            Weight of the divergence of the attention maps (Jiao et al. 2020, https://arxiv.org/abs/1909.10351).
        relation_weight (`float`, defaults to 0.0):
            Weight of the divergence of the relations among queries, among keys and among values (Wang et al. 2021,
            https://arxiv.org/abs/2012.15828).
        relation_heads (`int`, *optional*):
            Heads that relations are cut into, which have to divide the widths of both sides. By default the greatest
            common divisor of their numbers of attention heads.
        layer_map (`str` or `dict[int, int]`, defaults to `"even"`):
            Which layers are compared: `"even"`, `"last"`, or a mapping (or its JSON text) of a layer of the full
            model to one of the teacher, counted from 1. A mapping is of teachers: against the largest subnet layers
            are compared evenly.
        detachment_probability (`float`, defaults to 0.0):
            How likely it is that a subnet has nothing to learn from for `detachment_interval` steps, so that it does
            not come to lean on it. This project's own.
        detachment_interval (`int`, defaults to 1):
            Steps after which that is drawn anew.
    """

    inplace_distillation: bool = field(
        default=True, metadata={"help": "Whether the largest subnet of a step teaches the smaller ones."}
    )
    task_weight: float = field(default=1.0, metadata={"help": "Weight of the loss against the labels, at the start."})
    task_weight_end: float | None = field(default=None, metadata={"help": "The same at the end of the training."})
    distillation_weight: float = field(
        default=1.0, metadata={"help": "Weight of the loss against predictions of other models, at the start."}
    )
    distillation_weight_end: float | None = field(
        default=None, metadata={"help": "The same at the end of the training."}
    )
    distillation_schedule: str = field(
        default="constant", metadata={"help": f"How both weights get to their ends: {', '.join(SCHEDULES)}."}
    )
    output_loss: str = field(
        default="kl", metadata={"help": f"How predictions of classes are compared: {', '.join(OUTPUT_LOSSES)}."}
    )
    temperature: float = field(
        default=1.0, metadata={"help": "Divides the logits of both sides before they are compared, at the start."}
    )
    temperature_end: float | None = field(default=None, metadata={"help": "The same at the end of the training."})
    temperature_schedule: str = field(
        default="constant", metadata={"help": f"How the temperature gets to its end: {', '.join(SCHEDULES)}."}
    )
    hidden_weight: float = field(
        default=0.1, metadata={"help": "Weight of the loss against hidden states; 0 switches it off."}
    )
    hidden_loss: str = field(
        default="mse", metadata={"help": f"How hidden states are compared: {', '.join(HIDDEN_LOSSES)}."}
    )
    embedding_weight: float = field(
        default=0.0, metadata={"help": "Weight of the squared difference of the embeddings' outputs."}
    )
    attention_weight: float = field(default=0.0, metadata={"help": "Weight of the divergence of the attention maps."})
    relation_weight: float = field(
        default=0.0, metadata={"help": "Weight of the divergence of query, key and value relations (MiniLMv2)."}
    )
    relation_heads: int | None = field(
        default=None,
        metadata={"help": "Heads that relations are cut into; by default the common divisor of both."},
    )
    layer_map: dict[int, int] | str | None = field(
        default="even",
        metadata={"help": f"Which layers are compared: {', '.join(LAYER_MAPS)}, or a mapping, e.g. '{{\"6\": 12}}'."},
    )
    detachment_probability: float = field(
        default=0.0, metadata={"help": "How likely a subnet learns from the labels alone for some steps."}
    )
    detachment_interval: int = field(default=1, metadata={"help": "Steps after which that is drawn anew."})

    def loss_weights_at(self, progress: float) -> dict[str, float]:
        """The weights of the losses by kind at a point of the training, its share in [0, 1]; features that are off
        are left out."""
        schedule = self.distillation_schedule
        weights = {
            "task": value_at(schedule, self.task_weight, self.task_weight_end, progress),
            "distillation": value_at(schedule, self.distillation_weight, self.distillation_weight_end, progress),
        }
        features = {kind: getattr(self, f"{kind}_weight") for kind in FEATURES}
        return weights | {kind: weight for kind, weight in features.items() if weight}

    def temperature_at(self, progress: float) -> float:
        """The temperature at a point of the training, its share in [0, 1]."""
        return value_at(self.temperature_schedule, self.temperature, self.temperature_end, progress)

    def check_distillation(self) -> None:
        """Raises TypeError or ValueError for a value that is out of range, or values that do not go together."""
        check_choice("distillation_schedule", self.distillation_schedule, SCHEDULES)
        check_choice("temperature_schedule", self.temperature_schedule, SCHEDULES)
        check_choice("output_loss", self.output_loss, OUTPUT_LOSSES)
        check_choice("hidden_loss", self.hidden_loss, HIDDEN_LOSSES)
        self.layer_map = read_layer_map("even" if self.layer_map is None else self.layer_map)
        self._check_weights()
        self._check_temperatures()
        check_fraction("detachment_probability", self.detachment_probability)
        check_whole_number("detachment_interval", self.detachment_interval, smallest=1)
        if self.relation_heads is not None:
            check_whole_number("relation_heads", self.relation_heads, smallest=1)

    def _check_weights(self) -> None:
        names = ["task_weight", "distillation_weight", *(f"{kind}_weight" for kind in FEATURES)]
        ends = ["task_weight_end", "distillation_weight_end"]
        for name in [*names, *(name for name in ends if getattr(self, name) is not None)]:
            check_not_negative(name, getattr(self, name))
        for progress, when in ((0, "start"), (1, "end")):
            if not any(self.loss_weights_at(progress).values()):
                raise ValueError(
                    f"All loss weights are 0 at the {when}: {', '.join(names)}. Give one a positive weight."
                )
        _check_ends("distillation_schedule", self.distillation_schedule, {name: getattr(self, name) for name in ends})

    def _check_temperatures(self) -> None:
        temperatures = {"temperature": self.temperature, "temperature_end": self.temperature_end}
        for name, value in temperatures.items():
            if name == "temperature" or value is not None:
                check_number(name, value)
                if value <= 0:
                    raise ValueError(f"{name}={value} is not positive. 1 leaves the predictions as they are.")
        _check_ends("temperature_schedule", self.temperature_schedule, {"temperature_end": self.temperature_end})


def _check_ends(name: str, schedule: str, ends: dict[str, float | None]) -> None:
    """Raises ValueError unless a schedule that moves has an end, and one that does not has none."""
    given = {end: value for end, value in ends.items() if value is not None}
    if (schedule == "constant") == bool(given):
        found = ", ".join(f"{end}={value}" for end, value in (given or ends).items())
        raise ValueError(
            f"{name}={schedule!r} does not go together with {found}. Give an end for 'linear' and 'cosine', none for "
            "'constant'."
        )
