import pytest
import torch

from hf_elastic.training.shorter_inputs import shorten
from tests.training.cases import collate, make_model, make_rows


@pytest.mark.parametrize("case", ["classification", "multiple_choice"])
def test_the_model_reads_what_a_shorter_text_has(case):
    rows = make_rows(case, 6)
    model = make_model(case).eval()

    def cut(tokens):
        return [cut(choice) for choice in tokens] if isinstance(tokens[0], list) else tokens[:5]

    expected = collate([{**row, "input_ids": cut(row["input_ids"])} for row in rows])
    with torch.no_grad():
        assert torch.equal(model(**shorten(collate(rows), 5)).logits, model(**expected).logits)


def test_all_is_kept_without_a_length_or_with_a_longer_one():
    batch = collate(make_rows("classification", 4))
    assert shorten(batch, None) is batch
    assert torch.equal(shorten(batch, 99)["input_ids"], batch["input_ids"])


def test_what_is_not_per_token_is_left_alone():
    batch = {"inputs_embeds": torch.rand(2, 6, 3), "labels": torch.tensor([1, 2]), "unpad_inputs": True}
    shorter = shorten(batch, 4)
    assert torch.equal(shorter["inputs_embeds"], batch["inputs_embeds"][:, :4])
    assert shorter["labels"] is batch["labels"] and shorter["unpad_inputs"] is True


def test_padding_that_comes_first():
    batch = {"input_ids": torch.tensor([[0, 5], [6, 7]]), "attention_mask": torch.tensor([[0, 1], [1, 1]])}
    with pytest.raises(ValueError, match='Set padding_side="right"'):
        shorten(batch, 1)
