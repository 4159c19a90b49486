"""A teacher with another tokenizer reads its own encoding of the same text."""

import pytest
import torch
from transformers import DataCollatorWithPadding

from hf_elastic.training.collators import UnpaddingCollator
from hf_elastic.training.teacher_inputs import TeacherInputsCollator, encode_for_teacher
from hf_elastic.training.teachers import Teacher, observe, student_inputs
from tests.training.teacher_cases import make_teacher, make_texts, make_tokenizer

datasets = pytest.importorskip("datasets")

STUDENT, OWN = make_tokenizer(0), make_tokenizer(1)
PREFIX = "electra_"


def make_dataset(number: int = 6):
    return datasets.Dataset.from_dict(
        {"text": make_texts(number), "other": make_texts(number, seed=1), "label": [i % 3 for i in range(number)]}
    )


def encode(dataset, columns=("text",)):
    dataset = encode_for_teacher(dataset, OWN, columns, PREFIX)
    return dataset.map(
        lambda rows: STUDENT(*(rows[name] for name in columns)), batched=True, remove_columns=["text", "other"]
    )


def make_collator(**tokenizers):
    return TeacherInputsCollator(DataCollatorWithPadding(STUDENT), tokenizers or {PREFIX: OWN})


@pytest.mark.parametrize("columns", [("text",), ("text", "other")], ids=["text", "pair"])
@pytest.mark.parametrize("architecture", ["Bert", "Electra"])
def test_a_teacher_gives_its_logits_of_its_own_encoding(architecture, columns):
    raw = make_dataset()
    batch = make_collator()(list(encode(raw, columns)))
    model = make_teacher(architecture, vocab_size=len(OWN))
    expected = model(**OWN(*(list(raw[name]) for name in columns), padding=True, return_tensors="pt")).logits
    assert torch.equal(observe(Teacher(model, inputs=PREFIX), batch).logits, expected)
    assert not torch.equal(observe(Teacher(model), batch).logits, expected)


def test_the_student_reads_what_it_always_reads():
    rows = list(encode(make_dataset()))
    alone = [{name: value for name, value in row.items() if not name.startswith(PREFIX)} for row in rows]
    expected = DataCollatorWithPadding(STUDENT)(alone)
    batch = student_inputs(make_collator()(rows), [Teacher(make_teacher(), inputs=PREFIX)])
    assert batch.keys() == expected.keys() == {"input_ids", "token_type_ids", "attention_mask", "labels"}
    assert all(torch.equal(batch[name], expected[name]) for name in expected)


def test_unpadding_around_and_inside():
    rows = list(encode(make_dataset()))
    plain = make_collator()(rows)
    around = UnpaddingCollator(make_collator())(rows)
    inside = TeacherInputsCollator(UnpaddingCollator(DataCollatorWithPadding(STUDENT)), {PREFIX: OWN})(rows)
    for batch in (around, inside):
        assert batch.pop("unpad_inputs") is True
        assert batch.keys() == plain.keys() and all(torch.equal(batch[name], plain[name]) for name in plain)


def test_data_without_columns_of_teachers():
    rows = [{"input_ids": STUDENT(text)["input_ids"]} for text in make_texts(3)]
    assert make_collator()(rows).keys() == {"input_ids", "attention_mask"}


def test_texts_are_cut_and_other_columns_stay():
    dataset = encode_for_teacher(make_dataset(), OWN, "text", PREFIX, max_length=4)
    assert max(map(len, dataset["electra_input_ids"])) == 4
    assert dataset.column_names[:3] == ["text", "other", "label"]


@pytest.mark.parametrize(
    ("columns", "prefix", "message"),
    [
        ("title", PREFIX, "no column 'title'.*text, other, label.*before texts are removed"),
        (("text", "other", "text"), PREFIX, "name one column, or the two of a pair"),
        ("text", "oth", "Column 'other' starts with prefix='oth'"),
    ],
)
def test_columns_that_cannot_be_encoded(columns, prefix, message):
    with pytest.raises(ValueError, match=message):
        encode_for_teacher(make_dataset(), OWN, columns, prefix)
