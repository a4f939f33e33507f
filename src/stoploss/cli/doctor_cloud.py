"""Whether AWS and Kubernetes answer and what they allow; asked without doing anything.

AWS is asked by a dry run, which answers whether the call would be allowed. It is about ids that no resource
has, so that nothing would be done by whoever ignores it. Kubernetes is asked for a review of each right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from stoploss.cli.doctor_side import CALL_LIMIT, Job, Scene
from stoploss.reports.checks import Check

AREA = "actions"

NOBODY = "00000000000000000"
"""The end of an id that no resource has."""

DRY: Mapping[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    # right: method, arguments, actions that need it
    "ec2:StopInstances": ("stop_instances", {"InstanceIds": [f"i-{NOBODY}"]}, ("terminate", "downscale")),
    "ec2:StartInstances": ("start_instances", {"InstanceIds": [f"i-{NOBODY}"]}, ("downscale", "resume")),
    "ec2:TerminateInstances": ("terminate_instances", {"InstanceIds": [f"i-{NOBODY}"]}, ("terminate",)),
    "ec2:ModifyInstanceAttribute": (
        "modify_instance_attribute",
        {"InstanceId": f"i-{NOBODY}", "InstanceType": {"Value": "m5.large"}},
        ("downscale",),
    ),
    "ec2:CreateTags": (
        "create_tags",
        {"Resources": [f"i-{NOBODY}"], "Tags": [{"Key": "stoploss:order", "Value": "doctor"}]},
        ("terminate", "downscale", "release", "snapshot"),
    ),
    "ec2:DeleteTags": (
        "delete_tags",
        {"Resources": [f"i-{NOBODY}"], "Tags": [{"Key": "stoploss:order"}]},
        ("terminate", "downscale"),
    ),
    "ec2:CreateSnapshot": ("create_snapshot", {"VolumeId": f"vol-{NOBODY}"}, ("release", "snapshot")),
    "ec2:CreateSnapshots": (
        "create_snapshots",
        {"InstanceSpecification": {"InstanceId": f"i-{NOBODY}"}},
        ("snapshot",),
    ),
    "ec2:DeleteVolume": ("delete_volume", {"VolumeId": f"vol-{NOBODY}"}, ("release",)),
}
UNASKED = "rights of Auto Scaling, S3, CloudWatch Logs and SageMaker cannot be asked for without using them"

DENIED = "UnauthorizedOperation"
ALLOWED = "DryRunOperation"

_JOBS = ("terminate", "downscale", "release", "resume")
REVIEWED: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    # group, resource, verb, actions that need it
    ("", "pods", "get", _JOBS),
    ("", "pods", "list", _JOBS),
    ("", "pods", "delete", ("terminate", "release")),
    *(("batch", "jobs", verb, _JOBS) for verb in ("get", "list", "patch")),
    ("batch", "jobs", "delete", ("terminate",)),
    *(
        ("apps", kind, verb, actions)
        for kind in ("deployments", "statefulsets", "replicasets")
        for verb, actions in (
            ("get", _JOBS),
            ("list", _JOBS),
            ("patch", ("terminate", "downscale", "resume")),
        )
    ),
    ("autoscaling", "horizontalpodautoscalers", "list", ("downscale",)),
    *(("jobset.x-k8s.io", "jobsets", verb, _JOBS) for verb in ("get", "list", "patch")),
    ("jobset.x-k8s.io", "jobsets", "delete", ("terminate",)),
    *(
        ("kubeflow.org", kind, verb, _JOBS)
        for kind in ("pytorchjobs", "mpijobs")
        for verb in ("get", "patch")
    ),
    *(("kubeflow.org", kind, "delete", ("terminate",)) for kind in ("pytorchjobs", "mpijobs")),
    *(
        ("ray.io", kind, verb, _JOBS)
        for kind in ("rayjobs", "rayclusters")
        for verb in ("get", "list", "patch")
    ),
    *(("ray.io", kind, "delete", ("terminate",)) for kind in ("rayjobs", "rayclusters")),
)


def jobs(scene: Scene) -> Iterator[Job]:
    """A check for each of both."""
    yield Job(AREA, "aws", lambda: aws(scene))
    yield Job(AREA, "kubernetes", lambda: kubernetes(scene))


def aws(scene: Scene) -> Iterator[Check]:
    """Credentials, and each right that can be asked for, of each account."""
    options = scene.options("aws")
    if options is None:
        yield Check(AREA, "aws", "off", "the policies name no collector aws")
        return
    from stoploss.aws import FAILURES, reason

    details: list[str] = []
    reached: list[str] = []
    failed = 0
    for role in options.get("roles") or (None,):
        account = "these credentials" if role is None else f"account {role.split(':')[4]}"
        if scene.left < CALL_LIMIT:
            details.append(f"{account}: not asked, as there was no time left")
            continue
        try:
            client = _clients(options, role)
            said = client("sts").get_caller_identity()
            reached.append(said["Account"])
            details += _dry(client("ec2"), account, scene)
        except FAILURES as error:
            failed += 1
            details.append(f"{account}: {reason(error)}; {_fix(error, role)}")
    told = f"credentials of {', '.join(dict.fromkeys(reached))}" if reached else "no account can be used"
    state = "failed" if failed else "check" if any("no rights" in text for text in details) else "ok"
    yield Check(AREA, "aws", state, told, details=(*details, *([UNASKED] if reached else [])))


def _fix(error: Exception, role: str | None) -> str:
    from botocore.exceptions import NoRegionError

    if isinstance(error, NoRegionError):
        return "name one under regions:"
    return "aws sts get-caller-identity says more" if role is None else "check its trust policy"


def _clients(options: Mapping[str, Any], role: str | None) -> Callable[[str], Any]:
    """Makes clients of an account, which try once and do not wait long."""
    from botocore.config import Config
    from botocore.exceptions import NoCredentialsError

    from stoploss.aws import session

    limits = Config(
        retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=1, read_timeout=CALL_LIMIT
    )
    endpoint = options.get("endpoint_url") or options.get("endpoint-url")
    own = session()
    if own.get_credentials() is None:
        raise NoCredentialsError
    region = next(iter(options.get("regions") or ()), own.region_name)

    def client(owner: Any, service: str) -> Any:
        return owner.client(service, region_name=region, endpoint_url=endpoint, config=limits)

    if role is not None:
        given = client(own, "sts").assume_role(RoleArn=role, RoleSessionName="stoploss")["Credentials"]
        own = session(given["AccessKeyId"], given["SecretAccessKey"], given["SessionToken"])
    return lambda service: client(own, service)


def _dry(client: Any, account: str, scene: Scene) -> Iterator[str]:
    """What is not allowed, or not told, in words; nothing is done."""
    from botocore.exceptions import BotoCoreError, ClientError

    from stoploss.aws import code

    denied, untold = [], []
    for right, (method, arguments, actions) in DRY.items():
        if scene.left < CALL_LIMIT / 2:
            untold.append(right)
            continue
        try:
            getattr(client, method)(**arguments, DryRun=True)
            untold.append(right)
        except ClientError as error:
            # An id that is not found was looked for: that comes after the question whether one may.
            if code(error) == DENIED:
                denied.append(f"{right} ({', '.join(actions)})")
            elif code(error) != ALLOWED and not code(error).endswith("NotFound"):
                untold.append(right)
        except BotoCoreError:
            untold.append(right)
    if denied:
        yield f"{account}: no rights for {', '.join(denied)}; see deploy/aws"
    if untold:
        yield f"{account}: not told of {', '.join(untold)}"


def kubernetes(scene: Scene) -> Iterator[Check]:
    """Whether the cluster answers, and each right of each action, where the collector looks."""
    options = scene.options("kubernetes")
    if options is None:
        yield Check(AREA, "kubernetes", "off", "the policies name no collector kubernetes")
        return
    try:
        import lightkube  # noqa: F401
    except ImportError:
        yield Check(AREA, "kubernetes", "failed", "needs the extra k8s", "pip install 'stoploss[k8s]'")
        return
    from stoploss.collectors.contract import CollectorError, NotHere
    from stoploss.collectors.kubernetes import connect
    from stoploss.collectors.kubernetes_options import Options

    try:
        client = connect(Options.model_validate(dict(options)))
    except (NotHere, CollectorError) as error:
        yield Check(AREA, "kubernetes", "failed", error.reason)
        return
    try:
        yield _reviewed(client, tuple(options.get("namespaces") or ()), scene)
    except Exception as error:
        # The client has errors of several libraries: of the network, of TLS, of logging in.
        status = getattr(getattr(error, "status", None), "code", None)
        why = f"it answers {status}" if status else f"it does not answer ({type(error).__name__})"
        yield Check(AREA, "kubernetes", "failed", f"the cluster: {why}", "kubectl auth whoami says more")


def _reviewed(client: Any, namespaces: tuple[str, ...], scene: Scene) -> Check:
    lacking: dict[str, list[str]] = {}
    left = 0
    for namespace in namespaces or ("",):
        for group, resource, verb, actions in REVIEWED:
            if scene.left < 0.5:
                left += 1
            elif not _may(client, namespace, group, resource, verb):
                place = f" in {namespace}" if namespace else ""
                for action in actions:
                    lacking.setdefault(action, []).append(f"{verb} {resource}{place}")
    may = [action for action in _JOBS if action not in lacking]
    details = [f"{action}: no rights to {', '.join(what)}" for action, what in lacking.items()]
    if left:
        details.append(f"{left} rights were not asked for, as there was no time left")
    told = f"the cluster answers; all rights for: {', '.join(may) or 'no action'}"
    return Check(AREA, "kubernetes", "check" if details else "ok", told, details=tuple(details))


def _may(client: Any, namespace: str, group: str, resource: str, verb: str) -> bool:
    from lightkube.models.authorization_v1 import ResourceAttributes, SelfSubjectAccessReviewSpec
    from lightkube.resources.authorization_v1 import SelfSubjectAccessReview

    attributes = ResourceAttributes(group=group, resource=resource, verb=verb, namespace=namespace or None)
    spec = SelfSubjectAccessReviewSpec(resourceAttributes=attributes)
    answer = client.create(SelfSubjectAccessReview(spec=spec))
    return bool(answer.status and answer.status.allowed)
