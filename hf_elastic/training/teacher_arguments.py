"""Training arguments for external teachers."""

from dataclasses import dataclass, field
from pathlib import Path

from .argument_checks import check_choice
from .teacher_mixing import MIXING_STRATEGIES

TEACHER_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(repr=False)
class TeacherArguments:
    """How several teachers become one, and how they run.

    Args:
        teacher_mixing (`str`, defaults to `"weights"`):
            How much each teacher counts: `"weights"` (what [`Teacher`] says), `"confidence"` (that, times how likely
            it finds the label of each example, or how sure it is where there are no labels) or `"validation"` (that,
            times how well it does on the evaluation data, measured once before the training).
        teacher_dtype (`str`, *optional*):
            Precision of the weights of the teachers: `"bfloat16"`, `"float16"` or `"float32"`. They stay as they are
            by default.
        teacher_cache_dir (`str`, *optional*):
            Folder that keeps the teachers' predictions on the training data by the column `example_id`, for later
            epochs and runs.
    """

    teacher_mixing: str = field(
        default="weights",
        metadata={"help": f"How much each teacher counts: {', '.join(MIXING_STRATEGIES)}."},
    )
    teacher_dtype: str | None = field(
        default=None, metadata={"help": f"Precision of the weights of the teachers: {', '.join(TEACHER_DTYPES)}."}
    )
    teacher_cache_dir: str | None = field(
        default=None,
        metadata={"help": "Folder that keeps the teachers' predictions by the column 'example_id'."},
    )

    def check_teacher_arguments(self) -> None:
        """Raises ValueError for an unknown strategy or precision, or a cache that is no folder."""
        check_choice("teacher_mixing", self.teacher_mixing, MIXING_STRATEGIES)
        if self.teacher_dtype is not None:
            check_choice("teacher_dtype", self.teacher_dtype, TEACHER_DTYPES)
        if self.teacher_cache_dir is not None and Path(self.teacher_cache_dir).is_file():
            raise ValueError(f"teacher_cache_dir={self.teacher_cache_dir!r} is a file. Give a folder.")
