"""Which checkpoints are whole: a process that is killed while it saves leaves a part of one behind.

`Trainer` would resume from such a part, since its number is the highest, and could keep it in place of a whole one.
"""

import json
import zipfile
from pathlib import Path

from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from safetensors import SafetensorError, safe_open
from transformers.trainer import TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, logging

logger = logging.get_logger(__name__)


def find_damage(checkpoint: str | Path) -> str | None:
    """Says what a checkpoint lacks to resume from it.

    Files are opened, not read. Folders in it, such as those of sharded weights, are taken for whole.

    Args:
        checkpoint: The folder.

    Returns:
        What is missing or cut off, or None for a whole checkpoint.
    """
    folder = Path(checkpoint)
    state = folder / TRAINER_STATE_NAME
    if not state.is_file():  # it is written last
        return f"it has no {TRAINER_STATE_NAME}"
    if not _is_json(state):
        return f"its {TRAINER_STATE_NAME} is cut off"
    index = folder / SAFE_WEIGHTS_INDEX_NAME
    if index.is_file() and not _is_json(index):
        return f"its {SAFE_WEIGHTS_INDEX_NAME} is cut off"
    expected = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()) if index.is_file() else set()
    present = {path.name: path for path in folder.iterdir()}
    if expected - present.keys():
        return f"it has no {min(expected - present.keys())}"
    for name, path in sorted(present.items()):
        if (path.suffix == ".safetensors" and not _opens(path)) or (
            path.suffix in (".pt", ".pth", ".bin") and not zipfile.is_zipfile(path)
        ):
            return f"its {name} is cut off"
    if not any(_holds_weights(path) for path in present.values()):
        return "it has no weights"
    return None


def choose_checkpoint(output_dir: str | Path, accelerator: Accelerator) -> str:
    """Chooses the last whole checkpoint of a training, the same one in every process.

    Incomplete ones after it are set aside under another name: they could otherwise count as the newest one when older
    ones are removed.

    Args:
        output_dir: The folder of the training.
        accelerator: That of the trainer. Its main process decides.

    Returns:
        The folder of the checkpoint.

    Raises:
        ValueError: If there is no whole checkpoint.

    Example:
        >>> trainer.train(resume_from_checkpoint=choose_checkpoint("out", trainer.accelerator))
    """
    chosen = [_last_whole(Path(output_dir)) if accelerator.is_main_process else None]
    if accelerator.num_processes > 1:
        broadcast_object_list(chosen)
    checkpoint, damaged = chosen[0]
    if checkpoint is None:
        seen = "".join(f" {Path(path).name} is incomplete: {damage}." for path, damage in damaged.items())
        raise ValueError(
            f"{output_dir} has no checkpoint to resume from.{seen} Train without resume_from_checkpoint, or give the "
            "folder of another checkpoint."
        )
    if accelerator.is_main_process:
        for path, damage in damaged.items():
            aside = Path(path).rename(_free_name(Path(path)))
            logger.warning(
                f"{path} is incomplete, since {damage}; the training resumes from {checkpoint}. What there is of it "
                f"now lies in {aside} and can be removed."
            )
    return checkpoint


def _last_whole(output_dir: Path) -> tuple[str | None, dict[str, str]]:
    """The last whole checkpoint, and what the later ones lack."""
    prefix = f"{PREFIX_CHECKPOINT_DIR}-"
    folders = [path for path in output_dir.glob(f"{prefix}*") if path.name[len(prefix) :].isdigit() and path.is_dir()]
    damaged = {}
    for path in sorted(folders, key=lambda path: -int(path.name[len(prefix) :])):
        damage = find_damage(path)
        if damage is None:
            return str(path), damaged
        damaged[str(path)] = damage
    return None, damaged


def _free_name(path: Path) -> Path:
    # Not `checkpoint-...`, which `Trainer` counts, and removes others for.
    names = (path.with_name(f"incomplete-{path.name}{suffix}") for suffix in ("", *(f"-{i}" for i in range(1, 1000))))
    return next(name for name in names if not name.exists())


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True


def _opens(path: Path) -> bool:
    try:
        with safe_open(path, framework="pt"):
            return True
    except SafetensorError:
        return False


def _holds_weights(path: Path) -> bool:
    is_weights = path.suffix in (".safetensors", ".bin") and path.name != TRAINING_ARGS_NAME
    return is_weights or path.is_dir()
