"""`stoploss init`: a first policy file for what is found here."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from stoploss.cli import loading, sources
from stoploss.cli.exits import CLEAN, UserError
from stoploss.reports.counts import count

LOG_FOLDERS = ("runs", "logs", "outputs", "lightning_logs", "mlruns", "tb_logs", "/runs", "/logs")
CHECKPOINT_FOLDERS = ("checkpoints", "ckpt", "/checkpoints", "/ckpt", "/mnt/checkpoints", "/data/checkpoints")
"""Where training usually writes, in the project's folder and on the machine."""


@click.command()
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=Path(),
    help="Folder to write policies.yaml into; default this one.",
)
def init(folder: Path) -> int:
    """Write a commented policies.yaml for what is found here; never over one that exists.

    Looks at this machine once. The file only audits: nothing is sent, changed or ended.

    Exit status: 0 written, 2 there is a file already, or it cannot be written.
    """
    from stoploss.rules.policy import PolicySet

    path = folder / loading.DEFAULT_FILE
    _refuse_existing(path)
    look = sources.glance(PolicySet(()))
    kinds = Counter(
        resource.kind
        for resource in {sample.resource for run in look.runs if run.look for sample in run.look.samples}
        if resource.kind != "collector"
    )
    text = starter(gpu="gpu" in kinds, folder=folder, known=look.known)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        _refuse_existing(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
    found = ", ".join(count(number, kind) for kind, number in sorted(kinds.items())) or "nothing"
    click.echo(f"wrote {path} (seen here: {found})")
    there = os.path.realpath(folder) == os.path.realpath(".")
    click.echo(f"next: stoploss audit{'' if there else f' {path}'}")
    return CLEAN


def _refuse_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise UserError(
            f"{path} exists already and stays as it is; check it with stoploss validate {path}, "
            "or choose another folder with --dir"
        )


def starter(*, gpu: bool, folder: Path, known: Sequence[str]) -> str:
    """The text of a first policy file.

    Args:
        gpu: whether a GPU was seen.
        folder: where paths that are not absolute begin.
        known: the collectors of this installation.
    """
    packs = (["gpu", "lifecycle"] if gpu else []) + ["storage"]
    return _TEMPLATE.format(
        packs=", ".join(f"pack:{name}" for name in packs),
        more=", ".join(name for name in ("gpu", "lifecycle", "budget", "logs", "spot") if name not in packs),
        collectors="\n".join(_collectors(folder, known)),
    )


def _collectors(folder: Path, known: Sequence[str]) -> Iterator[str]:
    for name, candidates, what in (
        ("training", LOG_FOLDERS, "training logs"),
        ("checkpoints", CHECKPOINT_FOLDERS, "checkpoints"),
    ):
        found = [str(folder / place) for place in candidates if (folder / place).is_dir()]
        missing = "" if name in known else " (this version has no such collector yet)"
        paths = ", ".join(_quoted(os.path.abspath(place)) for place in found) or f"/path/to/{name}"
        yield f"  # Where {what} lie{missing}."
        yield f"  # {name}: {{paths: [{paths}]}}"


def _quoted(path: str) -> str:
    """A path as YAML reads it in a list; control characters would end the comment."""
    import json

    return path if path.replace("/", "").replace("_", "").replace("-", "").isalnum() else json.dumps(path)


_TEMPLATE = """\
# Policies of stoploss: what burns money here, and what would be done about it.
#
#   stoploss validate      every mistake in this file at once
#   stoploss audit         what the policies find now; touches nothing
#   stoploss signals --now what can be read on this machine
#   stoploss explain WORD  a signal, a function, a key, a policy
version: 1

settings:
  # audit says what it would do. warn also sends alerts. enforce also acts, each step as its policy says.
  mode: audit
  timezone: UTC

# Packs are policies that come with stoploss. More: {more}.
include: [{packs}]

collectors:
  host: {{every: 1m}}
{collectors}

# Who is told. Alerts of the packs go to `owner`; {{user}} is a label of the resource.
# notify:
#   owner: "mailto:{{user}}@example.org"

# The packs end nothing but training jobs, and know them by the label `class: train`; a job gets it from
# STOPLOSS_CLASS=train in its environment. What matches here is never acted on, whatever a policy says.
protect:
  - label.keep == "true"

# A budget makes the policies of pack:budget work.
# budgets:
#   - {{name: one-job, each: job, limit: 500 GPU-hours}}

# A policy does not apply somewhere, until a day.
# exemptions:
#   - policy: space-or-inodes-full
#     where: label.mount == "/boot"
#     reason: small, and never grows
#     owner: me
#     expires: 2027-12-31

policies:
  - name: host-memory-pressure
    summary: Memory is nearly full, and tasks wait for it.
    each: host
    when:
      - avg(host.memory.utilization, 30m) > 92%
      - avg(host.pressure.memory, 30m) > 10%
    for: 10m
    then:
      - alert: {{to: owner}}
"""
