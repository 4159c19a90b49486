"""A size's metric against what its logits give."""

import pytest
import torch

from hf_elastic import DatasetMetric
from tests.training.cases import NAMES, accuracy, collate, make_model, make_rows

ROWS = make_rows("classification", 20)


def test_the_metric_is_that_of_the_active_size(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = make_model("classification").eval()
    metric = DatasetMetric(ROWS, accuracy, data_collator=collate, batch_size=6)
    batch = collate(ROWS)
    for name in NAMES:
        with torch.no_grad():
            right = model(**batch, subnet=name).logits.argmax(-1) == batch["labels"]
        with model.use_subnet(name):
            assert metric(model) == pytest.approx(right.float().mean().item())
    assert list(tmp_path.iterdir()) == []  # a trainer's folder is not left behind


def test_a_metric_is_chosen_by_name_and_negated_where_less_is_better():
    def compute_metrics(prediction):
        return {**accuracy(prediction), "log_loss": 2.0, "errors": 7}

    model = make_model("classification").eval()
    arguments = {"compute_metrics": compute_metrics, "data_collator": collate}
    assert DatasetMetric(ROWS, metric="log_loss", **arguments)(model) == -2.0
    assert DatasetMetric(ROWS, metric="errors", greater_is_better=False, **arguments)(model) == -7
    assert DatasetMetric(ROWS, metric="errors", **arguments)(model) == 7
    assert set(DatasetMetric(ROWS, **arguments).metrics(model)) == {"accuracy", "log_loss", "errors"}
    with pytest.raises(ValueError, match="metric='f1' is not among those .* accuracy, log_loss, errors"):
        DatasetMetric(ROWS, metric="f1", **arguments)(model)


def test_another_model_is_scored_with_its_own_weights():
    metric = DatasetMetric(ROWS, accuracy, data_collator=collate)
    models = [make_model("classification", seed=seed).eval() for seed in range(3)]
    expected = [DatasetMetric(ROWS, accuracy, data_collator=collate)(model) for model in models]
    assert [metric(model) for model in models] == expected


def test_other_rows_or_another_metric_have_another_fingerprint():
    def fingerprint(rows, metric=None):
        return DatasetMetric(rows, accuracy, metric).fingerprint

    assert fingerprint(ROWS) == fingerprint(list(ROWS))
    assert len({fingerprint(ROWS), fingerprint(ROWS[:9]), fingerprint(ROWS, "f1")}) == 3


def test_no_row_is_an_error():
    with pytest.raises(ValueError, match="has no row"):
        DatasetMetric([], accuracy)
