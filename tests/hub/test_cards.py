import re
from dataclasses import replace

import pytest
from huggingface_hub import EvalResult, ModelCard

from hf_elastic.hub.cards import render_card
from hf_elastic.hub.details import TrainingDetails

from .patterns import card_pattern
from .render_examples import EXAMPLES, render_examples


@pytest.mark.parametrize(("folder", "pattern"), [("tiny", "member.md"), ("supernet", "family.md")])
def test_the_whole_card_of_an_export(folder, pattern, exported):
    card = (exported / folder / "README.md").read_text()
    assert re.fullmatch(card_pattern(pattern), card), card


@pytest.mark.parametrize("name", ["tiny", "supernet"])
def test_the_hub_library_reads_the_metadata_back(name, exported):
    data = ModelCard.load(exported / name / "README.md").data
    assert data.library_name == "transformers"
    assert data.pipeline_tag == "text-classification"
    assert data.license == "apache-2.0"
    assert data.language == "en"
    assert data.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert data.datasets == ["SetFit/bbc-news"]
    assert data.metrics == ["accuracy", "f1"]
    assert "elastic" in data.tags
    assert data.model_name == ("news-elastic" if name == "supernet" else "news-elastic-tiny")
    assert all(isinstance(result, EvalResult) for result in data.eval_results)
    assert {(result.metric_name, result.metric_value) for result in data.eval_results} >= {
        ("accuracy (tiny)", 0.9375),
        ("f1 (tiny)", 0.93),
    }
    assert len(data.eval_results) == (4 if name == "supernet" else 2)
    result = data.eval_results[0]
    assert (result.task_type, result.task_name) == ("text-classification", "Text classification")
    assert (result.dataset_type, result.dataset_name, result.dataset_split) == ("SetFit/bbc-news", "BBC News", "test")


def test_missing_details_are_said_and_never_printed_as_none(manifest):
    bare = replace(
        manifest,
        source=None,
        source_model_type=None,
        primary_metric=None,
        details=TrainingDetails(),
        members=[replace(member, metrics={}) for member in manifest.members],
    )
    for member in (bare.supernet, bare.members[-1]):
        card = render_card(bare, member)
        assert "None" not in card.content
        assert ".png" not in card.content
        for sentence in (
            "Meant for text classification. Nothing else was recorded about the intended use.",
            "The training data was not recorded.",
            "The checkpoint that the supernet was converted from was not recorded.",
            "The training settings were not recorded.",
            "Seed, versions and data of the training were not recorded.",
            "The sizes were not evaluated.",
            "How to cite these weights was not recorded.",
        ):
            assert sentence in card.text
        assert not card.data.eval_results
        assert not {"license", "language", "base_model", "datasets", "metrics"} & card.data.to_dict().keys()


@pytest.mark.parametrize(
    ("details", "sentence"),
    [
        ({"dataset": "BBC News"}, "Trained on BBC News. How many rows of it were used was not recorded."),
        (
            {"dataset": "BBC News", "run": {"seed": 7, "data": {"train": {"rows": 32}}}},
            "Trained on BBC News. 32 rows of it were used.",
        ),
        ({"training_data": "1225 articles."}, "1225 articles."),
        (
            {"dataset_id": "SetFit/bbc-news", "training_data": "1225 articles."},
            "Trained on [SetFit/bbc-news](https://huggingface.co/datasets/SetFit/bbc-news). 1225 articles.",
        ),
    ],
)
def test_what_is_known_of_the_training_data(details, sentence, manifest):
    card = render_card(replace(manifest, details=TrainingDetails(**details)), manifest.members[0])
    assert f"## Training\n\n{sentence}\n\nThe supernet comes from" in card.text


def test_data_that_is_not_on_the_hub_still_gives_results(manifest):
    card = render_card(replace(manifest, details=TrainingDetails(dataset="BBC News (2005)")), manifest.members[0])
    result = card.data.eval_results[0]
    assert (result.dataset_type, result.dataset_name) == ("bbc-news-2005", "BBC News (2005)")
    assert card.data.datasets is None
    assert "The data that the metrics were measured on was not recorded." in card.text


def test_results_of_further_splits_and_metrics_with_another_name_on_the_hub(manifest):
    others = {"dev": {"large": {"spearman": 0.75, "f1_macro": 0.5}, "huge": {"spearman": 0.9}}}
    details = replace(manifest.details, dataset_config="news", other_splits=others)
    large = replace(manifest.members[0], metrics={"spearman": 0.8, "f1_macro": 0.6})
    card = render_card(replace(manifest, details=details, members=[large], primary_metric="spearman"), large)
    results = [(of.dataset_split, of.metric_type, of.metric_args, of.metric_value) for of in card.data.eval_results]
    assert results == [
        ("test", "spearmanr", None, 0.8),
        ("test", "f1", {"average": "macro"}, 0.6),
        ("dev", "spearmanr", None, 0.75),
        ("dev", "f1", {"average": "macro"}, 0.5),
    ]
    assert {of.dataset_config for of in card.data.eval_results} == {"news"}
    assert card.data.metrics == ["spearmanr", "f1"]
    assert "On the dev split they are: `large` spearman 0.7500, `large` f1_macro 0.5000." in card.text


def test_a_member_that_was_not_evaluated_claims_no_results(manifest):
    card = render_card(manifest, manifest.members[2])
    assert not card.data.eval_results
    assert "| tiny | 13.8 M | 1.80 M | 55.2 | 1.38 G | 4.0 | – | – |" in card.text
    assert "This size reaches" not in card.text


def test_a_smaller_member_says_what_it_loses(manifest):
    limit = "This size reaches accuracy 0.9500, the largest one, `large`, 0.9750."
    assert limit in render_card(manifest, manifest.members[1]).text
    assert "This size reaches" not in render_card(manifest, manifest.members[0]).text


def test_what_is_known_of_the_run(manifest):
    run = {"seed": 7, "data_seed": 3, "versions": {"torch": "2.13.0"}, "data": {"train": {}}}
    text = render_card(replace(manifest, details=TrainingDetails(run=run)), manifest.members[0]).text
    assert "Trained with seed 7, and 3 for the order of the data, with torch 2.13.0.\n" in text
    assert "| train | – | – | – |" in text
    assert "<details>" not in text


def test_text_of_the_user_is_taken_literally(manifest):
    details = TrainingDetails(description="Keeps {{ braces }} & <tags>.", settings={"note": "{% if %}"})
    card = render_card(replace(manifest, details=details), manifest.members[0])
    assert "Keeps {{ braces }} & <tags>." in card.text
    assert "| note | {% if %} |" in card.text


def test_the_examples_are_what_the_templates_give():
    for name, content in render_examples().items():
        assert (EXAMPLES / name).read_text() == content, f"{name}: run `python -m tests.hub.render_examples`"


def test_the_examples_picture_is_drawn():
    assert (EXAMPLES / "pareto.png").read_bytes().startswith(b"\x89PNG")
