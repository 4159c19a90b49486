"""Predictions of a teacher on disk, by the ids of examples.

What is distinctive: each row carries a checksum of itself and of the inputs that it was predicted from. So a row that
is half written, or torn between two processes, is no row yet, whatever order its bytes reach the disk in, and a row
of another text is an error instead of a wrong target.
"""

import json
import os
import shutil
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor
from transformers.trainer_utils import unwrap_peft_model
from transformers.utils import ModelOutput, logging

from .teachers import EXAMPLE_ID, Batch, Teacher, observe, teacher_inputs

logger = logging.get_logger(__name__)

_ADD_IDS = f'Number the examples: dataset.add_column("{EXAMPLE_ID}", range(len(dataset))).'
# What a configuration says of where and by what it was saved, and not of what the model computes.
_UNRELATED = ("_name_or_path", "transformers_version", "architectures", "dtype")


class TeacherCache:
    """The predictions of one teacher on one set of examples: written once, read in later epochs and runs.

    They lie in a folder of their own, named by the teacher's fingerprint, as a memory-mapped array. Processes on one
    machine may share it, and so may runs.

    Only the logits of sequence classification are kept. They are those of the first time that a batch had an example:
    a teacher that runs again on another batch gives the same up to rounding.

    Args:
        folder (`str` or `Path`):
            Folder of all teachers. It is made where it does not exist.
        teacher ([`Teacher`]):
            The teacher, frozen and in the precision that it runs in.
        num_examples (`int`):
            Number of rows, as [`count_examples`] gives it.

    Raises:
        ValueError: If the folder has a cache of another teacher under this one's name, one of fewer examples, or a
            damaged one.

    Example:
        >>> cache = TeacherCache("teacher_cache", teacher, count_examples(train_dataset))
        >>> cache.observe(batch).logits
    """

    def __init__(self, folder: str | Path, teacher: Teacher, num_examples: int) -> None:
        self.teacher = teacher
        key = fingerprint(teacher)
        description = {
            "fingerprint": key,
            "num_examples": num_examples,
            "num_labels": unwrap_peft_model(teacher.model).config.num_labels,
            "inputs": teacher.inputs,
        }
        self.folder = Path(folder) / key
        if not self.folder.exists():
            _create(self.folder, description)
        found = _read_description(self.folder)
        _check_description(self.folder, found, description)
        self._rows = _open_rows(self.folder, found)

    def observe(self, batch: Batch) -> ModelOutput:
        """The teacher's logits for a batch; the teacher runs only if an example is new.

        Args:
            batch: Inputs of the student and of all teachers, with the ids of the examples.

        Returns:
            The logits, in float32.

        Raises:
            ValueError: If the ids are missing or out of range, or an example has other inputs than when it was
                written.
        """
        ids = self._read_ids(batch)
        inputs = _hash_inputs(teacher_inputs(self.teacher, batch))
        rows = self._rows[ids]
        filled = rows["checksum"] == _checksums(rows)
        changed = filled & (rows["inputs"] != inputs)
        if changed.any():
            raise ValueError(
                f"The example with {EXAMPLE_ID}={ids[changed][0]} has other inputs than those that are cached in "
                f"{self.folder}. Give each example an id of its own, the same inputs each time, and each dataset "
                "another teacher_cache_dir."
            )
        if filled.all():
            return ModelOutput(logits=torch.from_numpy(rows["logits"].copy()).to(batch[EXAMPLE_ID].device))
        logits = observe(self.teacher, batch).logits.float()
        self._write(ids, inputs, logits)
        return ModelOutput(logits=logits)

    def _read_ids(self, batch: Batch) -> np.ndarray:
        if EXAMPLE_ID not in batch:
            raise ValueError(
                f"The batch has no {EXAMPLE_ID}, which teacher_cache_dir needs: it has {', '.join(batch)}. {_ADD_IDS}"
            )
        ids = batch[EXAMPLE_ID].cpu().numpy()
        wrong = ids[(ids < 0) | (ids >= len(self._rows))]
        if wrong.size:
            raise ValueError(
                f"{EXAMPLE_ID}={wrong[0]} is out of range: the cache has rows 0 to {len(self._rows) - 1}. {_ADD_IDS}"
            )
        return ids

    def _write(self, ids: np.ndarray, inputs: np.ndarray, logits: Tensor) -> None:
        rows = np.zeros(len(ids), self._rows.dtype)
        if logits.shape != rows["logits"].shape:
            raise ValueError(
                f"Teacher {self.teacher.name!r} gives logits of shape {tuple(logits.shape)}, but the cache has "
                f"{rows['logits'].shape[1]} per example. Only predictions of sequence classification can be cached."
            )
        rows["inputs"], rows["logits"] = inputs, logits.cpu().numpy()
        rows["checksum"] = _checksums(rows)
        self._rows[ids] = rows


def count_examples(dataset: Any) -> int:
    """How many rows the ids of a dataset need: its largest id plus 1.

    Args:
        dataset: The training data: a list of examples, or a dataset of the `datasets` library.

    Returns:
        The number of rows.

    Raises:
        ValueError: If there are no ids, or they are not whole numbers from 0 on, each of one example.
    """
    if isinstance(dataset, list):
        found = [row[EXAMPLE_ID] for row in dataset if EXAMPLE_ID in row]
    elif EXAMPLE_ID in (getattr(dataset, "column_names", None) or []):
        found = dataset.select_columns([EXAMPLE_ID]).with_format(None)[:][EXAMPLE_ID]
    else:
        found = []
    ids = np.asarray(found)
    if len(ids) == 0 or len(ids) != len(dataset):
        raise ValueError(f"train_dataset has no column {EXAMPLE_ID!r}, which teacher_cache_dir needs. {_ADD_IDS}")
    if ids.dtype.kind not in "iu" or ids.min() < 0:
        wrong = ids.min() if ids.dtype.kind == "i" else ids[0]
        raise ValueError(f"{EXAMPLE_ID}={wrong.item()!r} is no whole number from 0 on. {_ADD_IDS}")
    values, counts = np.unique(ids, return_counts=True)
    if counts.max() > 1:
        raise ValueError(f"{EXAMPLE_ID}={values[counts.argmax()]} is that of {counts.max()} examples. {_ADD_IDS}")
    return int(ids.max()) + 1


def fingerprint(teacher: Teacher) -> str:
    """What tells a teacher's predictions from those of others: a hash of its weights, configuration and inputs.

    Args:
        teacher: The teacher, in the precision that it runs in.

    Returns:
        32 hexadecimal digits.
    """
    model = teacher.model
    configs = [unwrap_peft_model(model).config, *getattr(model, "peft_config", {}).values()]
    settings = [{k: v for k, v in config.to_dict().items() if k not in _UNRELATED} for config in configs]
    described = [type(unwrap_peft_model(model)).__name__, teacher.inputs, settings]
    digest = blake2b(json.dumps(described, sort_keys=True, default=_describe).encode(), digest_size=16)
    for name, value in sorted(model.state_dict().items()):
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return digest.hexdigest()


def _describe(value: Any) -> Any:
    """Sets have no order of their own, and it differs between processes."""
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else str(value)


def _create(folder: Path, description: dict[str, Any]) -> None:
    """Makes an empty cache at once, so that of several processes one does, and the others find it whole."""
    temporary = folder.with_name(f".{folder.name}-{uuid4().hex}")
    temporary.mkdir(parents=True)
    row, shape = _row_type(description), (description["num_examples"],)
    np.lib.format.open_memmap(temporary / "rows.npy", mode="w+", dtype=row, shape=shape)
    (temporary / "teacher.json").write_text(json.dumps(description, indent=2), encoding="utf-8")
    try:
        os.rename(temporary, folder)
        logger.info(f"The predictions of a teacher are cached in {folder}.")
    except OSError:
        shutil.rmtree(temporary)
        if not folder.exists():
            raise


def _row_type(description: dict[str, Any]) -> np.dtype:
    return np.dtype([("inputs", "<u8"), ("checksum", "<u8"), ("logits", "<f4", (description["num_labels"],))])


def _open_rows(folder: Path, description: dict[str, Any]) -> np.memmap:
    try:
        rows = np.lib.format.open_memmap(folder / "rows.npy", mode="r+")  # appends what is cut off as empty rows
    except FileNotFoundError:
        raise _damaged(folder, "rows.npy is missing") from None
    except ValueError as error:
        raise _damaged(folder, f"rows.npy is no array ({error})") from None
    expected = _row_type(description), (description["num_examples"],)
    if (rows.dtype, rows.shape) != expected:
        raise _damaged(folder, f"rows.npy has {len(rows)} rows of {rows.dtype}, which teacher.json does not describe")
    return rows


def _read_description(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads((folder / "teacher.json").read_text(encoding="utf-8"))
        return {**found, "num_examples": int(found["num_examples"])}
    except (FileNotFoundError, NotADirectoryError):
        raise _damaged(folder, "teacher.json is missing") from None
    except (ValueError, KeyError, TypeError):
        raise _damaged(folder, "teacher.json is cut off or changed") from None


def _damaged(folder: Path, fault: str) -> ValueError:
    return ValueError(f"{folder} is no cache of a teacher: {fault}. Remove the folder.")


def _check_description(folder: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    for setting in ("fingerprint", "inputs", "num_labels"):
        if found.get(setting) != expected[setting]:
            raise ValueError(
                f"{folder} is a cache of another teacher: it has {setting}={found.get(setting)!r}, this teacher "
                f"{expected[setting]!r}. Remove the folder, or give another teacher_cache_dir."
            )
    if found["num_examples"] < expected["num_examples"]:
        raise ValueError(
            f"{folder} has room for {found['num_examples']} examples, and the largest {EXAMPLE_ID} of train_dataset "
            f"is {expected['num_examples'] - 1}. Give another teacher_cache_dir for these data."
        )


def _hash_inputs(inputs: dict[str, Any]) -> np.ndarray:
    """A hash of what each example is for the teacher, whatever it is padded to."""
    arrays = {name: value.cpu().numpy() for name, value in sorted(inputs.items()) if isinstance(value, Tensor)}
    mask = arrays.pop("attention_mask", None)
    hashes = []
    for i in range(len(next(iter(arrays.values())))):
        digest = blake2b(digest_size=8)
        for name, array in arrays.items():
            per_token = mask is not None and array.shape[: mask.ndim] == mask.shape
            digest.update(name.encode())
            digest.update((array[i][mask[i].astype(bool)] if per_token else array[i]).tobytes())
        hashes.append(int.from_bytes(digest.digest(), "little"))
    return np.array(hashes, dtype=np.uint64)


def _checksums(rows: np.ndarray) -> np.ndarray:
    """A checksum of each row's inputs and logits; never that of a row of zeros, which is what an empty row is."""
    sums = [
        int.from_bytes(blake2b(row["inputs"].tobytes() + row["logits"].tobytes(), digest_size=8).digest(), "little")
        for row in rows
    ]
    return np.array(sums, dtype=np.uint64)
