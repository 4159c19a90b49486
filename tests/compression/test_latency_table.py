"""Predictions of made-up times that add up by layer, and what the real measurement gives; nothing here is timed."""

import json
import random

import pytest

from hf_elastic import SubnetConfig
from hf_elastic.compression import latency_table
from hf_elastic.compression.latency_table import LatencyTable, Workload, sizes_to_measure
from tests.compression.test_search_space import make_config
from tests.conftest import randomize


def made_up_times(subnets, config):
    """Times of a machine on which all parts add up, but for a noise of 1%."""
    rng = random.Random(0)
    kinds = {"full_attention": 0.5, "sliding_attention": 0.3}
    times = []
    for subnet in subnets:
        sizes = subnet.layer_sizes(config)
        layers = sum(
            kinds[config.layer_types[size.layer]] * (1 + 0.2 * size.num_attention_heads)
            + 0.01 * size.intermediate_size * size.num_experts_per_tok
            for size in sizes
        )
        times.append((1.0 + layers) * sizes[0].hidden_size / 32 * rng.uniform(0.99, 1.01))
    return times


@pytest.mark.parametrize("layer_types", [["full_attention"] * 4, ["full_attention", "sliding_attention"] * 2])
@pytest.mark.parametrize("supernet", ["plain", "experts"])
@pytest.mark.parametrize("named", ["a chain", "another hidden size"])
def test_parts_that_add_up_are_told_apart(supernet, named, layer_types):
    config = make_config(supernet, named)
    config.layer_types = layer_types
    known = sizes_to_measure(config)
    table = LatencyTable.fit(known, made_up_times(known, config), config, Workload())
    others = [SubnetConfig(), SubnetConfig(layers=(2, 3)), SubnetConfig(num_attention_heads=(1, 2, 3, 4))]
    others += [SubnetConfig(layers=(1,), intermediate_size=48), *config.subnets.values()]
    for subnet, time in zip(others, made_up_times(others, config), strict=True):
        assert table.predict(subnet, config) == pytest.approx(time, rel=0.04)


def test_a_table_of_real_passes_survives_json(classifier):
    mode, workload = classifier.train().training, Workload(sequence_length=8, batch_size=2, threads=1)
    table = LatencyTable.measure(classifier, workload, rounds=1)
    assert classifier.training == mode
    assert LatencyTable.from_dict(json.loads(json.dumps(table.to_dict()))) == table
    assert table.predict(SubnetConfig(), classifier.config) > 0
    assert len(table.errors) == latency_table.COMPARED


def test_a_runtime_is_asked_for_every_size_and_run(classifier, monkeypatch):
    made, runs = [], []

    def runtime(model, subnet, workload):
        made.append(subnet)
        return lambda: runs.append(workload.sequence_length)

    monkeypatch.setitem(latency_table.RUNTIMES, "counting", runtime)
    subnets = list(classifier.config.subnets.values())
    times = latency_table.measure_in_turns(classifier, subnets, Workload(8, runtime="counting"), rounds=2)
    assert made == subnets and len(times) == len(subnets)
    passes = latency_table.WARMUP_PASSES + latency_table.MEASURED_PASSES
    assert runs == [8] * (2 * passes * len(subnets))


def test_bad_input_is_named(classifier):
    for name, value in {"sequence_length": 0, "batch_size": -1, "threads": 0}.items():
        with pytest.raises(ValueError, match=f"{name}={value} must be a whole number"):
            Workload(**{name: value})
    with pytest.raises(ValueError, match="runtime='abacus' is unknown: possible are pytorch"):
        Workload(runtime="abacus")
    table = LatencyTable(Workload(), {"hidden size 32: outside of the layers": {1: 1.0}})
    with pytest.raises(ValueError, match="no times of 'hidden size 32: full_attention, heads'"):
        table.predict(SubnetConfig(), classifier.config)
    with pytest.raises(ValueError, match="65 tokens, the model 64 positions"):
        LatencyTable.measure(randomize(classifier), Workload(65), rounds=1)
