"""What the loss says of each unit of a model, collected from its passes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ..modeling.experts_elastic import ElasticMoE
from ..modeling.modeling_elastic import ElasticPreTrainedModel
from ..modeling.slicing_elastic import ElasticLayerNorm
from .units import has_classifier_features


class UnitScores:
    """Sums of scores over batches, see [`~hf_elastic.rank`].

    Args:
        model (`ElasticPreTrainedModel`):
            The model.
        hidden (`bool`):
            Whether its hidden units are scored as well.

    Attributes:
        layers (`list[dict[str, torch.Tensor]]`): For each layer module the scores of its `heads`, `neurons` and, if it
            has them, `experts`.
        hidden (`torch.Tensor`, *optional*): Scores of the hidden units.
        features (`torch.Tensor`, *optional*): Scores of what the classifier reads, if that is not the hidden units.
    """

    def __init__(self, model: ElasticPreTrainedModel, hidden: bool):
        self.model = model
        self.layers = [self._empty_scores(layer) for layer in model.base_model.layers]
        self.hidden = torch.zeros(model.config.hidden_size, device=model.device) if hidden else None
        self.features = None
        self.classifier = getattr(model, "classifier", getattr(model, "qa_outputs", None))
        if hidden and self.classifier is not None and has_classifier_features(model):
            self.features = torch.zeros(model.config.hidden_size, device=model.device)
        # Of a pass: a tensor of units, and the scores it adds to. A module that several layers share has several.
        self._outputs: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._attention_mask: torch.Tensor | None = None

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Lets every forward pass leave what is scored: the outputs of the units, and the norms' activations."""
        base_model = self.model.base_model
        handles = [base_model.embeddings.register_forward_hook(_require_grad)]
        frozen = []
        for layer, scores in zip(base_model.layers, self.layers, strict=True):
            handles.append(layer.attention.o_proj.register_forward_pre_hook(self._collect(scores["heads"])))
            if isinstance(layer.mlp, ElasticMoE):
                frozen += [] if layer.mlp.experts.down_proj.requires_grad else [layer.mlp.experts.down_proj]
            else:
                handles.append(layer.mlp.down_proj.register_forward_pre_hook(self._collect(scores["neurons"])))
        if self.features is not None:
            handles.append(self.classifier.register_forward_pre_hook(self._collect(self.features)))
        if self.hidden is not None:
            norms = [m for m in base_model.modules() if isinstance(m, ElasticLayerNorm) and self._is_encoder_norm(m)]
            handles += [norm.register_forward_hook(self._add_activations) for norm in norms]
        for weight in frozen:
            weight.requires_grad_(True)
        try:
            yield
        finally:
            for weight in frozen:
                weight.requires_grad_(False)
            for handle in handles:
                handle.remove()

    def start(self, attention_mask: torch.Tensor | None) -> None:
        """Forgets the last pass, and takes the mask of the next one."""
        self._outputs.clear()
        self._attention_mask = attention_mask

    def add(self, loss: torch.Tensor, batch_size: int) -> None:
        """Adds the scores of a batch, whose loss is a mean over its `batch_size` examples."""
        experts = [layer.mlp.experts.down_proj for layer in self._layers_with_experts()]
        outputs = [output for output, _ in self._outputs]
        # The gradient of an example's own loss is `batch_size` times as large as that of the mean.
        gradients = torch.autograd.grad(loss * batch_size, outputs + experts)
        for (output, scores), gradient in zip(self._outputs, gradients, strict=False):
            contribution = output.detach().float() * gradient.float()
            width = output.shape[-1] // len(scores)
            contribution = contribution.reshape(batch_size, -1, len(scores), width)
            scores += contribution.sum(dim=(1, 3)).abs().sum(dim=0)
        with_experts = [scores for scores in self.layers if "experts" in scores]
        for scores, weight, gradient in zip(with_experts, experts, gradients[len(outputs) :], strict=True):
            # What scaling a neuron's outgoing weights changes is what scaling the neuron changes.
            contribution = (weight.detach().float() * gradient.float()).sum(dim=1)
            scores["neurons"] += contribution.abs()
            scores["experts"] += contribution.sum(dim=1).abs()

    def _empty_scores(self, layer: nn.Module) -> dict[str, torch.Tensor]:
        heads, mlp, device = layer.attention.num_attention_heads, layer.mlp, self.model.device
        if isinstance(mlp, ElasticMoE):
            shapes = {"neurons": (mlp.num_experts, mlp.intermediate_size), "experts": (mlp.num_experts,)}
        else:
            shapes = {"neurons": (mlp.intermediate_size,)}
        return {unit: torch.zeros(shape, device=device) for unit, shape in ({"heads": (heads,)} | shapes).items()}

    def _layers_with_experts(self) -> list[nn.Module]:
        return [layer for layer in self.model.base_model.layers if isinstance(layer.mlp, ElasticMoE)]

    def _is_encoder_norm(self, norm: ElasticLayerNorm) -> bool:
        base_model, config = self.model.base_model, self.model.config
        if base_model.pooler is not None and norm is base_model.pooler.norm:
            return False
        return norm is not base_model.embeddings.norm or not config.embedding_projection

    def _collect(self, scores: torch.Tensor) -> Callable[[nn.Module, tuple], None]:
        return lambda module, inputs: self._outputs.append((inputs[0], scores))

    def _add_activations(self, norm: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        scaled = output.detach().float()
        if norm.bias is not None:
            scaled = scaled - norm.bias.detach().float()
        activations = scaled.abs().flatten(0, -2)
        if self._attention_mask is not None:
            activations = activations[self._attention_mask.flatten().bool()]
        self.hidden += activations.mean(dim=0)


def _require_grad(module: nn.Module, inputs: tuple, output: torch.Tensor) -> torch.Tensor:
    """Lets gradients through where all parameters are frozen."""
    return output if output.requires_grad else output.requires_grad_()
