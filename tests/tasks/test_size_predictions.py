"""Every size predicts every row, in the order of the split, whatever the arguments say about evaluations."""

import numpy as np
import pytest
import torch
from transformers import DataCollatorWithPadding

from hf_elastic import ElasticConfig, ElasticForSequenceClassification, ElasticTrainer, ElasticTrainingArguments
from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.encoding import encode_split
from hf_elastic.tasks.size_predictions import predict_sizes
from tests.conftest import randomize

from .benchmark_rows import dataset_of
from .tiny_tokenizers import unigram


@pytest.mark.parametrize(
    "arguments",
    [{}, {"dataloader_drop_last": True}, {"eval_do_concat_batches": False}],
    ids=["plain", "drop last", "no concatenation"],
)
def test_logits_are_those_of_each_row_alone(tmp_path, arguments):
    tokenizer, task = unigram(), find_task("glue", "mnli")
    config = ElasticConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=3,
        subnets={"whole": {}, "half": {"layers": (1,), "intermediate_size": 16}},
    )
    trainer = ElasticTrainer(
        randomize(ElasticForSequenceClassification(config)),
        ElasticTrainingArguments(tmp_path, per_device_eval_batch_size=4, report_to="none", **arguments),
        processing_class=tokenizer,
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=lambda prediction: {"rows": len(prediction.predictions)},
    )
    rows = dataset_of("glue", "mnli", "validation_matched")
    former = trainer.args, trainer.compute_metrics
    split = encode_split(task, rows, tokenizer, 64)
    logits = predict_sizes(trainer, split)
    assert list(logits) == ["whole", "half"]
    for size, found in logits.items():
        model = trainer.elastic_model.eval()
        with torch.no_grad(), model.use_subnet(size):
            expected = [
                model(**{name: torch.tensor([row[name]]) for name in tokenizer.model_input_names}).logits[0].numpy()
                for row in split.dataset
            ]
        np.testing.assert_allclose(found, np.stack(expected), atol=1e-5)
    assert np.abs(logits["whole"] - logits["half"]).max() > 0.1
    assert (trainer.args, trainer.compute_metrics) == former
