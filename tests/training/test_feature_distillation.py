"""What features are compared on: all rows of tokens, whatever an example is."""

import torch

from hf_elastic.training.distillation import Observation, UnitCounts, feature_mask
from hf_elastic.training.feature_distillation import Comparison, hidden_loss
from hf_elastic.training.feature_objectives import hidden_state_contrastive
from tests.training.cases import collate, make_rows


def contrast(batch: dict, states: list[torch.Tensor]) -> torch.Tensor:
    student, teacher = (Observation((), (state, state)) for state in states)
    counts = UnitCounts.of(batch)
    return hidden_loss(Comparison(student, teacher, [(1, 1)], feature_mask(batch), counts, lambda s: s), "contrastive")


def test_contrast_of_choices_is_the_mean_over_them():
    batch = collate(make_rows("multiple_choice", 3))
    mask = batch["attention_mask"].flatten(end_dim=1)
    states = [torch.randn(*mask.shape, 8, generator=torch.Generator().manual_seed(i)) for i in range(2)]
    torch.testing.assert_close(contrast(batch, states), hidden_state_contrastive(*states, mask))


def test_contrast_without_any_class_is_nothing():
    batch = collate(make_rows("classification", 3)) | {"labels": torch.full((3,), -100)}
    states = [torch.randn(*batch["input_ids"].shape, 8, requires_grad=True) for _ in range(2)]
    loss = contrast(batch, states)
    loss.backward()
    assert loss == 0 and not states[0].grad.any()
