"""Configuration of an elastic encoder: one transformer encoder, and the sizes that it can run as."""

import math
from typing import Any, Literal

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from .presets_elastic import preset_fields, scaled_fields
from .subnet_elastic import LAYER_AXES, LayerSize, SubnetConfig, check_groups, check_nested

# Where a saved checkpoint's own code defines each Auto class. Complete in every checkpoint, whichever class saved it.
AUTO_MAP = {
    "AutoConfig": "configuration_elastic.ElasticConfig",
    "AutoModel": "modeling_elastic.ElasticModel",
    "AutoModelForMaskedLM": "modeling_elastic.ElasticForMaskedLM",
    "AutoModelForSequenceClassification": "modeling_elastic.ElasticForSequenceClassification",
    "AutoModelForTokenClassification": "modeling_elastic.ElasticForTokenClassification",
    "AutoModelForQuestionAnswering": "modeling_elastic.ElasticForQuestionAnswering",
    "AutoModelForMultipleChoice": "modeling_elastic.ElasticForMultipleChoice",
}
# Names that stand for something else in metrics and folders.
RESERVED_SUBNET_NAMES = ("mean", "supernet")
BLOCK_SPARSE = "block_sparse_attention"
LAYER_TYPES = ("full_attention", "sliding_attention", BLOCK_SPARSE, "linear_attention")
PROBABILITIES = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout", "qa_dropout")
# Rotary embeddings whose frequencies do not depend on the length of the input.
ROPE_TYPES = ("default", "linear", "yarn", "llama3")


@strict
class ElasticConfig(PreTrainedConfig):
    r"""
    Configuration of an [`ElasticModel`] and its heads. The fields carry the names and meanings that they have in BERT
    and, where it has none, in ModernBERT and Mixtral; layers that differ from the global values are written with
    `per_layer_config`.

    Args:
        head_dim (`int`, *optional*):
            Size of one attention head. `hidden_size // num_attention_heads` by default. It is stored, because a layer
            that keeps fewer heads keeps their size.
        embedding_size (`int`, *optional*):
            Size of the embeddings; `hidden_size` by default.
        embedding_projection (`bool`, *optional*):
            Whether a linear projection to the hidden size follows the embeddings (ELECTRA). By default where the sizes
            differ. Without it, a size with fewer hidden units has smaller embeddings as well.
        position_embedding_type (`str`, defaults to `"absolute"`):
            `"absolute"`: learned, counted from 0. `"cumulative"`: learned, counted over the tokens that are not
            padding, from `pad_token_id + 1` on (RoBERTa). `"rotary"`: rotations of queries and keys.
        rope_parameters (`dict[str, dict]`, *optional*):
            For rotary positions, the parameters of each layer type, e.g. `{"full_attention": {"rope_type": "default",
            "rope_theta": 160000.0}}`. A type without an entry has that of `"full_attention"`.
        norm_position (`str`, defaults to `"post"`):
            Where a layer's norms are: after the residual sums (`"post"`, BERT) or before attention and feed-forward
            network (`"pre"`, ModernBERT).
        first_attention_norm (`bool`, defaults to `True`):
            Whether the first layer has a norm before its attention; without it, the norm of the embeddings is it.
        final_norm (`bool`, defaults to `False`):
            Whether a norm follows the last layer.
        norm_bias, attention_bias, mlp_bias, decoder_bias (`bool`, default to `True`):
            Whether the norms, the projections of attention, those of the feed-forward networks, and the decoder of the
            masked language model have a bias.
        gated_mlp (`bool`, defaults to `False`):
            Whether the activated neurons are multiplied by a second projection.
        classifier_pooling (`str`, defaults to `"cls"`):
            What represents a sequence: the hidden state of its first token (`"cls"`) or the mean over all (`"mean"`).
        pooling_skips_padding (`bool`, defaults to `False`):
            Whether the first token is looked for after padding on the left, instead of being that of the batch's row.
        classifier_activation (`str`, defaults to `"tanh"`), classifier_norm (`bool`, defaults to `False`),
        classifier_bias (`bool`, defaults to `True`):
            The layer between the encoder and a classifier (BERT's pooler): its activation, whether a norm follows, and
            whether its dense part has a bias.
        classifier_input_dropout (`bool`, defaults to `False`):
            Whether the classifier's dropout also comes before that layer.
        token_transform (`bool`, defaults to `False`):
            Whether classifiers of tokens have such a layer, too.
        qa_dropout (`float`, defaults to 0.0):
            Dropout before the question answering head.
        lm_head_activation (`str`, *optional*), lm_head_bias (`bool`, defaults to `True`):
            Activation of the dense layer before the decoder, `hidden_act` by default, and whether it has a bias.
        layer_types (`list[str]`, *optional*):
            Attention of each layer: `"full_attention"` (the default), `"sliding_attention"`,
            `"block_sparse_attention"` or `"linear_attention"`.
        sliding_window (`int`, defaults to 64):
            How far a token of a `"sliding_attention"` layer sees to each side.
        num_global_tokens (`int`, defaults to 0):
            The first tokens of a sequence that, in sparse layers, see all others and are seen by them.
        num_random_blocks (`int`, defaults to 0):
            Blocks that each block of a `"sliding_attention"` layer sees besides, drawn once and for all (BigBird).
        random_block_seeds (`list[int]`, *optional*):
            For each layer, what its random blocks are drawn with; its index by default.
        attention_block_size (`int`, defaults to 64):
            Tokens of a block.
        attention_sparsity (`float`, defaults to 0.7):
            Part of the blocks in [0, 1) that a head of a `"block_sparse_attention"` layer leaves out: where its
            learnable sparsity begins, and the target of the penalty.
        sparsity_penalty (`float`, defaults to 1.0):
            Weight in the training loss of the heads' mean squared distance to `attention_sparsity`.
        dense_fallback (`bool`, defaults to `True`):
            Whether sparse layers compute inputs densely that are so short that this is faster. Of
            `"sliding_attention"` layers the output is the same; `"block_sparse_attention"` layers leave nothing out of
            a text with fewer than six blocks of tokens then, whatever it is padded to.
        sparse_attention (`bool`, defaults to `False`):
            Whether `"full_attention"` layers become `"block_sparse_attention"` layers. May be given when a dense
            checkpoint is loaded.
        num_experts (`int`, defaults to 1):
            Feed-forward experts of a layer, each with `intermediate_size` neurons. One is a plain network.
        num_experts_per_tok (`int`, defaults to 1):
            Experts that a token goes through.
        expert_weighting (`str`, defaults to `"softmax"`):
            Weights of a token's experts: their probabilities, which sum to one (`"softmax"`), or one each (`"unit"`,
            for the experts that one network was split into).
        router_aux_loss_coef (`float`, defaults to 0.01), router_z_loss_coef (`float`, defaults to 0.001):
            Weights of the routers' load balancing loss and of their z-loss in the training loss.
        layer_groups (`list[int]`, *optional*):
            For each layer the number of the weights that it uses; layers with the same number share them, e.g.
            `[0, 0, 0, 1, 2, 3]`. Each layer has its own by default. For a new model; layers of a trained one are made
            to share by [`~hf_elastic.share_layers`].
        unpad_inputs (`bool`, defaults to `False`):
            Whether padding is taken out before the first layer and put back after the last. Outputs at padding are 0.
        hidden_units_ranked (`bool`, defaults to `False`):
            Whether the hidden units are in another order than in the source, see [`~hf_elastic.rank`].
        add_pooling_layer (`bool`, defaults to `True`):
            Whether the base model has a pooler (the layer before a classifier, over the whole sequence).
        source_model_type (`str`, *optional*):
            Model type of the checkpoint that this one was converted from, e.g. `"bert"`.
        source_name_or_path (`str`, *optional*):
            Hub id of that checkpoint, or the name of its folder, without the path, which says nothing elsewhere.
        preprocessing (`dict[str, Any]`, *optional*):
            How the texts that the head was trained on were made into tokens, see
            [`~hf_elastic.tasks.preprocessing.Preprocessing`].
        subnets (`dict[str, SubnetConfig]`, *optional*):
            The named sizes. Checked whenever they are assigned; plain dictionaries are read as settings of
            [`SubnetConfig`].

    Raises:
        ValueError: If a size is not positive, `head_dim` is missing and `hidden_size` is not a multiple of
            `num_attention_heads`, a field has a value that is not possible, or a subnet does not fit.

    Example:
        >>> config = ElasticConfig(num_hidden_layers=6, hidden_size=384, intermediate_size=1536)
        >>> config.subnets = {"small": SubnetConfig.scaled(config, width=0.5, depth=0.5)}
        >>> config.subnets["small"].layers
        (0, 3, 5)
    """

    model_type = "elastic"
    _auto_class = "AutoConfig"
    _rope_type_labels = LAYER_TYPES
    # How `from_pretrained(distributed_config=...)` splits a model. Tensor parallelism leaves experts, embeddings and
    # heads whole; for FSDP, everything outside of the layers is one unit, tied weights included.
    base_model_tp_plan = {
        "layers.*.attention.q_proj": "colwise",
        "layers.*.attention.k_proj": "colwise",
        "layers.*.attention.v_proj": "colwise",
        "layers.*.attention.o_proj": "rowwise",
        "layers.*.mlp.gate_proj": "colwise",
        "layers.*.mlp.up_proj": "colwise",
        "layers.*.mlp.down_proj": "rowwise",
    }
    base_model_fsdp_plan = {"layers.*": "free_full_weight"}

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    head_dim: int | None = None
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float | int = 0.1
    attention_probs_dropout_prob: float | int = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float | int = 0.02
    layer_norm_eps: float | int = 1e-12
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    classifier_dropout: float | int | None = None
    tie_word_embeddings: bool = True
    embedding_size: int | None = None
    embedding_projection: bool | None = None
    position_embedding_type: Literal["absolute", "cumulative", "rotary"] = "absolute"
    rope_parameters: dict[str, Any] | None = None
    norm_position: Literal["post", "pre"] = "post"
    first_attention_norm: bool = True
    final_norm: bool = False
    norm_bias: bool = True
    attention_bias: bool = True
    mlp_bias: bool = True
    decoder_bias: bool = True
    gated_mlp: bool = False
    classifier_pooling: Literal["cls", "mean"] = "cls"
    pooling_skips_padding: bool = False
    classifier_activation: str = "tanh"
    classifier_norm: bool = False
    classifier_bias: bool = True
    classifier_input_dropout: bool = False
    token_transform: bool = False
    qa_dropout: float | int = 0.0
    lm_head_activation: str | None = None
    lm_head_bias: bool = True
    layer_types: list[str] | None = None
    sliding_window: int = 64
    num_global_tokens: int = 0
    num_random_blocks: int = 0
    random_block_seeds: list[int] | None = None
    attention_block_size: int = 64
    attention_sparsity: float | int = 0.7
    sparsity_penalty: float | int = 1.0
    dense_fallback: bool = True
    sparse_attention: bool = False
    num_experts: int = 1
    num_experts_per_tok: int = 1
    expert_weighting: Literal["softmax", "unit"] = "softmax"
    router_aux_loss_coef: float | int = 0.01
    router_z_loss_coef: float | int = 0.001
    layer_groups: list[int] | None = None
    unpad_inputs: bool = False
    hidden_units_ranked: bool = False
    add_pooling_layer: bool = True
    source_model_type: str | None = None
    source_name_or_path: str | None = None
    preprocessing: dict[str, Any] | None = None
    subnets: dict[str, Any] | None = None

    def __post_init__(self, block_sparse_layers: list[int] | None = None, **kwargs):
        self._check_positive()  # here already, as head_dim is made of them
        if self.head_dim is None:
            if self.hidden_size % self.num_attention_heads:
                raise ValueError(
                    f"hidden_size={self.hidden_size} is not a multiple of num_attention_heads="
                    f"{self.num_attention_heads}: give head_dim as well."
                )
            self.head_dim = self.hidden_size // self.num_attention_heads
        if self.embedding_size is None:
            self.embedding_size = self.hidden_size
        if self.embedding_projection is None:
            self.embedding_projection = self.embedding_size != self.hidden_size
        if not self.embedding_projection and self.embedding_size != self.hidden_size:
            raise ValueError(
                f"embedding_size={self.embedding_size} and hidden_size={self.hidden_size} differ, which takes "
                "embedding_projection=True."
            )
        if self.layer_types is None:
            self.layer_types = ["full_attention"] * self.num_hidden_layers
        sparse = block_sparse_layers or []
        self.layer_types = [BLOCK_SPARSE if layer in sparse else kind for layer, kind in enumerate(self.layer_types)]
        self.validate_layer_type()
        super().__post_init__(**kwargs)
        self.auto_map = dict(AUTO_MAP)
        self.sparse_attention = self.sparse_attention  # which changes the layer types
        self.complete()

    def complete(self) -> None:
        """Fills in what other fields imply, and checks them all.

        Called when the configuration is made, and again when a model is made of it: `from_pretrained` sets the fields
        that it is given one by one, in between.

        Raises:
            ValueError: If a field has a value that is not possible. `@strict`, which checks the fields as well, raises
                errors of another kind.
        """
        self.validate_layer_type()
        if self.random_block_seeds is None and self.num_random_blocks > 0:
            self.random_block_seeds = list(range(self.num_hidden_layers))
        if self.layer_groups is not None:
            # By order of first appearance, which is the order of the weights in a checkpoint.
            order = list(dict.fromkeys(self.layer_groups))
            self.layer_groups = [order.index(group) for group in self.layer_groups]
            if self.random_block_seeds is not None:  # layers that share their weights share these, too
                firsts = [self.layer_groups.index(group) for group in self.layer_groups]
                self.random_block_seeds = [self.random_block_seeds[first] for first in firsts]
        self.validate_numbers()
        self.validate_sparse_attention()
        self.validate_layer_sizes()
        self.validate_layer_groups()
        self.subnets = self.subnets  # which checks them

    def __setattr__(self, name: str, value: Any) -> None:
        if self.__dict__.get("_post_init_done"):
            if name == "subnets":
                value = self._checked_subnets(value or {})
            if name == "sparse_attention":
                before, after = ("full_attention", BLOCK_SPARSE) if value else (BLOCK_SPARSE, "full_attention")
                if value or self.sparse_attention:
                    self.layer_types = [after if kind == before else kind for kind in self.layer_types]
        super().__setattr__(name, value)

    @classmethod
    def from_preset(cls, name: str, **fields: Any) -> "ElasticConfig":
        """Gives a standard size: `"tiny"`, `"mini"`, `"small"`, `"medium"`, `"base"` or `"large"`.

        Heads have 64 dimensions in all of them, so that heads of one can be those of another.

        Args:
            name (`str`):
                Name of the size.
            **fields:
                Other fields of the configuration, or other values for those that the size sets. Heads and neurons
                follow another hidden size.

        Raises:
            ValueError: If the name is unknown, or the hidden size is no multiple of `head_dim`.

        References:
            Turc et al. 2019, Well-Read Students Learn Better (https://arxiv.org/abs/1908.08962)
        """
        return cls(**preset_fields(name, fields))

    def scaled(self, width: float = 1.0, depth: float = 1.0) -> "ElasticConfig":
        """Gives the configuration of a larger or smaller supernet, with heads of the same size.

        Args:
            width (`float`, defaults to 1.0):
                Multiplier of hidden size, heads and feed-forward neurons. The number of heads is rounded, and the
                hidden size grows with it.
            depth (`float`, defaults to 1.0):
                Multiplier of the number of layers. The pattern of the layer types goes on, or ends earlier.

        Returns:
            [`ElasticConfig`]: Without named subnets, which describe parts of this one.

        Raises:
            ValueError: If a multiplier is not positive, or the layers of this configuration differ in size or share
                weights, which says nothing about further ones.
        """
        return type(self)(**scaled_fields(self, width, depth))

    def layer_sizes(self) -> tuple[LayerSize, ...]:
        """Gives the sizes of each layer of the full model."""
        layers = self.per_layer_config if self.is_heterogeneous else [self] * self.num_hidden_layers
        groups = self.layer_groups or [None] * self.num_hidden_layers
        return tuple(
            LayerSize(
                layer=layer,
                hidden_size=self.hidden_size,
                group=group,
                **{axis: getattr(config, axis) for axis in LAYER_AXES},
            )
            for layer, (config, group) in enumerate(zip(layers, groups, strict=True))
        )

    def to_dict(self) -> dict[str, Any]:
        """Serializes the configuration; subnets become plain dictionaries."""
        output = super().to_dict()
        output["subnets"] = {name: subnet.to_dict() for name, subnet in self.subnets.items()}
        return output

    def to_diff_dict(self) -> dict[str, Any]:
        """Serializes the configuration for a file, where block-sparse layers stand in a field of their own.

        Whoever reads a file without this class (`Trainer` to resume, `AutoTokenizer`) refuses types of layers that
        transformers does not have.
        """
        output = super().to_diff_dict()
        sparse = [layer for layer, kind in enumerate(self.layer_types) if kind == BLOCK_SPARSE]
        if sparse:
            output["layer_types"] = ["full_attention" if kind == BLOCK_SPARSE else kind for kind in self.layer_types]
            output["block_sparse_layers"] = sparse
        return output

    def validate_layer_type(self) -> None:
        """Part of `@strict`'s validation: the layer types are those that this model has, one for each layer."""
        for entry in self.layer_types:
            if entry not in LAYER_TYPES:
                raise ValueError(f"layer_types has {entry!r}: possible are {list(LAYER_TYPES)}.")
        for name in ("layer_types", "layer_groups", "random_block_seeds"):
            value = getattr(self, name)
            if value is not None and len(value) != self.num_hidden_layers:
                raise ValueError(
                    f"{name} has {len(value)} entries, but num_hidden_layers={self.num_hidden_layers}: give one for "
                    "each layer."
                )

    def validate_subnets(self) -> None:
        """Part of `@strict`'s validation, which also runs before saving: catches subnets that were added in place."""
        self._checked_subnets(self.subnets)

    def validate_numbers(self) -> None:
        """Part of `@strict`'s validation: numbers that a computation would choke on, or silently take, are told."""
        for name in ("head_dim", "embedding_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1.")
        if self.type_vocab_size < 0:
            raise ValueError(f"type_vocab_size={self.type_vocab_size} must be at least 0; 0 means no token types.")
        if self.pad_token_id is not None and not 0 <= self.pad_token_id < self.vocab_size:
            raise ValueError(f"pad_token_id={self.pad_token_id} must lie in [0, vocab_size={self.vocab_size}).")
        for name in PROBABILITIES:
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ValueError(f"{name}={value} must lie in [0, 1]: it is a probability.")
        for name in ("initializer_range", "sparsity_penalty", "router_aux_loss_coef", "router_z_loss_coef"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name}={getattr(self, name)} must be a finite number of at least 0.")
        if not 0 < self.layer_norm_eps < math.inf:
            raise ValueError(f"layer_norm_eps={self.layer_norm_eps} must be a finite number above 0.")

    def validate_sparse_attention(self) -> None:
        """Part of `@strict`'s validation: windows, blocks and sparsity are possible."""
        for name, smallest in (("sliding_window", 0), ("num_global_tokens", 0), ("num_random_blocks", 0)):
            if getattr(self, name) < smallest:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {smallest}.")
        if self.attention_block_size < 16 or self.attention_block_size % 16:
            raise ValueError(
                f"attention_block_size={self.attention_block_size} must be a multiple of 16, which kernels work in, "
                "e.g. 64."
            )
        if not 0 <= self.attention_sparsity < 1:
            raise ValueError(
                f"attention_sparsity={self.attention_sparsity} must lie in [0, 1): it is the part of the blocks that "
                "is left out."
            )

    def validate_layer_sizes(self) -> None:
        """Part of `@strict`'s validation: layers have something of everything, and tokens no more experts than are."""
        for size in self.layer_sizes():
            for axis in LAYER_AXES:
                if getattr(size, axis) < 1:
                    raise ValueError(f"{axis}={getattr(size, axis)} must be at least 1 (layer {size.layer}).")
            if size.num_experts_per_tok > size.num_experts:
                raise ValueError(
                    f"num_experts_per_tok={size.num_experts_per_tok} is more than num_experts={size.num_experts} "
                    f"(layer {size.layer})."
                )

    def validate_layer_groups(self) -> None:
        """Part of `@strict`'s validation: layers that share weights are of one kind and size."""
        check_groups(self.layer_sizes())
        for layer, group in enumerate(self.layer_groups or []):
            first = self.layer_groups.index(group)
            if self.layer_types[layer] != self.layer_types[first]:
                raise ValueError(
                    f"layer_groups={self.layer_groups}: layers {first} and {layer} share their weights, but "
                    f"layer_types has {self.layer_types[first]!r} and {self.layer_types[layer]!r} for them."
                )
            if layer > first == 0 and not self.first_attention_norm:
                raise ValueError(
                    f"layer_groups={self.layer_groups}: layer {layer} cannot share the weights of layer 0, which has "
                    "no attention norm (first_attention_norm=False)."
                )

    def convert_rope_params_to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Completes `rope_parameters`; called by the parent."""
        if self.position_embedding_type != "rotary":
            return kwargs
        parameters = self.rope_parameters or {}
        if not parameters.keys() & set(LAYER_TYPES):
            parameters = {"full_attention": parameters}
        parameters.setdefault("full_attention", {})
        for layer_type, values in parameters.items():
            if layer_type not in LAYER_TYPES or not isinstance(values, dict):
                raise ValueError(
                    f"rope_parameters has {layer_type!r}: {values!r}: give a dictionary of parameters for one of "
                    f"{list(LAYER_TYPES)}."
                )
            values.setdefault("rope_type", "default")
            values.setdefault("rope_theta", self.default_theta)
            if values["rope_type"] not in ROPE_TYPES:
                raise ValueError(
                    f"rope_parameters of {layer_type!r} have rope_type={values['rope_type']!r}: possible are "
                    f"{list(ROPE_TYPES)}, but not rotations that depend on the input's length."
                )
            if not isinstance(values["rope_theta"], int | float) or values["rope_theta"] <= 0:
                raise ValueError(
                    f"rope_parameters of {layer_type!r} have rope_theta={values['rope_theta']!r}: give a positive "
                    "number, e.g. 10000.0."
                )
        self.rope_parameters = parameters
        return kwargs

    def _check_positive(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
            "num_experts",
            "num_experts_per_tok",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1.")

    def _checked_subnets(self, subnets: dict[str, Any]) -> dict[str, SubnetConfig]:
        checked = {}
        for name, subnet in subnets.items():
            if not isinstance(name, str) or not name.replace("-", "_").isidentifier() or name in RESERVED_SUBNET_NAMES:
                raise ValueError(
                    f"Subnet name {name!r} cannot be used: names become folders and parts of metric names, so use "
                    f"letters, digits, '-' and '_', and none of {list(RESERVED_SUBNET_NAMES)}."
                )
            if isinstance(subnet, dict):
                subnet = SubnetConfig.from_dict(subnet)
            if not isinstance(subnet, SubnetConfig):
                raise TypeError(f"Subnet {name!r} is a {type(subnet).__name__}: give a SubnetConfig or a dictionary.")
            try:
                subnet.layer_sizes(self)
            except ValueError as error:
                raise ValueError(f"Subnet {name!r} does not fit its supernet: {error}") from None
            checked[name] = subnet
        check_nested(checked, self)
        return checked


__all__ = ["AUTO_MAP", "ElasticConfig"]
