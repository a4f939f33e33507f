"""The IAM policies: valid, no wider than what is documented, and wide enough for what the code asks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from moto.iam.policy_validation import IAMPolicyDocumentValidator

from stoploss.collectors.aws_options import SERVICES

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "aws"
FILES = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(FOLDER.glob("*.json"))}
COLLECTOR = "collector-aws"
ROLES = "collector-aws-roles"
ACTIONS = sorted(set(FILES) - {COLLECTOR, ROLES})

NAMES = {
    "s3:ListBuckets": "s3:ListAllMyBuckets",
    "s3:ListObjectsV2": "s3:ListBucket",
    "s3:HeadBucket": "s3:ListBucket",
    "s3:HeadObject": "s3:GetObject",
    "s3:ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "s3:GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
    "s3:PutBucketLifecycleConfiguration": "s3:PutLifecycleConfiguration",
    "s3:DeleteBucketLifecycle": "s3:PutLifecycleConfiguration",
}
"""Calls whose right has another name."""


def actions(policy: dict[str, Any]) -> set[str]:
    """Everything that a policy allows."""
    assert all(item["Effect"] == "Allow" for item in policy["Statement"])
    return {name for item in policy["Statement"] for name in item["Action"]}


def documented(name: str) -> set[str]:
    """The rights that the page of an action names."""
    page = (ROOT / "docs" / "actions" / f"{name}.md").read_text("utf-8")
    return set(re.findall(r"`((?:ec2|autoscaling|sagemaker|s3|logs|sts):[A-Z]\w+)`", page))


def called(*files: str) -> set[str]:
    """The calls that some modules make, as `DescribeInstances`."""
    whole = "".join(path.read_text("utf-8") for name in files for path in sorted(ROOT.glob(name)))
    verbs = "describe|list|get|head|assume|stop|start|terminate|create|delete|put|modify|set|abort"
    found = set(re.findall(rf"\.((?:{verbs})_[a-z0-9_]+)\(|\"((?:{verbs})_[a-z0-9_]+)\"", whole))
    own = {"get_paginator", "get_credentials", "get_component"}
    return {"".join(part.title() for part in text.split("_")) for pair in found for text in pair if text} - {
        "".join(part.title() for part in text.split("_")) for text in own
    }


def short(names: set[str]) -> set[str]:
    """Rights without their service, in the spelling of calls."""
    return {name.partition(":")[2].lower() for name in names}


@pytest.mark.parametrize("name", FILES)
def test_it_is_a_policy(name: str) -> None:
    """A server that checks policies as AWS does takes it, and no right is a pattern."""
    IAMPolicyDocumentValidator(json.dumps(FILES[name])).validate()

    assert [right for right in actions(FILES[name]) if not re.fullmatch(r"[a-z0-9]+:[A-Z]\w+", right)] == []


def test_the_collector_only_reads() -> None:
    """Its rights are to describe, list and get, of the services that it looks at."""
    given = actions(FILES[COLLECTOR])
    services = {"ebs": "ec2", "spot": "ec2", "asg": "autoscaling"}

    assert {right.partition(":")[0] for right in given} == {services.get(name, name) for name in SERVICES}
    assert [right for right in given if not re.match(r"\w+:(Describe|List|Get)[A-Z]", right)] == []
    assert "s3:GetObject" not in given
    assert actions(FILES[ROLES]) == {"sts:AssumeRole"}


def test_the_collector_may_call_what_it_calls() -> None:
    """Every call of its modules, and every look of the actions, is allowed."""
    looks = called("actions/targets/e*.py", "actions/targets/asg.py")
    needed = called("collectors/aws*.py") | {name for name in looks if name.startswith("Describe")}
    assert {"DescribeInstances", "ListObjectsV2", "DescribeSpotInstanceRequests"} <= needed
    other = {call.partition(":")[2]: right.partition(":")[2] for call, right in NAMES.items()}
    wanted = {other.get(name, name).lower() for name in needed if name != "AssumeRole"}

    assert wanted - short(actions(FILES[COLLECTOR])) == set()


@pytest.mark.parametrize("name", ACTIONS)
def test_an_action_has_the_rights_that_its_page_names(name: str) -> None:
    """No less and no more, so that page and policy cannot drift apart."""
    assert actions(FILES[name]) == documented(name)


def test_every_action_with_rights_has_a_policy() -> None:
    """A page that names rights of AWS has its file."""
    pages = {path.stem for path in (ROOT / "docs" / "actions").glob("*.md") if documented(path.stem)}

    assert pages <= set(ACTIONS)


def test_what_the_targets_change_is_allowed_to_some_action() -> None:
    """Every changing call of the targets in AWS stands in one of the policies."""
    modules = (
        "ec2",
        "ec2_instance",
        "ec2_resize",
        "asg",
        "ebs",
        "ebs_instance",
        "s3",
        "sagemaker",
        "cloudwatch",
    )
    changing = {
        name
        for name in called(*(f"actions/targets/{module}.py" for module in modules))
        if not name.startswith(("Describe", "List", "Get"))
    }
    other = {call.partition(":")[2]: right.partition(":")[2] for call, right in NAMES.items()}
    given = short(set().union(*(actions(FILES[name]) for name in ACTIONS)))

    assert {name for name in changing if other.get(name, name).lower() not in given} == set()
    assert "terminateinstances" in given


def test_a_snapshot_changes_no_volume() -> None:
    """It makes snapshots, and takes away only those; of a bucket it is given only your own."""
    made = {"ec2:CreateSnapshot", "ec2:CreateSnapshots", "ec2:CreateTags"}
    whole = actions(FILES["snapshot"])
    places = {item["Resource"] for item in FILES["snapshot"]["Statement"] if "s3" in item["Action"][0]}

    assert {right for right in whole if right.startswith("ec2:")} == {*made, "ec2:DeleteSnapshot"}
    assert places == {"arn:aws:s3:::your-bucket", "arn:aws:s3:::your-bucket/*"}


def test_a_copy_to_a_bucket_is_allowed_what_it_calls_and_deletes_nothing() -> None:
    """Its calls need what the policy of snapshots gives, and no object can be taken away with that."""
    other = {call.partition(":")[2]: right.partition(":")[2] for call, right in NAMES.items()}
    needed = {other.get(name, name).lower() for name in called("actions/targets/bucket_copy.py")}
    given = short({right for right in actions(FILES["snapshot"]) if right.startswith("s3:")})

    assert needed == given
    assert not [right for right in given if "delete" in right]
