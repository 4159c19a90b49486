"""Searches on a tiny supernet, with a score that can be worked out by hand: how many units a size keeps."""

import json
import math

import pytest

import hf_elastic
from hf_elastic import SearchSettings, SubnetConfig, extract, search
from hf_elastic.compression.budget import Budget, SizeCosts
from hf_elastic.compression.cost import count_flops, count_parameters, weight_megabytes
from hf_elastic.compression.latency_table import LatencyTable, Workload
from hf_elastic.compression.rank import score_units
from hf_elastic.compression.search_result import PICTURE_NAME, RESULT_NAME
from hf_elastic.compression.sizes import nests
from tests.conftest import make_inputs, make_labels

WORKLOAD = Workload(sequence_length=8, threads=1)


class Units:
    """Scores the active size by its units, which later layers have more valuable ones of; counts the calls."""

    def __init__(self, sign=1):
        self.sign, self.calls, self.fingerprint = sign, 0, "units"

    def __call__(self, model):
        self.calls += 1
        assert not model.training
        sizes = model.base_model.active_subnet.layer_sizes(model.config)
        return self.sign * sum((1 + s.layer) * (s.num_attention_heads + s.intermediate_size / 16) for s in sizes)


def settings(**values):
    return SearchSettings(**{"num_candidates": 40, "num_finalists": 4, "workload": WORKLOAD, **values})


@pytest.fixture
def supernet(classifier):
    """A supernet whose named sizes leave room between them."""
    classifier.config.subnets = {
        "large": SubnetConfig(),
        "tiny": SubnetConfig(layers=(0, 3), num_attention_heads=1, intermediate_size=32),
    }
    return classifier


@pytest.mark.parametrize("method", ["nsga2", "tpe"])
@pytest.mark.parametrize("choices", ["layers", "model"])
def test_a_budget_is_kept_and_the_size_is_named(supernet, method, choices):
    limit = (count_parameters(supernet).total + count_parameters(supernet, "tiny").total) // 2
    supernet.train()
    how = settings(method=method, choices=choices, num_candidates=24)
    found = search(supernet, Units(), max_params=limit, proxy_fn=Units(-1), settings=how)
    assert supernet.training
    assert list(found) == ["found"]
    assert supernet.config.subnets["found"] == found["found"]
    assert set(supernet.config.subnets) == {"large", "tiny", "found"}
    assert sum(p.numel() for p in extract(supernet, "found").parameters()) <= limit
    assert all(candidate.costs.parameters <= limit for candidate in found.candidates)
    tiny = Units()
    with supernet.use_subnet("tiny"):
        supernet.eval()
        assert found.best.metric > tiny(supernet)
    assert found.best.metric == max(candidate.metric for candidate in found.finalists)


@pytest.mark.parametrize("method", ["nsga2", "tpe"])
def test_the_front_is_no_worse_than_mix_n_match(supernet, method):
    result = search(supernet, Units(), proxy_fn=Units(-1), settings=settings(method=method, num_candidates=60))
    assert result.cost == "flops" and result.baseline
    for mixed in result.baseline:
        better = [c for c in result.score_front if c.costs.flops <= mixed.costs.flops and c.score <= mixed.score]
        assert better
    drawn = [candidate for candidate in result.score_front if candidate.origin == method]
    assert drawn  # it does not live by what it began with


def test_no_candidate_of_a_front_beats_another(supernet):
    result = search(supernet, Units(), proxy_fn=Units(-1), settings=settings())
    for front, value in ((result.front, lambda c: c.metric), (result.score_front, lambda c: -c.score)):
        assert len(front) > 1
        pairs = list(zip(front, front[1:], strict=False))
        assert all(one.costs.flops < other.costs.flops and value(one) < value(other) for one, other in pairs)


def test_costs_are_those_of_the_member(supernet):
    result = search(supernet, Units(), max_memory_mb=1.0, settings=settings())
    for candidate in result.candidates[::5]:
        member = extract(supernet, candidate.subnet)
        assert candidate.costs.parameters == sum(parameter.numel() for parameter in member.parameters())
        assert candidate.costs.flops == count_flops(member, None, WORKLOAD.sequence_length)
        assert candidate.costs.megabytes == pytest.approx(4e-6 * candidate.costs.parameters)


def test_several_sizes_are_named_and_nest(supernet):
    result = search(supernet, Units(), n=3, name="size", proxy_fn=Units(-1), settings=settings(num_finalists=12))
    assert 1 < len(result) <= 3
    assert all(supernet.config.subnets[name] == subnet for name, subnet in result.items())
    hf_elastic.ElasticConfig.from_dict(supernet.config.to_dict())  # checks the nesting
    metrics = [candidate.metric for candidate in result.found.values()]
    assert metrics[0] == max(metrics)


def test_a_size_that_has_a_name_keeps_it(supernet):
    limit = count_parameters(supernet, "tiny").total
    result = search(supernet, Units(), max_params=limit, candidates=[], settings=settings(num_candidates=1))
    assert dict(result) == {"tiny": supernet.config.subnets["tiny"]}
    assert set(supernet.config.subnets) == {"large", "tiny"}


def test_sizes_of_ones_own_and_important_units_are_considered(supernet):
    own = SubnetConfig(layers=(0, 1, 3), num_attention_heads=3, intermediate_size=40)
    batch = make_inputs("ElasticForSequenceClassification") | make_labels("ElasticForSequenceClassification")
    importance = score_units(supernet, [batch])
    result = search(supernet, Units(), candidates=[own], importance=importance, settings=settings(num_candidates=60))
    origins = {candidate.origin for candidate in result.candidates}
    assert {"named tiny", "by hand", "mix'n'match", "importance", "nsga2"} <= origins
    assert own in [candidate.subnet for candidate in result.candidates if candidate.origin == "by hand"]
    assert all(nests(c.subnet, {"tiny": supernet.config.subnets["tiny"]}, supernet.config) for c in result.candidates)


@pytest.mark.parametrize("storage", ["search.journal", "sqlite"])
def test_a_second_search_evaluates_nothing(supernet, tmp_path, storage):
    path = f"sqlite:///{tmp_path}/search.db" if storage == "sqlite" else tmp_path / "kept" / storage
    arguments = {"max_latency_ms": 1000.0, "settings": settings(storage=path, num_candidates=20)}
    first = search(supernet, Units(), proxy_fn=Units(-1), **arguments)
    assert first.num_evaluated == 20
    metric, proxy = Units(), Units(-1)
    again = search(supernet, metric, proxy_fn=proxy, **arguments)
    assert (metric.calls, proxy.calls, again.num_evaluated) == (0, 0, 0)
    assert dict(again) == dict(first)
    assert again.table == first.table
    assert {c.subnet: c.score for c in again.candidates} == {c.subnet: c.score for c in first.candidates}


def test_a_search_that_was_stopped_goes_on_where_it_was(supernet, tmp_path):
    class Stopped(Units):
        def __call__(self, model):
            if self.calls == 12:
                raise KeyboardInterrupt
            return super().__call__(model)

    arguments = {"settings": settings(storage=tmp_path / "search.journal")}
    with pytest.raises(KeyboardInterrupt):
        search(supernet, Units(), proxy_fn=Stopped(-1), **arguments)
    assert "found" not in supernet.config.subnets
    proxy = Units(-1)
    search(supernet, Units(), proxy_fn=proxy, **arguments)
    assert proxy.calls == 40 - 12


def test_a_journal_that_a_killed_process_left_in_the_middle_of_a_line_is_good(supernet, tmp_path):
    arguments = {"settings": settings(storage=tmp_path / "search.journal", num_candidates=10)}
    search(supernet, Units(), proxy_fn=Units(-1), **arguments)
    journal = tmp_path / "search.journal"
    journal.write_bytes(journal.read_bytes()[:-20])
    proxy = Units(-1)
    for _ in range(2):
        search(supernet, Units(), proxy_fn=proxy, **arguments)
    assert proxy.calls <= 1


def test_another_budget_uses_the_scores_and_other_weights_do_not(supernet, tmp_path):
    kept = settings(storage=tmp_path / "search.journal")
    search(supernet, Units(), proxy_fn=Units(-1), settings=kept)
    proxy = Units(-1)
    limit = count_parameters(supernet, "tiny").total + 4000
    other = search(supernet, Units(), max_params=limit, proxy_fn=proxy, settings=kept)
    assert proxy.calls < len(other.candidates)
    supernet.classifier.weight.data += 1
    proxy = Units(-1)
    search(supernet, Units(), proxy_fn=proxy, settings=kept)
    assert proxy.calls == 40


def test_functions_with_other_data_have_scores_of_their_own(supernet, tmp_path):
    kept = settings(storage=tmp_path / "search.journal", num_candidates=5)
    for fingerprint in ("these rows", "those rows"):
        proxy = Units(-1)
        proxy.fingerprint = fingerprint
        search(supernet, Units(), proxy_fn=proxy, settings=kept)
        assert proxy.calls == 5


def test_time_that_is_over_ends_the_search_with_a_result(supernet):
    proxy, metric = Units(-1), Units()
    result = search(supernet, metric, proxy_fn=proxy, settings=settings(max_minutes=1e-9))
    assert (proxy.calls, metric.calls, len(result)) == (1, 1, 1)
    assert result.ending == "max_minutes=1e-09 ended the search after 1 sizes."


def test_the_latency_is_predicted_measured_and_compared_with_the_member(supernet):
    result = search(supernet, Units(), max_latency_ms=1000.0, proxy_fn=Units(-1), settings=settings())
    assert isinstance(result.table, LatencyTable) and result.cost == "latency"
    assert all(c.costs.milliseconds == result.table.predict(c.subnet, supernet.config) for c in result.candidates)
    assert all(candidate.measured_ms > 0 for candidate in result.finalists)
    assert result.member_ms > 0


def test_the_result_is_written_as_json_and_picture(supernet, tmp_path):
    limit = count_parameters(supernet).total - 1
    result = search(supernet, Units(), max_params=limit, proxy_fn=Units(-1), settings=settings())
    result.save(tmp_path / "out")
    values = json.loads((tmp_path / "out" / RESULT_NAME).read_text())
    assert values["found"]["found"]["subnet"] == result["found"].to_dict()
    assert len(values["candidates"]) == len(result.candidates)
    assert (tmp_path / "out" / PICTURE_NAME).read_bytes().startswith(b"\x89PNG")
    rows = result.table_rows(supernet.config)
    assert [row["size"] for row in rows].count("found") == 1
    assert rows[-1]["layers"] == str(len(result.front[-1].subnet.layer_sizes(supernet.config)))


def test_a_budget_that_nothing_meets_names_the_nearest_before_anything_is_scored(supernet):
    nobody = Units()
    tiny = count_parameters(supernet, "tiny").total
    with pytest.raises(ValueError) as raised:
        search(supernet, nobody, max_params=tiny - 1, proxy_fn=nobody, settings=settings())
    assert f"No size keeps max_params={tiny - 1}: the nearest is" in str(raised.value)
    assert f"{tiny:,} parameters" in str(raised.value)
    with pytest.raises(ValueError, match=r"No size keeps max_latency_ms=1e-06: the nearest is .* ms, "):
        search(supernet, nobody, max_latency_ms=1e-6, proxy_fn=nobody, settings=settings())
    assert nobody.calls == 0
    assert set(supernet.config.subnets) == {"large", "tiny"}


def test_bad_input_is_named_before_anything_is_scored(supernet, tmp_path):
    nobody = Units()
    crossing = SubnetConfig(num_attention_heads=4, intermediate_size=16)
    garbage = tmp_path / "garbage.journal"
    garbage.write_text("not a journal\n")
    for arguments, error, message in (
        ({"max_params": 0}, ValueError, "max_params=0 must be positive"),
        ({"max_latency_ms": math.nan}, ValueError, "max_latency_ms=nan must be positive"),
        ({"max_flops": "many"}, TypeError, "max_flops='many': expected a number"),
        ({"n": 0}, ValueError, "n=0 must be a whole number"),
        ({"name": "mean"}, ValueError, "Subnet name 'mean' cannot be used"),
        ({"candidates": [crossing]}, ValueError, r"candidates\[0\]=.* does not nest"),
        ({"candidates": [SubnetConfig(layers=(9,))]}, ValueError, "layer 9 does not exist"),
        ({"settings": settings(storage=garbage)}, ValueError, "garbage.journal' is no journal of a search"),
    ):
        with pytest.raises(error, match=message):
            search(supernet, nobody, **arguments)
    with pytest.raises(ValueError, match="<lambda> has no fingerprint, so its scores in a storage"):
        search(supernet, lambda model: 1.0, settings=settings(storage=tmp_path / "search.journal"))
    with pytest.raises(TypeError, match="not an elastic model"):
        search(extract, nobody)
    for values, message in (
        ({"method": "anneal"}, "method='anneal' is unknown: possible are nsga2, tpe"),
        ({"choices": "neurons"}, "choices='neurons' is unknown: possible are layers, model"),
        ({"cost": "money"}, "cost='money' is unknown"),
        ({"num_candidates": 0}, "num_candidates=0 must be a whole number"),
        ({"max_minutes": 0}, "max_minutes=0 must be positive"),
    ):
        with pytest.raises(ValueError, match=message):
            SearchSettings(**values)
    assert nobody.calls == 0


@pytest.mark.parametrize(("score", "error"), [(math.nan, ValueError), ({"accuracy": 1.0}, TypeError)])
def test_a_score_that_is_no_number_is_an_error(supernet, score, error):
    with pytest.raises(error, match="score"):
        search(supernet, lambda model: score, settings=settings())


def test_a_budget_adds_up_its_limits():
    budget = Budget(max_params=100, max_latency_ms=2.0)
    within, beyond = SizeCosts(90, 1, 1.0, 1.0), SizeCosts(90, 1, 1.0, 3.0)
    assert budget.allows(within) and not budget.allows(beyond)
    assert budget.use(beyond) == 1.5
    assert budget.kinds == ["latency", "parameters"]
    assert budget.without_latency().allows(beyond)
    assert str(budget) == "max_latency_ms=2.0, max_params=100"


def test_megabytes_are_those_of_the_file(supernet, tmp_path):
    for half in (False, True):
        model = supernet.half() if half else supernet
        extract(model, "tiny").save_pretrained(tmp_path)
        on_disk = (tmp_path / "model.safetensors").stat().st_size
        assert 0 < on_disk - 1e6 * weight_megabytes(model, "tiny") < 8000  # the file's header
