"""The elastic encoder and its heads.

What is distinctive: every weight can run as its leading block ([`ElasticLinear`]), and a forward pass walks only the
layers of the sub-network it was asked for. A smaller size therefore costs less time and memory; nothing is masked.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.loss.loss_utils import fixed_cross_entropy
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, logging
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import OutputRecorder, capture_outputs

from .attention_elastic import SPARSE_IMPLEMENTATION, ElasticAttention, create_mask, sparse_attention_mask
from .block_sparse_attention_elastic import sparsity_penalty
from .configuration_elastic import ElasticConfig
from .embeddings_elastic import ElasticEmbeddings, RotaryEmbedding
from .experts_elastic import ElasticMoE, ElasticRouter, init_experts, load_balancing_loss, router_z_loss
from .layers_elastic import ElasticLayer
from .pooling_elastic import ElasticPooler, ElasticPredictionHead, classifier_dropout
from .slicing_elastic import ElasticLayerNorm, ElasticLinear, leading
from .subnet_elastic import SubnetConfig
from .tensor_parallel_elastic import check_tensor_parallel
from .unpadding_elastic import Unpadding

logger = logging.get_logger(__name__)

# No `from __future__ import annotations` here: `AutoModel.register` reads the annotation of `config` as a class.


@dataclass
class ElasticModelOutput(BaseModelOutputWithPooling):
    """Outputs of the encoder.

    Args:
        router_logits (`tuple[torch.Tensor]`, *optional*):
            One tensor of shape `(tokens, experts)` per layer with experts that ran, if `output_router_logits=True`.
        auxiliary_loss (`torch.Tensor`, *optional*):
            In training, what the routers and the learnable sparsities add to a loss; `None` where there are none.
    """

    router_logits: tuple[torch.Tensor, ...] | None = None
    auxiliary_loss: torch.Tensor | None = None


class ElasticPreTrainedModel(PreTrainedModel):
    """Base of all elastic models: loading, saving, and the choice of the size that runs."""

    config: ElasticConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _input_embed_layer = "word_embeddings"
    _no_split_modules = ["ElasticEmbeddings", "ElasticLayer"]
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_compile_fullgraph = True
    _can_record_outputs = {
        "hidden_states": ElasticLayer,
        "attentions": ElasticAttention,
        "router_logits": OutputRecorder(ElasticRouter, index=0, capture_initial_hidden_state=False),
    }

    def __init__(self, config: ElasticConfig, *inputs, **kwargs):
        config.complete()
        for name in ("hidden_act", "classifier_activation", "lm_head_activation"):
            activation = getattr(config, name)
            if activation is not None and activation not in ACT2FN:
                raise ValueError(f"{name}={activation!r} is unknown: possible are {sorted(ACT2FN)}.")
        super().__init__(config, *inputs, **kwargs)

    @classmethod
    def _can_set_experts_implementation(cls) -> bool:
        return True  # the parent looks for the experts in this file alone

    def get_correct_experts_implementation(self, requested_experts: str | None) -> str:
        """Chooses our own function, which is transformers' `"grouped_mm"` where that is faster."""
        return super().get_correct_experts_implementation(requested_experts or "eager")

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        """Chooses the implementation that computes sparse layers as blocks, unless another one is asked for.

        Raises:
            ValueError: If flash attention is asked for, and a layer has a pattern that it does not know.
        """
        sparse = set(self.config.layer_types) & {"sliding_attention", "block_sparse_attention"}
        if requested_attention is None and sparse:
            return SPARSE_IMPLEMENTATION
        for name in ("num_global_tokens", "num_random_blocks"):
            if sparse and getattr(self.config, name) and "flash" in (requested_attention or ""):
                raise ValueError(
                    f"attn_implementation={requested_attention!r} knows windows only, but {name}="
                    f"{getattr(self.config, name)}: use {SPARSE_IMPLEMENTATION!r}."
                )
        return super().get_correct_attn_implementation(requested_attention, is_init_check)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, ElasticMoE):
            init_experts(module, self.config.initializer_range)
        if isinstance(module, ElasticAttention) and module.layer_type == "block_sparse_attention":
            module.init_sparsity()

    def unpads_inputs(self, unpad_inputs: bool | None) -> bool:
        """Whether padding is taken out: what a call asks for, or else what the configuration says."""
        return self.config.unpad_inputs if unpad_inputs is None else unpad_inputs

    @contextmanager
    def use_subnet(self, subnet: str | SubnetConfig | None) -> Iterator[None]:
        """Makes a sub-network what every forward pass without `subnet` runs, until the block ends.

        For code that calls the model itself: pipelines, evaluation loops, exporters. Not meant for threads that run
        different sizes of one model at the same time; those pass `subnet` to each call.

        Args:
            subnet (`str`, `SubnetConfig` or `None`):
                Name in `config.subnets`, or a size; `None` is the full model.

        Raises:
            ValueError: If the name is unknown or the size does not fit.
        """
        base_model = self.base_model
        previous, base_model.active_subnet = base_model.active_subnet, self.resolve_subnet(subnet)
        try:
            yield
        finally:
            base_model.active_subnet = previous

    def resolve_subnet(self, subnet: str | SubnetConfig | None) -> SubnetConfig:
        """Gives the size behind a name, checked against the model.

        Args:
            subnet (`str`, `SubnetConfig` or `None`):
                Name in `config.subnets`, or a size; `None` is the full model.

        Raises:
            TypeError: If it is none of these.
            ValueError: If the name is unknown or the size does not fit.
        """
        if subnet is None:
            return SubnetConfig()
        if isinstance(subnet, str):
            if subnet not in self.config.subnets:
                raise ValueError(
                    f"Unknown subnet {subnet!r}: this model has {sorted(self.config.subnets)}. Define it with "
                    "model.config.subnets = {..., name: SubnetConfig(...)}."
                )
            subnet = self.config.subnets[subnet]
        if not hasattr(subnet, "select"):  # not by its class, which remote code may have more than one of
            raise TypeError(f"subnet={subnet!r}: give a name, a SubnetConfig or None, not a {type(subnet).__name__}.")
        subnet.select(self.base_model.layer_sizes)
        return subnet


class ElasticModel(ElasticPreTrainedModel):
    """The encoder without a head.

    Args:
        config ([`ElasticConfig`]):
            Configuration of the model.
        add_pooling_layer (`bool`, *optional*):
            Whether to add a pooler; as `config.add_pooling_layer` says by default. It is written there.
    """

    _auto_class = "AutoModel"

    def __init__(self, config: ElasticConfig, add_pooling_layer: bool | None = None):
        super().__init__(config)
        self.layer_sizes = config.layer_sizes()
        self.embeddings = ElasticEmbeddings(config)
        # One module for all layers that share their weights, in the order of the first of them.
        modules = {size.weights: size for size in reversed(self.layer_sizes)}
        self.layers = nn.ModuleList([ElasticLayer(config, modules[weights]) for weights in sorted(modules)])
        self.final_norm = (
            ElasticLayerNorm(config.hidden_size, eps=config.layer_norm_eps, bias=config.norm_bias)
            if config.final_norm
            else nn.Identity()
        )
        self.rotary_embedding = RotaryEmbedding(config) if config.position_embedding_type == "rotary" else None
        if add_pooling_layer is not None:
            config.add_pooling_layer = add_pooling_layer  # so that a checkpoint says whether it has one
        self.pooler = ElasticPooler(config) if config.add_pooling_layer else None
        self.gradient_checkpointing = False
        self.active_subnet = SubnetConfig()
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        subnet: str | SubnetConfig | None = None,
        unpad_inputs: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> ElasticModelOutput:
        r"""
        Args:
            input_ids (`torch.LongTensor` of shape `(batch, length)`, *optional*):
                Token indices. Exactly one of `input_ids` and `inputs_embeds` is needed.
            attention_mask (`torch.Tensor` of shape `(batch, length)`, *optional*):
                1 for tokens, 0 for padding. No padding by default.
            token_type_ids (`torch.LongTensor` of shape `(batch, length)`, *optional*):
                Segment indices, 0 by default.
            position_ids (`torch.LongTensor` of shape `(batch, length)`, *optional*):
                Position indices, 0 to length - 1 by default.
            inputs_embeds (`torch.FloatTensor` of shape `(batch, length, embedding_size)`, *optional*):
                Word embeddings in place of `input_ids`.
            subnet (`str` or `SubnetConfig`, *optional*):
                The size to run: a name in `config.subnets` or a description. By default the size chosen with
                [`~ElasticPreTrainedModel.use_subnet`], which is the full model unless it was set.
            unpad_inputs (`bool`, *optional*):
                Whether to take the padding out before the first layer and put it back after the last, so that no layer
                computes anything for it; as `config.unpad_inputs` says by default. The outputs at padding are 0 then.
                Padding between tokens is taken out as well, so that windows reach across it.

        Returns:
            [`ElasticModelOutput`]: `last_hidden_state` of shape `(batch, length, hidden_size)`, `pooler_output` of
            shape `(batch, hidden_size)`, with the hidden size of the sub-network, and one hidden state per layer that
            ran, preceded by the embeddings, if `output_hidden_states=True`.

        Raises:
            ValueError: If both or neither of `input_ids` and `inputs_embeds` are given, the input is longer than the
                position embeddings, the mask has another shape, the subnet is unknown, padding is to be taken out of a
                sequence without tokens, or padding precedes tokens and must stay.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give exactly one of input_ids and inputs_embeds.")
        shape = (input_ids if inputs_embeds is None else inputs_embeds).shape[:2]
        if attention_mask is not None and attention_mask.dim() == 2 and attention_mask.shape != shape:
            raise ValueError(f"attention_mask has the shape {tuple(attention_mask.shape)}, the input {tuple(shape)}.")
        active = self.active_subnet if subnet is None else self.resolve_subnet(subnet)
        if position_ids is None:
            position_ids = self.embeddings.make_position_ids(input_ids, inputs_embeds)
        inputs = {
            "input_ids": input_ids,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
        }
        wants_weights = kwargs.get("output_attentions", self.config.output_attentions)
        if wants_weights and self.config._attn_implementation != "eager":
            logger.warning_once('Only attn_implementation="eager" gives attention weights.')
        unpadding = None
        if attention_mask is not None and self.takes_padding_out(attention_mask, unpad_inputs, wants_weights):
            unpadding = Unpadding.of(attention_mask, input_ids if inputs_embeds is None else inputs_embeds)
        if unpadding is not None:
            inputs = {name: unpadding.unpad(value) for name, value in inputs.items()}
        mask = None if unpadding is not None else attention_mask
        routed = self.config.router_aux_loss_coef or self.config.router_z_loss_coef
        if self.training and routed and any(size.num_experts > 1 for size in self.layer_sizes):
            kwargs["output_router_logits"] = True
        inputs |= {"attention_mask": mask, "unpadding": unpadding, "subnet": active, "return_dict": True}
        outputs = self.encode(**inputs, **kwargs)
        last_hidden_state, hidden_states = outputs.last_hidden_state, outputs.hidden_states
        if unpadding is not None:
            last_hidden_state = unpadding.pad(last_hidden_state)
            hidden_states = hidden_states and tuple(unpadding.pad(states) for states in hidden_states)
        pooled = None
        if self.pooler is not None:  # which finds nothing at padding that was taken out
            pooled = self.pooler(last_hidden_state, attention_mask, skips_padding=unpadding is not None)
        return ElasticModelOutput(
            last_hidden_state=last_hidden_state,
            pooler_output=pooled,
            hidden_states=hidden_states,
            attentions=outputs.attentions,
            router_logits=outputs.router_logits,
            auxiliary_loss=self.auxiliary_loss(active, outputs.router_logits, mask) if self.training else None,
        )

    def takes_padding_out(self, attention_mask: torch.Tensor, unpad_inputs: bool | None, wants_weights: bool) -> bool:
        """Whether a batch is computed without its padding: if that is asked for, or if padding precedes tokens.

        Global tokens and blocks are counted from a sequence's first token, which padding may only follow.

        Raises:
            ValueError: If padding precedes tokens, but must stay because of attention weights or `unpad_inputs=False`.
        """
        if self.unpads_inputs(unpad_inputs) and not wants_weights:
            return True
        counts = any(layer.attention.counts_positions for layer in self.layers)
        if not counts or attention_mask.dim() != 2 or torch.compiler.is_compiling():
            return False
        is_token = attention_mask.bool()
        precedes = bool((is_token[:, 1:] & ~is_token[:, :-1]).any())
        if precedes and (wants_weights or unpad_inputs is False):
            raise ValueError(
                "Padding precedes tokens, but global tokens and blocks are counted from a sequence's first token: pad "
                'on the right (tokenizer.padding_side = "right"). Taking padding out instead is not possible with '
                "output_attentions, unpad_inputs=False, ranking and splitting into experts."
            )
        return precedes

    @merge_with_config_defaults
    @capture_outputs
    def encode(
        self,
        input_ids: torch.LongTensor | None,
        token_type_ids: torch.LongTensor | None,
        position_ids: torch.LongTensor,
        inputs_embeds: torch.FloatTensor | None,
        attention_mask: torch.Tensor | None,
        unpadding: Unpadding | None,
        subnet: SubnetConfig,
        **kwargs: Unpack[TransformersKwargs],
    ) -> ElasticModelOutput:
        """Runs embeddings and layers, on a padded batch or on one row of all tokens."""
        sizes = subnet.select(self.layer_sizes)
        check_tensor_parallel(self.config, sizes, self.layer_sizes)
        hidden_size = sizes[0].hidden_size
        others = set(self.config.layer_types) - {"full_attention"}
        if others and attention_mask is not None and attention_mask.dim() != 2:
            raise ValueError(
                f"attention_mask has the shape {tuple(attention_mask.shape)}, but {sorted(others)[0]!r} layers know "
                "padding only: give a mask of shape (batch, length)."
            )
        hidden_states = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds, hidden_size)
        as_blocks = self.config._attn_implementation == SPARSE_IMPLEMENTATION
        reads_padding = as_blocks or others & {"linear_attention", "block_sparse_attention"}
        padding_mask = sparse_attention_mask(attention_mask) if reads_padding else None
        masks, angles = {}, {}
        for size in sizes:
            layer = self.layers[size.weights]
            layer_type, named = layer.attention.layer_type, self.config.layer_types[size.layer]
            if layer_type != named:
                raise ValueError(
                    f"config.layer_types says {named!r} of layer {size.layer}, which was built as {layer_type!r}: "
                    "attention is chosen when a model is made, e.g. with from_pretrained(..., layer_types=[...])."
                )
            pattern = None if as_blocks else layer.attention.pattern  # which is not part of the mask then
            if unpadding is None and pattern not in masks:
                masks[pattern] = create_mask(self.config, pattern, hidden_states, attention_mask)
            if self.rotary_embedding is not None and layer_type not in angles:
                angles[layer_type] = self.rotary_embedding(hidden_states, position_ids, layer_type)
            hidden_states = layer(
                hidden_states,
                masks.get(pattern),
                size,
                padding_mask=padding_mask,
                angles=angles.get(layer_type),
                unpadding=unpadding,
                **kwargs,
            )
        return ElasticModelOutput(last_hidden_state=self.final_norm(hidden_states))

    def auxiliary_loss(
        self,
        subnet: SubnetConfig,
        router_logits: tuple[torch.Tensor, ...] | None,
        attention_mask: torch.Tensor | None,
    ) -> torch.Tensor | None:
        """Gives what a sub-network adds to a training loss for its routers and its learnable sparsities.

        Args:
            subnet ([`SubnetConfig`]):
                The sub-network that ran.
            router_logits (`tuple[torch.Tensor]`, *optional*):
                The logits of its routers, one tensor of shape `(tokens, experts)` each.
            attention_mask (`torch.Tensor` of shape `(batch, length)`, *optional*):
                1 for tokens, 0 for padding, which does not count.
        """
        config, sizes = self.config, subnet.select(self.layer_sizes)
        terms = []
        if router_logits:
            if torch.is_grad_enabled() and not any(logits.requires_grad for logits in router_logits):
                raise ValueError(
                    "The routers' losses have no gradient, as with reentrant activation checkpointing: give "
                    'activation_checkpointing_kwargs={"use_reentrant": False}, or router_aux_loss_coef=0 and '
                    "router_z_loss_coef=0."
                )
            active = [size.num_experts_per_tok for size in sizes if self.layer_sizes[size.layer].num_experts > 1]
            mask = None if attention_mask is None else attention_mask.flatten().bool()
            terms.append(config.router_aux_loss_coef * load_balancing_loss(router_logits, active, mask))
            terms.append(config.router_z_loss_coef * router_z_loss(router_logits, mask))
        sparsities = [
            self.layers[size.weights].attention.sparsity(size.num_attention_heads)
            for size in sizes
            if self.layers[size.weights].attention.layer_type == "block_sparse_attention"
        ]
        if sparsities:
            penalty = sparsity_penalty(torch.cat(sparsities), config.attention_sparsity)
            terms.append(config.sparsity_penalty * penalty)
        return torch.stack(terms).sum() if terms else None


class ElasticLMHead(nn.Module):
    """Dense layer, activation and norm, then the decoder, whose weight is the word embedding's unless it is untied."""

    def __init__(self, config: ElasticConfig):
        super().__init__()
        size = config.embedding_size
        # Without a projection after the embeddings, a smaller hidden size makes the embeddings smaller as well.
        self.shrinks = not config.embedding_projection
        self.dense = ElasticLinear(config.hidden_size, size, bias=config.lm_head_bias)
        self.activation = ACT2FN[config.lm_head_activation or config.hidden_act]
        self.norm = ElasticLayerNorm(size, eps=config.layer_norm_eps, bias=config.norm_bias)
        self.decoder = ElasticLinear(size, config.vocab_size, bias=config.decoder_bias)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        size = hidden_states.shape[-1] if self.shrinks else None
        features = self.dense(hidden_states, **leading(size, self.dense.out_features))
        return self.decoder(self.norm(self.activation(features)))


def add_auxiliary_loss(
    loss: torch.Tensor, outputs: ElasticModelOutput, num_items: torch.Tensor | int, num_items_in_batch
) -> torch.Tensor:
    """Adds the encoder's auxiliary loss to a head's.

    Args:
        loss (`torch.Tensor`):
            Loss of the head, a mean over its items, or their sum divided by `num_items_in_batch`.
        outputs ([`ElasticModelOutput`]):
            Outputs of the encoder.
        num_items (`int`):
            Items in this batch.
        num_items_in_batch (`int`, *optional*):
            Items in the whole accumulated batch, of which the auxiliary loss gets this batch's share.
    """
    if outputs.auxiliary_loss is None:
        return loss
    share = 1 if num_items_in_batch is None else num_items / num_items_in_batch
    return loss + share * outputs.auxiliary_loss


class ElasticForMaskedLM(ElasticPreTrainedModel):
    """The encoder with a masked language modeling head."""

    _auto_class = "AutoModelForMaskedLM"
    _tied_weights_keys = {"lm_head.decoder.weight": "model.embeddings.word_embeddings.weight"}

    def __init__(self, config: ElasticConfig):
        super().__init__(config)
        self.model = ElasticModel(config, add_pooling_layer=False)
        self.lm_head = ElasticLMHead(config)
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.decoder

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        if not isinstance(new_embeddings, ElasticLinear):  # transformers makes a plain one when it resizes
            resized = ElasticLinear(new_embeddings.in_features, new_embeddings.out_features, device="meta")
            resized.weight, resized.bias = new_embeddings.weight, new_embeddings.bias
            new_embeddings = resized
        self.lm_head.decoder = new_embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        subnet: str | SubnetConfig | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MaskedLMOutput:
        r"""
        Args:
            labels (`torch.LongTensor` of shape `(batch, length)`, *optional*):
                Token indices to predict, -100 where nothing is predicted.
            num_items_in_batch (`int`, *optional*):
                What the summed loss is divided by; the number of labels that are not -100 by default.

        See [`ElasticModel.forward`] for the other arguments. `logits` have the shape `(batch, length, vocab_size)`.
        """
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            subnet=subnet,
            return_dict=True,
            **kwargs,
        )
        logits = self.lm_head(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            loss = self.loss_function(
                logits, labels, vocab_size=self.config.vocab_size, num_items_in_batch=num_items_in_batch
            )
            loss = add_auxiliary_loss(loss, outputs, (labels != -100).sum(), num_items_in_batch)
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class ElasticForSequenceClassification(ElasticPreTrainedModel):
    """The encoder with a classifier of the pooled output: one label, several labels, or regression."""

    _auto_class = "AutoModelForSequenceClassification"

    def __init__(self, config: ElasticConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = ElasticModel(config, add_pooling_layer=True)
        self.dropout = classifier_dropout(config)
        self.classifier = ElasticLinear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.Tensor | None = None,
        subnet: str | SubnetConfig | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        r"""
        Args:
            labels (`torch.Tensor` of shape `(batch,)` or `(batch, num_labels)`, *optional*):
                Class indices, a number per label (regression), or a 0 or 1 per label (multi-label). Which it is says
                `config.problem_type`; where that is unset, one label means regression, integers mean classes, and
                anything else means several labels.
            num_items_in_batch (`int`, *optional*):
                What the summed loss is divided by; the number of entries of `labels` by default.

        See [`ElasticModel.forward`] for the other arguments. `logits` have the shape `(batch, num_labels)`.
        """
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            subnet=subnet,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(self.dropout(outputs.pooler_output))
        loss = None
        if labels is not None:
            loss = self._loss(logits, labels, num_items_in_batch)
            loss = add_auxiliary_loss(loss, outputs, (labels != -100).sum(), num_items_in_batch)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def _loss(
        self, logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None
    ) -> torch.Tensor:
        labels = labels.to(logits.device)
        if self.config.problem_type is None:
            if self.num_labels == 1:
                self.config.problem_type = "regression"
            elif labels.dtype in (torch.long, torch.int):
                self.config.problem_type = "single_label_classification"
            else:
                self.config.problem_type = "multi_label_classification"
        return sequence_loss(logits, labels, self.config.problem_type, num_items_in_batch)


def sequence_loss(
    logits: torch.Tensor, labels: torch.Tensor, problem_type: str, num_items_in_batch: torch.Tensor | int | None
) -> torch.Tensor:
    """Loss of one label, several labels, or regression, of which transformers' own ignore `num_items_in_batch`.

    Args:
        logits: Scores of a classifier.
        labels: What they should be, see [`ElasticForSequenceClassification.forward`].
        problem_type: One of transformers' three.
        num_items_in_batch: What the summed loss is divided by; the number of entries of `labels` by default.

    Shape:
        logits: `[examples, labels]`; output: `[]`.
    """
    if problem_type == "single_label_classification":
        return fixed_cross_entropy(logits.float(), labels.view(-1).long(), num_items_in_batch)
    if labels.numel() != logits.numel():
        raise ValueError(
            f"labels of shape {tuple(labels.shape)} do not fit logits of shape {tuple(logits.shape)}: "
            f"{problem_type} with num_labels={logits.shape[-1]} takes one number per label."
        )
    is_regression = problem_type == "regression"
    loss_function = nn.functional.mse_loss if is_regression else nn.functional.binary_cross_entropy_with_logits
    logits, labels = logits.float(), labels.view_as(logits).float()
    if num_items_in_batch is None:
        return loss_function(logits, labels)
    return loss_function(logits, labels, reduction="sum") / num_items_in_batch


class ElasticForTokenClassification(ElasticPreTrainedModel):
    """The encoder with a classifier of every token."""

    _auto_class = "AutoModelForTokenClassification"

    def __init__(self, config: ElasticConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = ElasticModel(config, add_pooling_layer=False)
        self.head = ElasticPredictionHead(config) if config.token_transform else nn.Identity()
        self.dropout = classifier_dropout(config)
        self.classifier = ElasticLinear(config.hidden_size, config.num_labels)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        subnet: str | SubnetConfig | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> TokenClassifierOutput:
        r"""
        Args:
            labels (`torch.LongTensor` of shape `(batch, length)`, *optional*):
                Class indices, -100 where a token has none. With a single label, 0 or 1 (ELECTRA's replaced tokens).
            num_items_in_batch (`int`, *optional*):
                What the summed loss is divided by; the number of labels that are not -100 by default.

        See [`ElasticModel.forward`] for the other arguments. `logits` have the shape `(batch, length, num_labels)`.
        """
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            subnet=subnet,
            return_dict=True,
            **kwargs,
        )
        logits = self.classifier(self.dropout(self.head(outputs.last_hidden_state)))
        loss = None
        if labels is not None:
            if self.num_labels == 1:
                is_labeled = labels != -100
                loss = nn.functional.binary_cross_entropy_with_logits(
                    logits.squeeze(-1)[is_labeled].float(), labels[is_labeled].float(), reduction="sum"
                ) / (is_labeled.sum() if num_items_in_batch is None else num_items_in_batch)
            else:
                loss = self.loss_function(logits, labels, self.config, num_items_in_batch=num_items_in_batch)
            loss = add_auxiliary_loss(loss, outputs, (labels != -100).sum(), num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class ElasticForQuestionAnswering(ElasticPreTrainedModel):
    """The encoder with a classifier of every token as start and end of the answer."""

    _auto_class = "AutoModelForQuestionAnswering"

    def __init__(self, config: ElasticConfig):
        super().__init__(config)
        self.model = ElasticModel(config, add_pooling_layer=False)
        self.head = ElasticPredictionHead(config) if config.token_transform else nn.Identity()
        self.dropout = nn.Dropout(config.qa_dropout)
        self.qa_outputs = ElasticLinear(config.hidden_size, 2)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        start_positions: torch.LongTensor | None = None,
        end_positions: torch.LongTensor | None = None,
        subnet: str | SubnetConfig | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> QuestionAnsweringModelOutput:
        r"""
        Args:
            start_positions (`torch.LongTensor` of shape `(batch,)`, *optional*):
                Index of the answer's first token; an index beyond the input is left out of the loss.
            end_positions (`torch.LongTensor` of shape `(batch,)`, *optional*):
                Index of the answer's last token, likewise.
            num_items_in_batch (`int`, *optional*):
                What the summed losses of start and end are divided by; the number of answers by default.

        See [`ElasticModel.forward`] for the other arguments. Both logits have the shape `(batch, length)`. With
        `unpad_inputs`, padding has the lowest logits that there are, so that it is no possible answer; otherwise it is
        computed like a token, as transformers' models do.
        """
        outputs = self.model(
            input_ids,
            attention_mask,
            token_type_ids,
            position_ids,
            inputs_embeds,
            subnet=subnet,
            return_dict=True,
            **kwargs,
        )
        logits = self.qa_outputs(self.dropout(self.head(outputs.last_hidden_state)))
        if attention_mask is not None and self.unpads_inputs(kwargs.get("unpad_inputs")):
            logits = logits.masked_fill(~attention_mask.bool().unsqueeze(-1), torch.finfo(logits.dtype).min)
        start_logits, end_logits = logits.unbind(dim=-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(
                start_logits, end_logits, start_positions, end_positions, num_items_in_batch=num_items_in_batch
            )
            loss = add_auxiliary_loss(loss, outputs, start_positions.numel(), num_items_in_batch)
        return QuestionAnsweringModelOutput(
            loss=loss,
            start_logits=start_logits.contiguous(),
            end_logits=end_logits.contiguous(),
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class ElasticForMultipleChoice(ElasticPreTrainedModel):
    """The encoder with one score per choice, from the pooled output."""

    _auto_class = "AutoModelForMultipleChoice"

    def __init__(self, config: ElasticConfig):
        super().__init__(config)
        self.model = ElasticModel(config, add_pooling_layer=True)
        self.dropout = classifier_dropout(config)
        self.classifier = ElasticLinear(config.hidden_size, 1)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.LongTensor | None = None,
        subnet: str | SubnetConfig | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> MultipleChoiceModelOutput:
        r"""
        Args:
            labels (`torch.LongTensor` of shape `(batch,)`, *optional*):
                Index of the right choice.
            num_items_in_batch (`int`, *optional*):
                What the summed loss is divided by; the batch size by default.

        See [`ElasticModel.forward`] for the other arguments; each has one more dimension here, `(batch, choices,
        length)`. `logits` have the shape `(batch, choices)`.
        """
        tokens = input_ids if input_ids is not None else inputs_embeds
        if tokens is None or tokens.dim() < 3:
            raise ValueError(
                "Multiple choice needs input_ids of shape (batch, choices, length), or inputs_embeds likewise, not "
                f"{None if tokens is None else tuple(tokens.shape)}."
            )
        flat = [
            None if tensor is None else tensor.flatten(0, 1)
            for tensor in (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds)
        ]
        outputs = self.model(*flat, subnet=subnet, return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output)).view(-1, tokens.shape[1])
        loss = None
        if labels is not None:
            loss = fixed_cross_entropy(logits.float(), labels, num_items_in_batch)
            loss = add_auxiliary_loss(loss, outputs, (labels != -100).sum(), num_items_in_batch)
        return MultipleChoiceModelOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


__all__ = [
    "ElasticForMaskedLM",
    "ElasticForMultipleChoice",
    "ElasticForQuestionAnswering",
    "ElasticForSequenceClassification",
    "ElasticForTokenClassification",
    "ElasticModel",
    "ElasticPreTrainedModel",
]
