"""What a size costs: parameters, floating point operations, measured latency."""

import statistics
import time
from dataclasses import dataclass

import torch

from ..modeling.modeling_elastic import ElasticForMultipleChoice, ElasticPreTrainedModel
from ..modeling.subnet_elastic import LayerSize, SubnetConfig
from .checks import check_elastic


@dataclass(frozen=True)
class ParameterCount:
    """Parameters of a size, by place.

    Args:
        embeddings (`int`):
            Word, position and token type embeddings and their norm.
        encoder (`int`):
            The encoder layers: what a size shrinks.
        head (`int`):
            Pooler and task head; weights tied to the embeddings count there.
    """

    embeddings: int
    encoder: int
    head: int

    @property
    def total(self) -> int:
        """All parameters."""
        return self.embeddings + self.encoder + self.head


@dataclass(frozen=True)
class Latency:
    """A measured latency and the conditions that it was measured under.

    Args:
        milliseconds (`float`):
            Median wall-clock time of one forward pass.
        batch_size (`int`):
            Sequences per pass.
        sequence_length (`int`):
            Tokens per sequence, none of them padding.
        threads (`int`):
            Threads that torch may use within an operation.
        device (`str`):
            Device of the model.
        dtype (`str`):
            Data type of the weights.
        repeats (`int`):
            Number of measured passes.
    """

    milliseconds: float
    batch_size: int
    sequence_length: int
    threads: int
    device: str
    dtype: str
    repeats: int


def count_parameters(model: ElasticPreTrainedModel, subnet: str | SubnetConfig | None = None) -> ParameterCount:
    """Counts the parameters that a size would have as a model of its own.

    Args:
        model (`ElasticPreTrainedModel`):
            The supernet or a member.
        subnet (`str`, `SubnetConfig` or `None`):
            A name in `model.config.subnets`, or a size; `None` is the full model.

    Raises:
        TypeError: If the model is not elastic.
        ValueError: If the name is unknown or the size does not fit.
    """
    check_elastic(model)
    base_model = model.base_model
    embeddings = _numel(base_model.embeddings)
    head = _numel(model) - embeddings - _numel(base_model.layers)
    sizes = model.resolve_subnet(subnet).layer_sizes(model.config)
    return ParameterCount(embeddings, sum(_layer_parameters(model, size) for size in sizes), head)


def count_flops(
    model: ElasticPreTrainedModel,
    subnet: str | SubnetConfig | None = None,
    sequence_length: int = 128,
    batch_size: int = 1,
) -> int:
    """Counts the floating point operations of one forward pass; a multiplication and an addition are two.

    Matrix products are counted (projections, attention, pooler and head), element-wise operations and look-ups are
    not, as `torch.utils.flop_counter` does.

    Args:
        model (`ElasticPreTrainedModel`):
            The supernet or a member.
        subnet (`str`, `SubnetConfig` or `None`):
            A name in `model.config.subnets`, or a size; `None` is the full model.
        sequence_length (`int`, defaults to 128):
            Tokens per sequence.
        batch_size (`int`, defaults to 1):
            Sequences per pass; of a multiple choice model, choices per pass.

    Raises:
        TypeError: If the model is not elastic.
        ValueError: If the name is unknown, the size does not fit, or a number is smaller than one.
    """
    check_elastic(model)
    _check_at_least(1, sequence_length=sequence_length, batch_size=batch_size)
    config = model.config
    tokens = batch_size * sequence_length
    flops = 0
    for size in model.resolve_subnet(subnet).layer_sizes(config):
        inner_size = size.num_attention_heads * config.head_dim
        flops += 2 * tokens * config.hidden_size * (4 * inner_size + 2 * size.intermediate_size)
        flops += 2 * 2 * tokens * sequence_length * inner_size
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and ".layers." not in f".{name}":
            sees_one_token = name.endswith("pooler.dense") or (name == "classifier" and model.base_model.pooler)
            rows = batch_size if sees_one_token else tokens
            flops += 2 * rows * module.in_features * module.out_features
    return flops


@torch.inference_mode()
def measure_latency(
    model: ElasticPreTrainedModel,
    subnet: str | SubnetConfig | None = None,
    sequence_length: int = 128,
    batch_size: int = 1,
    repeats: int = 20,
    warmup: int = 5,
) -> Latency:
    """Measures the forward pass of a size on this machine, as the model stands (device, data type, threads).

    Args:
        model (`ElasticPreTrainedModel`):
            The supernet or a member; put into evaluation mode while it is measured.
        subnet (`str`, `SubnetConfig` or `None`):
            A name in `model.config.subnets`, or a size; `None` is the full model.
        sequence_length (`int`, defaults to 128):
            Tokens per sequence.
        batch_size (`int`, defaults to 1):
            Sequences per pass.
        repeats (`int`, defaults to 20):
            Measured passes, of which the median is taken.
        warmup (`int`, defaults to 5):
            Passes before them that are not measured.

    Raises:
        TypeError: If the model is not elastic.
        ValueError: If the name is unknown, the size does not fit, the length exceeds the model's positions, or a
            number is too small.
    """
    check_elastic(model)
    _check_at_least(1, sequence_length=sequence_length, batch_size=batch_size, repeats=repeats)
    _check_at_least(0, warmup=warmup)
    subnet = model.resolve_subnet(subnet)
    shape = (batch_size, sequence_length)
    if isinstance(model, ElasticForMultipleChoice):
        shape = (batch_size, 1, sequence_length)
    input_ids = torch.randint(model.config.vocab_size, shape, device=model.device)
    was_training = model.training
    model.eval()
    times = []
    try:
        for _ in range(warmup + repeats):
            _synchronize(model.device)
            start = time.perf_counter()
            model(input_ids, subnet=subnet)
            _synchronize(model.device)
            times.append(time.perf_counter() - start)
    finally:
        model.train(was_training)
    return Latency(
        milliseconds=1000 * statistics.median(times[warmup:]),
        batch_size=batch_size,
        sequence_length=sequence_length,
        threads=torch.get_num_threads(),
        device=str(model.device),
        dtype=str(model.dtype).removeprefix("torch."),
        repeats=repeats,
    )


def _check_at_least(smallest: int, **values: int) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
            raise ValueError(f"{name}={value!r} must be a whole number of at least {smallest}.")


def _numel(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def _layer_parameters(model: ElasticPreTrainedModel, size: LayerSize) -> int:
    hidden_size = model.config.hidden_size
    inner_size = size.num_attention_heads * model.config.head_dim
    attention = inner_size * (4 * hidden_size + 3) + hidden_size
    mlp = size.intermediate_size * (2 * hidden_size + 1) + hidden_size
    return attention + mlp + 2 * 2 * hidden_size


def _synchronize(device: torch.device) -> None:
    """Waits for an accelerator, whose calls return before they are done."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
