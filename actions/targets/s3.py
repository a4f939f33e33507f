"""Buckets: has S3 move their objects to a cheaper storage class, by a lifecycle rule of our own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from stoploss.actions.contract import Found, Order, Outcome, Refused
from stoploss.actions.targets.aws_calls import AwsTarget, Place, plain
from stoploss.aws import code

DAYS = {
    "STANDARD_IA": 30,
    "ONEZONE_IA": 30,
    "INTELLIGENT_TIERING": 0,
    "GLACIER_IR": 0,
    "GLACIER": 0,
    "DEEP_ARCHIVE": 0,
}
"""Storage class -> the least age in days at which S3 moves an object there."""

SLOW = ("GLACIER", "DEEP_ARCHIVE")
"""Classes whose objects have to be restored, within hours, before they can be read."""

_SIZE = "TransitionDefaultMinimumObjectSize"
Rules = list[dict[str, Any]]


class StorageClass(AwsTarget):
    """Adds a rule to those that a bucket has; undone by taking that one away."""

    def found_at(self, place: Place, order: Order) -> Found:
        """See which rules there are.

        Raises:
            Refused: the class is not known, the bucket is gone or cannot be read, or has such a rule.
        """
        bucket = order.resource.id
        wanted = str(order.parameters["storage-class"]).upper().replace("-", "_")
        if wanted not in DAYS:
            known = ", ".join(DAYS)
            raise Refused(f"S3 moves nothing to a class {wanted}; it does to {known}")
        try:
            versions = place.client("s3").get_bucket_versioning(Bucket=bucket).get("Status")
        except ClientError as error:
            if code(error) in ("NoSuchBucket", "404"):
                raise Refused(f"there is no bucket {bucket}", gone=True) from error
            raise
        rules, _ = _rules(place, bucket)
        other = next((rule for rule in rules if _whole(rule) and _classes(rule) and _on(rule)), None)
        if other is not None:
            raise Refused(f"a rule of bucket {bucket} moves all objects to {_classes(other)[0]} already")
        before = {"bucket": bucket, "class": wanted, "rule": _name(order), "rules": plain(rules)}
        which = f"the objects of bucket {bucket}"
        which += f" that are {DAYS[wanted]} days old" if DAYS[wanted] else ""
        words = f"would have S3 move {which} to {wanted}"
        words += "; older versions of them stay" if versions else ""
        words += "; they can be read only after they are restored, within hours" if wanted in SLOW else ""
        return Found(words, before, undoable=True)

    def act_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Add the rule to those that are there now, and see that it and they are there."""
        bucket, name = found.before["bucket"], found.before["rule"]
        rules, options = _rules(place, bucket)
        if _ours(rules, name) is None:
            _put(place, bucket, [*rules, _rule(found)], options)
            lost = self._lost(place, bucket, rules)
            if lost:
                return Outcome("failed", f"rules of bucket {bucket} are not there any more: {lost}")
        return self._settled(place, order, found, "undone")

    def look_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Whether the rule is there as it was made."""
        bucket, name = found.before["bucket"], found.before["rule"]
        rule = _ours(_rules(place, bucket)[0], name)
        if rule is None:
            return Outcome("undone", f"bucket {bucket} has no rule {name}")
        if _on(rule) and _classes(rule) == [found.before["class"]]:
            return Outcome("done", f"rule {name} of bucket {bucket} moves objects to {found.before['class']}")
        return Outcome("skipped", f"rule {name} of bucket {bucket} was changed since")

    def undo_at(self, place: Place, order: Order, found: Found) -> Outcome:
        """Take our rule away; what was moved until then stays where it is."""
        bucket, name = found.before["bucket"], found.before["rule"]
        seen = self.look_at(place, order, found)
        if seen.state != "done":
            return Outcome("skipped", seen.words)
        rules, options = _rules(place, bucket)
        left = [rule for rule in rules if rule.get("ID") != name]
        if left:
            _put(place, bucket, left, options)
        else:
            place.client("s3").delete_bucket_lifecycle(Bucket=bucket)
        lost = self._lost(place, bucket, left)
        if lost:
            return Outcome("failed", f"rules of bucket {bucket} are not there any more: {lost}")
        if self._settled(place, order, found, "done").state == "done":
            return Outcome("failed", f"rule {name} of bucket {bucket} is still there", retry=True)
        return Outcome("done", f"rule {name} of bucket {bucket} is gone; objects that were moved stay moved")

    def _settled(self, place: Place, order: Order, found: Found, old: str) -> Outcome:
        """The look at which it is not as it was, or the last one: what was written may be told late."""
        return self.wait(lambda: self.look_at(place, order, found), lambda seen: seen.state != old)

    def _lost(self, place: Place, bucket: str, before: Rules) -> str:
        """Rules that had been there and are not, as each write replaces all of them."""
        names = {rule.get("ID", "") for rule in before}
        left = self.wait(
            lambda: names - {rule.get("ID", "") for rule in _rules(place, bucket)[0]}, lambda seen: not seen
        )
        return ", ".join(sorted(left))


def _name(order: Order) -> str:
    return f"stoploss-{order.id}"[:255]


def _rules(place: Place, bucket: str) -> tuple[Rules, dict[str, Any]]:
    """The rules of a bucket, and what else is said of them as a whole."""
    try:
        told = place.client("s3").get_bucket_lifecycle_configuration(Bucket=bucket)
    except ClientError as error:
        if code(error) == "NoSuchLifecycleConfiguration":
            return [], {}
        raise
    return list(told.get("Rules", ())), {_SIZE: told[_SIZE]} if _SIZE in told else {}


def _put(place: Place, bucket: str, rules: Rules, options: Mapping[str, Any]) -> None:
    place.client("s3").put_bucket_lifecycle_configuration(
        Bucket=bucket, LifecycleConfiguration={"Rules": rules}, **options
    )


def _rule(found: Found) -> dict[str, Any]:
    kind = found.before["class"]
    return {
        "ID": found.before["rule"],
        "Status": "Enabled",
        "Filter": {"Prefix": ""},
        "Transitions": [{"Days": DAYS[kind], "StorageClass": kind}],
    }


def _ours(rules: Rules, name: str) -> dict[str, Any] | None:
    return next((rule for rule in rules if rule.get("ID") == name), None)


def _on(rule: Mapping[str, Any]) -> bool:
    return bool(rule.get("Status") == "Enabled")


def _classes(rule: Mapping[str, Any]) -> list[str]:
    return [one["StorageClass"] for one in rule.get("Transitions") or ()]


def _whole(rule: Mapping[str, Any]) -> bool:
    """Whether a rule is about every object."""
    chosen = rule.get("Filter", {})
    return not rule.get("Prefix") and (not chosen or (set(chosen) == {"Prefix"} and not chosen["Prefix"]))
