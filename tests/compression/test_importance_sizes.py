import torch

from hf_elastic import ElasticConfig
from hf_elastic.compression.importance_sizes import sizes_by_importance
from hf_elastic.compression.rank import Importance
from tests.conftest import TINY

CONFIG = ElasticConfig(**{**TINY, "num_hidden_layers": 3, "intermediate_size": 4})
HEADS = ([9.0, 8.0, 7.0, 1.0], [6.0, 0.5, 0.4, 0.3], [0.2, 0.1, 0.1, 0.1])
IMPORTANCE = Importance(
    heads=tuple(map(torch.tensor, HEADS)),
    neurons=(torch.ones(4), torch.tensor([3.0, 2.0, 2.0, 2.0]), torch.zeros(4)),
    num_examples=1,
)


def test_the_best_units_of_all_layers_are_kept():
    sizes = sizes_by_importance(CONFIG, IMPORTANCE, share=1 / 3)
    assert [size.num_attention_heads for size in sizes] == [3, 1, 1]  # of 4 the best; none is left without
    assert [size.intermediate_size for size in sizes] == [1, 4, 1]


def test_the_most_important_layers_are_kept():
    sizes = sizes_by_importance(CONFIG, IMPORTANCE, share=1.0, num_layers=2)
    assert [size.layer for size in sizes] == [0, 1]
    assert all((size.num_attention_heads, size.intermediate_size) == (4, 4) for size in sizes)


def test_neurons_of_experts_count_with_their_mean():
    config = ElasticConfig(**{**TINY, "num_hidden_layers": 1, "intermediate_size": 2, "num_experts": 2})
    scores = torch.tensor([[4.0, 0.0], [2.0, 1.0]])
    importance = Importance((torch.ones(4),), (scores,), 1, (torch.ones(2),))
    (size,) = sizes_by_importance(config, importance, share=0.5)
    assert size.intermediate_size == 1
