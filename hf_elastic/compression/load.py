"""Loading a checkpoint in a class whose head it may lack, without a report that reads as a fault."""

from logging import LogRecord, getLogger
from typing import Any

from transformers import PreTrainedModel
from transformers.utils import logging

logger = logging.get_logger(__name__)

# Reports what a checkpoint lacks and what it has besides.
_REPORTING = getLogger("transformers.modeling_utils")


def load_with_head(model_class: type[PreTrainedModel], name: str, **kwargs: Any) -> PreTrainedModel:
    """Loads a checkpoint, and says it in one sentence if its head is new.

    If weights of the encoder are missing or left over as well, `from_pretrained` reports as usual.

    Args:
        model_class (`type[PreTrainedModel]`):
            The class, with its head.
        name (`str`):
            Hub id or folder.
        **kwargs:
            As `from_pretrained` takes them.
    """
    reports = []

    def hold_back(record: LogRecord) -> bool:
        is_report = "LOAD REPORT" in record.getMessage()
        if is_report:
            reports.append(record)
        return not is_report

    _REPORTING.addFilter(hold_back)
    try:
        model, info = model_class.from_pretrained(name, **{**kwargs, "output_loading_info": True})
        different = [*info["missing_keys"], *info["unexpected_keys"]]
        encoder = f"{model.base_model_prefix}."
        if info["missing_keys"] and not info["mismatched_keys"] and not any(k.startswith(encoder) for k in different):
            reports.clear()
            logger.warning(f"The head of {model_class.__name__} is new: train it before the model is used.")
        return model
    finally:
        _REPORTING.removeFilter(hold_back)
        for report in reports:
            _REPORTING.handle(report)
