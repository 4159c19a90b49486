"""Configuration of an elastic encoder: one transformer encoder, and the sizes that it can run as."""

from typing import Any

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig

from .subnet_elastic import LayerSize, SubnetConfig, check_nested

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


@strict
class ElasticConfig(PreTrainedConfig):
    r"""
    Configuration of an [`ElasticModel`] and its heads. The fields carry BERT's names and meanings; layers that differ
    from the global values are written with `per_layer_config`.

    Args:
        head_dim (`int`, *optional*):
            Size of one attention head. `hidden_size // num_attention_heads` by default. It is stored, because a layer
            that keeps fewer heads keeps their size.
        add_pooling_layer (`bool`, defaults to `True`):
            Whether the base model has a pooler (a dense layer with tanh over the first token).
        source_model_type (`str`, *optional*):
            Model type of the checkpoint that this one was converted from, e.g. `"bert"`.
        source_name_or_path (`str`, *optional*):
            Hub id of that checkpoint, or the name of its folder, without the path, which says nothing elsewhere.
        subnets (`dict[str, SubnetConfig]`, *optional*):
            The named sizes. Checked whenever they are assigned; plain dictionaries are read as settings of
            [`SubnetConfig`].

    Raises:
        ValueError: If a size is not positive, `head_dim` is missing and `hidden_size` is not a multiple of
            `num_attention_heads`, or a subnet does not fit.

    Example:
        >>> config = ElasticConfig(num_hidden_layers=6, hidden_size=384, intermediate_size=1536)
        >>> config.subnets = {"small": SubnetConfig.scaled(config, width=0.5, depth=0.5)}
        >>> config.subnets["small"].layers
        (0, 3, 5)
    """

    model_type = "elastic"
    _auto_class = "AutoConfig"

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
    add_pooling_layer: bool = True
    source_model_type: str | None = None
    source_name_or_path: str | None = None
    subnets: dict[str, Any] | None = None

    def __post_init__(self, **kwargs):
        for name in (
            "vocab_size",
            "hidden_size",
            "num_hidden_layers",
            "num_attention_heads",
            "intermediate_size",
            "max_position_embeddings",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1.")
        if self.head_dim is None:
            if self.hidden_size % self.num_attention_heads:
                raise ValueError(
                    f"hidden_size={self.hidden_size} is not a multiple of num_attention_heads="
                    f"{self.num_attention_heads}: give head_dim as well."
                )
            self.head_dim = self.hidden_size // self.num_attention_heads
        super().__post_init__(**kwargs)
        self.auto_map = dict(AUTO_MAP)
        self.subnets = self.subnets  # only now is everything there that they are checked against

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "subnets" and self.__dict__.get("_post_init_done"):
            value = self._checked_subnets(value or {})
        super().__setattr__(name, value)

    def layer_sizes(self) -> tuple[LayerSize, ...]:
        """Gives the heads and feed-forward neurons of each layer of the full model."""
        if not self.is_heterogeneous:
            size = (self.num_attention_heads, self.intermediate_size)
            return tuple(LayerSize(layer, *size) for layer in range(self.num_hidden_layers))
        return tuple(
            LayerSize(layer, config.num_attention_heads, config.intermediate_size)
            for layer, config in enumerate(self.per_layer_config)
        )

    def to_dict(self) -> dict[str, Any]:
        """Serializes the configuration; subnets become plain dictionaries."""
        output = super().to_dict()
        output["subnets"] = {name: subnet.to_dict() for name, subnet in self.subnets.items()}
        return output

    def validate_subnets(self) -> None:
        """Part of `@strict`'s validation, which also runs before saving: catches subnets that were added in place."""
        self._checked_subnets(self.subnets)

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
