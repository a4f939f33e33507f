"""Training jobs of SageMaker: stops them. SageMaker asks the job to end, and ends it 120 s later."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from stoploss.actions.contract import Found, Order, Outcome, Refused
from stoploss.actions.targets.aws_calls import AwsTarget, Place, name_of
from stoploss.aws import code

OVER = ("Completed", "Failed", "Stopped")
OWNERS = {"TuningJobArn": "a tuning job", "AutoMLJobArn": "an AutoML job"}
"""What runs training jobs of its own, and may start others."""


class Stop(AwsTarget):
    """Stops a training job; it cannot be undone."""

    def found_at(self, place: Place, order: Order) -> Found:
        """See whether it runs.

        Raises:
            Refused: it does not, or another job runs it.
        """
        name = name_of(order)
        item = _job(place, name)
        if item is None:
            raise Refused(f"there is no training job {name}", gone=True)
        if item["TrainingJobStatus"] != "InProgress":
            raise Refused(f"training job {name} is {item['TrainingJobStatus'].lower()}", gone=True)
        owner = next((words for key, words in OWNERS.items() if item.get(key)), None)
        if owner is not None:
            raise Refused(f"training job {name} is run by {owner}, which is to be stopped instead")
        before = {"job": name, "arn": item["TrainingJobArn"], "created": item["CreationTime"].timestamp()}
        held = item.get("ResourceConfig", {})
        kind = f" ({held['InstanceCount']} x {held['InstanceType']})" if "InstanceType" in held else ""
        return Found(f"would stop training job {name}{kind}, which has 120 s to save", before)

    def act_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Stop it, unless it is stopping, and wait until it has stopped."""
        if self.look_at(place, order, found).state == "undone":
            try:
                place.client("sagemaker").stop_training_job(TrainingJobName=found.before["job"])
            except ClientError:
                # It may have ended between the look and the call.
                if self.look_at(place, order, found).state in ("undone", "failed"):
                    raise
        return self.wait(
            lambda: self.look_at(place, order, found), lambda seen: seen.state not in ("undone", "failed")
        )

    def look_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Where it stands."""
        name = found.before["job"]
        item = _job(place, name)
        if item is None or item["CreationTime"].timestamp() != found.before["created"]:
            return Outcome("skipped", f"training job {name} is gone")
        status = item["TrainingJobStatus"]
        words, after = f"training job {name} is {status.lower()}", {"status": status}
        if status == "Stopped":
            return Outcome("done", words, after)
        if status in OVER:
            return Outcome("skipped", f"{words}: it ended by itself", after)
        if status == "InProgress":
            return Outcome("undone", words, after)
        return Outcome("failed", words, after, retry=True)

    def undo_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Nothing: a training job that has stopped cannot be continued."""
        return Outcome("failed", f"training job {found.before['job']} has stopped, which cannot be undone")


def _job(place: Place, name: str) -> Mapping[str, Any] | None:
    try:
        found: Mapping[str, Any] = place.client("sagemaker").describe_training_job(TrainingJobName=name)
    except ClientError as error:
        # The only fault that a well-formed name can have.
        if code(error) in ("ValidationException", "ValidationError", "ResourceNotFound"):
            return None
        raise
    return found
