"""Counts agree with the models themselves and with torch's own counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from hf_elastic import SubnetConfig, extract
from hf_elastic.compression.cost import count_flops, count_parameters, measure_latency

BY_LAYER = SubnetConfig(layers=(0, 2, 3), num_attention_heads=(4, 1, 2), intermediate_size=(16, 64, 33))
SUBNETS = ["large", "base", "small", "tiny", None, SubnetConfig(layers=(1,), num_attention_heads=1), BY_LAYER]


@pytest.mark.parametrize("subnet", SUBNETS)
def test_parameters_are_the_members(model, subnet):
    member = extract(model, subnet)
    count = count_parameters(model, subnet)
    assert count.total == sum(parameter.numel() for parameter in member.parameters())
    assert count.encoder == sum(parameter.numel() for parameter in member.base_model.layers.parameters())
    assert count.embeddings == sum(parameter.numel() for parameter in member.base_model.embeddings.parameters())
    assert count_parameters(member) == count


@pytest.mark.parametrize("subnet", SUBNETS)
def test_flops_are_torchs(model, subnet):
    shape = (3, 17)
    input_ids = torch.randint(99, (1, *shape) if "MultipleChoice" in type(model).__name__ else shape)
    model.set_attn_implementation("eager")  # torch does not count its fused attention on a CPU
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(input_ids, subnet=subnet)
    assert count_flops(model, subnet, sequence_length=17, batch_size=3) == counter.get_total_flops()


def test_latency_states_its_conditions(model):
    latency = measure_latency(model, "tiny", sequence_length=9, batch_size=2, repeats=3, warmup=1)
    assert latency.milliseconds > 0
    assert (latency.batch_size, latency.sequence_length, latency.repeats) == (2, 9, 3)
    assert (latency.device, latency.dtype, latency.threads) == ("cpu", "float32", torch.get_num_threads())


def test_threads_are_those_asked_for_and_then_as_before(classifier):
    before = torch.get_num_threads()
    assert measure_latency(classifier, sequence_length=8, repeats=1, warmup=0, threads=2).threads == 2
    assert torch.get_num_threads() == before


def test_measuring_leaves_the_mode_alone(classifier):
    classifier.train()
    measure_latency(classifier, sequence_length=8, repeats=1, warmup=0)
    assert classifier.training


def test_bad_input_is_named(classifier):
    with pytest.raises(ValueError, match="'huge'"):
        count_parameters(classifier, "huge")
    for name, value in {"repeats": 0, "warmup": -1, "sequence_length": 0, "batch_size": 1.5, "threads": 0}.items():
        with pytest.raises(ValueError, match=f"{name}={value} must be a whole number"):
            measure_latency(classifier, **{name: value})
    with pytest.raises(ValueError, match="sequence_length=-5"):
        count_flops(classifier, sequence_length=-5)
    with pytest.raises(TypeError, match="model is a Linear, not an elastic model"):
        count_parameters(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="65 tokens, the model 64 positions"):
        measure_latency(classifier, sequence_length=65)
