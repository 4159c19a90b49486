"""The model compiles without breaks, once per size, and exports."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from hf_elastic import extract

from ..conftest import first_output, make_inputs

SUBNETS = ["large", "small", "tiny"]


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()


def test_one_compilation_per_size_and_none_per_batch(classifier):
    counter = CompileCounter()
    compiled = torch.compile(classifier, backend=counter, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            for subnet in SUBNETS:
                for seed in range(2):
                    inputs = make_inputs("ElasticForSequenceClassification", seed)
                    torch.testing.assert_close(
                        compiled(**inputs, subnet=subnet).logits, classifier(**inputs, subnet=subnet).logits
                    )
    assert counter.frame_count == len(SUBNETS)


def test_other_lengths_and_batches_compile_once_more_at_most(classifier):
    counter = CompileCounter()
    compiled = torch.compile(classifier, backend=counter, fullgraph=True)
    with torch.no_grad(), classifier.use_subnet("small"):
        for batch_size, length in [(2, 9), (3, 17), (5, 23), (4, 31), (7, 12)]:
            compiled(torch.randint(1, 99, (batch_size, length)))
    assert counter.frame_count <= 2  # once for the first shape, once for any shape


def test_a_member_whose_layers_differ_compiles_once(classifier):
    member = extract(classifier, "small")
    counter = CompileCounter()
    compiled = torch.compile(member, backend=counter, fullgraph=True)
    for seed in range(2):
        inputs = make_inputs("ElasticForSequenceClassification", seed)
        torch.testing.assert_close(compiled(**inputs).logits, member(**inputs).logits)
    assert counter.frame_count == 1


def test_the_active_size_is_what_compiled_code_runs(classifier):
    compiled = torch.compile(classifier, backend="eager", fullgraph=True)
    inputs = make_inputs("ElasticForSequenceClassification")
    with torch.no_grad():
        for subnet in ["tiny", None, "small", "tiny"]:
            with classifier.use_subnet(subnet):
                torch.testing.assert_close(compiled(**inputs).logits, classifier(**inputs, subnet=subnet).logits)


@pytest.mark.parametrize("subnet", [None, "small"])
def test_export_with_dynamic_shapes(model, subnet):
    class_name = type(model).__name__
    inputs = make_inputs(class_name)
    sequence = len(inputs["input_ids"].shape) - 1
    dynamic = {0: torch.export.Dim("batch", max=64), sequence: torch.export.Dim("length", max=64)}
    with torch.no_grad(), model.use_subnet(subnet):
        program = torch.export.export(
            model, (), kwargs=dict(inputs), dynamic_shapes={name: dynamic for name in inputs}
        )
        other = {name: value[:2, ..., :7].contiguous() for name, value in make_inputs(class_name, 3).items()}
        for batch in (inputs, other):
            torch.testing.assert_close(
                first_output(program.module()(**batch)), first_output(model(**batch)), atol=1e-5, rtol=1e-5
            )
