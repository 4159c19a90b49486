"""All that is checked of a trainer of supernets before it trains."""

from transformers import Trainer

from .source_checks import check_use_of_sources
from .teacher_checks import check_teacher_cache, check_teacher_data, check_teachers
from .validation import check_datasets, check_label_column, check_metric, check_model


def check_setup(trainer: Trainer) -> None:
    """Checks that model, arguments and teachers fit together, at once and before each training.

    Args:
        trainer: A trainer that has its model, perhaps with other arguments than it was made with.

    Raises:
        TypeError: If one of them is of another kind.
        ValueError: If they do not fit together.
    """
    args, teachers = trainer.args, trainer.teachers
    model = trainer.accelerator.unwrap_model(trainer.model, keep_torch_compile=False)
    args.check_co_training()
    args.check_distillation()
    args.check_teacher_arguments()
    args.check_optimization()
    check_model(model)
    check_teachers(teachers, model, args, trainer.processing_class)
    check_use_of_sources(teachers, args)
    check_teacher_cache(teachers, model, args)
    named, only_loss = trainer.elastic_model.config.subnets, trainer.compute_metrics is None
    check_metric(args.metric_for_best_model, named, trainer.eval_dataset, only_loss)


def check_data(trainer: Trainer) -> None:
    """Checks that the data are what model and teachers read.

    Args:
        trainer: A trainer whose model is known to be one that it trains.

    Raises:
        ValueError: If they are empty, or labels or columns are missing or cannot be.
    """
    model, train_dataset = trainer.model, trainer.train_dataset
    check_datasets(model, train_dataset, trainer.eval_dataset)
    if trainer.args.remove_unused_columns:
        check_label_column(model, train_dataset, trainer.label_names)
    check_teacher_data(trainer.teachers, trainer.args, train_dataset, trainer.eval_dataset)
