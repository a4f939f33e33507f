"""Who runs a process: Slurm, Kubernetes, or nobody but its user."""

from __future__ import annotations

from collections.abc import Mapping

from stoploss.collectors.job_labels import ARRAY, Identities
from stoploss.engine.model import UNREADABLE, LabelValue

SLURM, POD = "SLURM_JOB_ID", "KUBERNETES_SERVICE_HOST"


def labels(identities: Identities, pid: int) -> dict[str, LabelValue]:
    """The labels `scheduler` and `slurm_job` of a process.

    The control group goes before the environment, and a process before its parents. Within the session of
    a job an environment that cannot be read may hide either.
    """
    # A control group is that of a Slurm job, which is a number, or of a pod.
    group = identities.group(pid)
    if group is not None and not group.job.isdigit():
        return {"scheduler": "kubernetes", "slurm_job": None}
    own, hides = identities.stat(pid), False
    for member in (pid, *identities.parents(pid)):
        variables, stat = identities.environment(member), identities.stat(member)
        # A process that lost its parent has one of another session, which has nothing to do with it.
        inside = own is None or stat is None or stat.session == own.session
        if variables is None:
            hides = hides or inside
        elif job := _slurm_job(variables):
            return {"scheduler": "slurm", "slurm_job": job}
        elif POD in variables and group is None:
            return {"scheduler": "kubernetes", "slurm_job": None}
    if group is not None:
        return {"scheduler": "slurm", "slurm_job": group.job}
    if hides:
        return {"scheduler": UNREADABLE, "slurm_job": UNREADABLE}
    return {"scheduler": "process", "slurm_job": None}


def _slurm_job(variables: Mapping[str, str]) -> str | None:
    array, task = (variables.get(name) for name in ARRAY)
    return f"{array}_{task}" if array and task else variables.get(SLURM)
