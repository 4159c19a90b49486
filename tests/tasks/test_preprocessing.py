"""The settings follow a checkpoint wherever it goes, and a difference is found before it costs anything."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from hf_elastic import ElasticForSequenceClassification, convert, extract, to_stock
from hf_elastic.tasks.benchmarks import BENCHMARKS, find_task
from hf_elastic.tasks.preprocessing import FILE_NAME, Preprocessing, fingerprint, saved_preprocessing

from .tiny_tokenizers import SENTENCES, byte_level_bpe, unigram, wordpiece


@pytest.fixture(scope="module")
def tokenizer(minilm):
    return wordpiece(minilm)


@pytest.fixture
def settings(tokenizer):
    return Preprocessing.of(find_task("super_glue", "wsc"), tokenizer, max_length=128)


def test_it_is_made_of_what_is_used(settings, tokenizer):
    assert settings.to_dict() == {
        "version": 1,
        "benchmark": "super_glue",
        "task": "wsc",
        "tokenizer_fingerprint": fingerprint(tokenizer),
        "lower_cases": True,
        "max_length": 128,
        "markers": ["*", "#"],
        "label_names": ["False", "True"],
    }


def test_a_diagnostic_has_the_settings_of_the_task_whose_model_answers_it(tokenizer):
    for benchmark, diagnostic, task in (
        ("glue", "ax", "mnli"),
        ("super_glue", "axb", "rte"),
        ("super_glue", "axg", "rte"),
    ):
        made = [Preprocessing.of(find_task(benchmark, name), tokenizer, 128) for name in (diagnostic, task)]
        assert made[0] == made[1]


@pytest.mark.parametrize("benchmark", list(BENCHMARKS))
@pytest.mark.parametrize("make", [byte_level_bpe, unigram])
def test_every_task_has_settings_with_every_tokenizer(benchmark, make):
    tokenizer = make()
    for task in BENCHMARKS[benchmark].values():
        settings = Preprocessing.of(task, tokenizer, 64)
        assert Preprocessing.from_dict(json.loads(json.dumps(settings.to_dict()))) == settings
        assert not settings.lower_cases


def test_the_fingerprint_is_of_what_the_tokenizer_does_alone(minilm, tmp_path):
    tokenizers = [wordpiece(minilm), byte_level_bpe(), unigram()]
    first = [fingerprint(tokenizer) for tokenizer in tokenizers]
    folders = [str(tmp_path / str(number)) for number in range(len(tokenizers))]
    for tokenizer, folder in zip(tokenizers, folders, strict=True):
        tokenizer(list(SENTENCES), truncation=True, max_length=5, padding="max_length")
        tokenizer.save_pretrained(folder)
    code = (
        "import sys; from transformers import AutoTokenizer; from hf_elastic.tasks.preprocessing import fingerprint; "
        "print(*(fingerprint(AutoTokenizer.from_pretrained(folder)) for folder in sys.argv[1:]))"
    )
    other = subprocess.run([sys.executable, "-c", code, *folders], capture_output=True, text=True, check=True)
    assert [fingerprint(tokenizer) for tokenizer in tokenizers] == first == other.stdout.split()
    for tokenizer in tokenizers:
        tokenizer.add_tokens(["<new>"])
    assert not {fingerprint(tokenizer) for tokenizer in tokenizers} & set(first)


def test_tokenizers_that_differ_have_other_fingerprints(minilm):
    cased = AutoTokenizer.from_pretrained(minilm, do_lower_case=False)
    fewer = byte_level_bpe(SENTENCES[:2])
    left = AutoTokenizer.from_pretrained(minilm, truncation_side="left")
    all_of_them = [wordpiece(minilm), cased, left, byte_level_bpe(), fewer, unigram()]
    assert len({fingerprint(tokenizer) for tokenizer in all_of_them}) == len(all_of_them)


@pytest.mark.parametrize("max_length", [4, 513])
def test_a_length_that_the_tokenizer_cannot_give_is_an_error(max_length, tokenizer):
    with pytest.raises(
        ValueError, match=f"max_length={max_length}: this tokenizer's model takes from 5 to 512 tokens"
    ):
        Preprocessing.of(find_task("glue", "rte"), tokenizer, max_length)


def test_a_marker_that_the_tokenizer_does_not_know_is_an_error(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "*", "word"]))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert Preprocessing.of(find_task("super_glue", "wic"), tokenizer, 16).markers == ("*",)
    with pytest.raises(ValueError, match=r"does not know '#', which marks words of wsc: add it with .*add_tokens"):
        Preprocessing.of(find_task("super_glue", "wsc"), tokenizer, 16)
    tokenizer.add_tokens(["#"])
    assert Preprocessing.of(find_task("super_glue", "wsc"), tokenizer, 16).markers == ("*", "#")


def test_every_difference_is_named_at_once(settings, minilm):
    settings.check(replace(settings))
    cased = AutoTokenizer.from_pretrained(minilm, do_lower_case=False)
    now = Preprocessing.of(find_task("super_glue", "wic"), cased, 64)
    with pytest.raises(ValueError) as error:
        settings.check(now)
    message = str(error.value)
    assert "task was 'wsc' and is now 'wic'" in message
    assert "lower_cases was True and is now False" in message
    assert "max_length was 128 and is now 64" in message
    assert "markers was ('*', '#') and is now ('*',)" in message
    assert f"was '{settings.tokenizer_fingerprint}' and is now '{now.tokenizer_fingerprint}'" in message
    assert "benchmark" not in message and "label_names" not in message
    assert "Use the saved settings and the tokenizer in the checkpoint's folder" in message


def test_they_are_in_file_and_configuration_of_a_saved_model(settings, classifier, tmp_path):
    settings.keep_in(classifier.config)
    classifier.save_pretrained(tmp_path)
    config = AutoConfig.from_pretrained(tmp_path)
    assert saved_preprocessing(tmp_path, config) == settings
    settings.save(tmp_path)
    assert json.loads((tmp_path / FILE_NAME).read_text()) == config.preprocessing == settings.to_dict()
    assert saved_preprocessing(tmp_path, config) == settings
    config.preprocessing = None
    assert saved_preprocessing(tmp_path, config) == settings


def test_a_model_without_them_says_nothing(classifier, tiny_bert_config, tmp_path):
    classifier.save_pretrained(tmp_path)
    assert saved_preprocessing(tmp_path, AutoConfig.from_pretrained(tmp_path)) is None
    assert saved_preprocessing("org/name", tiny_bert_config) is None


def test_loading_and_saving_again_members_and_stock_models_keep_them(settings, tiny_config, tmp_path):
    tiny_config.subnets = {"half": {"layers": (0, 2), "intermediate_size": 32}}
    tiny_config.source_model_type = "bert"
    supernet = ElasticForSequenceClassification(tiny_config).eval()
    settings.keep_in(supernet.config)
    supernet.save_pretrained(tmp_path / "first")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "first")
    loaded.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "config.json").read_text() == (tmp_path / "first" / "config.json").read_text()
    member = extract(loaded, "half")
    member.save_pretrained(tmp_path / "member")
    stock = to_stock(AutoModelForSequenceClassification.from_pretrained(tmp_path / "member"))
    stock.save_pretrained(tmp_path / "stock")
    back = convert(tmp_path / "stock")
    for model in (loaded, member, stock, back):
        assert saved_preprocessing("nowhere", model.config) == settings
    for folder in ("again", "member", "stock"):
        assert saved_preprocessing(tmp_path / folder, AutoConfig.from_pretrained(tmp_path / folder)) == settings
    # A change of one configuration is none of the others.
    replace(settings, max_length=64).keep_in(back.config)
    assert saved_preprocessing("nowhere", stock.config) == saved_preprocessing("nowhere", member.config) == settings


def test_a_model_without_settings_becomes_a_stock_model_without(classifier, tmp_path):
    classifier.config.source_model_type = "bert"
    to_stock(classifier).save_pretrained(tmp_path)
    assert "preprocessing" not in json.loads((tmp_path / "config.json").read_text())


def test_they_survive_where_the_package_is_not_installed(settings, classifier, tmp_path):
    settings.keep_in(classifier.config)
    classifier.save_pretrained(tmp_path / "first")
    code = """
import json, sys
sys.modules["hf_elastic"] = None  # importing it is an ImportError from here on
from transformers import AutoModelForSequenceClassification
model = AutoModelForSequenceClassification.from_pretrained(sys.argv[1], trust_remote_code=True)
model.save_pretrained(sys.argv[2])
print(json.dumps(model.config.preprocessing))
"""
    result = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "first", tmp_path / "again"],
        capture_output=True,
        text=True,
        env={"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert json.loads(result.stdout.splitlines()[-1]) == settings.to_dict()
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "again")
    assert saved_preprocessing("nowhere", again.config) == settings
    assert all(map(torch.equal, again.state_dict().values(), classifier.state_dict().values()))


def test_files_that_do_not_fit_are_errors(settings, classifier, tmp_path):
    settings.keep_in(classifier.config)
    replace(settings, max_length=64).save(tmp_path)
    with pytest.raises(ValueError, match="the configuration beside it are not of one training: .*max_length=64.*=128"):
        saved_preprocessing(tmp_path, classifier.config)
    (tmp_path / FILE_NAME).write_text("{")
    with pytest.raises(ValueError, match=r"preprocessing\.json is no JSON"):
        saved_preprocessing(tmp_path, classifier.config)
    classifier.config.preprocessing = {**settings.to_dict(), "version": 2, "stride": 3}
    with pytest.raises(
        ValueError, match="saved preprocessing has version 2 and .*'stride'.*this hf_elastic has version 1"
    ):
        saved_preprocessing("nowhere", classifier.config)
