"""One encoder for several tasks, with a head for each.

What is distinctive: the heads are rows of one classifier, so that the model is a supernet like any other to ranking,
sizes and optimizers. A batch is of one task, and only that task's rows count in it.
"""

import copy
from collections.abc import Sequence

import torch
from transformers.modeling_outputs import SequenceClassifierOutput
from transformers.utils.generic import can_return_tuple

from ..checkpoints import class_with_head
from ..modeling.configuration_elastic import ElasticConfig
from ..modeling.modeling_elastic import (
    ElasticForSequenceClassification,
    ElasticPreTrainedModel,
    add_auxiliary_loss,
    sequence_loss,
)
from ..modeling.subnet_elastic import SubnetConfig
from .task import Task


class MultiTaskModel(ElasticForSequenceClassification):
    """A supernet that is trained on several tasks in turn.

    Pooler and encoder are shared; each task has rows of the classifier of its own. [`~MultiTaskModel.of_task`] gives
    the ordinary supernet of one task. The model itself is for training, and is not saved.

    Args:
        config ([`ElasticConfig`]):
            Configuration of the encoder. The one in the model has as many labels as all tasks together.
        tasks (`Sequence[Task]`):
            The tasks. A batch names its own by the number in this order.

    References:
        Caruana 1997, Multitask Learning; Liu et al. 2019, Multi-Task Deep Neural Networks for Natural Language
        Understanding, https://arxiv.org/abs/1901.11504
    """

    def __init__(self, config: ElasticConfig, tasks: Sequence[Task]) -> None:
        config = copy.deepcopy(config)
        widths = [_head_width(task) for task in tasks]
        config.num_labels, config.problem_type = sum(widths), None  # the kind of problem is each task's
        super().__init__(config)
        self.tasks = tuple(tasks)
        ends = torch.tensor(widths).cumsum(0).tolist()
        self.rows = tuple(slice(end - width, end) for end, width in zip(ends, widths, strict=True))

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        labels: torch.Tensor | None = None,
        task: torch.LongTensor | None = None,
        subnet: str | SubnetConfig | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
        **kwargs,
    ) -> SequenceClassifierOutput:
        r"""
        Args:
            labels (`torch.Tensor` of shape `(batch,)`, *optional*):
                Class indices, or the numbers of a regression.
            task (`torch.LongTensor` of shape `(batch,)`):
                Number of the task, the same for all examples.

        See [`ElasticModel.forward`] for the other arguments. Those of multiple choice have the shape `(batch, choices,
        length)`. `logits` have the shape `(batch, num_labels)` of the task, or `(batch, choices)`.
        """
        if task is None or not bool((task == task[0]).all()):
            raise ValueError(f"task={task}: a batch is of one task, whose number is given for each example.")
        number = int(task[0])
        inputs = (input_ids, attention_mask, token_type_ids, position_ids)
        has_choices = input_ids.dim() == 3
        if has_choices:
            inputs = tuple(None if tensor is None else tensor.flatten(0, 1) for tensor in inputs)
        outputs = self.model(*inputs, subnet=subnet, return_dict=True, **kwargs)
        logits = self.classifier(self.dropout(outputs.pooler_output))[:, self.rows[number]]
        if has_choices:
            logits = logits.view(-1, input_ids.shape[1])
        loss = None
        if labels is not None:
            loss = sequence_loss(logits, labels, self.tasks[number].labels.problem_type, num_items_in_batch)
            loss = add_auxiliary_loss(loss, outputs, (labels != -100).sum(), num_items_in_batch)
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def of_task(self, number: int) -> ElasticPreTrainedModel:
        """Gives the ordinary supernet of one task: a copy of the encoder with that task's head.

        Args:
            number (`int`):
                Number of the task.
        """
        task, config = self.tasks[number], copy.deepcopy(self.config)
        for name, value in task.labels.model_settings.items():
            setattr(config, name, value)
        model = class_with_head(task.input_format.head)(config)
        weights = self.state_dict()
        for name in ("classifier.weight", "classifier.bias"):
            weights[name] = weights[name][self.rows[number]]
        model.load_state_dict(weights)
        return model.to(self.device, self.dtype).train(self.training)


def _head_width(task: Task) -> int:
    return 1 if task.input_format.head == "multiple-choice" else task.labels.num_labels
