"""Train four sizes of a classifier at once on labelled text, and export them: the Python behind `hf-elastic train`.

Runs as it stands on the articles of the `demo` extra; give a folder of csv, json or parquet files for your own.
"""

import argparse

from transformers import AutoTokenizer, Trainer, TrainingArguments

from hf_elastic import ElasticTrainer, ElasticTrainingArguments, SubnetConfig, convert, export_family, rank
from hf_elastic.tasks import bbc_news, text_classification


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", help="folder or Hub id of a BERT checkpoint; MiniLM by default")
    parser.add_argument("--data", help="what datasets can read; BBC News by default")
    parser.add_argument("--output-dir", default="family")
    parser.add_argument("--rows", type=int, default=480, help="training rows; a small part by default")
    parser.add_argument("--max-length", type=int, default=64)
    options = parser.parse_args()

    checkpoint = options.checkpoint or bbc_news.minilm_checkpoint()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    data = text_classification.read(options.data) if options.data else bbc_news.load()
    data = data.limit(options.rows)
    encoded = text_classification.encode(data, tokenizer, options.max_length)
    common = {"processing_class": tokenizer, "compute_metrics": data.compute_metrics}

    # 1. A supernet with the checkpoint's outputs, and the sizes it is to have.
    model = convert(checkpoint, task="sequence-classification", **data.model_settings)
    model.config.subnets = {
        "large": SubnetConfig(),
        "base": SubnetConfig.scaled(model.config, width=0.75),
        "small": SubnetConfig.scaled(model.config, width=0.5, depth=0.67),
        "tiny": SubnetConfig.scaled(model.config, width=0.5, depth=0.34),
    }

    # 2. Fine-tune the full model with the ordinary Trainer, and put its heads and neurons in order of importance.
    args = TrainingArguments("checkpoints/full", num_train_epochs=1, learning_rate=1e-4, save_strategy="no")
    trainer = Trainer(model, args, train_dataset=encoded["train"], **common)
    trainer.train()
    rank(model, trainer.get_train_dataloader(), max_batches=32)

    # 3. Train all sizes together: the larger ones teach the smaller ones.
    args = ElasticTrainingArguments(
        "checkpoints/family",
        num_train_epochs=2,
        learning_rate=1e-4,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="eval_mean_accuracy",
    )
    trainer = ElasticTrainer(model, args, train_dataset=encoded["train"], eval_dataset=encoded["validation"], **common)
    trainer.train()
    metrics = trainer.evaluate()

    # 4. Every size as a checkpoint of its own, with card, picture and manifest.
    accuracies = {name: {"accuracy": metrics[f"eval_{name}_accuracy"]} for name in model.config.subnets}
    family = export_family(model, tokenizer, options.output_dir, metrics=accuracies)
    for row in family.table():
        print(row)


if __name__ == "__main__":
    main()
