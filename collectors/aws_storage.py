"""Volumes and buckets: what is kept there, and who still refers to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from botocore.exceptions import ClientError

from stoploss.aws import FAILURES, reason, tags_of
from stoploss.collectors import aws_metrics as metrics
from stoploss.collectors.aws_calls import Asker, Found, Seen
from stoploss.collectors.aws_metrics import Figure, Points
from stoploss.engine.model import UNREADABLE, Bad, LabelValue, Reading
from stoploss.rules.units import format_duration

GIB = 2.0**30
DAY = 86_400
ATTACHED_WITHIN = 90.0 * DAY
"""Seconds back in which a sign that a volume was attached is looked for."""

SIZED_WITHIN = 3.0 * DAY
"""Seconds; S3 reports sizes once a day, and late."""

LISTED_PAGES = 5
"""Pages of 1,000 objects of a bucket that are listed at most where CloudWatch has no size of it."""

OURS = "stoploss:order"
"""The tag on snapshots that stoploss made of what it may be about to release."""

VOLUME_SIGNALS = (
    "storage.capacity",
    "storage.tier",
    "storage.age",
    "storage.attachments",
    "storage.references",
    "storage.since_detached",
    "storage.burst_balance",
)
BUCKET_SIGNALS = ("storage.age", "storage.size", "storage.objects", "storage.tier", "storage.last_written")

BURSTING = ("gp2", "st1", "sc1")
"""Types of volumes that save credit up for bursts."""

PERIOD = 300
WINDOW = 900.0
"""Seconds back in which the newest burst balance is looked for."""

_VOLUME_TIERS = {
    "gp2": "fast",
    "gp3": "fast",
    "io1": "fast",
    "io2": "fast",
    "standard": "standard",
    "st1": "standard",
    "sc1": "cold",
}
_BUCKET_TIERS = {
    "StandardStorage": "standard",
    "StandardIAStorage": "cold",
    "OneZoneIAStorage": "cold",
    "IntelligentTieringFAStorage": "standard",
    "IntelligentTieringIAStorage": "cold",
    "GlacierInstantRetrievalStorage": "cold",
    "GlacierStorage": "archive",
    "DeepArchiveStorage": "archive",
    "ExpressOneZone": "fast",
}
_OBJECT_TIERS = {
    "STANDARD": "standard",
    "STANDARD_IA": "cold",
    "ONEZONE_IA": "cold",
    "INTELLIGENT_TIERING": "standard",
    "GLACIER_IR": "cold",
    "GLACIER": "archive",
    "DEEP_ARCHIVE": "archive",
    "EXPRESS_ONEZONE": "fast",
}


def volumes(asker: Asker, which: frozenset[str]) -> Found:
    """All EBS volumes of a scope.

    Raises:
        ClientError, BotoCoreError: they cannot be listed.
    """
    listed = list(asker.pages("ec2", "describe_volumes", "Volumes"))
    references, notes = _snapshots(asker)
    detached = [item["VolumeId"] for item in listed if not item.get("Attachments")]
    since = _since_detached(asker, detached) if "cloudwatch" in which else {}
    bursting = [item["VolumeId"] for item in listed if item["VolumeType"] in BURSTING]
    balances = _burst_balances(asker, bursting) if "cloudwatch" in which else {}
    found = []
    for item in listed:
        name, attachments = item["VolumeId"], item.get("Attachments") or ()
        kind = item["VolumeType"]
        readings: dict[str, Reading] = {
            "storage.capacity": item["Size"] * GIB,
            "storage.tier": _VOLUME_TIERS.get(kind) or Bad(f"unknown volume type {kind}"),
            "storage.age": max(0.0, asker.at - item["CreateTime"].timestamp()),
            "storage.attachments": float(len(attachments)),
            "storage.references": references if isinstance(references, Bad) else float(references[name]),
            "storage.since_detached": 0.0 if attachments else since.get(name, Bad("CloudWatch is not asked")),
        }
        if name in balances:
            readings["storage.burst_balance"] = balances[name]
        owner: LabelValue = attachments[0]["InstanceId"] if attachments else None
        # A volume of several instances has no single owner that could be named.
        instance = UNREADABLE if len(attachments) > 1 else owner
        labels = {**asker.scope.labels, "zone": item["AvailabilityZone"], "instance": instance}
        found.append(Seen("volume", name, readings, labels, tags_of(item.get("Tags"))))
    return Found(tuple(found), notes)


def _snapshots(asker: Asker) -> tuple[Counter[str] | Bad, tuple[str, ...]]:
    """Volume -> its snapshots, those of somebody."""
    try:
        owned = asker.pages("ec2", "describe_snapshots", "Snapshots", OwnerIds=["self"])
        # A snapshot that a policy had made would else end the condition that it was made for.
        return Counter(item["VolumeId"] for item in owned if OURS not in tags_of(item.get("Tags"))), ()
    except FAILURES as error:
        return Bad(reason(error)), (f"snapshots cannot be read: {reason(error)}",)


def _since_detached(asker: Asker, names: list[str]) -> dict[str, Reading]:
    """Volumes report to CloudWatch only while they are attached, so the newest datapoint tells until when."""
    figures = {
        name: Figure("AWS/EBS", "VolumeReadOps", (("VolumeId", name),), "SampleCount", DAY) for name in names
    }
    points = metrics.ask(asker, list(figures.values()), ATTACHED_WITHIN)
    found: dict[str, Reading] = {}
    for name, figure in figures.items():
        told = points[figure]
        if isinstance(told, Bad):
            found[name] = told
        elif told:
            found[name] = max(0.0, asker.at - told[0][0] - DAY)
        else:
            found[name] = Bad(f"nothing in {format_duration(ATTACHED_WITHIN)} tells when it was attached")
    return found


def _burst_balances(asker: Asker, names: list[str]) -> dict[str, Reading]:
    figures = {
        name: Figure("AWS/EBS", "BurstBalance", (("VolumeId", name),), "Average", PERIOD) for name in names
    }
    points = metrics.ask(asker, list(figures.values()), WINDOW)
    return {name: metrics.newest(points[figure], WINDOW, 0.01) for name, figure in figures.items()}


def buckets(asker: Asker, which: frozenset[str]) -> Found:
    """All buckets of an account.

    Raises:
        ClientError, BotoCoreError: they cannot be listed.
    """
    found, notes = [], []
    for item in _buckets(asker):
        seen, said = _bucket(asker, item, which)
        found.append(seen)
        notes += said
    return Found(tuple(found), tuple(notes))


def _buckets(asker: Asker) -> Iterable[Mapping[str, Any]]:
    client = asker.client("s3")
    # Older releases of boto3 know only the one call that tells all.
    if client.can_paginate("list_buckets"):
        return asker.pages("s3", "list_buckets", "Buckets")
    told: Iterable[Mapping[str, Any]] = client.list_buckets().get("Buckets") or ()
    return told


def _bucket(asker: Asker, item: Mapping[str, Any], which: frozenset[str]) -> tuple[Seen, list[str]]:
    name, notes = item["Name"], []
    tags = _optional(asker, name, "get_bucket_tagging", "NoSuchTagSet")
    rules = _optional(asker, name, "get_bucket_lifecycle_configuration", "NoSuchLifecycleConfiguration")
    lifecycle: LabelValue = None
    if isinstance(rules, Bad):
        lifecycle = UNREADABLE
        notes.append(f"bucket {name}: its lifecycle cannot be read: {rules.reason}")
    elif any(rule.get("Status") == "Enabled" for rule in rules.get("Rules", ())):
        lifecycle = "yes"
    region = _region(asker, item)
    kept = _kept(asker, name, region, which)
    readings = {"storage.age": max(0.0, asker.at - item["CreationDate"].timestamp()), **kept}
    account = {key: value for key, value in asker.scope.labels.items() if key != "region"}
    where: LabelValue = UNREADABLE if isinstance(region, Bad) else region
    labels = {**account, "region": where, "lifecycle": lifecycle}
    told = tags if isinstance(tags, Bad) else tags_of(tags.get("TagSet"))
    return Seen("bucket", name, readings, labels, told), notes


def _optional(asker: Asker, bucket: str, operation: str, none: str) -> Mapping[str, Any] | Bad:
    """What a bucket may have or not; an error that says it has none is an answer."""
    try:
        answer: Mapping[str, Any] = getattr(asker.client("s3"), operation)(Bucket=bucket)
    except FAILURES as error:
        if isinstance(error, ClientError) and error.response.get("Error", {}).get("Code") == none:
            return {}
        return Bad(reason(error))
    return answer


def _region(asker: Asker, item: Mapping[str, Any]) -> str | Bad:
    if item.get("BucketRegion"):
        return str(item["BucketRegion"])
    try:
        place = asker.client("s3").get_bucket_location(Bucket=item["Name"]).get("LocationConstraint")
    except FAILURES as error:
        return Bad(reason(error))
    return {"EU": "eu-west-1"}.get(place, place) or "us-east-1"


def _kept(asker: Asker, name: str, region: str | Bad, which: frozenset[str]) -> dict[str, Reading]:
    """Size, objects and tier from CloudWatch, or from a listing where it has none."""
    if isinstance(region, Bad):
        return dict.fromkeys(BUCKET_SIGNALS[1:], region)
    if "cloudwatch" in which:
        told = _reported(asker, name, region)
        if told is not None:
            return {**told, "storage.last_written": Bad("too large to be listed for its newest object")}
    try:
        return _listed(asker, name, region)
    except FAILURES as error:
        return dict.fromkeys(BUCKET_SIGNALS[1:], Bad(reason(error)))


def _reported(asker: Asker, name: str, region: str) -> dict[str, Reading] | None:
    """What CloudWatch tells of a bucket; None where it has no datapoint."""
    sizes = {kind: _figure(name, "BucketSizeBytes", kind) for kind in _BUCKET_TIERS}
    count = _figure(name, "NumberOfObjects", "AllStorageTypes")
    points = metrics.ask(asker, [*sizes.values(), count], SIZED_WITHIN, region)
    failed = next((item for item in points.values() if isinstance(item, Bad)), None)
    if failed is not None:
        return dict.fromkeys(("storage.size", "storage.objects", "storage.tier"), failed)
    tiers: Counter[str] = Counter()
    for kind, figure in sizes.items():
        tiers[_BUCKET_TIERS[kind]] += int(_value(points[figure]))
    if not any(points.values()):
        return None
    return {
        "storage.size": float(tiers.total()),
        "storage.objects": metrics.newest(points[count], SIZED_WITHIN),
        "storage.tier": tiers.most_common(1)[0][0],
    }


def _figure(bucket: str, metric: str, kind: str) -> Figure:
    return Figure("AWS/S3", metric, (("BucketName", bucket), ("StorageType", kind)), "Average", DAY)


def _value(points: Points | Bad) -> float:
    # A storage class that reports nothing holds nothing: the others of the bucket do report.
    return 0.0 if isinstance(points, Bad) or not points else points[0][1]


def _listed(asker: Asker, name: str, region: str) -> dict[str, Reading]:
    """What a bucket of few objects holds.

    Raises:
        ClientError, BotoCoreError: it cannot be listed.
    """
    tiers: Counter[str] = Counter()
    objects, size, written = 0, 0, None
    pages = asker.client("s3", region).get_paginator("list_objects_v2").paginate(Bucket=name)
    for number, page in enumerate(pages, 1):
        for item in page.get("Contents") or ():
            objects += 1
            size += item["Size"]
            tiers[_OBJECT_TIERS.get(item.get("StorageClass", "STANDARD"), "standard")] += item["Size"]
            time = item["LastModified"].timestamp()
            written = time if written is None else max(written, time)
        if number == LISTED_PAGES and page.get("IsTruncated"):
            return dict.fromkeys(
                BUCKET_SIGNALS[1:], Bad(f"more than {objects} objects, and no size of it yet")
            )
    return {
        "storage.size": float(size),
        "storage.objects": float(objects),
        "storage.tier": tiers.most_common(1)[0][0] if tiers else "standard",
        "storage.last_written": Bad("empty") if written is None else max(0.0, asker.at - written),
    }
