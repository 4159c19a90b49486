"""From a budget to sizes that keep it: candidates are scored cheaply, and the best few by the metric that counts."""

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.subnet_elastic import SubnetConfig
from .budget import Budget
from .checks import check_plain_weights
from .cost import check_at_least
from .evaluation_mode import evaluation_mode
from .importance_sizes import sizes_by_importance
from .mix_n_match import mix_n_match
from .rank import Importance
from .score_archive import quiet_optuna, require_optuna
from .search_result import MIXED, NAMED, SearchResult
from .search_run import Evaluation, SearchRun
from .search_settings import SearchSettings
from .search_space import SPACES, SearchSpace
from .sizes import nests

# Parts of the units, and of the layers, that sizes by importance keep.
IMPORTANCE_SHARES = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875)
IMPORTANCE_DEPTHS = (1.0, 0.84, 0.67, 0.5)


def search(
    model: ElasticPreTrainedModel,
    eval_fn: Evaluation,
    max_params: int | None = None,
    max_flops: int | None = None,
    max_latency_ms: float | None = None,
    max_memory_mb: float | None = None,
    n: int = 1,
    name: str = "found",
    proxy_fn: Evaluation | None = None,
    candidates: Iterable[SubnetConfig] = (),
    importance: Importance | Callable[[], Importance] | None = None,
    settings: SearchSettings | None = None,
) -> SearchResult:
    """Finds sizes of a trained supernet that keep a budget, and names them in `model.config.subnets`.

    Candidates are the named sizes, those given by hand, Mix'n'Match ([`mix_n_match`]), those that keep the most
    important units, and what a multi-objective search draws after it has seen all of these. All of them nest with the
    named sizes. Each that keeps the budget is scored by `proxy_fn`; the best few by `eval_fn`, which decides.

    **Choose on other data than you report.** `proxy_fn` reads a part of the training rows, `eval_fn` rows that were
    held out of the training; the figures of what was found are worth something on a third set alone, which neither of
    them has seen.

    Args:
        model ([`ElasticPreTrainedModel`]):
            The trained supernet, its units in order of importance. Its mode and active size stay as they are.
        eval_fn (`Callable[[ElasticPreTrainedModel], float]`):
            The true metric; more is better. It is called with the model in evaluation mode and the size active, as by
            [`~ElasticPreTrainedModel.use_subnet`]. [`~training.dataset_metric.DatasetMetric`] is one.
        max_params (`int`, *optional*):
            Parameters, embeddings included.
        max_flops (`int`, *optional*):
            Floating point operations of one pass of `settings.workload`.
        max_latency_ms (`float`, *optional*):
            Milliseconds of such a pass on this machine: those of candidates are predicted from a [`LatencyTable`],
            those of finalists measured.
        max_memory_mb (`float`, *optional*):
            The weights, in 10^6 bytes.
        n (`int`, defaults to 1):
            Sizes to name: the best, and others of the front below it.
        name (`str`, defaults to `"found"`):
            Name of the best; the others get a number after it (`"found-2"`). Former sizes of these names are replaced.
            A size that has a name already keeps it.
        proxy_fn (`Callable[[ElasticPreTrainedModel], float]`, *optional*):
            A cheap score; less is better. Called like `eval_fn`, which ranks all candidates by default.
            [`~training.distillation_proxy.DistillationProxy`] is one.
        candidates (`Iterable[SubnetConfig]`, *optional*):
            Sizes of your own to consider.
        importance ([`~hf_elastic.compression.rank.Importance`] or `Callable[[], Importance]`, *optional*):
            Scores of the units as they are ordered now ([`score_units`]), on training rows; or a function that gives
            them, which is called once some size is known to keep the budget.
        settings ([`SearchSettings`], *optional*):
            How to search.

    Returns:
        [`SearchResult`]: The found sizes by name, and everything that was considered.

    Raises:
        ImportError: If the extra `search` is not installed.
        TypeError: If the model is not elastic, or its weights are adapted or quantized.
        ValueError: If an argument is out of range, a candidate does not nest with the named sizes, or no size keeps
            the budget; then the nearest is named with its figures. All of these come before anything is scored. Also
            if a score is no finite number.

    Example:
        >>> found = search(model, eval_fn, max_latency_ms=8, proxy_fn=DistillationProxy(model, batches))
        >>> member = extract(model, "found")
    """
    check_plain_weights(model)
    require_optuna()
    check_at_least(1, n=n)
    budget = Budget(max_params, max_flops, max_latency_ms, max_memory_mb)
    names = [name, *(f"{name}-{number}" for number in range(2, n + 1))]
    config, settings, by_hand = _without(model.config, names), settings or SearchSettings(), list(candidates)
    _check_nesting(by_hand, config)
    space = SPACES[settings.choices](config, settings.steps, by_hand)
    with quiet_optuna(), evaluation_mode(model):
        run = SearchRun(model, space, eval_fn, proxy_fn, budget, settings)
        first = _first_candidates(space, by_hand)
        run.check_reachable(first)
        result = run.result([*first, *_important_candidates(space, importance)], names)
    named = {size: subnet for size, subnet in result.items() if size not in config.subnets}
    model.config.subnets = {**config.subnets, **named}
    return result


def _without(config: ElasticConfig, names: Sequence[str]) -> ElasticConfig:
    """Gives the configuration as it is before sizes of these names are found; checks that they can be names."""
    before = copy.deepcopy(config)
    former = re.compile(rf"{re.escape(names[0])}(-\d+)?")
    before.subnets = {size: subnet for size, subnet in config.subnets.items() if not former.fullmatch(size)}
    trial = copy.deepcopy(before)
    trial.subnets = dict.fromkeys(names, SubnetConfig())
    return before


def _check_nesting(candidates: Sequence[SubnetConfig], config: ElasticConfig) -> None:
    for number, subnet in enumerate(candidates):
        subnet.layer_sizes(config)
        if not nests(subnet, config.subnets, config):
            raise ValueError(
                f"candidates[{number}]={subnet} does not nest with the named sizes {list(config.subnets)}: one of two "
                "sizes must be at least as large as the other in all layers that both keep."
            )


def _first_candidates(space: SearchSpace, by_hand: Sequence[SubnetConfig]) -> list[tuple[str, SubnetConfig]]:
    """Gives what the search begins with, each size with where it comes from."""
    config = space.config
    found = [(f"{NAMED}{size}", subnet) for size, subnet in config.subnets.items()]
    found += [("by hand", subnet) for subnet in by_hand]
    found += [(MIXED, subnet) for subnet in mix_n_match(config) if nests(subnet, config.subnets, config)]
    return found + [("narrowest", subnet) for subnet in space.narrowest()]


def _important_candidates(
    space: SearchSpace, importance: Importance | Callable[[], Importance] | None
) -> Iterator[tuple[str, SubnetConfig]]:
    """Gives sizes that keep the most important units, of all layers or of the most important ones."""
    if importance is None:
        return
    if callable(importance):
        importance = importance()
    for share, depth in product(IMPORTANCE_SHARES, IMPORTANCE_DEPTHS):
        layers = max(1, round(depth * len(space.full)))
        yield "importance", space.nearest(sizes_by_importance(space.config, importance, share, layers))
