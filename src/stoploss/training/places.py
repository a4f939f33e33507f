"""Where a run's files lie, which rank this process is, and how files are written whole."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

RUN_DIR = "STOPLOSS_RUN_DIR"
"""Environment variable with the folder of the run."""

FOLDER = ".stoploss"
"""Folder in the run's folder that holds what the run and stoploss tell each other."""

_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")


def file_of(name: str, variable: str, run_dir: str | os.PathLike[str] | None = None) -> str:
    """The absolute path of a file of the run.

    Args:
        name: in the folder `.stoploss` of the run.
        variable: environment variable that names the file itself, where no folder is given.
        run_dir: the run's folder; else that of the environment, else the working directory.
    """
    if run_dir is None:
        if named := os.environ.get(variable):
            return os.path.abspath(named)
        run_dir = os.environ.get(RUN_DIR) or os.getcwd()
    return os.path.join(os.path.abspath(run_dir), FOLDER, name)


def rank() -> int:
    """The rank of this process among those of the run, as its launcher says; 0 where none does."""
    told = next((value for name in _RANKS if (value := os.environ.get(name))), "0")
    return int(told) if told.isdecimal() else 0


def note(text: str) -> None:
    """Tell a person what went wrong; training goes on."""
    import logging

    logging.getLogger("stoploss").warning("stoploss: %s", text)


def write_whole(path: str, record: Mapping[str, object]) -> None:
    """Write a JSON file so that no reader ever sees a part of it, also after a crash.

    Raises:
        OSError: it cannot be written.
    """
    folder = os.path.dirname(path)
    os.makedirs(folder, exist_ok=True)
    draft = f"{path}.{os.getpid()}.tmp"
    try:
        with open(draft, "w", encoding="utf-8") as stream:
            json.dump(record, stream)
            stream.write("\n")
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(draft, path)
    except OSError:
        if os.path.exists(draft):
            os.unlink(draft)
        raise
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
