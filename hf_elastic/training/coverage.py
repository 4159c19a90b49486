"""Which sizes a training covers, and how their metrics become one result."""

from collections import defaultdict
from collections.abc import Mapping

from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.subnet_elastic import SubnetConfig

# The name of the full model where no named subnet is the full model.
SUPERNET = "supernet"


def trained_subnets(model: ElasticPreTrainedModel) -> dict[str, SubnetConfig]:
    """The named subnets and the full model.

    The full model is always among them: it is the best teacher, and every weight belongs to it.

    Args:
        model: The supernet.

    Returns:
        Subnets by name; the full model is called `"supernet"` unless a named subnet is the full model.
    """
    subnets = dict(model.config.subnets)
    full = SubnetConfig().layer_sizes(model.config)
    if all(subnet.layer_sizes(model.config) != full for subnet in subnets.values()):
        subnets[SUPERNET] = SubnetConfig()
    return subnets


def without_prefix(metrics: Mapping[str, float], prefix: str) -> dict[str, float]:
    """The metrics of one subnet by their own names, without what is the run's.

    Example:
        >>> without_prefix({"eval_loss": 1.0, "eval_model_preparation_time": 0.1}, "eval")
        {'loss': 1.0}
    """
    own = {key.removeprefix(f"{prefix}_"): value for key, value in metrics.items()}
    own.pop("model_preparation_time", None)
    return own


def merge_metrics(metrics: Mapping[str, Mapping[str, float]], prefix: str) -> dict[str, float]:
    """Puts the metrics of several subnets into one dictionary.

    Args:
        metrics: Metrics of each subnet by its name.
        prefix: E.g. `"eval"`.

    Returns:
        `<prefix>_<subnet>_<metric>` for each, and `<prefix>_mean_<metric>` for each number that all subnets have.

    Example:
        >>> merge_metrics({"a": {"loss": 1.0}, "b": {"loss": 2.0}}, "eval")
        {'eval_a_loss': 1.0, 'eval_b_loss': 2.0, 'eval_mean_loss': 1.5}
    """
    merged, values = {}, defaultdict(list)
    for name, of_subnet in metrics.items():
        for metric, value in of_subnet.items():
            merged[f"{prefix}_{name}_{metric}"] = value
            values[metric].append(value)
    means = {
        f"{prefix}_mean_{metric}": sum(numbers) / len(numbers)
        for metric, numbers in values.items()
        if len(numbers) == len(metrics) and all(isinstance(number, int | float) for number in numbers)
    }
    return {**merged, **means}
