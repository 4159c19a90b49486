"""Another tokenizer is told from the files beside a model."""

import pytest
from transformers import BertConfig, BertTokenizer, ElectraConfig, RobertaConfig, T5Config

from hf_elastic.training.teacher_vocabulary import different_special_token, different_token
from tests.training.teacher_cases import WORDS, make_tokenizer


@pytest.mark.parametrize("slow", [False, True], ids=["tokenizer.json", "vocab.txt"])
def test_tokens_with_other_ids(tmp_path, slow):
    tokenizer = make_tokenizer(1)
    if slow:
        tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
        (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
        assert BertTokenizer(str(tmp_path / "vocab.txt")).get_vocab().items() >= tokenizer.get_vocab().items()
    else:
        tokenizer.save_pretrained(tmp_path)
    assert different_token(str(tmp_path), make_tokenizer(1).get_vocab()) is None
    assert different_token(str(tmp_path), {**make_tokenizer(1).get_vocab(), "[ADDED]": 99}) is None
    assert different_token(str(tmp_path), make_tokenizer(0).get_vocab()) in WORDS


@pytest.mark.parametrize("source", ["", "nothing/of-this-name", "no/such/folder", "empty"])
def test_nothing_is_known_without_files(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    assert different_token(source, make_tokenizer().get_vocab()) is None


def test_tokens_with_scores(tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    unigram = tokenizers.Tokenizer(tokenizers.models.Unigram([("<unk>", 0.0), ("a", -1.0), ("b", -2.0)], unk_id=0))
    unigram.save(str(tmp_path / "tokenizer.json"))
    assert different_token(str(tmp_path), {"<unk>": 0, "a": 1, "b": 2}) is None
    assert different_token(str(tmp_path), {"<unk>": 0, "a": 2, "b": 1}) == "a"


def test_special_tokens():
    assert different_special_token(RobertaConfig(), BertConfig()) == "pad_token_id"
    assert different_special_token(ElectraConfig(), BertConfig()) is None
    assert different_special_token(T5Config(), BertConfig()) is None  # both pad with 0, and BERT names no others
