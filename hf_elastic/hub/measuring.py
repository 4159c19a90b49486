"""What a model costs, in the words of the manifest: together with the conditions of the measurement."""

from dataclasses import asdict
from datetime import datetime, timezone

from transformers import PreTrainedModel

from ..compression.cost import count_parameters, measure_latency
from ..compression.processor import processor_name
from .manifest import LatencyRecord, Parameters


def measured_parameters(model: PreTrainedModel) -> Parameters:
    """Counts the parameters of a model, by part."""
    count = count_parameters(model)
    return Parameters(embeddings=count.embeddings, encoder=count.encoder, head=count.head, total=count.total)


def measured_latency(model: PreTrainedModel, sequence_length: int) -> LatencyRecord:
    """Measures a forward pass over one sequence where the model lies now."""
    latency = measure_latency(model, sequence_length=sequence_length)
    today = datetime.now(timezone.utc).date().isoformat()
    return LatencyRecord(**asdict(latency), processor=processor_name(model.device), date=today)
