"""What the Hub and transformers call each head's job."""

from dataclasses import dataclass

from ..modeling.configuration_elastic import AUTO_MAP, ElasticConfig


@dataclass(frozen=True)
class Head:
    """How a model of one class is loaded, found and called.

    Args:
        auto_class (`str`): The Auto class that loads it.
        task (`str`): The Hub's name of its task.
        example_input (`str`): A Python expression, with `tokenizer` bound, that gives it a first input.
    """

    auto_class: str
    task: str
    example_input: str

    def has_labels(self, config: ElasticConfig) -> bool:
        """Says whether its outputs have label names: those of a regression have none."""
        return self.task.endswith("-classification") and config.num_labels > 1 and config.problem_type != "regression"


_TASKS = {
    "AutoModel": ("feature-extraction", 'tokenizer("Some text.", return_tensors="pt")'),
    "AutoModelForMaskedLM": ("fill-mask", 'tokenizer(f"Some {tokenizer.mask_token}.", return_tensors="pt")'),
    "AutoModelForSequenceClassification": ("text-classification", 'tokenizer("Some text.", return_tensors="pt")'),
    "AutoModelForTokenClassification": ("token-classification", 'tokenizer("Some text.", return_tensors="pt")'),
    "AutoModelForQuestionAnswering": (
        "question-answering",
        'tokenizer("A question?", "Text with the answer.", return_tensors="pt")',
    ),
    "AutoModelForMultipleChoice": (
        "multiple-choice",
        # A batch of one row with two choices.
        '{key: value[None] for key, value in tokenizer(["Some text."] * 2, ["So?", "Or so?"], padding=True, '
        'return_tensors="pt").items()}',
    ),
}
HEADS = {AUTO_MAP[auto].partition(".")[2]: Head(auto, *names) for auto, names in _TASKS.items()}
