"""The definition of window patterns, and the draw of their random blocks."""

import pytest
import torch

from hf_elastic.modeling.window_pattern_elastic import WindowPattern


def test_a_window_is_inclusive_and_global_tokens_see_and_are_seen():
    mask = WindowPattern(window=1, num_global_tokens=1).dense_mask(5, "cpu")
    assert mask.int().tolist() == [
        [1, 1, 1, 1, 1],
        [1, 1, 1, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 0, 1, 1, 1],
        [1, 0, 0, 1, 1],
    ]


def test_a_window_over_the_length_and_globals_over_the_length_see_everything():
    assert WindowPattern(window=7).dense_mask(7, "cpu").all()
    assert WindowPattern(window=0, num_global_tokens=9).dense_mask(7, "cpu").all()
    assert torch.equal(WindowPattern(window=0).dense_mask(3, "cpu"), torch.eye(3).bool())


def test_random_blocks_are_whole_distinct_and_beyond_the_window_and_the_globals():
    pattern = WindowPattern(window=9, num_global_tokens=17, num_random_blocks=3, block_size=8)
    length = 150  # 19 blocks, the last one partly filled
    blocks = pattern.random_blocks(length, "cpu")
    assert blocks.shape == (19, 3)
    assert (blocks[:, 1:] > blocks[:, :-1]).all()
    assert blocks.min() >= 2  # globals fill two blocks, and one position of a third
    assert ((blocks - torch.arange(19)[:, None]).abs() > 2).all()  # nine positions reach two blocks
    expected = WindowPattern(window=9, num_global_tokens=17).dense_mask(length, "cpu")
    for query_block, row in enumerate(blocks.tolist()):
        for key_block in row:  # those after the end are empty slices
            expected[query_block * 8 : query_block * 8 + 8, key_block * 8 : key_block * 8 + 8] = True
    assert torch.equal(pattern.dense_mask(length, "cpu"), expected)


def test_random_blocks_are_the_same_at_every_call_and_others_for_another_seed():
    first, again = (WindowPattern(8, num_random_blocks=2, block_size=8).random_blocks(400, "cpu") for _ in range(2))
    other = WindowPattern(8, num_random_blocks=2, block_size=8, seed=1).random_blocks(400, "cpu")
    assert torch.equal(first, again)
    assert (first != other).float().mean() > 0.5


def test_random_blocks_lie_before_and_after_a_block_alike():
    draws = [WindowPattern(0, num_random_blocks=4, block_size=8, seed=seed) for seed in range(200)]
    blocks = torch.stack([draw.random_blocks(256, "cpu")[15] for draw in draws]).flatten()
    assert 0.4 < (blocks < 15).float().mean() < 0.6
    counts = blocks.bincount(minlength=35)
    assert counts[15] == 0 and counts[35:].sum() == 0
    expected = 200 * 4 / 34  # evenly over all others up to twice as far and four more
    assert counts[:15].min() > 0.4 * expected and counts[:15].max() < 1.8 * expected


@pytest.mark.parametrize("num_global_tokens", [0, 3, 20])
@pytest.mark.parametrize("shorter", [1, 8, 9, 100, 392])
def test_what_a_query_sees_does_not_depend_on_the_length(shorter, num_global_tokens):
    pattern = WindowPattern(8, num_global_tokens, num_random_blocks=3, block_size=8, seed=1)
    assert torch.equal(pattern.dense_mask(400, "cpu")[:shorter, :shorter], pattern.dense_mask(shorter, "cpu"))


def test_every_block_of_queries_has_its_number_of_blocks_where_the_input_goes_on():
    pattern = WindowPattern(8, num_global_tokens=20, num_random_blocks=5, block_size=8)
    blocks = pattern.random_blocks(64, "cpu")
    assert blocks.shape == (8, 5)
    assert ((blocks - torch.arange(8)[:, None]).abs() > 1).all() and blocks.min() >= 2


@pytest.mark.parametrize(
    ("field", "value"), [("window", -1), ("num_global_tokens", -2), ("num_random_blocks", -1), ("block_size", 0)]
)
def test_impossible_sizes_are_named(field, value):
    with pytest.raises(ValueError, match=f"{field}={value} is not possible: give [01] or more"):
        WindowPattern(**{"window": 4, field: value})
