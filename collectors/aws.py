"""Instances, volumes, buckets, logs, training jobs and services of AWS accounts.

It needs credentials, which it finds as the AWS command line does (environment, profile, or the
role of the instance), and the right to read: the calls `Describe*`, `List*` and `Get*` of the
services named under `which`, and `sts:AssumeRole` where `roles` are named. It changes nothing.

- Instances are named by their id, with labels `region`, `zone`, `asg` (the group that keeps them
  alive) and, with roles, `account`. CPU, network and disk come from CloudWatch, memory from the
  agent inside (`mem_used_percent` by instance alone). A figure is the newest datapoint of
  the last 15 minutes; without one it is not known, and never 0.
- Volumes are named by their id, with the label `instance`. `storage.references` counts
  snapshots, but those that stoploss made. `storage.burst_balance` is told of gp2, st1 and sc1 volumes.
  Volumes report to CloudWatch only while they are attached: `storage.since_detached` counts from the day
  after the newest report of the last 90 days, and is unknown where there is none.
- Buckets are named by their name, in whatever region they lie. Size, objects and tier (of most
  bytes) come from CloudWatch, or from a listing of up to 5,000 objects where it has none; only
  such a listing tells the newest write. The label `lifecycle` is there where a rule is enabled.
- Log groups, SageMaker training jobs, and services (`rds:NAME`, `sqs:NAME`) are named by their name;
  where several regions or accounts are looked at, with `@REGION` or `@ACCOUNT.REGION` behind it.
  A log group without an end is kept for 100 years. A training job is told until a day after its end,
  with the label `scheduler`, which is `sagemaker`: actions on it are carried out there.
  `service.last_used` looks back 14 days; where nothing was used, it is how far the reports reach back.
- Every tag is a label. The labels `team`, `user`, `job`, `class`, `stage`, `env`, `experiment`,
  `owner` and `keep` take the tag of that name in any case, or the one that `labels` names. Where
  the tags of a resource cannot be read, its labels are unreadable and all its readings are bad, so that it is
  never taken for an untagged one.
- With `imds: true` this machine, if it is a spot instance, tells whether it will be taken back
  (`instance.reclaim_notices`, and `instance.reclaim_in` once there is a notice). Nobody can ask this for
  another machine; with `which: []` it is all that is asked, and needs no credentials. The notice counts for
  the job that the tag `job` names, and for those whose GPUs the collector `host` of this machine knows of.
  AWS tells reclaim rates to no program, so the collector does not.
- `instance.spot_price` is the price of the type in its zone now, whether the instance is a spot one
  or not. It is in US dollars and is not converted: leave `spot` out of `which` where the price book has
  another currency. In China AWS tells it in yuan, and it is a bad reading.

A call is tried three times, more slowly where AWS throttles. What is still refused is a bad
reading. A region, role or service that cannot be listed leaves the others as they are; it
stands in a note and as a resource of its own, `eu-west-1/*`, whose readings are bad, and so are those of
all that was seen there before. What a list that was read to its end no longer holds is gone; nothing
of a list that failed ever is.

A look waits eight seconds. What takes longer is not covered in it, is read on in the background,
and counts at the look that comes next. Reasons name the call that failed, never what AWS answered.

Right:

```yaml
collectors:
  aws:
    regions: [us-east-1, eu-central-1]
    roles: ["arn:aws:iam::123456789012:role/stoploss-read"]
    which: [ec2, cloudwatch, ebs, asg]
    labels: {team: cost-center}
```

Wrong, because a role is named by its ARN:

```yaml
collectors:
  aws: {roles: [stoploss-read]}
```
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field

from stoploss.aws import FAILURES, reason
from stoploss.collectors import aws_ec2, aws_logs, aws_sagemaker, aws_services, aws_storage
from stoploss.collectors.aws_calls import Asker, Found, Scope, Seen, scopes
from stoploss.collectors.aws_imds import Metadata, NoAnswer
from stoploss.collectors.aws_options import LABELS, Options
from stoploss.collectors.background import in_background
from stoploss.collectors.contract import Collector, CollectorError, Context
from stoploss.engine.model import UNREADABLE, Bad, LabelValue, Look, Reading, ResourceId, Sample
from stoploss.rules.units import format_duration

NAME = "aws"

TIME_LIMIT = 8.0
"""Seconds that a look waits."""

AT_ONCE = 16
"""Parts that are read side by side."""


@dataclass(frozen=True, slots=True)
class Part:
    """One list that AWS keeps: of which kind, and how it is read.

    `signals` are what it would have told where it cannot be read; `everywhere` is true where one
    list serves all regions of an account.
    """

    kind: str
    signals: tuple[str, ...]
    read: Callable[[Asker, frozenset[str]], Found]
    everywhere: bool = False


PARTS: Mapping[str, Part] = {
    "ec2": Part("instance", aws_ec2.SIGNALS, aws_ec2.read),
    "ebs": Part("volume", aws_storage.VOLUME_SIGNALS, aws_storage.volumes),
    "s3": Part("bucket", aws_storage.BUCKET_SIGNALS, aws_storage.buckets, everywhere=True),
    "logs": Part("log", aws_logs.SIGNALS, aws_logs.read),
    "sagemaker": Part("job", aws_sagemaker.SIGNALS, aws_sagemaker.read),
    "rds": Part("service", aws_services.DATABASE_SIGNALS, aws_services.databases),
    "sqs": Part("service", aws_services.QUEUE_SIGNALS, aws_services.queues),
}

OURS = frozenset({"instance", "bucket"})
"""Kinds that no other collector sees, so that what AWS does not list is gone."""


@dataclass(slots=True)
class _Share:
    """One part of one scope: the call under way, and what it told last.

    `known` holds the signals of each resource that was seen and has not gone.
    """

    name: str
    part: Part
    scope: Scope
    pending: Future[Found] | None = None
    known: dict[ResourceId, tuple[str, ...]] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """Where it looks, as notes name it."""
        return self.scope.account.name if self.part.everywhere else self.scope.place

    @property
    def stand_in(self) -> ResourceId:
        """What stands for everything that could not be listed."""
        return ResourceId(self.part.kind, f"{self.place}/*")

    def outcome(self, time_limit: float) -> Found | Bad:
        """What the call came to; a call that is not over stays under way."""
        if self.pending is None or not self.pending.done():
            return Bad(f"no answer within {format_duration(time_limit)}")
        done, self.pending = self.pending, None
        error = done.exception()
        if error is None:
            return done.result()
        return Bad(reason(error) if isinstance(error, FAILURES) else f"fault: {type(error).__name__}")


class AwsCollector:
    """Looks at every part of every scope, side by side."""

    def __init__(
        self,
        places: Iterable[Scope],
        which: Iterable[str],
        labels: Mapping[str, str],
        *,
        metadata: Metadata | None = None,
        time_limit: float = TIME_LIMIT,
    ) -> None:
        self._which = frozenset(which)
        self._tag_of = {**{name: name for name in LABELS}, **labels}
        self._metadata, self._time_limit = metadata, time_limit
        self._slots = threading.BoundedSemaphore(AT_ONCE)
        self._tag_names: set[str] = set()
        self._shares = list(_shares(places, self._which))

    def look(self, at: float) -> Look:
        """Look once; every sample carries `at`.

        Raises:
            CollectorError: no part of any scope can be read.
        """
        for share in self._shares:
            if share.pending is None:
                share.pending = in_background(self._reader(share, at), f"aws {share.place} {share.name}")
        wait([share.pending for share in self._shares if share.pending], timeout=self._time_limit)
        outcomes = [(share, share.outcome(self._time_limit)) for share in self._shares]
        samples, notes = self._this_machine(at)
        failed = [told for _, told in outcomes if isinstance(told, Bad)]
        if self._shares and len(failed) == len(outcomes) and not samples:
            raise CollectorError("; ".join(dict.fromkeys(bad.reason for bad in failed)))
        for _, told in outcomes:
            if isinstance(told, Found):
                self._tag_names.update(*(seen.tags for seen in told.seen if not isinstance(seen.tags, Bad)))
        for share, told in outcomes:
            if isinstance(told, Bad):
                samples += self._uncovered(share, told, at)
                notes.append(f"{NAME}: {share.place}: {share.name} is not covered: {told.reason}")
            else:
                samples += self._covered(share, told, at)
                notes += [f"{NAME}: {share.place}: {note}" for note in (*told.notes, *_untagged(told))]
        return Look(tuple(samples), _whole(outcomes), tuple(notes))

    def _reader(self, share: _Share, at: float) -> Callable[[], Found]:
        def read() -> Found:
            with self._slots:
                return share.part.read(Asker(share.scope, at), self._which)

        return read

    def _this_machine(self, at: float) -> tuple[list[Sample], list[str]]:
        if self._metadata is None:
            return [], []
        try:
            seen = self._metadata.look(at)
        except NoAnswer as error:
            return [], [f"{NAME}: notices of this machine are not covered: {error}"]
        # No labels: whether it has any is for the list of instances to say.
        resource = ResourceId(seen.kind, seen.id)
        return [Sample(at, resource, signal, reading) for signal, reading in seen.readings.items()], []

    def _uncovered(self, share: _Share, bad: Bad, at: float) -> Iterator[Sample]:
        labels = dict.fromkeys((*self._tag_of, *self._tag_names), UNREADABLE)
        share.known[share.stand_in] = share.part.signals
        for resource, signals in share.known.items():
            said = labels if resource == share.stand_in else None
            for signal in signals:
                yield Sample(at, resource, signal, bad, said)

    def _covered(self, share: _Share, found: Found, at: float) -> Iterator[Sample]:
        known: dict[ResourceId, tuple[str, ...]] = {}
        for seen in found.seen:
            resource, labels = ResourceId(seen.kind, seen.id), self._labels(seen)
            known[resource] = tuple(seen.readings)
            for signal, reading in seen.readings.items():
                yield Sample(at, resource, signal, _trusted(reading, seen), labels)
        for resource in share.known.keys() - known.keys():
            yield Sample(at, resource, "resource.present", 0.0)
        share.known = known

    def _labels(self, seen: Seen) -> dict[str, LabelValue]:
        """Labels of a resource: a tag that others have and it lacks is absent, not unmentioned."""
        if isinstance(seen.tags, Bad):
            return {**dict.fromkeys((*self._tag_of, *self._tag_names), UNREADABLE), **seen.labels}
        in_any_case = {tag.casefold(): value for tag, value in seen.tags.items()}
        labels: dict[str, LabelValue] = {**dict.fromkeys(self._tag_names), **seen.tags}
        for label, tag in self._tag_of.items():
            labels[label] = seen.tags.get(tag, in_any_case.get(tag.casefold()))
        return {**labels, **seen.labels}


def _shares(places: Iterable[Scope], which: frozenset[str]) -> Iterator[_Share]:
    told: set[tuple[str, str]] = set()
    for scope in places:
        for name, part in PARTS.items():
            key = (name, scope.account.name)
            if name in which and not (part.everywhere and key in told):
                told.add(key)
                yield _Share(name, part, scope)


def _trusted(reading: Reading, seen: Seen) -> Reading:
    """A reading, unless nobody knows whose: nothing may be decided on a resource without its tags."""
    return Bad(f"its tags cannot be read: {seen.tags.reason}") if isinstance(seen.tags, Bad) else reading


def _untagged(found: Found) -> list[str]:
    counts = Counter((seen.kind, seen.tags.reason) for seen in found.seen if isinstance(seen.tags, Bad))
    return [f"tags of {number} {kind}s cannot be read: {why}" for (kind, why), number in counts.items()]


def _whole(outcomes: Iterable[tuple[_Share, Found | Bad]]) -> frozenset[str]:
    """Kinds whose whole list was read in every scope."""
    kinds = {share.part.kind: True for share, _ in outcomes}
    for share, told in outcomes:
        kinds[share.part.kind] &= isinstance(told, Found)
    return frozenset(kind for kind, whole in kinds.items() if whole) & OURS


def build(options: Options, context: Context) -> Collector:
    """The running collector.

    Raises:
        CollectorError: no region is named anywhere.
    """
    # Notices alone need neither region nor credentials.
    listing = any(name in PARTS for name in options.which)
    places = scopes(options.regions, options.roles, options.endpoint_url) if listing else ()
    metadata = Metadata() if options.imds else None
    return AwsCollector(places, options.which, options.labels, metadata=metadata)
