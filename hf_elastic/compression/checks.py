"""What has to hold of a model before it is ranked, cut or counted, said before any work."""

from ..modeling.modeling_elastic import ElasticPreTrainedModel
from .units import replaced_modules


def check_elastic(model: object) -> None:
    """Checks that a model is elastic.

    Raises:
        TypeError: If it is of another kind; says how to get there.
    """
    if isinstance(model, ElasticPreTrainedModel):
        return
    remedy = "convert it first: hf_elastic.convert(model)"
    if hasattr(model, "merge_and_unload"):
        remedy = "merge its adapters first: model = model.merge_and_unload()"
    raise TypeError(f"model is a {type(model).__name__}, not an elastic model: {remedy}.")


def check_plain_weights(model: ElasticPreTrainedModel) -> None:
    """Checks that a model is elastic and that nothing was added to, or done to, the weights that sizes cut.

    Raises:
        TypeError: If the model is not elastic, or a projection was replaced by another kind of layer (an adapter, a
            quantized one); names it.
    """
    check_elastic(model)
    for path, module in replaced_modules(model):
        kind = f"{type(module).__module__}.{type(module).__name__}"
        raise TypeError(
            f"{path} is a {kind}: its weights cannot be cut or reordered alone. Merge adapters first "
            "(model.merge_and_unload()), and quantize last."
        )
