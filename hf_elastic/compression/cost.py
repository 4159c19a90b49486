"""What a size costs: parameters, floating point operations, measured latency."""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from ..modeling.attention_elastic import ElasticAttention
from ..modeling.modeling_elastic import ElasticForMultipleChoice, ElasticPreTrainedModel
from ..modeling.subnet_elastic import LayerSize, SubnetConfig
from .checks import check_elastic
from .evaluation_mode import evaluation_mode
from .units import TABLES, kept_shape, kept_weights, layer_and_name


@dataclass(frozen=True)
class ParameterCount:
    """Parameters of a size, by place.

    Args:
        embeddings (`int`):
            Word, position and token type embeddings, their norm and their projection.
        encoder (`int`):
            The encoder layers, those that share their weights once, and the norm after them.
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
    counts = {"embeddings": 0, "encoder": 0, "head": 0}
    sizes = model.resolve_subnet(subnet).layer_sizes(model.config)
    weights = dict(model.named_parameters())  # tied weights once
    for name, weight in kept_weights(weights, sizes, model.config):
        layer, rest = layer_and_name(name)
        place = "encoder" if layer is not None or rest.startswith("final_norm.") else "head"
        counts["embeddings" if rest.startswith("embeddings.") else place] += weight.numel()
    return ParameterCount(**counts)


def weight_megabytes(model: ElasticPreTrainedModel, subnet: str | SubnetConfig | None = None) -> float:
    """Gives what the weights of a size take on disk and in memory, in their data types, in units of 10^6 bytes.

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
    sizes = model.resolve_subnet(subnet).layer_sizes(model.config)
    weights = kept_weights(dict(model.named_parameters()), sizes, model.config)
    return sum(weight.numel() * weight.element_size() for _, weight in weights) / 1e6


def count_flops(
    model: ElasticPreTrainedModel,
    subnet: str | SubnetConfig | None = None,
    sequence_length: int = 128,
    batch_size: int = 1,
) -> int:
    """Counts the floating point operations of one forward pass; a multiplication and an addition are two.

    Matrix products are counted (projections, attention, pooler and head), element-wise operations and look-ups are
    not, as `torch.utils.flop_counter` does. Of sparse attention, the keys that a query sees; of experts, those that a
    token goes through.

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
    check_at_least(1, sequence_length=sequence_length, batch_size=batch_size)
    config = model.config
    tokens = batch_size * sequence_length
    sizes = model.resolve_subnet(subnet).layer_sizes(config)
    flops = sum(tokens * _flops_per_token(model, size, sequence_length) for size in sizes)
    for name, weight in model.named_parameters(remove_duplicate=False):
        layer, rest = layer_and_name(name)
        if layer is None and weight.dim() == 2 and not any(table in rest for table in TABLES):
            sees_one_token = rest == "pooler.dense.weight" or (rest == "classifier.weight" and model.base_model.pooler)
            rows = batch_size if sees_one_token else tokens
            flops += 2 * rows * math.prod(kept_shape(name, weight.shape, sizes[0], config))
    return flops


def _flops_per_token(model: ElasticPreTrainedModel, size: LayerSize, sequence_length: int) -> int:
    """Gives what a layer computes for one token of a sequence."""
    config, attention = model.config, model.base_model.layers[size.weights].attention
    inner_size = size.num_attention_heads * config.head_dim
    experts = size.num_experts_per_tok
    mlp = experts * size.intermediate_size * (3 if config.gated_mlp else 2)
    router = size.num_experts if size.num_experts > 1 else 0
    projections = 2 * size.hidden_size * (4 * inner_size + mlp + router)
    return projections + round(2 * 2 * inner_size * _keys_per_query(attention, sequence_length))


def _keys_per_query(attention: ElasticAttention, length: int) -> float:
    """Gives how many keys a query meets, on the average over heads and positions."""
    if attention.layer_type == "linear_attention":
        return attention.head_dim  # the matrix that stands for all keys
    if attention.runs_dense(length):
        return length
    if attention.layer_type == "sliding_attention":
        return attention.pattern.dense_mask(length, torch.device("cpu")).float().sum(dim=1).mean().item()
    if attention.layer_type == "block_sparse_attention":
        return (1 - attention.sparsity().mean().item()) * length
    return length


def measure_latency(
    model: ElasticPreTrainedModel,
    subnet: str | SubnetConfig | None = None,
    sequence_length: int = 128,
    batch_size: int = 1,
    repeats: int = 20,
    warmup: int = 5,
    threads: int | None = None,
) -> Latency:
    """Measures the forward pass of a size on this machine, as the model stands (device, data type).

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
        threads (`int`, *optional*):
            Threads that torch may use within an operation; as it is set by default.

    Raises:
        TypeError: If the model is not elastic.
        ValueError: If the name is unknown, the size does not fit, the length exceeds the model's positions, or a
            number is too small.
    """
    check_elastic(model)
    check_at_least(1, repeats=repeats)
    check_at_least(0, warmup=warmup)
    run = forward_pass(model, subnet, sequence_length, batch_size)
    with evaluation_mode(model), limited_threads(threads):
        times = [seconds_of(run) for _ in range(warmup + repeats)]
        threads = torch.get_num_threads()
    return Latency(
        milliseconds=1000 * statistics.median(times[warmup:]),
        batch_size=batch_size,
        sequence_length=sequence_length,
        threads=threads,
        device=str(model.device),
        dtype=str(model.dtype).removeprefix("torch."),
        repeats=repeats,
    )


def forward_pass(
    model: ElasticPreTrainedModel,
    subnet: str | SubnetConfig | None = None,
    sequence_length: int = 128,
    batch_size: int = 1,
) -> Callable[[], None]:
    """Gives a function that runs a size once on random tokens without padding, and returns when it is done.

    Args:
        model, subnet, sequence_length, batch_size:
            As [`measure_latency`] takes them.

    Raises:
        ValueError: If the name is unknown, the size does not fit, or a number is too small.
    """
    check_at_least(1, sequence_length=sequence_length, batch_size=batch_size)
    subnet = model.resolve_subnet(subnet)
    shape = (batch_size, sequence_length)
    if isinstance(model, ElasticForMultipleChoice):
        shape = (batch_size, 1, sequence_length)
    input_ids = torch.randint(model.config.vocab_size, shape, device=model.device)

    @torch.inference_mode()
    def run() -> None:
        model(input_ids, subnet=subnet)
        _synchronize(model.device)

    return run


def seconds_of(run: Callable[[], object]) -> float:
    """Gives the wall-clock time of one call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


@contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """Lets torch use a number of threads within an operation until the block ends; as many as are set for None.

    Raises:
        ValueError: If the number is smaller than one.
    """
    before = torch.get_num_threads()
    if threads is not None:
        check_at_least(1, threads=threads)
        torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_at_least(smallest: int, **values: int) -> None:
    """Checks whole numbers by their names.

    Raises:
        ValueError: If one is smaller, or no whole number.
    """
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < smallest:
            raise ValueError(f"{name}={value!r} must be a whole number of at least {smallest}.")


def _synchronize(device: torch.device) -> None:
    """Waits for an accelerator, whose calls return before they are done."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
