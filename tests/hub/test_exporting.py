import copy
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from datetime import date, datetime, timezone
from functools import partial
from pathlib import Path

import pytest
import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

import hf_elastic
from hf_elastic import SubnetConfig, export_family, load_family
from hf_elastic.hub.exporting import check_destination
from hf_elastic.hub.heads import HEADS

from ..conftest import first_output, make_inputs
from .conftest import METRICS

REPOSITORY = Path(__file__).parents[2]
# The tiny models have fewer positions than the default length.
export_tiny = partial(export_family, sequence_length=16)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_head_comes_back_with_the_same_outputs(model, tokenizer, tmp_path):
    export_tiny(model, tokenizer, tmp_path / "out")
    family = load_family(tmp_path / "out")
    assert family.names == ["large", "base", "small", "tiny"]
    inputs = make_inputs(type(model).__name__)
    with torch.no_grad():
        assert torch.equal(first_output(family.load("supernet")(**inputs)), first_output(model(**inputs)))
        for name in family.names:
            member = family.load(name)
            assert type(member) is type(model)
            expected = first_output(model(**inputs, subnet=name))
            torch.testing.assert_close(first_output(member(**inputs)), expected, atol=1e-6, rtol=1e-6)


def test_members_and_supernet_are_ordinary_checkpoints(exported):
    family = load_family(exported)
    inputs = make_inputs("ElasticForSequenceClassification")
    for name in (*family.names, "supernet"):
        model, loading = transformers.AutoModelForSequenceClassification.from_pretrained(
            exported / name, output_loading_info=True
        )
        assert not loading["missing_keys"] and not loading["unexpected_keys"] and not loading["mismatched_keys"]
        assert model.config.id2label == {0: "business", 1: "sport", 2: "tech"}
        with torch.no_grad():
            assert torch.equal(model(**inputs).logits, family.load(name)(**inputs).logits)


def test_the_manifest_agrees_with_what_lies_on_disk(exported):
    family = load_family(exported)
    for member in (family.supernet, *family.members.values()):
        folder, model = exported / member.name, family.load(member.name)
        paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
        assert {
            "README.md",
            "config.json",
            "model.safetensors",
            "modeling_elastic.py",
            "pareto.png",
            "tokenizer.json",
        } <= (paths.keys())
        assert {
            name: (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest()) for name, path in paths.items()
        } == {name: (record.size, record.sha256) for name, record in member.files.items()}
        assert member.size_on_disk == {"safetensors": paths["model.safetensors"].stat().st_size}
        parameters = member.parameters
        assert parameters.total == model.num_parameters()
        assert parameters.embeddings == sum(p.numel() for n, p in model.named_parameters() if "embeddings" in n)
        assert parameters.encoder == sum(p.numel() for n, p in model.named_parameters() if "layers" in n)
        assert parameters.total == parameters.embeddings + parameters.encoder + parameters.head
        model.set_attn_implementation("eager")  # the counter does not see into the CPU's fused attention
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(torch.ones(1, 32, dtype=torch.long))
        assert member.flops == counter.get_total_flops()
        assert [layer.layer for layer in member.layers] == list(range(4) if member.name != "tiny" else (0, 3))


def test_the_manifest_says_how_and_when(exported):
    manifest = load_family(exported).manifest
    assert manifest.name == "news-elastic"
    assert manifest.task == "text-classification"
    assert manifest.architecture == "ElasticForSequenceClassification"
    assert manifest.labels == ["business", "sport", "tech"]
    assert manifest.formats == ["safetensors"]
    assert manifest.primary_metric == "accuracy"
    assert manifest.source == "sentence-transformers/all-MiniLM-L6-v2"
    assert manifest.max_length == 64
    assert {member.name: member.metrics for member in manifest.members} == METRICS
    assert manifest.versions == {
        "hf_elastic": hf_elastic.__version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    created = datetime.fromisoformat(manifest.created)
    assert created.tzinfo is not None and (datetime.now(timezone.utc) - created).total_seconds() < 3600
    latency = manifest.members[0].latency
    assert latency.milliseconds > 0
    assert (latency.batch_size, latency.sequence_length, latency.device, latency.dtype) == (1, 32, "cpu", "float32")
    assert latency.threads == torch.get_num_threads()
    assert latency.repeats > 0 and latency.processor
    assert abs((date.fromisoformat(latency.date) - date.today()).days) <= 1


def test_the_callers_model_is_left_as_it_was(classifier, tokenizer, tmp_path):
    classifier.train()
    weights, subnets = copy.deepcopy(classifier.state_dict()), copy.deepcopy(classifier.config.subnets)
    export_tiny(classifier, tokenizer, tmp_path / "out", subnets={"new": SubnetConfig(layers=(0,))})
    assert classifier.training
    assert classifier.config.subnets == subnets
    assert all(torch.equal(weight, weights[name]) for name, weight in classifier.state_dict().items())


def test_names_and_sizes_can_be_chosen(classifier, tokenizer, tmp_path):
    family = export_tiny(classifier, tokenizer, tmp_path / "names", subnets=["tiny", "base"])
    assert family.names == ["base", "tiny"]
    new = SubnetConfig(layers=(0, 1), num_attention_heads=1, intermediate_size=8)
    family = export_tiny(classifier, tokenizer, tmp_path / "sizes", subnets={"new": new, "all": SubnetConfig()})
    assert family.names == ["all", "new"]
    assert family.load("new").config.num_hidden_layers == 2
    assert family.load("supernet").config.subnets["new"] == new


def test_without_metrics_there_is_no_picture(classifier, tokenizer, tmp_path):
    family = export_tiny(classifier, tokenizer, tmp_path / "out", subnets=["tiny"])
    assert not list((tmp_path / "out").rglob("*.png"))
    card = (tmp_path / "out" / "tiny" / "README.md").read_text()
    assert ".png" not in card and "The sizes were not evaluated." in card
    assert family.manifest.primary_metric is None


def test_the_folder_gives_the_name(classifier, tokenizer, tmp_path):
    assert export_tiny(classifier, tokenizer, tmp_path / "news", subnets=["tiny"]).manifest.name == "news"


def test_a_source_on_the_hub_becomes_the_base_model(classifier, tokenizer, tmp_path):
    classifier.config.name_or_path = "google-bert/bert-base-uncased"
    manifest = export_tiny(classifier, tokenizer, tmp_path / "out", subnets=["tiny"]).manifest
    assert manifest.source == manifest.details.base_model == "google-bert/bert-base-uncased"


@pytest.mark.parametrize(
    ("source", "base_model"),
    [("google-bert/bert-base-uncased", "google-bert/bert-base-uncased"), ("checkpoint", None)],
)
def test_the_source_survives_saving_and_loading(source, base_model, classifier, tokenizer, tmp_path):
    classifier.config.source_name_or_path = source
    classifier.save_pretrained(tmp_path / "trained")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "trained")
    manifest = export_tiny(model, tokenizer, tmp_path / "out", subnets=["tiny"]).manifest
    assert manifest.source == source
    assert manifest.details.base_model == base_model


def test_no_file_tells_where_the_source_lay(exported, tokenizer, tmp_path):
    source = tmp_path / "somewhere" / "checkpoint"
    shutil.copytree(exported / "supernet", source)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(source)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    family = export_tiny(model, tokenizer, tmp_path / "out", metrics=METRICS)
    assert family.manifest.source == "checkpoint"
    assert family.manifest.details.base_model is None
    assert not [name for name, content in snapshot(family.path).items() if str(tmp_path).encode() in content]


def test_a_source_that_is_gone_is_known_by_its_name_alone(classifier, tokenizer, tmp_path):
    classifier.config.name_or_path = "/gone/checkpoint-5"
    manifest = export_tiny(classifier, tokenizer, tmp_path / "out", subnets=["tiny"]).manifest
    assert manifest.source == "checkpoint-5"
    assert manifest.details.base_model is None


def test_half_precision_is_kept(classifier, tokenizer, tmp_path):
    family = export_tiny(classifier.to(torch.bfloat16), tokenizer, tmp_path / "out", subnets=["tiny"])
    assert family.load("tiny").dtype == torch.bfloat16
    assert family.members["tiny"].latency.dtype == "bfloat16"


def test_a_former_family_is_replaced_as_a_whole(family_path, classifier, tokenizer):
    export_tiny(classifier, tokenizer, family_path, subnets=["base"])
    assert load_family(family_path).names == ["base"]
    assert {path.name for path in family_path.iterdir()} == {"base", "supernet", "family.json"}
    assert os.listdir(family_path.parent) == [family_path.name]


def test_a_failure_in_the_middle_keeps_the_former_family(family_path, classifier, tokenizer):
    before = snapshot(family_path)
    broken = copy.deepcopy(tokenizer)
    broken.init_kwargs["setting"] = object()  # cannot be written as JSON
    with pytest.raises(TypeError, match="not JSON serializable"):
        export_tiny(classifier, broken, family_path)
    assert snapshot(family_path) == before
    assert os.listdir(family_path.parent) == [family_path.name]


def test_a_kill_in_the_middle_keeps_the_former_family(exported, family_path, classifier, tokenizer):
    script = f"""
import os, signal
from hf_elastic import export_family, load_family
family = load_family({str(exported)!r})
tokenizer = family.tokenizer()
saves = iter([tokenizer.save_pretrained, lambda folder: os.kill(os.getpid(), signal.SIGKILL)])
tokenizer.save_pretrained = lambda folder: next(saves)(folder)
export_family(family.load("supernet"), tokenizer, {str(family_path)!r}, sequence_length=16)
"""
    before = snapshot(family_path)
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    process = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert process.returncode == -signal.SIGKILL, process.stderr
    assert len(os.listdir(family_path.parent)) == 2  # half of a new family is there
    assert snapshot(family_path) == before
    assert load_family(family_path).names == ["large", "tiny"]
    export_tiny(classifier, tokenizer, family_path, subnets=["base"])
    assert load_family(family_path).names == ["base"]
    assert os.listdir(family_path.parent) == [family_path.name]


def test_what_is_no_family_stays(classifier, tokenizer, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(FileExistsError, match="is not empty and holds no family that could be replaced: give another"):
        export_tiny(classifier, tokenizer, tmp_path)
    assert snapshot(tmp_path) == {"thesis.tex": b"mine"}


@pytest.mark.parametrize(
    ("file", "named"),
    [
        ("thesis.tex", "thesis.tex"),
        ("tiny/thesis.tex", "tiny/thesis.tex"),
        (".git/HEAD", ".git"),
        (".env", ".env"),
        ("tiny/.gitattributes", "tiny/.gitattributes"),
        ("tiny/README.md", "tiny/README.md"),
    ],
)
def test_what_someone_put_into_a_family_or_changed_in_it_stays(file, named, family_path, classifier, tokenizer):
    (family_path / file).parent.mkdir(exist_ok=True)
    (family_path / file).write_text("mine")
    before = snapshot(family_path)
    with pytest.raises(FileExistsError, match=f"holds {named}, added or changed since its export, .* move them away"):
        export_tiny(classifier, tokenizer, family_path)
    assert snapshot(family_path) == before
    if (family_path / named).is_dir():
        shutil.rmtree(family_path / named)
    else:
        (family_path / named).unlink()
    assert export_tiny(classifier, tokenizer, family_path, subnets=["base"]).names == ["base"]


def test_of_many_foreign_files_the_first_ones_are_named(family_path, classifier, tokenizer):
    for number in range(9):
        (family_path / f"{number}.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"holds 0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 4 more, added"):
        export_tiny(classifier, tokenizer, family_path)


def test_caches_in_a_family_do_not_keep_it(family_path, classifier, tokenizer):
    for file in (".DS_Store", "tiny/.DS_Store", ".cache/huggingface/x.lock", "tiny/__pycache__/x.pyc"):
        (family_path / file).parent.mkdir(parents=True, exist_ok=True)
        (family_path / file).write_text("")
    assert export_tiny(classifier, tokenizer, family_path, subnets=["base"]).names == ["base"]


def test_the_current_folder_is_refused_before_any_work(classifier, tokenizer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for write in (partial(export_tiny, classifier, tokenizer), check_destination):
        with pytest.raises(ValueError, match="is the current folder or one around it"):
            write(".")
    assert os.listdir() == []
    assert export_tiny(classifier, tokenizer, "out", subnets=["tiny"]).path == tmp_path / "out"


def test_a_former_family_can_be_protected(family_path, classifier, tokenizer):
    before = snapshot(family_path)
    with pytest.raises(FileExistsError, match="holds a family: give another folder, or overwrite=True"):
        export_tiny(classifier, tokenizer, family_path, overwrite=False)
    assert snapshot(family_path) == before


def python_blocks(card: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", card.read_text(), flags=re.DOTALL)


def test_the_code_in_the_cards_runs_with_the_package(model, tokenizer, tmp_path, monkeypatch):
    export_tiny(model, tokenizer, tmp_path / "out", subnets=["large", "tiny"])
    monkeypatch.chdir(tmp_path / "out")
    for name in ("tiny", "supernet"):
        variables = {}
        exec(python_blocks(Path(name, "README.md"))[0], variables)
        assert type(variables["model"]) is type(model)
        assert torch.isfinite(first_output(variables["outputs"])).all()
    assert variables["small"].config.num_hidden_layers == 2


def test_the_code_in_the_cards_runs_without_the_package(exported, tmp_path):
    script = "import sys\nsys.modules['hf_elastic'] = None  # as if it were not installed\n"
    for name in ("tiny", "supernet"):
        script += (
            python_blocks(exported / name / "README.md")[1] + "print(outputs.logits.shape, type(model).__module__)\n"
        )
    environment = {**os.environ, "HF_MODULES_CACHE": str(tmp_path)}
    process = subprocess.run(
        [sys.executable, "-c", script], cwd=exported, env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("torch.Size([1, 3]) transformers_modules.") for line in lines)


def test_every_class_has_a_head():
    assert HEADS.keys() == {name for name in hf_elastic.__all__ if name.startswith(("ElasticFor", "ElasticModel"))}


def test_the_manifest_is_the_json_that_it_shows(exported):
    values = json.loads((exported / "family.json").read_text())
    assert values["format_version"] == 1
    assert [member["name"] for member in values["members"]] == ["large", "tiny"]
    assert values["members"][1]["subnet"] == {"layers": [0, 3], "num_attention_heads": [3, 2], "intermediate_size": 32}
