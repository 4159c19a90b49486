"""How often each of several tasks comes, and what a batch consists of."""

from collections import Counter

import datasets
import pytest

from hf_elastic.tasks.task_mixture import Mixing, MixtureSampler, TaskMixture


def batched(sampler):
    """The row numbers of each batch."""
    indices = list(sampler)
    assert len(indices) == len(sampler)
    return [indices[i : i + sampler.batch_size] for i in range(0, len(indices), sampler.batch_size)]


def part(rows, length=5):
    return datasets.Dataset.from_dict({"input_ids": [[1] * (length + row % 7) for row in range(rows)]})


def mixture(mixing=None, **rows):
    return TaskMixture({name: part(number) for name, number in rows.items()}, mixing or Mixing())


def drawn(sampler):
    """The number of the task of each batch; fails where a batch has several."""
    tasks = []
    for batch in batched(sampler):
        (task,) = {sampler.mixture[index]["task"] for index in batch}
        tasks.append(task)
    return tasks


@pytest.mark.parametrize(
    ("mixing", "expected"),
    [
        (Mixing("proportional"), 256 / 272),
        (Mixing("square_root"), 16 / 20),
        (Mixing("uniform"), 1 / 2),
        (Mixing("temperature", temperature=4), 4 / 6),
        (Mixing("temperature", temperature=1), 256 / 272),
        (Mixing("dynamic"), 1 / 2),
    ],
)
def test_shares_at_first(mixing, expected):
    assert mixing.shares({"large": 256, "small": 16}) == pytest.approx({"large": expected, "small": 1 - expected})


def test_shares_by_score_favour_the_task_that_is_farthest_from_its_best():
    mixing = Mixing("dynamic", references={"near": 0.8})
    shares = mixing.shares_by_score({"near": 0.7, "far": 0.7})
    assert shares == pytest.approx({"near": 0.9 * 0.25 + 0.05, "far": 0.9 * 0.75 + 0.05})
    assert mixing.shares_by_score({"near": 0.9, "far": 1.0}) == {"near": 0.5, "far": 0.5}  # nothing is left to gain
    assert mixing.shares_by_score({"near": 0.9, "far": 0.5})["near"] == pytest.approx(0.05)  # but stays in


def test_every_task_has_its_share_after_any_number_of_batches():
    sampler = MixtureSampler(mixture(large=300, middle=120, small=60), batch_size=4, seed=1)
    tasks = drawn(sampler)
    assert len(tasks) == len(sampler) / 4 == 120
    for end in range(1, len(tasks) + 1):
        counts = Counter(tasks[:end])
        assert all(abs(counts[task] - end * share) <= 1 for task, share in enumerate((300 / 480, 120 / 480, 60 / 480)))


def test_proportional_batches_have_every_row_once():
    rows = mixture(large=64, small=32)
    assert sorted(MixtureSampler(rows, batch_size=8, seed=0)) == list(range(96))


def test_what_a_small_task_lacks_is_made_up_for_in_later_epochs():
    sampler, tasks = MixtureSampler(mixture(large=200, small=5), batch_size=41, seed=0), Counter()
    for epoch in range(9):
        sampler.set_epoch(epoch)
        tasks.update(drawn(sampler))
    assert tasks == {0: 44, 1: 1}


def test_shares_can_be_fixed():
    rows = mixture(large=64, small=8)
    sampler = MixtureSampler(rows, batch_size=8, seed=0, shares={"large": 0.5, "small": 0.5})
    assert abs(Counter(drawn(sampler))[1] - len(sampler) / 16) <= 1


def test_a_small_task_begins_anew_with_the_rows_that_were_left_over():
    rows = mixture(Mixing("uniform"), large=70, small=10)
    counts = Counter(index for index in MixtureSampler(rows, batch_size=4, seed=0) if index >= 70)
    assert sum(counts.values()) == 40 and set(counts.values()) == {4}


def test_a_task_with_fewer_rows_than_a_batch_fills_it():
    rows = mixture(Mixing("uniform"), large=70, small=3)
    tasks = drawn(MixtureSampler(rows, batch_size=8, seed=0))
    assert Counter(tasks) == {0: 5, 1: 5}


def test_texts_of_a_batch_are_of_like_length():
    rows = mixture(large=7 * 80, small=7 * 8)
    spans = [
        {len(rows[index]["input_ids"]) for index in batch}
        for batch in batched(MixtureSampler(rows, batch_size=8, seed=0))
    ]
    assert sum(map(len, spans)) / len(spans) < 2  # of 7 lengths


def test_the_order_depends_on_seed_and_epoch_alone():
    rows = mixture(large=64, small=32)
    first, second, other = (MixtureSampler(rows, batch_size=8, seed=seed) for seed in (0, 0, 1))
    assert list(first) == list(first) == list(second) != list(other)
    second.set_epoch(1)
    assert list(first) != list(second)


def test_shares_may_change_between_batches():
    rows = mixture(large=64, small=64)
    order = iter(MixtureSampler(rows, batch_size=8, seed=0))
    for _ in range(16):
        next(order)
    rows.shares = {"large": 0.0, "small": 1.0}
    assert all(index >= 64 for index in order)


def test_choices_are_as_long_as_their_longest():
    choices = datasets.Dataset.from_dict({"input_ids": [[[1] * 2, [1] * n] for n in (3, 9) * 40]})
    sampler = MixtureSampler(TaskMixture({"copa": choices, "rte": part(4)}, Mixing()), batch_size=2, seed=0)
    batches = [batch for batch in batched(sampler) if batch[0] < 80]
    spans = [{len(sampler.mixture[index]["input_ids"][1]) for index in batch} for batch in batches]
    assert len(batches) == 40 and sum(len(span) == 1 for span in spans) > 30


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Mixing("equal"), "sampling='equal' is none of 'proportional', 'square_root'"),
        (lambda: Mixing("temperature", temperature=0.5), "temperature=0.5: give 1"),
        (lambda: Mixing("dynamic", updates=0), "updates=0: give 1"),
        (lambda: mixture(rte=5), "A mixture of rte: give two tasks"),
        (lambda: mixture(rte=5, cb=0), "cb has no training rows"),
        (lambda: mixture(Mixing("dynamic"), rte=5, cb=5), "'dynamic' needs scores"),
    ],
)
def test_what_cannot_be_mixed_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()
