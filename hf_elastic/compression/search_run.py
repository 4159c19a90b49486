"""One search, step by step: costs, scores, draws, finalists, and the choice among them."""

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from numbers import Real
from typing import TYPE_CHECKING

import torch
from tqdm.auto import tqdm
from transformers.utils import logging

from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.subnet_elastic import SubnetConfig
from .budget import Budget, SizeCosts
from .extract import extract
from .latency_table import LatencyTable, measure_in_turns
from .processor import processor_name
from .score_archive import ScoreArchive, open_storage, require_optuna
from .search_result import Candidate, SearchResult, metric_front, score_front
from .search_settings import SearchSettings
from .search_space import SearchSpace
from .sizes import nests, size_key
from .weights_fingerprint import weights_fingerprint

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

logger = logging.get_logger(__name__)

# What is drawn may be too large or known already: after so many in a row, there is nothing new to be found.
FRUITLESS_DRAWS = 200
TIME_FOR_CANDIDATES = 0.75
POPULATION = (10, 50)  # of NSGA-II: as many as the search begins with, within these limits
WORTH_A_WARNING = 0.1  # of the promised latency
TABLE_KEY = "latency_table"

# Runs the size that is active in the model, and gives a number.
Evaluation = Callable[[ElasticPreTrainedModel], float]


class SearchRun:
    """What [`~hf_elastic.search`] does once its arguments are checked.

    Args:
        model, eval_fn, proxy_fn, budget, settings:
            As it takes them.
        space ([`SearchSpace`]):
            Where sizes are drawn from.
    """

    def __init__(
        self,
        model: ElasticPreTrainedModel,
        space: SearchSpace,
        eval_fn: Evaluation,
        proxy_fn: Evaluation | None,
        budget: Budget,
        settings: SearchSettings,
    ):
        self.model, self.space, self.config = model, space, space.config
        self.budget, self.settings = budget, settings
        self.cost = settings.cost or next(iter(budget.kinds), "flops")
        self.created, self.began = time.monotonic(), 0.0  # the latter when scoring begins
        self.num_evaluated = 0
        self.ending: str | None = None
        self.table: LatencyTable | None = None
        self.found: dict[str, Candidate] = {}  # by key
        if settings.storage is not None:
            _check_fingerprints(eval_fn, proxy_fn)
        storage, weights = open_storage(settings.storage), weights_fingerprint(model)
        self.metrics = _Scorer(model, eval_fn, ScoreArchive(storage, _name(weights, "metric", eval_fn)))
        self.proxies = proxy_fn and _Scorer(model, proxy_fn, ScoreArchive(storage, _name(weights, "proxy", proxy_fn)))
        workload = json.dumps([asdict(settings.workload), torch.get_num_threads(), processor_name(model.device)])
        self.latencies = ScoreArchive(storage, f"{weights} latency {workload}")

    def result(self, first: Sequence[tuple[str, SubnetConfig]], names: Sequence[str]) -> SearchResult:
        """Runs the search.

        Args:
            first (`Sequence[tuple[str, SubnetConfig]]`):
                What it begins with: sizes, each with where it comes from.
            names (`Sequence[str]`):
                Names for what is found, the best first.
        """
        self.began = time.monotonic()
        self._score_candidates(first)
        finalists = self._judge(self._best_few())
        found = self._choose(finalists, names)
        member_ms = self._measured_member(next(iter(found.values()))) if self.table else None
        return SearchResult(
            found=found,
            candidates=tuple(self.found.values()),
            cost=self.cost,
            budget=self.budget,
            workload=self.settings.workload,
            seconds=time.monotonic() - self.created,
            num_evaluated=self.num_evaluated,
            table=self.table,
            processor=processor_name(self.model.device),
            member_ms=member_ms,
            ending=self.ending,
        )

    def check_reachable(self, first: Sequence[tuple[str, SubnetConfig]]) -> None:
        """Checks that some size keeps the budget, and measures latencies if these are needed for it.

        Args:
            first (`Sequence[tuple[str, SubnetConfig]]`):
                Small sizes, each with where it comes from.

        Raises:
            ValueError: If none does; names the nearest.
        """
        sizes = {f"{subnet.to_dict()} ({origin})": subnet for origin, subnet in first}
        self.budget.without_latency().check_reachable({name: self._costs(subnet) for name, subnet in sizes.items()})
        if "latency" in (self.cost, *self.budget.kinds):
            self.table = self._latency_table()
            self.budget.check_reachable({name: self._costs(subnet) for name, subnet in sizes.items()})

    def _latency_table(self) -> LatencyTable:
        known = self.latencies.study.user_attrs
        key = f"{TABLE_KEY} {sorted(self.space.hidden_sizes)}"
        if key not in known:
            table = LatencyTable.measure(self.model, self.settings.workload, seed=self.settings.seed)
            logger.info(f"Latencies are predicted with a median error of {table.median_error:.1%}.")
            self.latencies.study.set_user_attr(key, table.to_dict())
            return table
        return LatencyTable.from_dict(known[key])

    def _costs(self, subnet: SubnetConfig) -> SizeCosts:
        return SizeCosts.of(self.model, subnet, self.settings.workload, self.table)

    def _score_candidates(self, first: Sequence[tuple[str, SubnetConfig]]) -> None:
        """Scores what the search begins with, then what was scored in a former one, then what is drawn."""
        number = self.settings.num_candidates
        with tqdm(total=number, desc="Scoring sizes", unit="size") as bar:
            before = [(self.settings.method, subnet) for subnet in self._scorer.archive.subnets.values()]
            former = [(origin, s) for origin, s in before if nests(s, self.config.subnets, self.config)]
            for origin, subnet in [*first, *former]:
                if self._is_over(bar):
                    return
                self._consider(subnet, origin, bar)
            self._draw(bar)

    def _draw(self, bar: tqdm) -> None:
        optuna = require_optuna()
        distributions = {
            name: optuna.distributions.IntDistribution(0, count - 1) for name, count in self.space.parameters.items()
        }
        if not distributions:
            return
        sampler = self._sampler()
        study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
        for candidate in list(self.found.values()):
            numbers = self.space.encode(candidate.subnet)
            if numbers is None:
                continue
            study.enqueue_trial(numbers)
            trial = study.ask(distributions)
            if self.settings.method == "nsga2":  # of what it has not drawn itself, it makes no parents otherwise
                sampler.get_trial_generation(study, study.trials[trial.number])
            study.tell(trial, [candidate.costs.get(self.cost), candidate.score])
        fruitless = 0
        while fruitless < FRUITLESS_DRAWS and not self._is_over(bar):
            trial, known = study.ask(distributions), len(self.found)
            candidate = self._consider(self.space.decode(trial.params), self.settings.method, bar)
            if candidate is None:
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, [candidate.costs.get(self.cost), candidate.score])
            fruitless = 0 if len(self.found) > known else fruitless + 1

    def _sampler(self) -> "BaseSampler":
        samplers = require_optuna().samplers
        seed = self.settings.seed + len(self.found)  # a search that goes on should not draw the same once more
        if self.settings.method == "tpe":
            return samplers.TPESampler(seed=seed, multivariate=True)
        smallest, largest = POPULATION
        return samplers.NSGAIISampler(seed=seed, population_size=min(largest, max(smallest, len(self.found))))

    @property
    def _scorer(self) -> "_Scorer":
        return self.proxies or self.metrics

    def _consider(self, subnet: SubnetConfig, origin: str, bar: tqdm) -> Candidate | None:
        """Scores a size unless it is too large; gives it."""
        key = size_key(subnet, self.config)
        if key in self.found:
            return self.found[key]
        costs = self._costs(subnet)
        if not self.budget.allows(costs):
            return None
        sign = 1 if self.proxies else -1
        self.num_evaluated += key not in self._scorer.archive.scores
        self.found[key] = Candidate(subnet, origin, costs, sign * self._scorer.score(key, subnet))
        bar.update()
        return self.found[key]

    def _is_over(self, bar: tqdm) -> bool:
        if len(self.found) >= self.settings.num_candidates:
            return True
        if self.found and self._is_late(TIME_FOR_CANDIDATES):
            self.ending = f"max_minutes={self.settings.max_minutes} ended the search after {len(self.found)} sizes."
            return True
        return False

    def _is_late(self, share: float = 1.0) -> bool:
        limit = self.settings.max_minutes
        return limit is not None and time.monotonic() - self.began >= share * 60 * limit

    def _best_few(self) -> list[Candidate]:
        """Gives those with the best scores, and others that are spread over the front."""
        number = self.settings.num_finalists
        front = score_front(list(self.found.values()), self.cost)
        best = sorted(self.found.values(), key=lambda candidate: (candidate.score, candidate.costs.get(self.cost)))
        chosen = {id(candidate): candidate for candidate in best[: max(1, number // 2)]}
        for candidate in [*_spread(front, number - len(chosen)), *best]:
            if len(chosen) < number:
                chosen.setdefault(id(candidate), candidate)
        return list(chosen.values())

    def _judge(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Finds out the metric of candidates, and their latency where that counts."""
        judged = []
        for candidate in tqdm(candidates, desc="Judging finalists", unit="size"):
            if judged and self._is_late():
                self.ending = (
                    f"max_minutes={self.settings.max_minutes} ended the search after {len(judged)} finalists."
                )
                break
            key = size_key(candidate.subnet, self.config)
            judged.append(replace(candidate, metric=self.metrics.score(key, candidate.subnet)))
        if self.table:
            judged = self._with_latencies(judged)
        self.found |= {size_key(candidate.subnet, self.config): candidate for candidate in judged}
        return judged

    def _with_latencies(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        keys = [size_key(candidate.subnet, self.config) for candidate in candidates]
        unknown = [
            candidate.subnet
            for candidate, key in zip(candidates, keys, strict=True)
            if key not in self.latencies.scores
        ]
        for subnet, milliseconds in zip(
            unknown, measure_in_turns(self.model, unknown, self.settings.workload), strict=True
        ):
            self.latencies.add(size_key(subnet, self.config), subnet, milliseconds)
        return [
            replace(candidate, measured_ms=self.latencies.scores[key])
            for candidate, key in zip(candidates, keys, strict=True)
        ]

    def _choose(self, finalists: Sequence[Candidate], names: Sequence[str]) -> dict[str, Candidate]:
        """Chooses the best size, and others of the front that nest with it, spread over their costs."""
        fast = [candidate for candidate in finalists if self._keeps_latency(candidate)]
        if not fast:
            fast = [min(finalists, key=lambda candidate: candidate.measured_ms)]
            logger.warning(
                f"No finalist was measured within max_latency_ms={self.budget.max_latency_ms}: the fastest one takes "
                f"{fast[0].measured_ms:.2f} ms. Predictions are off by {self.table.median_error:.1%} at the median; "
                "give a lower limit, or search again when the machine is idle."
            )
        best = min(fast, key=lambda candidate: (-candidate.metric, candidate.costs.get(self.cost)))
        front = metric_front(fast, self.cost)
        chosen: dict[str, Candidate] = {}
        taken, new_names = dict(self.config.subnets), iter(names)
        for candidate in [best, *_spread(front, len(names)), *reversed(front)]:
            if len(chosen) == len(names) or candidate in chosen.values():
                continue
            name = self._known_name(candidate)
            if name is None and nests(candidate.subnet, taken, self.config):
                name = next(new_names)
            if name is not None:
                chosen[name], taken[name] = candidate, candidate.subnet
        return chosen

    def _keeps_latency(self, candidate: Candidate) -> bool:
        limit = self.budget.max_latency_ms
        return limit is None or candidate.measured_ms <= limit

    def _known_name(self, candidate: Candidate) -> str | None:
        key = size_key(candidate.subnet, self.config)
        named = self.config.subnets.items()
        return next((name for name, subnet in named if size_key(subnet, self.config) == key), None)

    def _measured_member(self, candidate: Candidate) -> float:
        """Measures the latency of the best size as a model of its own, and compares it with what was promised."""
        member = extract(self.model, candidate.subnet)
        (milliseconds,) = measure_in_turns(member, [SubnetConfig()], self.settings.workload)
        difference = milliseconds / candidate.costs.milliseconds - 1
        if abs(difference) > WORTH_A_WARNING:
            logger.warning(
                f"The member takes {milliseconds:.2f} ms, and {candidate.costs.milliseconds:.2f} ms were predicted "
                f"({difference:+.0%}): the machine was busy, or its speed changes."
            )
        return milliseconds


class _Scorer:
    """Scores sizes by a function, each once."""

    def __init__(self, model: ElasticPreTrainedModel, function: Evaluation, archive: ScoreArchive):
        self.model, self.function, self.archive = model, function, archive

    def score(self, key: str, subnet: SubnetConfig) -> float:
        if key not in self.archive.scores:
            with self.model.use_subnet(subnet):
                score = self.function(self.model)
            if not isinstance(score, Real):
                raise TypeError(f"A size is scored {score!r}: the function should give one number, as a float.")
            if not math.isfinite(score):
                raise ValueError(
                    f"The score of {subnet} is {score}: check the function that gives it, its data, and the training."
                )
            self.archive.add(key, subnet, float(score))
        return self.archive.scores[key]


def _check_fingerprints(*functions: Evaluation | None) -> None:
    """Checks that scores which are kept cannot be taken for those of other data."""
    for function in functions:
        if function is not None and not getattr(function, "fingerprint", None):
            name = getattr(function, "__name__", type(function).__name__)
            raise ValueError(
                f"{name} has no fingerprint, so its scores in a storage could be taken for those of other data: set "
                f"{name}.fingerprint to a text that tells the data and the metric, or give no storage."
            )


def _name(weights: str, kind: str, function: Evaluation) -> str:
    """Names an archive: other weights and other data have another one."""
    return f"{weights} {kind} {getattr(function, 'fingerprint', '')}".strip()


def _spread(candidates: Sequence[Candidate], number: int) -> list[Candidate]:
    """Gives some of a sequence, evenly spaced, the last one first."""
    if number < 1 or not candidates:
        return []
    if number == 1:
        return [candidates[-1]]
    last = len(candidates) - 1
    places = dict.fromkeys(round(i * last / (number - 1)) for i in reversed(range(number)))
    return [candidates[i] for i in places]
