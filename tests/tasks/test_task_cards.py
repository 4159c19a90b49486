"""Cards of families that were trained on tasks: every result with its dataset, configuration, split and metric."""

import re

import pytest
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.repocard_data import eval_results_to_model_index

from hf_elastic import export_family
from hf_elastic.checkpoints import load_elastic, load_tokenizer
from hf_elastic.hub.details import TrainingDetails
from hf_elastic.recipes import TrainingSettings
from hf_elastic.tasks.benchmarks import find_task
from hf_elastic.tasks.task_data import read_task
from hf_elastic.tasks.task_training import train_on_task
from hf_elastic.training.family import read_metrics
from tests.hub.patterns import card_pattern
from tests.tiny_bert import save_tiny_bert

from .benchmark_rows import dataset_of, splits_of

SIZES = {"whole": {}, "half": {"depth": 0.5, "width": 0.5}}
SETTINGS = TrainingSettings(max_length=48, batch_size=4, finetune_epochs=0.0, cotrain_epochs=1.0, rank_examples=0)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A tiny random BERT."""
    folder = tmp_path_factory.mktemp("bert") / "mnli-bert"
    return save_tiny_bert(folder, ["the storm reached that town while people slept"])


def family_of(source, folder, benchmark, name, sizes=("half",), held_out_fraction=0.0):
    """Trains on a task, saves the supernet, and exports sizes of it as `hf-elastic export` does."""
    rows = {split: dataset_of(benchmark, name, split) for split in splits_of(benchmark, name)}
    data = read_task(find_task(benchmark, name), rows)
    run = train_on_task(source, data, SETTINGS, SIZES, held_out_fraction=held_out_fraction)
    supernet = folder / "supernet"
    run.save_supernet(supernet)
    family = export_family(
        load_elastic(supernet),
        load_tokenizer(supernet),
        folder / "family",
        subnets=sizes,
        metrics=read_metrics(supernet, sizes),
        details=TrainingDetails.load(supernet),
        sequence_length=32,
    )
    return run, family


def test_the_whole_card_of_a_task_with_two_validation_splits(source, tmp_path):
    run, family = family_of(source, tmp_path, "glue", "mnli", sizes=list(SIZES))
    card = (family.path / "half" / "README.md").read_text()
    assert re.fullmatch(card_pattern("mnli.md"), card), card
    results = ModelCard.load(family.path / "supernet" / "README.md").data.eval_results
    assert {(of.dataset_split, of.metric_name): of.metric_value for of in results} == {
        (split, f"accuracy ({size})"): pytest.approx(metrics["accuracy"])
        for split, by_size in run.scores.items()
        for size, metrics in by_size.items()
    }


@pytest.mark.parametrize(
    ("benchmark", "name", "dataset", "metrics"),
    [
        ("glue", "cola", "nyu-mll/glue", {"matthews_correlation": ("matthews_correlation", None)}),
        ("glue", "mrpc", "nyu-mll/glue", {"accuracy": ("accuracy", None), "f1": ("f1", None)}),
        ("glue", "stsb", "nyu-mll/glue", {"pearson": ("pearsonr", None), "spearman": ("spearmanr", None)}),
        (
            "super_glue",
            "cb",
            "aps/super_glue",
            {"accuracy": ("accuracy", None), "f1_macro": ("f1", {"average": "macro"})},
        ),
        ("super_glue", "copa", "aps/super_glue", {"accuracy": ("accuracy", None)}),
        (
            "super_glue",
            "multirc",
            "aps/super_glue",
            {"f1_answers": ("f1", None), "exact_match": ("exact_match", None)},
        ),
    ],
)
def test_the_results_under_the_names_of_the_hub(source, tmp_path, benchmark, name, dataset, metrics):
    run, family = family_of(source, tmp_path, benchmark, name)
    card = ModelCard.load(family.path / "half" / "README.md")  # it raises errors of the metadata
    assert [of.metric_name for of in card.data.eval_results] == [f"{metric} (half)" for metric in metrics]
    for result, metric in zip(card.data.eval_results, metrics, strict=True):
        assert (result.dataset_type, result.dataset_config, result.dataset_split) == (dataset, name, "validation")
        assert (result.metric_type, result.metric_args) == metrics[metric]
        assert result.metric_value == pytest.approx(run.scores["validation"]["half"][metric])
    assert card.data.datasets == [dataset]
    assert card.data.metrics == list(dict.fromkeys(metric for metric, _ in metrics.values()))
    index = eval_results_to_model_index(card.data.model_name, card.data.eval_results)
    assert ModelCardData(**{"model-index": index}).to_dict()["model-index"] == index


def test_a_card_says_that_its_metrics_need_the_fitted_thresholds(source, tmp_path):
    run, family = family_of(source, tmp_path, "glue", "mrpc", sizes=list(SIZES), held_out_fraction=0.4)
    thresholds = {size: run.post_processing[size].threshold for size in SIZES}
    text = (family.path / "half" / "README.md").read_text()
    assert "decision thresholds that were fitted on held-out training rows" in text
    assert all(f"`{size}` {threshold:.3f} and " in text for size, threshold in thresholds.items())
