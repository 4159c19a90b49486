"""Model cards of a family, rendered from its manifest alone, so that they can be written again at any time."""

import json
import re

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from ..resources import model_cards_folder
from .changed_arguments import changed_arguments
from .formats import CHECKPOINT_FORMAT
from .heads import HEADS
from .manifest import SUPERNET_NAME, Manifest, Member
from .metric_types import metric_type
from .table import family_table, markdown_table, megabytes, metric_names, metric_value, table_cell, with_unit

PICTURE_NAME = "pareto.png"


def render_card(manifest: Manifest, member: Member) -> ModelCard:
    """Renders the card of a member, or of the supernet: that is the card of the whole family.

    Args:
        manifest (`Manifest`):
            The family.
        member (`Member`):
            One of its members, or `manifest.supernet`.

    Returns:
        `ModelCard`: Metadata and text. It shows the picture `pareto.png` if the family has a primary metric.

    Raises:
        ImportError: If jinja2 is not installed.
    """
    is_supernet = member.name == SUPERNET_NAME
    folder = model_cards_folder()
    parts = ("family_card.md" if is_supernet else "member_card.md", "shared_sections.md")
    # One text, because `ModelCard.from_template` lets no template include another. Jinja cuts the last line break.
    template = "\n".join((folder / name).read_text(encoding="utf-8") for name in parts) + "\n"
    head = HEADS[manifest.architecture]
    return ModelCard.from_template(
        _card_data(manifest, member),
        template_str=template,
        family=manifest,
        member=member,
        smallest=manifest.members[-1],
        details=manifest.details,
        auto_class=head.auto_class,
        example_input=head.example_input,
        with_unit=with_unit,
        megabytes=megabytes(member.size_on_disk[CHECKPOINT_FORMAT]),
        conditions=_conditions(member),
        architecture=_architecture(manifest, member),
        intended_use=_intended_use(manifest),
        table=markdown_table(family_table(manifest)),
        table_cell=table_cell,
        evaluation=_evaluation(manifest),
        picture=PICTURE_NAME if manifest.primary_metric else None,
        training_data=_training_data(manifest),
        source=_source(manifest),
        run=_run(manifest),
        limits=_limits(manifest, member),
    )


def _card_data(manifest: Manifest, member: Member) -> ModelCardData:
    details = manifest.details
    is_supernet = member.name == SUPERNET_NAME
    results = [
        result for size in (manifest.members if is_supernet else [member]) for result in _results(manifest, size)
    ]
    return ModelCardData(
        library_name="transformers",
        pipeline_tag=manifest.task,
        tags=["elastic", "hf_elastic", "supernet" if is_supernet else "extracted"],
        language=details.language,
        license=details.license,
        base_model=details.base_model,
        datasets=[details.dataset_id] if details.dataset_id else None,
        metrics=list(dict.fromkeys(metric_type(name).name for name in metric_names(manifest))) or None,
        eval_results=results or None,
        model_name=(manifest.name if is_supernet else f"{manifest.name}-{member.name}") if results else None,
    )


def _results(manifest: Manifest, size: Member) -> list[EvalResult]:
    details = manifest.details
    dataset = details.dataset or details.dataset_id or "unknown"
    others = {split: by_size.get(size.name, {}) for split, by_size in details.other_splits.items()}
    return [
        EvalResult(
            task_type=manifest.task,
            task_name=manifest.task.replace("-", " ").capitalize(),
            # The Hub takes identifiers only here, also for data that it does not host.
            dataset_type=details.dataset_id or re.sub(r"[^\w.]+", "-", dataset).strip("-").lower(),
            dataset_name=dataset,
            dataset_config=details.dataset_config,
            dataset_split=split,
            metric_type=metric_type(name).name,
            metric_args=metric_type(name).args,
            metric_name=f"{name} ({size.name})",
            metric_value=metrics[name],
        )
        for split, metrics in {details.dataset_split: size.metrics, **others}.items()
        for name in metric_names(manifest)
        if name in metrics
    ]


def _conditions(member: Member) -> str:
    latency = member.latency
    threads = "" if latency.device != "cpu" else f", {latency.threads} thread{'s' if latency.threads > 1 else ''}"
    return (
        f"batch size {latency.batch_size}, {latency.dtype}, {latency.device}{threads}, {latency.processor}, "
        f"{latency.date}"
    )


def _architecture(manifest: Manifest, member: Member) -> str:
    layers = member.layers
    heads = _range([layer.num_attention_heads for layer in layers])
    neurons = _range([layer.intermediate_size for layer in layers])
    kept = ""
    if len(layers) < len(manifest.supernet.layers):
        indices = ", ".join(str(layer.layer) for layer in layers)
        kept = f" ({indices} of the supernet's 0 to {len(manifest.supernet.layers) - 1})"
    experts = ""
    if any(layer.num_experts > 1 for layer in layers):
        active = _range([layer.num_experts_per_tok for layer in layers])
        experts = f" in each of {_range([layer.num_experts for layer in layers])} experts, {active} of them active"
    shared = len({layer.layer if layer.group is None else layer.group for layer in layers})
    sharing = f" The layers share {shared} sets of weights." if shared < len(layers) else ""
    return (
        f"Architecture: `{manifest.architecture}`, {len(layers)} layer{'s' if len(layers) > 1 else ''}{kept}, "
        f"hidden size {layers[0].hidden_size}, {heads} attention heads and {neurons} feed-forward neurons per layer"
        f"{experts}.{sharing}"
    )


def _range(values: list[int]) -> str:
    return str(values[0]) if len(set(values)) == 1 else f"{min(values)} to {max(values)}"


def _intended_use(manifest: Manifest) -> str:
    use = manifest.details.description or (
        f"Meant for {manifest.task.replace('-', ' ')}. Nothing else was recorded about the intended use."
    )
    labels = f"\n\nLabels: {', '.join(f'`{label}`' for label in manifest.labels)}." if manifest.labels else ""
    return use + labels


def _training_data(manifest: Manifest) -> str:
    details = manifest.details
    if details.dataset_id:
        name = f"[{details.dataset or details.dataset_id}](https://huggingface.co/datasets/{details.dataset_id})"
    else:
        name = details.dataset
    if name is None:
        return details.training_data or "The training data was not recorded."
    return f"Trained on {name}. {details.training_data or _training_rows(manifest)}"


def _training_rows(manifest: Manifest) -> str:
    run = manifest.details.run
    rows = run.data["train"].rows if run is not None and "train" in run.data else None
    return "How many rows of it were used was not recorded." if rows is None else f"{rows} rows of it were used."


def _source(manifest: Manifest) -> str:
    if manifest.source is None:
        return "The checkpoint that the supernet was converted from was not recorded."
    kind = f", a checkpoint of type `{manifest.source_model_type}`" if manifest.source_model_type else ""
    return f"The supernet comes from `{manifest.source}`{kind}."


def _run(manifest: Manifest) -> str:
    run = manifest.details.run
    if run is None:
        return "Seed, versions and data of the training were not recorded."
    seeds = f"{run.seed}" if run.data_seed is None else f"{run.seed}, and {run.data_seed} for the order of the data"
    versions = ", ".join(f"{name} {number}" for name, number in run.versions.items())
    commit = f", at commit `{run.git_commit}`" if run.git_commit else ""
    parts = [f"Trained with seed {seeds}, with {versions}{commit}."]
    if run.data:
        rows = ["| Data | Rows | Columns | Hash of the rows |", "| :-- | --: | :-- | :-- |"]
        for use, data in run.data.items():
            of_rows = "" if data.hashed_rows == data.rows else f" ({data.hashed_rows} of them)"
            known = f"`{data.content_hash}`{of_rows}" if data.content_hash else "–"
            cells = (use, "–" if data.rows is None else data.rows, ", ".join(data.columns) or "–", known)
            rows.append(f"| {' | '.join(table_cell(cell) for cell in cells)} |")
        parts.append("\n".join(rows))
    if run.arguments:
        changed = [f"`{name}={json.dumps(value)}`" for name, value in changed_arguments(run.arguments).items()]
        parts.append(f"Arguments that differ from the defaults: {', '.join(changed) or 'none'}.")
        arguments = json.dumps(run.arguments, indent=2, ensure_ascii=False)
        summary = "<summary>All training arguments but private ones</summary>"
        parts.append(f"<details>\n{summary}\n\n```json\n{arguments}\n```\n\n</details>")
    return "\n\n".join(parts)


def _evaluation(manifest: Manifest) -> str:
    if not manifest.primary_metric:
        return "The sizes were not evaluated."
    details = manifest.details
    data = details.dataset or details.dataset_id
    if data is None or details.dataset_split is None:
        return "The data that the metrics were measured on was not recorded."
    parts = [f"Metrics were measured on the {details.dataset_split} split of {data}."]
    for split, by_size in details.other_splits.items():
        values = [
            f"`{member.name}` {name} {metric_value(by_size[member.name][name])}"
            for member in manifest.members
            for name in metric_names(manifest)
            if name in by_size.get(member.name, {})
        ]
        parts += [f"On the {split} split they are: {', '.join(values)}."] if values else []
    return " ".join(parts)


def _limits(manifest: Manifest, member: Member) -> list[str]:
    largest = manifest.members[0]
    metric = manifest.primary_metric
    limits = [f"Inputs of more than {manifest.max_length} tokens have to be cut or split."]
    if member is not largest and metric in member.metrics and metric in largest.metrics:
        own, best = metric_value(member.metrics[metric]), metric_value(largest.metrics[metric])
        limits.append(f"This size reaches {metric} {own}, the largest one, `{largest.name}`, {best}.")
    limits += [
        "Latency was measured on one machine under the conditions given above; elsewhere it will differ.",
        "No other data, domains or languages than those named here were evaluated, nor was bias. Whatever bias the "
        "source checkpoint and the training data have is to be expected here.",
    ]
    return limits + ([manifest.details.limits] if manifest.details.limits else [])
