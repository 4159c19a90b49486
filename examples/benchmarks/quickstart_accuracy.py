"""Test accuracy of the quickstart's sizes, against the same checkpoint fine-tuned alone for as many epochs.

Give the folder that `hf-elastic quickstart` wrote.
"""

import argparse
import tempfile

from results import report
from transformers import AutoModelForSequenceClassification, AutoTokenizer, Trainer, TrainingArguments, set_seed

from hf_elastic import load_family
from hf_elastic.quickstart import RECIPE
from hf_elastic.recipes import Recipe, TrainingSettings
from hf_elastic.tasks import bbc_news
from hf_elastic.tasks.text_classification import encode


def accuracy_alone(settings: TrainingSettings) -> float:
    """Fine-tunes the checkpoint with transformers alone, in the recipe's settings, and scores it on the test split."""
    data = bbc_news.load()
    if settings.train_rows is not None:
        data = data.limit(settings.train_rows, settings.seed)
    tokenizer = AutoTokenizer.from_pretrained(bbc_news.minilm_checkpoint())
    encoded = encode(data, tokenizer, settings.max_length)
    set_seed(settings.seed)
    model = AutoModelForSequenceClassification.from_pretrained(bbc_news.minilm_checkpoint(), **data.model_settings)
    args = TrainingArguments(
        tempfile.mkdtemp(),
        num_train_epochs=settings.finetune_epochs + settings.cotrain_epochs,
        learning_rate=settings.learning_rate,
        warmup_steps=0.1,
        per_device_train_batch_size=settings.batch_size,
        seed=settings.seed,
        save_strategy="no",
        report_to="none",
    )
    common = {"processing_class": tokenizer, "compute_metrics": data.compute_metrics}
    trainer = Trainer(model, args, train_dataset=encoded["train"], **common)
    trainer.train()
    return trainer.evaluate(encoded["test"])["eval_accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("family", nargs="?", default=RECIPE)
    parser.add_argument("--fast", action="store_true", help="the family is of `hf-elastic quickstart --fast`")
    options = parser.parse_args()
    family = load_family(options.family)
    settings = Recipe.load(RECIPE).settings(options.fast)
    alone = accuracy_alone(settings)
    sizes = {name: member.metrics["accuracy"] for name, member in family.members.items()}
    rows = [["MiniLM alone", f"{100 * alone:.2f}", ""]]
    rows += [[name, f"{100 * score:.2f}", f"{100 * (score - alone):+.2f}"] for name, score in sizes.items()]
    epochs = settings.finetune_epochs + settings.cotrain_epochs
    report(
        "quickstart_accuracy.py" + (" --fast" if options.fast else ""),
        "The quickstart's sizes against the checkpoint alone" + (", fast" if options.fast else ""),
        ["model", "accuracy", "difference"],
        rows,
        f"BBC News, {len(bbc_news.load().test)} test articles; stock Trainer, {epochs:g} epochs. Targets: the largest "
        "size within 1 point of MiniLM alone, the smallest within 4.",
    )


if __name__ == "__main__":
    main()
