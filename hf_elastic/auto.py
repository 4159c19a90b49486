"""Registration with transformers' Auto classes, at no cost until they are used.

Registering a class means importing it, and with it torch: several times the cost of `import transformers`, which loads
its own models only when they are asked for. So nothing is imported here. The modules that hold the Auto classes are
watched instead, and the classes are registered through the public `register` methods as soon as these exist.
"""

import importlib
import sys

import wrapt

_CONFIGURATION = "hf_elastic.modeling.configuration_elastic"
_MODELING = "hf_elastic.modeling.modeling_elastic"
# The siblings that the modeling file imports, each of which has its `__all__` at its end.
_MODULES = (
    "attend_blocks",
    "attention",
    "block_sparse_attention",
    "embeddings",
    "experts",
    "layers",
    "linear_attention",
    "modeling",
    "pooling",
    "slicing",
    "unpadding",
    "window_attention",
    "window_pattern",
)
# What must be there before a class can be registered, and the name that shows that a module, if its import has begun,
# has come far enough: importing our modeling file from within the import of a module it needs would fail.
_NEEDED_BY_CONFIG = {
    "transformers.models.auto.configuration_auto": "AutoConfig",
    "transformers.configuration_utils": "PreTrainedConfig",
    _CONFIGURATION: "__all__",
}
_NEEDED_BY_MODELS = {
    "transformers.models.auto.modeling_auto": "AutoModel",
    "transformers.modeling_utils": "PreTrainedModel",
    "transformers.modeling_layers": "GradientCheckpointingLayer",
    **{f"hf_elastic.modeling.{module}_elastic": "__all__" for module in _MODULES},
    **_NEEDED_BY_CONFIG,
}


def watch_auto_classes() -> None:
    """Registers the elastic classes with the Auto classes, now if they are loaded, else once they are."""
    for module in _NEEDED_BY_CONFIG.keys() | _NEEDED_BY_MODELS.keys():
        wrapt.register_post_import_hook(lambda _: register(), module)


def register() -> None:
    """Registers the configuration and the models, each if the Auto classes are loaded and nothing is half imported."""
    if _ready("transformers.models.auto.configuration_auto", _NEEDED_BY_CONFIG):
        configuration = importlib.import_module(_CONFIGURATION)
        auto = sys.modules["transformers.models.auto.configuration_auto"]
        auto.AutoConfig.register("elastic", configuration.ElasticConfig, exist_ok=True)
    if _ready("transformers.models.auto.modeling_auto", _NEEDED_BY_MODELS):
        modeling = importlib.import_module(_MODELING)
        configuration = sys.modules[_CONFIGURATION]
        auto = sys.modules["transformers.models.auto.modeling_auto"]
        for auto_class, reference in configuration.AUTO_MAP.items():
            if auto_class != "AutoConfig":
                model_class = getattr(modeling, reference.partition(".")[2])
                getattr(auto, auto_class).register(configuration.ElasticConfig, model_class, exist_ok=True)


def _ready(auto_module: str, needed: dict[str, str]) -> bool:
    if auto_module not in sys.modules:
        return False
    return all(name not in sys.modules or hasattr(sys.modules[name], symbol) for name, symbol in needed.items())
