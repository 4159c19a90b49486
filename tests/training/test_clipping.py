"""Gradients are clipped unit by unit as the paper writes it, or to a percentile of their past."""

import math
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

import hf_elastic
from hf_elastic import ElasticConfig
from hf_elastic.training.callbacks import find_callback
from hf_elastic.training.clipping import PercentileClipping, clip_adaptively, clippable_parameters
from tests.conftest import TINY

from .cases import GradientRecorder, assert_same_gradients, logged, make_model, make_trainer


def with_gradients(*shapes, dtype=torch.float32, scale=1.0):
    """Random parameters with random gradients."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape, dtype=dtype)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = scale * torch.randn_like(parameter)
    return parameters


def clip_plainly(weight, gradient, ratio, eps):
    """The paper's rule for one weight with a loop over its units, and how many it clipped."""
    rows = weight.reshape(-1, weight.shape[-1]) if weight.dim() > 1 else weight.reshape(1, -1)
    results, clipped = [], 0
    for row, its_gradient in zip(rows, gradient.reshape(rows.shape), strict=True):
        limit = ratio * max(math.sqrt(sum(float(x) ** 2 for x in row)), eps)
        norm = math.sqrt(sum(float(x) ** 2 for x in its_gradient))
        clipped += norm > limit
        results.append(its_gradient * (limit / norm) if norm > limit else its_gradient)
    return torch.stack(results).reshape(gradient.shape), clipped, len(rows)


def test_units_are_clipped_as_a_plain_loop_does():
    # A linear layer, a vector, and two experts.
    parameters = with_gradients((5, 4), (7,), (2, 3, 4), scale=0.7)
    with torch.no_grad():
        parameters[0][1] = 0.0  # its limit is that of eps
        parameters[0].grad[2] = 0.0
    expected = [clip_plainly(p.detach(), p.grad.clone(), ratio=0.8, eps=1e-3) for p in parameters]
    share = clip_adaptively(parameters, ratio=0.8)
    for parameter, (gradient, _, _) in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    clipped, units = sum(item[1] for item in expected), sum(item[2] for item in expected)
    assert 0 < clipped < units == 12
    assert share.item() == pytest.approx(clipped / units)


def test_small_gradients_stay_bit_for_bit():
    parameters = with_gradients((5, 4), (7,), scale=1e-4)
    before = [parameter.grad.clone() for parameter in parameters]
    assert clip_adaptively(parameters, ratio=0.1) == 0
    assert all(torch.equal(p.grad, gradient) for p, gradient in zip(parameters, before, strict=True))


def test_low_precision_is_measured_in_float32():
    (parameter,) = with_gradients((3, 4), dtype=torch.float16)
    parameter.grad.fill_(60000.0)  # a row's norm is beyond float16
    assert clip_adaptively([parameter], ratio=0.01) == 1
    assert parameter.grad.dtype == torch.float16
    norms = parameter.grad.float().norm(dim=-1)
    torch.testing.assert_close(norms, 0.01 * parameter.detach().float().norm(dim=-1), rtol=1e-2, atol=1e-4)


def test_parameters_without_a_gradient_are_skipped():
    first, second = with_gradients((2, 2), (2, 2), scale=100.0)
    second.grad = None
    assert clip_adaptively([first, second], ratio=0.1) == 1
    assert second.grad is None
    assert clip_adaptively([second], ratio=0.1) == 0


@contextmanager
def one_process_mesh():
    """A device mesh of this process alone, for distributed tensors."""
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=torch.distributed.HashStore())
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        torch.distributed.destroy_process_group()


def test_distributed_tensors_are_clipped_as_plain_ones():
    plain = with_gradients((5, 4), (7,), (2, 3, 4))
    with one_process_mesh() as mesh:
        split = [nn.Parameter(distribute_tensor(parameter.detach(), mesh, [Shard(0)])) for parameter in plain]
        for theirs, parameter in zip(split, plain, strict=True):
            theirs.grad = distribute_tensor(parameter.grad.clone(), mesh, [Shard(0)])
        assert clip_adaptively(split, ratio=0.8) == clip_adaptively(plain, ratio=0.8) > 0
        for theirs, parameter in zip(split, plain, strict=True):
            torch.testing.assert_close(theirs.grad.full_tensor(), parameter.grad)


def left_out(model):
    kept = set(clippable_parameters(model))
    return {name for name, parameter in model.named_parameters() if parameter not in kept}


@pytest.mark.parametrize(
    ("class_name", "expected"),
    [
        ("ElasticModel", set()),
        ("ElasticForSequenceClassification", {"classifier.weight", "classifier.bias"}),
        ("ElasticForQuestionAnswering", {"qa_outputs.weight", "qa_outputs.bias"}),
        ("ElasticForMaskedLM", {"lm_head.decoder.bias"}),  # its weight is the embeddings'
    ],
)
def test_the_heads_last_layer_is_left_out(class_name, expected):
    assert left_out(getattr(hf_elastic, class_name)(ElasticConfig(**TINY))) == expected


def test_of_a_head_of_two_layers_the_first_is_clipped():
    model = transformers.RobertaForSequenceClassification(transformers.RobertaConfig(**TINY))
    assert left_out(model) == {"classifier.out_proj.weight", "classifier.out_proj.bias"}


def test_frozen_parameters_are_left_out():
    model = make_model("classification")
    model.model.embeddings.requires_grad_(False)
    assert "model.embeddings.norm.weight" in left_out(model)


@pytest.mark.parametrize("percentile", [10, 50, 100])
def test_the_limit_is_numpys_percentile_of_the_window(percentile):
    norms = np.random.default_rng(0).gamma(2.0, size=40)
    clipping = PercentileClipping()
    for i, norm in enumerate(norms):
        window = norms[max(0, i - 15) : i + 1]
        assert clipping.limit(torch.tensor(norm), percentile, window=16) == pytest.approx(
            np.percentile(window, percentile)
        )


def test_norms_that_are_not_finite_do_not_count():
    clipping = PercentileClipping()
    assert clipping.limit(math.nan, 50) == math.inf
    clipping.limit(2.0, 50)
    assert clipping.limit(math.inf, 50) == 2.0


def test_a_step_that_is_forgotten_does_not_count():
    clipping = PercentileClipping()
    clipping.limit(2.0, 100)
    for norm in (9.0, math.inf):
        clipping.limit(norm, 100)
        clipping.forget_step()
    assert clipping.limit(1.0, 100) == 2.0


class NormRecorder(transformers.TrainerCallback):
    """Keeps the norm of what the optimizer gets."""

    def __init__(self):
        self.norms = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.norms.append(torch.nn.utils.get_total_norm([p.grad for p in model.parameters() if p.grad is not None]))


def train(output, callbacks=(), checkpoint=None, **settings):
    """A trainer after six steps of 8 rows, unless the settings say otherwise."""
    defaults = {"max_steps": 6, "per_device_train_batch_size": 8, "learning_rate": 1e-3, "sampling": "one_per_step"}
    trainer = make_trainer(output, settings={**defaults, **settings}, callbacks=list(callbacks))
    trainer.train(checkpoint)
    return trainer


def norms_before(trainer):
    return logged(trainer, "grad_norm")


def clipping_of(trainer):
    return find_callback(trainer, PercentileClipping)


@pytest.mark.parametrize("max_grad_norm", [0.0, 1e6])
def test_a_training_clips_to_the_percentile(tmp_path, max_grad_norm):
    recorder = NormRecorder()
    before = norms_before(train(tmp_path, [recorder], percentile_clipping=20, max_grad_norm=max_grad_norm))
    limits = [np.percentile(before[: i + 1], 20) for i in range(6)]
    expected = [min(norm, limit) for norm, limit in zip(before, limits, strict=True)]
    np.testing.assert_allclose(np.array(recorder.norms), expected, rtol=1e-4)
    assert min(np.array(before) - expected) == 0 < max(np.array(before) - expected)


@pytest.mark.parametrize("clipping", [{"adaptive_clipping": 100.0}, {"percentile_clipping": 100}])
def test_a_limit_that_is_not_reached_leaves_that_of_the_arguments(tmp_path, clipping):
    recorder = NormRecorder()
    train(tmp_path, [recorder], max_steps=2, max_grad_norm=0.01, **clipping)
    assert recorder.norms == pytest.approx([0.01, 0.01], rel=1e-3)


@pytest.mark.parametrize("max_grad_norm", [0.0, 1e6])
def test_a_training_clips_adaptively_once_per_step(tmp_path, max_grad_norm):
    """Clipping twice, or the parts of an accumulated batch, would not give the same."""
    batches = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "learning_rate": 0.0}
    whole, clipped = GradientRecorder(), GradientRecorder()
    trainers = [
        train(tmp_path, [recorder], max_steps=2, max_grad_norm=max_grad_norm, adaptive_clipping=ratio, **batches)
        for recorder, ratio in ((whole, 0.0), (clipped, 1e-3))
    ]
    assert norms_before(trainers[1]) == pytest.approx(norms_before(trainers[0]))
    model = make_model("classification")
    for theirs in whole.steps:
        for name, parameter in model.named_parameters():
            parameter.grad = theirs[name]
        assert clip_adaptively(clippable_parameters(model), 1e-3) > 0.1
    assert_same_gradients(clipped.steps, whole.steps)


def test_a_resumed_training_has_the_same_limits(tmp_path):
    settings = {"percentile_clipping": 20, "percentile_window": 5, "save_strategy": "steps", "save_steps": 3}
    whole = train(tmp_path, **settings)
    resumed = train(tmp_path, checkpoint=str(tmp_path / "checkpoint-3"), **settings)
    assert len(clipping_of(whole).norms) == 5
    assert clipping_of(resumed).norms == clipping_of(whole).norms
    for name, value in whole.model.state_dict().items():
        assert torch.equal(resumed.model.state_dict()[name], value)


def test_a_resumed_training_may_have_another_percentile(tmp_path):
    settings = {"percentile_clipping": 20, "save_strategy": "steps", "save_steps": 3}
    whole, recorder = train(tmp_path, **settings), NormRecorder()
    others = {"percentile_clipping": 60, "percentile_window": 2}
    resumed = train(tmp_path, [recorder], str(tmp_path / "checkpoint-3"), **{**settings, **others})
    norms = norms_before(whole)[:3] + norms_before(resumed)[-3:]
    limits = [np.percentile(norms[i - 1 : i + 1], 60) for i in range(3, 6)]
    expected = [min(norm, limit) for norm, limit in zip(norms[3:], limits, strict=True)]
    np.testing.assert_allclose(np.array(recorder.norms), expected, rtol=1e-4)
    assert len(clipping_of(resumed).norms) == 2


def test_a_new_training_begins_without_norms(tmp_path):
    trainer = train(tmp_path, percentile_clipping=20, max_steps=2)
    trainer.train()
    assert len(clipping_of(trainer).norms) == 2
