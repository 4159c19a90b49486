"""Run by torchrun in two processes: what models give whose layers are split between them.

torchrun --nproc_per_node 2 tensor_parallel_worker.py FOLDER
"""

import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from transformers import PreTrainedModel

from hf_elastic import SubnetConfig
from tests.training.cases import collate, make_model, make_rows
from tests.training.sharding_worker import load_in_parts, whole

# A gated feed-forward network, rotary positions and norms before the layers, as in ModernBERT.
MODERN = {"gated_mlp": True, "position_embedding_type": "rotary", "norm_position": "pre", "final_norm": True}
MODELS = {"classification": {}, "masked_lm": {}, "question_answering": MODERN}
SUBNETS = {"full": None, "half": SubnetConfig(layers=(0, 2))}


def results_of(model: PreTrainedModel, case: str) -> dict[str, Any]:
    """Losses with and without a graph, and gradients, of the full model and of half the layers."""
    batch, results = collate(make_rows(case, 8)), {}
    for name, subnet in SUBNETS.items():
        with torch.no_grad():
            without = model(**batch, subnet=subnet).loss
        model.zero_grad()
        loss = model(**batch, subnet=subnet).loss
        loss.backward()
        gradients = whole({n: p.grad for n, p in model.named_parameters() if p.grad is not None})
        results[name] = {"losses": [without.item(), loss.item()], "gradients": gradients}
    return results


def error_of(model: PreTrainedModel, **inputs: Any) -> str:
    """The message that the model refuses inputs with."""
    try:
        model(input_ids=torch.ones(1, 4, dtype=torch.long), **inputs)
    except ValueError as error:
        return str(error)
    return ""


def main() -> None:
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    output: dict[str, Any] = {}
    for case, settings in MODELS.items():
        model = load_in_parts(make_model(case, **settings), folder / case, tp_size=2)
        output[case] = results_of(model, case)
        output[case]["part"] = model.base_model.layers[0].mlp.up_proj.weight.to_local().shape[0] / 64
        output[case]["error"] = error_of(model, subnet="small")
        model.save_pretrained(folder / case / "saved")
    odd = make_model("classification", num_attention_heads=3, head_dim=8, subnets={})
    sparse = make_model("classification", sparse_attention=True)
    for name, model in {"odd": odd, "sparse": sparse}.items():
        output[name] = error_of(load_in_parts(model, folder / name, tp_size=2))
    if distributed.get_rank() == 0:
        torch.save(output, folder / "results.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
