"""The elastic encoder and its heads.

What is distinctive: every weight that heads or feed-forward neurons index can run as its leading block
([`ElasticLinear`]), and a forward pass walks only the layers of the sub-network it was asked for. A smaller size
therefore costs less time and memory; nothing is masked.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import nn
from transformers.activations import ACT2FN
from transformers.loss.loss_utils import fixed_cross_entropy
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import (
    BaseModelOutputWithPooling,
    MaskedLMOutput,
    MultipleChoiceModelOutput,
    QuestionAnsweringModelOutput,
    SequenceClassifierOutput,
    TokenClassifierOutput,
)
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_elastic import ElasticConfig
from .subnet_elastic import LayerSize, SubnetConfig

# No `from __future__ import annotations` here: `AutoModel.register` reads the annotation of `config` as a class.


class ElasticLinear(nn.Linear):
    """A linear layer that can run as the leading block of its weight.

    Without sizes it is `nn.Linear`, so that adapters, quantizers and exporters treat it as one. Replacements of it
    that know no sizes (a LoRA layer, a 4-bit layer) fail loudly when a sub-network asks for a block, instead of
    silently ignoring what they add.
    """

    def forward(
        self, hidden_states: torch.Tensor, out_features: int | None = None, in_features: int | None = None
    ) -> torch.Tensor:
        if out_features is None and in_features is None:
            return super().forward(hidden_states)
        bias = self.bias if self.bias is None else self.bias[:out_features]
        return nn.functional.linear(hidden_states, self.weight[:out_features, :in_features], bias)


class ElasticEmbeddings(nn.Module):
    """Sum of word, absolute position and token type embeddings, normalized."""

    def __init__(self, config: ElasticConfig):
        super().__init__()
        self.max_position_embeddings = config.max_position_embeddings
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.token_type_embeddings = (
            nn.Embedding(config.type_vocab_size, config.hidden_size) if config.type_vocab_size else None
        )
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
    ) -> torch.Tensor:
        embeddings = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        batch_size, sequence_length = embeddings.shape[:2]
        if position_ids is None:
            # A traced length is symbolic, and comparing it would fix its range.
            if not torch.compiler.is_compiling() and sequence_length > self.max_position_embeddings:
                raise ValueError(
                    f"The input has {sequence_length} tokens, the model {self.max_position_embeddings} positions: "
                    "truncate it, e.g. tokenizer(..., truncation=True, max_length="
                    f"{self.max_position_embeddings})."
                )
            position_ids = torch.arange(sequence_length, device=embeddings.device).unsqueeze(0)
        if self.token_type_embeddings is not None:
            if token_type_ids is None:
                token_type_ids = torch.zeros((batch_size, sequence_length), dtype=torch.long, device=embeddings.device)
            embeddings = embeddings + self.token_type_embeddings(token_type_ids)
        embeddings = embeddings + self.position_embeddings(position_ids)
        return self.dropout(self.norm(embeddings))


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Plain attention, the only implementation that can return its weights of shape (batch, heads, length, length)."""
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


class ElasticAttention(nn.Module):
    """Bidirectional self-attention that can run with its leading heads alone."""

    def __init__(self, config: ElasticConfig, size: LayerSize):
        super().__init__()
        self.config = config
        self.layer_idx = size.layer
        self.num_attention_heads = size.num_attention_heads
        self.head_dim = config.head_dim
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = config.attention_probs_dropout_prob
        self.is_causal = False
        inner_size = self.num_attention_heads * self.head_dim
        self.q_proj = ElasticLinear(config.hidden_size, inner_size)
        self.k_proj = ElasticLinear(config.hidden_size, inner_size)
        self.v_proj = ElasticLinear(config.hidden_size, inner_size)
        self.o_proj = ElasticLinear(inner_size, config.hidden_size)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        num_attention_heads: int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        rows, columns = {}, {}
        if num_attention_heads is not None and num_attention_heads != self.num_attention_heads:
            inner_size = num_attention_heads * self.head_dim
            rows, columns = {"out_features": inner_size}, {"in_features": inner_size}
        input_shape = hidden_states.shape[:-1]
        head_shape = (*input_shape, -1, self.head_dim)
        query = self.q_proj(hidden_states, **rows).view(head_shape).transpose(1, 2)
        key = self.k_proj(hidden_states, **rows).view(head_shape).transpose(1, 2)
        value = self.v_proj(hidden_states, **rows).view(head_shape).transpose(1, 2)

        attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        context, weights = attention_interface(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        return self.o_proj(context.reshape(*input_shape, -1), **columns), weights


class ElasticMLP(nn.Module):
    """Feed-forward network that can run with its leading neurons alone."""

    def __init__(self, config: ElasticConfig, size: LayerSize):
        super().__init__()
        self.intermediate_size = size.intermediate_size
        self.up_proj = ElasticLinear(config.hidden_size, self.intermediate_size)
        self.down_proj = ElasticLinear(self.intermediate_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: torch.Tensor, intermediate_size: int | None = None) -> torch.Tensor:
        if intermediate_size is None or intermediate_size == self.intermediate_size:
            return self.down_proj(self.activation(self.up_proj(hidden_states)))
        neurons = self.activation(self.up_proj(hidden_states, out_features=intermediate_size))
        return self.down_proj(neurons, in_features=intermediate_size)


class ElasticLayer(GradientCheckpointingLayer):
    """Encoder layer with the norms after the residual sums, as in BERT."""

    def __init__(self, config: ElasticConfig, size: LayerSize):
        super().__init__()
        self.attention = ElasticAttention(config, size)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = ElasticMLP(config, size)
        self.mlp_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        num_attention_heads: int | None = None,
        intermediate_size: int | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        attention_output, _ = self.attention(hidden_states, attention_mask, num_attention_heads, **kwargs)
        hidden_states = self.attention_norm(hidden_states + self.dropout(attention_output))
        mlp_output = self.mlp(hidden_states, intermediate_size)
        return self.mlp_norm(hidden_states + self.dropout(mlp_output))


class ElasticPooler(nn.Module):
    """Dense layer with tanh over the first token's hidden state."""

    def __init__(self, config: ElasticConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.dense(hidden_states[:, 0]))


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
    _can_record_outputs = {"hidden_states": ElasticLayer, "attentions": ElasticAttention}

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
        self.layers = nn.ModuleList([ElasticLayer(config, size) for size in self.layer_sizes])
        if add_pooling_layer is not None:
            config.add_pooling_layer = add_pooling_layer  # so that a checkpoint says whether it has one
        self.pooler = ElasticPooler(config) if config.add_pooling_layer else None
        self.gradient_checkpointing = False
        self.active_subnet = SubnetConfig()
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        subnet: str | SubnetConfig | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
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
            inputs_embeds (`torch.FloatTensor` of shape `(batch, length, hidden_size)`, *optional*):
                Word embeddings in place of `input_ids`.
            subnet (`str` or `SubnetConfig`, *optional*):
                The size to run: a name in `config.subnets` or a description. By default the size chosen with
                [`~ElasticPreTrainedModel.use_subnet`], which is the full model unless it was set.

        Returns:
            `BaseModelOutputWithPooling`: `last_hidden_state` of shape `(batch, length, hidden_size)`, `pooler_output`
            of shape `(batch, hidden_size)`, and one hidden state per layer that ran, preceded by the embeddings, if
            `output_hidden_states=True`.

        Raises:
            ValueError: If both or neither of `input_ids` and `inputs_embeds` are given, the input is longer than the
                position embeddings, or the subnet is unknown.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give exactly one of input_ids and inputs_embeds.")
        active = self.active_subnet if subnet is None else self.resolve_subnet(subnet)

        hidden_states = self.embeddings(input_ids, token_type_ids, position_ids, inputs_embeds)
        attention_mask = create_bidirectional_mask(
            config=self.config, inputs_embeds=hidden_states, attention_mask=attention_mask
        )
        for size in active.select(self.layer_sizes):
            hidden_states = self.layers[size.layer](
                hidden_states, attention_mask, size.num_attention_heads, size.intermediate_size, **kwargs
            )
        return BaseModelOutputWithPooling(
            last_hidden_state=hidden_states,
            pooler_output=self.pooler(hidden_states) if self.pooler is not None else None,
        )


class ElasticLMHead(nn.Module):
    """Dense layer, activation and norm, then the decoder, whose weight is the word embedding's unless it is untied."""

    def __init__(self, config: ElasticConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACT2FN[config.hidden_act]
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.norm(self.activation(self.dense(hidden_states))))


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
        return MaskedLMOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


def classifier_dropout(config: ElasticConfig) -> nn.Dropout:
    """Gives the dropout in front of a classifier: the hidden states' unless the configuration says otherwise."""
    return nn.Dropout(config.hidden_dropout_prob if config.classifier_dropout is None else config.classifier_dropout)


class ElasticForSequenceClassification(ElasticPreTrainedModel):
    """The encoder with a classifier of the pooled output: one label, several labels, or regression."""

    _auto_class = "AutoModelForSequenceClassification"

    def __init__(self, config: ElasticConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = ElasticModel(config, add_pooling_layer=True)
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
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
        loss = None if labels is None else self._loss(logits, labels, num_items_in_batch)
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
        if self.config.problem_type == "single_label_classification":
            return fixed_cross_entropy(logits.float(), labels.view(-1).long(), num_items_in_batch)
        if labels.numel() != logits.numel():
            raise ValueError(
                f"labels of shape {tuple(labels.shape)} do not fit logits of shape {tuple(logits.shape)}: "
                f"{self.config.problem_type} with num_labels={self.num_labels} takes one number per label."
            )
        # transformers' own losses for these two ignore `num_items_in_batch`, which accumulation needs.
        regression = self.config.problem_type == "regression"
        loss_function = nn.functional.mse_loss if regression else nn.functional.binary_cross_entropy_with_logits
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
        self.dropout = classifier_dropout(config)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
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
                Class indices, -100 where a token has none.
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
        logits = self.classifier(self.dropout(outputs.last_hidden_state))
        loss = None
        if labels is not None:
            loss = self.loss_function(logits, labels, self.config, num_items_in_batch=num_items_in_batch)
        return TokenClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )


class ElasticForQuestionAnswering(ElasticPreTrainedModel):
    """The encoder with a classifier of every token as start and end of the answer."""

    _auto_class = "AutoModelForQuestionAnswering"

    def __init__(self, config: ElasticConfig):
        super().__init__(config)
        self.model = ElasticModel(config, add_pooling_layer=False)
        self.qa_outputs = nn.Linear(config.hidden_size, 2)
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

        See [`ElasticModel.forward`] for the other arguments. Both logits have the shape `(batch, length)`.
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
        start_logits, end_logits = self.qa_outputs(outputs.last_hidden_state).unbind(dim=-1)
        loss = None
        if start_positions is not None and end_positions is not None:
            loss = self.loss_function(
                start_logits, end_logits, start_positions, end_positions, num_items_in_batch=num_items_in_batch
            )
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
        self.classifier = nn.Linear(config.hidden_size, 1)
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
        loss = None if labels is None else fixed_cross_entropy(logits.float(), labels, num_items_in_batch)
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
