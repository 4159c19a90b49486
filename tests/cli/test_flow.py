"""The way of a user through the commands, from a BERT checkpoint to a family, on real articles."""

import json

import pytest
import transformers
from typer.testing import CliRunner

import hf_elastic
from hf_elastic.cli import app

SIZES = ["--subnet", "large=", "--subnet", "small=width:0.5,depth:0.75", "--subnet", "tiny=width:0.5,depth:0.5"]
SHORT = ["--max-length", "16", "--batch-size", "8"]
FEW_EPOCHS = ["--finetune-epochs", "1", "--cotrain-epochs", "1", "--rank-examples", "16"]


def run(*arguments):
    """Runs a command and gives what it printed."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def trained(checkpoint, data_file, tmp_path_factory):
    """A supernet that `train` made of the BERT checkpoint."""
    folder = tmp_path_factory.mktemp("trained") / "supernet"
    run("train", checkpoint, data_file, "-o", folder, *SIZES, *SHORT, *FEW_EPOCHS)
    return folder


def test_convert_writes_a_supernet_with_named_sizes_and_the_tokenizer(checkpoint, tmp_path):
    output = run("convert", checkpoint, "-o", tmp_path, "--task", "sequence-classification", "--num-labels", "5")
    assert "large, base, small, tiny" in output
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert isinstance(model, hf_elastic.ElasticForSequenceClassification)
    assert (set(model.config.subnets), model.config.num_labels) == ({"large", "base", "small", "tiny"}, 5)
    assert len(transformers.AutoTokenizer.from_pretrained(tmp_path)) == 99


def test_train_makes_a_supernet_of_a_bert_checkpoint(trained):
    model = transformers.AutoModelForSequenceClassification.from_pretrained(trained)
    assert set(model.config.subnets) == {"large", "small", "tiny"}
    assert model.config.label2id["tech"] == 4
    metrics = json.loads((trained / "metrics.json").read_text())
    assert list(metrics) == ["large", "small", "tiny"]
    assert set(metrics["tiny"]) == {"accuracy", "f1_macro"}


def test_train_says_what_ended_it_early_and_keeps_the_log(checkpoint, data_file, tmp_path):
    short = ["--finetune-epochs", "0", "--rank-examples", "0", "-a", "max_examples=8", "-a", "save_strategy=epoch"]
    output = run("train", checkpoint, data_file, "-o", tmp_path / "out", *SIZES, *SHORT, *short)
    assert "max_examples=8 ended the training at step 1 of" in " ".join(output.split())
    log = json.loads((tmp_path / "out" / "training_log.json").read_text())
    assert log["outcome"]["steps"] == 1
    assert "loss_tiny" in log["log"][0]
    details = json.loads((tmp_path / "out" / "training_details.json").read_text())
    assert details["settings"]["steps done"] == 1
    assert details["settings"]["ended early"] == log["outcome"]["ending"]


def test_rank_orders_a_trained_supernet_and_train_goes_on_from_there(trained, data_file, tmp_path):
    ranked = tmp_path / "ranked"
    assert "ordered by 16 training rows" in run(
        "rank", trained, data_file, "-o", ranked, "--rank-examples", 16, *SHORT
    )
    before = transformers.AutoModelForSequenceClassification.from_pretrained(trained)
    after = transformers.AutoModelForSequenceClassification.from_pretrained(ranked)
    inputs = {"input_ids": after.dummy_inputs["input_ids"] % 99}
    assert (before(**inputs).logits - after(**inputs).logits).abs().max() < 1e-5
    again = ["--finetune-epochs", "0", "--rank-examples", "0", "--cotrain-epochs", "1"]
    output = run("train", ranked, data_file, "-o", tmp_path / "again", *SHORT, *again)
    assert "Fine-tune" not in output
    assert "Rank" not in output
    assert "tiny" in output


def test_extract_writes_one_size_in_either_class(trained, tmp_path):
    run("extract", trained, "small", "-o", tmp_path / "small")
    member = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "small")
    assert (member.config.num_hidden_layers, member.config.num_attention_heads) == (3, 2)
    assert "BertForSequenceClassification" in run("extract", trained, "large", "-o", tmp_path / "bert", "--stock")
    stock = transformers.pipeline("text-classification", str(tmp_path / "bert"))
    assert type(stock.model) is transformers.BertForSequenceClassification
    assert stock("The match ended late.")[0]["label"] in member.config.label2id


def test_export_writes_a_family_and_info_shows_it(trained, data_file, tmp_path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("name: news\nsource: org/bert\ncard: {dataset: BBC News, license: mit}\n", encoding="utf-8")
    output = run("export", trained, "-o", tmp_path / "family", "--recipe", recipe, "--sequence-length", 16)
    assert "accuracy" in output
    family = hf_elastic.load_family(tmp_path / "family")
    assert family.names == ["large", "small", "tiny"]
    assert family.manifest.details.dataset == "BBC News"
    assert family.members["tiny"].metrics == json.loads((trained / "metrics.json").read_text())["tiny"]
    shown = run("info", tmp_path / "family")
    assert "FLOPs and ms are those of one text of 16 tokens." in shown
    assert "Every file is there and unchanged." in shown
    refused = CliRunner().invoke(app, ["info", str(tmp_path / "family"), "--latency"])
    assert refused.exit_code == 2
    assert "is a family" in " ".join(refused.output.replace("│", "").split())  # wherever the line breaks
    only = run("export", trained, "-o", tmp_path / "one", "--size", "tiny", "--sequence-length", 16)
    assert "small" not in only
    details = hf_elastic.load_family(tmp_path / "one").manifest.details  # what the training left beside the supernet
    assert details.dataset == data_file.name
    assert details.settings["training rows"] > 0
    assert "rows to rank the units by" in details.settings


def test_info_shows_the_sizes_of_a_supernet_and_of_a_member(trained, tmp_path):
    rows = run("info", trained, "--latency", "--sequence-length", "16").splitlines()
    assert "ms" in next(row for row in rows if "encoder" in row)
    cells = next(row for row in rows if "tiny" in row).split()
    assert cells[1:5] == ["2", "32", "2", "32"]  # layers, hidden size, heads, neurons
    run("extract", trained, "tiny", "-o", tmp_path / "tiny")
    assert "(whole)" in run("info", tmp_path / "tiny")


def test_train_takes_pairs_scores_and_a_recipe(checkpoint, tmp_path):
    rows = "\n".join(f"news number {i},word {i % 7},{i / 10}" for i in range(40))
    data = tmp_path / "pairs.csv"
    data.write_text(f"first,second,similarity\n{rows}\n", encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "name: pairs\nsource: org/bert\nsubnets: {whole: {}, half: {depth: 0.5}}\n"
        "training: {finetune_epochs: 0, cotrain_epochs: 1, max_length: 16, rank_examples: 8}\n",
        encoding="utf-8",
    )
    columns = ["--text-column", "first", "--text-column", "second", "--label-column", "similarity"]
    output = run("train", checkpoint, data, "-o", tmp_path / "out", "--recipe", recipe, *columns)
    assert "spearman" in output
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert list(metrics) == ["whole", "half"]
