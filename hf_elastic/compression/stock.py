"""From a member back to the class of the checkpoint that it came from."""

import transformers
from transformers import PreTrainedModel

from ..modeling.modeling_elastic import ElasticModel, ElasticPreTrainedModel
from .checks import check_plain_weights
from .copies import load_copies
from .sources import find_source


def to_stock(member: ElasticPreTrainedModel) -> PreTrainedModel:
    """Gives a member as a model of the source's own class, for servers that know only that, e.g. `BertModel`.

    Args:
        member (`ElasticPreTrainedModel`):
            An extracted member, or a supernet, of which the full model is taken. It is left as it is.

    Returns:
        `PreTrainedModel`: For instance a `BertForSequenceClassification` with the same outputs.

    Raises:
        TypeError: If the model is not elastic, or its weights are adapted or quantized.
        ValueError: If the source's class cannot express the member. Names the setting that stands in the way.

    Example:
        >>> member = extract(model, SubnetConfig.scaled(model.config, depth=0.5, ffn=0.5))
        >>> to_stock(member).save_pretrained("bert-small")
    """
    check_plain_weights(member)
    config = member.config
    if config.source_model_type is None:
        raise ValueError(
            "source_model_type=None: the model was not converted from a checkpoint. Set it, e.g. to 'bert'."
        )
    source = find_source(config.source_model_type)
    classes = {cls.__name__ for cls in type(member).__mro__}
    class_name, head = next(
        (name, head) for name, head in source.heads.items() if head.invertible and head.elastic_class in classes
    )
    stock_class = getattr(transformers, class_name)
    stock_config = stock_class.config_class(
        **source.stock_settings(config),
        id2label=config.id2label,
        label2id=config.label2id,
        problem_type=config.problem_type,
        name_or_path=config.name_or_path,
        attn_implementation=config._attn_implementation,
    )
    arguments = {"add_pooling_layer": member.pooler is not None} if isinstance(member, ElasticModel) else {}
    stock_model = stock_class(stock_config, **arguments).to(member.device).train(member.training)
    weights = {source.to_source_name(name, head): weight for name, weight in member.state_dict().items()}
    load_copies(stock_model, weights | {alias: weights[name] for alias, name in head.aliases.items()})
    return stock_model
