"""What the subnets of a training step learn from: teachers, and the largest subnet of the step."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.subnet_elastic import SubnetConfig
from .arguments import ElasticTrainingArguments
from .attention_states import AttentionStates, record_attention_states
from .distillation import Batch, Observation, UnitCounts, feature_mask, prediction_loss, token_mask
from .feature_distillation import (
    OF_ATTENTION,
    OF_HIDDEN_STATES,
    Comparison,
    attention_loss,
    embedding_loss,
    hidden_loss,
    relation_loss,
)
from .feature_projections import FeatureProjections
from .layer_maps import LAYER_MAPS, layer_pairs
from .teacher_cache import TeacherCache, count_examples
from .teacher_mixing import confidence_weights, mix_logits, prediction_kind
from .teachers import Teacher, observe


class Source(NamedTuple):
    """One of the models that the subnets of a step learn from.

    Args:
        observation: What it makes of the batch, without a graph.
        weight: How much its predictions count.
        teacher: Which of the teachers it is; None for the largest subnet.
        has_features: Whether its features can be compared with the student's: it reads the same tokens, and it ran.
    """

    observation: Observation
    weight: float = 1.0
    teacher: int | None = None
    has_features: bool = True


class Distiller:
    """Tells how far a subnet is from what it learns from.

    Predictions are compared with those of all sources together, features with those of each.

    Args:
        args: The losses.
        config: Configuration of the supernet.
        teachers: Models to learn from, besides the largest subnet of a step.
        projections: Maps of hidden states to teachers of another hidden size; None if there are no such.

    Attributes:
        sources (`list[Source]`): What the subnets of the present step learn from.
    """

    def __init__(
        self,
        args: ElasticTrainingArguments,
        config: ElasticConfig,
        teachers: Sequence[Teacher] = (),
        projections: FeatureProjections | None = None,
    ) -> None:
        self.args, self.config, self.teachers, self.projections = args, config, teachers, projections
        self.weights = [teacher.weight for teacher in teachers]
        self.caches: list[TeacherCache] = []
        losses = {
            "hidden": partial(hidden_loss, objective=args.hidden_loss),
            "embedding": embedding_loss,
            "attention": attention_loss,
            "relation": partial(relation_loss, relation_heads=args.relation_heads),
        }
        self.features = {kind: loss for kind, loss in losses.items() if getattr(args, f"{kind}_weight")}
        self.sources: list[Source] = []

    @property
    def reads_hidden_states(self) -> bool:
        """Whether the models have to give their hidden states."""
        return not self.features.keys().isdisjoint(OF_HIDDEN_STATES)

    @property
    def reads_attention(self) -> bool:
        """Whether it is recorded what the models attend with."""
        return not self.features.keys().isdisjoint(OF_ATTENTION)

    @property
    def problem_type(self) -> str | None:
        """The model's, as far as it can be known before the first batch: of one output it is a regression."""
        return self.config.problem_type or ("regression" if self.config.num_labels == 1 else None)

    def open_caches(self, dataset: Any) -> None:
        """Opens the files that keep what the teachers predict for a dataset, if the arguments name a folder."""
        if self.args.teacher_cache_dir is not None and self.teachers:
            number = count_examples(dataset)
            self.caches = [TeacherCache(self.args.teacher_cache_dir, teacher, number) for teacher in self.teachers]

    def ask_teachers(self, batch: Batch) -> None:
        """Begins a step: its sources are what the teachers make of its batch."""
        self.sources = []
        for i, (teacher, weight) in enumerate(zip(self.teachers, self.weights, strict=True)):
            if self.caches:
                observation = Observation.of(self.caches[i].observe(batch))
            else:
                observation = self._observe(teacher, batch)
            has_features = teacher.inputs is None and not self.caches
            self.sources.append(Source(observation, weight, i, has_features))

    def _observe(self, teacher: Teacher, batch: Batch) -> Observation:
        has_features = teacher.inputs is None
        if self.reads_attention:
            batch = {**batch, "unpad_inputs": False}  # an elastic teacher would put all texts into one row
        with self.observing(teacher.model) if has_features else nullcontext() as attention:
            outputs = observe(teacher, batch, output_hidden_states=has_features and self.reads_hidden_states)
        return Observation.of(outputs, attention).detached()

    @contextmanager
    def observing(self, model: nn.Module) -> Iterator[Mapping[int, AttentionStates] | None]:
        """Records what the layers of a model attend with, if a loss needs it."""
        if not self.reads_attention:
            yield None
            return
        with record_attention_states(model) as states:
            yield states

    def losses(
        self,
        kinds: Collection[str],
        subnet: SubnetConfig,
        student: Observation,
        batch: Batch,
        counts: UnitCounts,
        temperature: float,
    ) -> dict[str, Tensor]:
        """Compares a subnet with the sources.

        Args:
            kinds: Which losses are wanted.
            subnet: The size that ran.
            student: What it makes of the batch.
            batch: Its inputs, which may be shorter than those of the sources.
            counts: Units of the whole accumulated batch.
            temperature: Divides the logits of both sides.

        Returns:
            The losses by kind: `"distillation"`, and the features that there is a source for.
        """
        losses = {}
        if "distillation" in kinds:
            losses["distillation"] = self._prediction_loss(student, batch, counts, temperature)
        wanted = {kind: loss for kind, loss in self.features.items() if kind in kinds}
        sources = [source for source in self.sources if wanted and source.has_features]
        comparisons = [self._comparison(source, subnet, student, batch, counts) for source in sources]
        for kind, loss in wanted.items():
            # A map may name no layer that a size has; embeddings need none.
            of_sources = [loss(comparison) for comparison in comparisons if comparison.pairs or kind == "embedding"]
            if of_sources:
                losses[kind] = torch.stack(of_sources).mean()
        return losses

    def _prediction_loss(self, student: Observation, batch: Batch, counts: UnitCounts, temperature: float) -> Tensor:
        problem_type, output_loss = self.config.problem_type, self.args.output_loss
        is_span = len(student.logits) == 2
        kind = "classes" if is_span else prediction_kind(student.logits[0], batch.get("labels"), problem_type)
        target = self.sources[0].observation.logits
        if len(self.sources) > 1:
            target = tuple(self._mixed(i, kind, batch, temperature) for i in range(len(target)))
        return prediction_loss(student.logits, target, batch, counts, temperature, problem_type, output_loss)

    def _mixed(self, i: int, kind: str, batch: Batch, temperature: float) -> Tensor:
        """The mean of the sources' predictions; of two that a head gives, the one of number `i`."""
        logits = [source.observation.logits[i] for source in self.sources]
        weights = torch.tensor([source.weight for source in self.sources], device=logits[0].device)
        is_span = len(self.sources[0].observation.logits) == 2
        class_mask = token_mask(batch) if is_span else None
        if self.args.teacher_mixing == "confidence":
            labels = batch[("start_positions", "end_positions")[i]] if is_span else batch.get("labels")
            weights = confidence_weights(logits, weights, kind, labels, class_mask)
        if kind == "classes" and self.args.output_loss == "mse":
            kind = "values"  # the mean of what is compared
        return mix_logits(logits, weights, temperature, kind, class_mask)

    def _comparison(
        self, source: Source, subnet: SubnetConfig, student: Observation, batch: Batch, counts: UnitCounts
    ) -> Comparison:
        """A subnet beside one source."""
        layers = [size.layer for size in subnet.layer_sizes(self.config)]
        is_teacher = source.teacher is not None
        layer_map = self.args.layer_map if is_teacher or self.args.layer_map in LAYER_MAPS else "even"
        theirs = len(source.observation.attention or source.observation.hidden_states[1:])
        pairs = layer_pairs(layer_map, self.config.num_hidden_layers, theirs, kept_layers=layers)
        mask = feature_mask(batch, self.problem_type)
        project = partial(self.projections, teacher=source.teacher) if is_teacher and self.projections else _identity
        reference = source.observation.detached(max_length=mask.shape[-1])
        return Comparison(student, reference, pairs, mask, counts, project)


def _identity(states: Tensor) -> Tensor:
    return states
