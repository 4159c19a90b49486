"""Train all sizes of a supernet in several processes: by any configuration of this folder, or by torchrun.

    accelerate launch --config_file examples/accelerate/ddp.yaml examples/accelerate/train.py

Runs as it stands on the articles of the `demo` extra; give a folder of csv, json or parquet files for your own.
"""

import argparse

from transformers import AutoTokenizer

from hf_elastic import ElasticTrainer, ElasticTrainingArguments, SubnetConfig, convert
from hf_elastic.tasks import bbc_news, text_classification


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", help="folder or Hub id of a BERT checkpoint; MiniLM by default")
    parser.add_argument("--data", help="what datasets can read; BBC News by default")
    parser.add_argument("--output-dir", default="supernet")
    parser.add_argument("--rows", type=int, default=480, help="training rows; a small part by default")
    parser.add_argument("--max-length", type=int, default=64)
    parser.add_argument("--max-steps", type=int, default=-1)
    parser.add_argument("--use-cpu", action="store_true")
    options = parser.parse_args()

    # The arguments come first: they set up what the processes talk with.
    args = ElasticTrainingArguments(
        options.output_dir,
        num_train_epochs=1,
        max_steps=options.max_steps,
        learning_rate=1e-4,
        save_strategy="no",
        report_to="none",
        use_cpu=options.use_cpu,
    )
    checkpoint = options.checkpoint or bbc_news.minilm_checkpoint()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    data = text_classification.read(options.data) if options.data else bbc_news.load()
    data = data.limit(options.rows)
    encoded = text_classification.encode(data, tokenizer, options.max_length)

    model = convert(checkpoint, task="sequence-classification", **data.model_settings)
    model.config.subnets = {
        "large": SubnetConfig(),
        "small": SubnetConfig.scaled(model.config, width=0.5, depth=0.67),
        "tiny": SubnetConfig.scaled(model.config, width=0.5, depth=0.34),
    }
    trainer = ElasticTrainer(
        model,
        args,
        train_dataset=encoded["train"],
        eval_dataset=encoded["validation"],
        processing_class=tokenizer,
        compute_metrics=data.compute_metrics,
    )
    trainer.train()
    trainer.evaluate()
    trainer.save_model()  # gathers what is split: an ordinary supernet, to extract or export sizes from


if __name__ == "__main__":
    main()
