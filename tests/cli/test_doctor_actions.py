"""`stoploss doctor`: whether actions could be carried out, and why not; nothing is done to find out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.clouds import Cloud, cloud, server
from support.failing_aws import SECRET
from support.fake_driver import driver, gpu, scenario
from support.scenes import Scene
from support.slurm_node import slurm_node

from stoploss.cli import doctor, doctor_actions, doctor_cloud, doctor_places, doctor_side
from stoploss.cli.doctor_side import Job, Side
from stoploss.engine import clock
from stoploss.engine.vitals import Vitals, save_vitals
from stoploss.reports.checks import Check

__all__ = ["cloud", "server"]

ROOT = Path(__file__).parents[2]
POLICIES = """\
version: 1
settings: {{state: "sqlite:///{state}"}}
collectors: {{host: {{every: 1m}}{collectors}}}
notify: {{{notify}}}
policies:
  - name: a
    each: {each}
    for: 10m
    when: '{when}'
    then: [{then}]
"""
IDLE = "max(gpu.utilization, 30m) < 5%"
Checks = dict[str, dict[str, Any]]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def examine(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Checks]:
    """The checks of one run by name, without looks of collectors."""
    monkeypatch.setattr(doctor, "_collector_checks", lambda policies: iter(()))

    def run(collectors: str = "", notify: str = "", then: str = "{alert: {}}", state: str = "x.db") -> Checks:
        text = POLICIES.format(
            state=state,
            collectors=f", {collectors}" if collectors else "",
            notify=notify,
            each="job",
            when=IDLE,
            then=then,
        )
        file = scene.write("p.yaml", text)
        found = {item["name"]: item for item in scene.json("doctor", file)["checks"]}
        assert found[file]["state"] in ("ok", "check"), scene.run("validate", file)
        return found

    return run


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a program, given its shell script, onto an otherwise empty PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def add(name: str, script: str) -> None:
        (folder / name).write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        (folder / name).chmod(0o755)

    return add


# ---- side by side ----------------------------------------------------------------------------


def test_a_check_that_hangs_holds_up_no_other() -> None:
    """What does not answer in time has failed, and the others are told."""
    ends = threading.Event()
    jobs = [
        Job("actions", "hangs", lambda: [Check("actions", "hangs", "ok", str(ends.wait(30)))]),
        Job("actions", "breaks", lambda: [Check("actions", "breaks", "ok", str(1 // 0))]),
        Job("actions", "works", lambda: [Check("actions", "works", "ok", "here")]),
    ]
    begun = time.monotonic()
    told = [(item.name, item.state, item.told) for item in Side(jobs).results(time.monotonic, begun + 0.3)]
    ends.set()

    assert told == [
        ("hangs", "failed", "no answer in time"),
        ("breaks", "failed", "cannot be checked (ZeroDivisionError)"),
        ("works", "ok", "here"),
    ]


@pytest.mark.slow
def test_it_takes_less_than_five_seconds(
    scene: Scene, examine: Callable[..., Checks], programs: Callable[[str, str], None]
) -> None:
    """Programs and servers that do not answer are not waited for."""
    for name in ("docker", "podman", "scontrol"):
        programs(name, "exec /bin/sleep 60")
    place = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    try:
        begun = time.monotonic()
        url = f"http://127.0.0.1:{place.server_address[1]}"
        found = examine(f'slurm: {{}}, aws: {{regions: [us-east-1], endpoint-url: "{url}"}}')
        assert time.monotonic() - begun < 5
    finally:
        place.server_close()

    assert found["slurm"]["told"] == "scontrol does not answer within 2 s"
    assert found["containers"]["state"] in ("off", "failed")
    assert scene.status == 4


# ---- this machine ----------------------------------------------------------------------------


def test_processes_of_others_need_rights() -> None:
    """Without capabilities only processes of this user can be ended, and what is missing is named."""
    assert doctor_actions.capabilities("Name:\tx\nCapEff:\t0000000000080020\n") == 1 << 5 | 1 << 19
    assert doctor_actions.capabilities("") == 0


def test_a_user_without_rights_is_told_what_is_missing(examine: Callable[..., Checks]) -> None:
    """As nobody, processes of others and power limits are out of reach."""
    if os.geteuid() != 0:
        pytest.skip("the rights of root have to be given up for this")
    os.seteuid(65534)
    try:
        [told] = doctor_actions.processes(_nothing())
    finally:
        os.seteuid(0)

    assert told.state == "check"
    assert [text.split()[4] for text in told.details] == ["CAP_SYS_PTRACE", "CAP_KILL"]


def test_a_runtime_that_answers_can_stop_containers(
    examine: Callable[..., Checks], programs: Callable[[str, str], None]
) -> None:
    """Whichever of both answers is named."""
    programs("podman", "exit 0")
    found = examine()["containers"]

    assert (found["state"], found["told"]) == ("ok", "release: podman")


def test_a_runtime_that_refuses_is_told(
    examine: Callable[..., Checks], programs: Callable[[str, str], None]
) -> None:
    """A daemon that is not there is no failure, unless a policy stops containers; its words stay away."""
    programs("docker", "echo secret-words >&2; exit 1")
    found = examine()["containers"]
    assert found["state"] == "off"
    assert "exit code 1" in found["told"]
    assert "secret" not in json.dumps(found)

    wanted = examine(then="{release: {what: container, approve: required}}")["containers"]
    assert wanted["state"] == "failed"


@pytest.mark.parametrize(
    ("collectors", "script", "state", "words"),
    [
        ("slurm: {}", "echo 'Slurmctld(primary) at n1 is UP'", "ok", "terminate"),
        ("slurm: {}", "echo 'Slurmctld(primary) at n1 is DOWN'; exit 1", "failed", "does not answer"),
        ("", "exit 1", "off", "does not answer"),
    ],
)
def test_slurm_is_asked_whether_its_controller_answers(
    examine: Callable[..., Checks],
    programs: Callable[[str, str], None],
    collectors: str,
    script: str,
    state: str,
    words: str,
) -> None:
    """A controller that is down fails where the policies look at Slurm, and nothing but a ping is asked."""
    programs("scontrol", f'test "$*" = ping || exit 7\n{script}')
    programs("scancel", "exit 9")
    programs("squeue", "exit 9")
    found = examine(collectors)["slurm"]

    assert found["state"] == state
    assert words in found["told"]


def test_slurm_that_is_named_and_not_installed_fails(
    examine: Callable[..., Checks], programs: Callable[[str, str], None]
) -> None:
    """Without its programs nothing can be done to its jobs."""
    assert examine("slurm: {}")["slurm"]["told"] == "scontrol is not installed"
    assert examine()["slurm"]["state"] == "off"


@pytest.mark.slow
@pytest.mark.real
def test_a_real_controller_answers(examine: Callable[..., Checks], monkeypatch: pytest.MonkeyPatch) -> None:
    """A node of Slurm on loopback is usable."""
    with slurm_node() as node:
        monkeypatch.setenv("SLURM_CONF", str(node.configuration))
        assert examine("slurm: {}")["slurm"]["state"] == "ok"


@pytest.mark.parametrize("root", [True, False])
def test_a_power_limit_needs_a_driver_and_root(tmp_path: Path, root: bool) -> None:
    """With a driver root may cap; another user is told what is missing, which fails where a policy caps."""
    if os.geteuid() != 0:
        pytest.skip("the rights of root have to be given up for this")
    become = "" if root else "os.seteuid(65534)\n"
    script = f"""
import os, time
from stoploss.cli import doctor_actions
from stoploss.cli.doctor_side import Scene
from stoploss.rules.policy import PolicySet
scene = Scene(PolicySet(()), os.environ, time.monotonic, time.monotonic() + 60)
list(doctor_actions.power_cap(scene))
{become}[told] = doctor_actions.power_cap(scene)
print(told.state, told.told, sep="|")
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=driver().environment(scenario(gpu())),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    expected = "ok|downscale: the driver is here, and this is root"
    assert done.stdout.strip() == (expected if root else "check|downscale: setting a power limit needs root")


def test_folders_must_be_writable(
    examine: Callable[..., Checks], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is not there, or cannot be written, is named with the actions that need it."""
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "held").mkdir(mode=0o500)
    real = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: "held" not in str(path) and real(path, mode))
    named = f"checkpoints: {{paths: [{tmp_path}/ckpt, {tmp_path}/held, {tmp_path}/gone]}}"

    found = examine(named)["files"]
    assert found["state"] == "check"
    assert found["details"] == [
        f"{tmp_path}/held: it cannot be written (prune, tier)",
        f"{tmp_path}/gone: it is not there (prune, tier)",
    ]
    assert examine(named, then="{prune: {approve: required}}")["files"]["state"] == "failed"
    assert examine(f"checkpoints: {{paths: [{tmp_path}/ckpt]}}")["files"]["state"] == "ok"


def test_programs_of_policies_must_be_there(
    examine: Callable[..., Checks], programs: Callable[[str, str], None]
) -> None:
    """A program that cannot be started fails before it is due; it is not run."""
    programs("drain", "touch ran")
    assert examine(then="{exec: {command: [drain, --soft], approve: required}}")["programs"]["state"] == "ok"
    assert not Path("ran").exists()

    found = examine(then="{exec: {command: [/opt/none], approve: required}}")["programs"]
    assert (found["state"], found["told"]) == ("failed", "exec: not there or not executable: /opt/none")


# ---- receivers -------------------------------------------------------------------------------


def test_addresses_are_looked_at_and_nothing_is_sent(
    examine: Callable[..., Checks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A complete address is told without what it holds, and what is missing is named."""
    asked: list[str] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)

    place = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=place.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    monkeypatch.setenv("HOOK", f"http://127.0.0.1:{place.server_address[1]}/hidden-path")
    monkeypatch.delenv("STOPLOSS_SMTP_URL", raising=False)
    monkeypatch.delenv("UNSET", raising=False)
    try:
        found = examine(
            notify='good: "${HOOK}", unset: "${UNSET}", mail: "mailto:{user}@example.org", bad: "nothing"'
        )
    finally:
        place.shutdown()
        thread.join()
        place.server_close()

    assert asked == []
    assert {name: found[name]["state"] for name in ("good", "unset", "mail", "bad")} == {
        "good": "ok",
        "unset": "failed",
        "mail": "failed",
        "bad": "failed",
    }
    assert "UNSET" in found["unset"]["told"]
    assert "STOPLOSS_SMTP_URL" in found["mail"]["told"]
    assert "hidden-path" not in json.dumps(found)


def test_a_mail_with_its_server_is_complete(
    examine: Callable[..., Checks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address and the server's are both read; the server is not asked."""
    monkeypatch.setenv("STOPLOSS_SMTP_URL", "smtp://u:p@mail.example.org:587?from=s@example.org")

    assert examine(notify='owner: "mailto:{user}@example.org"')["owner"]["state"] == "ok"


# ---- AWS -------------------------------------------------------------------------------------


def test_aws_without_credentials_fails(
    examine: Callable[..., Checks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the collector is named and there are no credentials, that is told."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    found = examine("aws: {regions: [us-east-1]}")["aws"]

    assert found["state"] == "failed"
    assert "no credentials" in found["details"][0]
    assert examine()["aws"]["state"] == "off"


def test_aws_without_a_region_says_where_to_name_one(
    examine: Callable[..., Checks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials alone do not say where to ask."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    found = examine('aws: {endpoint-url: "http://127.0.0.1:1"}')["aws"]

    assert found["state"] == "failed"
    assert SECRET not in json.dumps(found)
    assert "name one under regions:" in found["details"][0]


@pytest.mark.slow
def test_aws_is_asked_by_dry_runs_alone(cloud: Cloud, examine: Callable[..., Checks]) -> None:
    """Every right is asked for, and no instance, tag or snapshot has changed."""
    [name] = cloud.instances()
    before = cloud.instance(name)
    snapshots = len(cloud.client("ec2").describe_snapshots()["Snapshots"])
    cloud.changes()
    found = examine(f'aws: {{regions: [us-east-1], endpoint-url: "{cloud.url}"}}')["aws"]

    assert found["state"] == "ok", found
    assert "123456789012" in found["told"]
    assert cloud.instance(name) == before
    assert set(cloud.changes()) <= {right.partition(":")[2] for right in doctor_cloud.DRY}
    assert len(cloud.client("ec2").describe_snapshots()["Snapshots"]) == snapshots


@pytest.mark.slow
def test_rights_that_aws_does_not_give_are_named(cloud: Cloud, examine: Callable[..., Checks]) -> None:
    """A right that is denied is told with the actions that need it, and nothing that AWS answered."""
    cloud.fail("UnauthorizedOperation", "Action=StopInstances", status=403)
    cloud.fail("UnauthorizedOperation", "Action=DeleteVolume", status=403)
    found = examine(f'aws: {{regions: [us-east-1], endpoint-url: "{cloud.url}"}}')["aws"]

    assert found["state"] == "check"
    assert (
        "these credentials: no rights for ec2:StopInstances (terminate, downscale), "
        "ec2:DeleteVolume (release); see deploy/aws" in found["details"]
    )
    assert SECRET not in json.dumps(found)


def test_the_rights_asked_for_are_those_of_the_policies_of_iam() -> None:
    """Each right that is asked for is one that the IAM policy of the action gives."""
    for right, (_, _, actions) in doctor_cloud.DRY.items():
        for action in actions:
            policy = json.loads((ROOT / "deploy" / "aws" / f"{action}.json").read_text("utf-8"))
            assert right in {name for item in policy["Statement"] for name in item["Action"]}


# ---- Kubernetes ------------------------------------------------------------------------------


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list[dict[str, Any]], set[tuple[str, str]]]]:
    """A cluster that reviews rights: its kubeconfig, what it was asked, and (verb, resource) denied."""
    asked: list[dict[str, Any]] = []
    denied: set[tuple[str, str]] = set()

    class Reviews(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path.endswith("/selfsubjectaccessreviews")
            rights = body["spec"]["resourceAttributes"]
            asked.append(rights)
            body["status"] = {"allowed": (rights["verb"], rights["resource"]) not in denied}
            answer = json.dumps(body).encode()
            self.send_response(201)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    place = ThreadingHTTPServer(("127.0.0.1", 0), Reviews)
    thread = threading.Thread(target=place.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    config = tmp_path / "kubeconfig"
    url = f"http://127.0.0.1:{place.server_address[1]}"
    config.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {}}],
            }
        ),
        "utf-8",
    )
    yield str(config), asked, denied
    place.shutdown()
    thread.join()
    place.server_close()


def test_every_right_of_every_action_is_reviewed(cluster: Any, examine: Callable[..., Checks]) -> None:
    """A cluster that allows all is usable, and is asked for nothing but reviews."""
    config, asked, _ = cluster
    found = examine(f"kubernetes: {{kubeconfig: {config}, namespaces: [lab]}}")["kubernetes"]

    assert found["state"] == "ok", found
    assert found["told"].endswith("terminate, downscale, release, resume")
    assert len(asked) == len(doctor_cloud.REVIEWED)
    assert {item["namespace"] for item in asked} == {"lab"}


def test_a_right_that_lacks_is_told_by_action(cluster: Any, examine: Callable[..., Checks]) -> None:
    """What may not be done is named with the verb and what it is about."""
    config, _, denied = cluster
    denied.add(("delete", "jobs"))
    found = examine(f"kubernetes: {{kubeconfig: {config}}}")["kubernetes"]

    assert found["state"] == "check"
    assert found["told"].endswith("all rights for: downscale, release, resume")
    assert found["details"] == ["terminate: no rights to delete jobs"]


def test_a_cluster_that_does_not_answer_fails(cluster: Any, examine: Callable[..., Checks]) -> None:
    """An address at which nobody listens is told in words of ours."""
    config, _, _ = cluster
    text = Path(config).read_text("utf-8")
    Path(config).write_text(text.replace("http://127.0.0.1:", "http://127.0.0.1:1#"), "utf-8")
    found = examine(f"kubernetes: {{kubeconfig: {config}}}")["kubernetes"]

    assert found["state"] == "failed"
    assert "does not answer" in found["told"]


def test_the_rights_reviewed_are_those_of_the_page() -> None:
    """Doctor asks for what the page of Kubernetes names, no less and no more."""
    rights: dict[str, Any] = yaml.safe_load(
        (ROOT / "deploy" / "helm" / "stoploss" / "files" / "rights.yaml").read_text("utf-8")
    )
    given = {
        (group, resource, verb, name)
        for name, rules in rights.items()
        if name not in ("collector", "read")
        for rule in (*rules, *rights["read"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    asked = {(*item[:3], action) for item in doctor_cloud.REVIEWED for action in item[3]}

    assert asked == given


# ---- places ----------------------------------------------------------------------------------


def test_a_disk_that_is_nearly_full_is_told(
    examine: Callable[..., Checks], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Little room is worth a word, and too little fails."""
    assert examine()["disk"]["state"] in ("ok", "check")

    monkeypatch.setattr(doctor_places, "LITTLE_FREE", 2**80)
    assert examine()["disk"]["state"] == "check"

    monkeypatch.setattr(doctor_places, "LEAST_FREE", 2**80)
    found = examine()["disk"]
    assert found["state"] == "failed"
    assert "settings.retention" in found["fix"]


def test_a_clock_that_was_set_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that did not pass as evenly as on a clock that never goes back was set."""
    now = datetime(2026, 12, 1, 14, tzinfo=UTC)

    assert doctor_places.clock(1.0, 1.1, now, _nothing()).state == "ok"
    assert doctor_places.clock(61.0, 1.0, now, _nothing()).told == "it was set forward by 60.0 s meanwhile"
    assert doctor_places.clock(-2.0, 1.0, now, _nothing()).told == "it was set back by 3.0 s meanwhile"


def test_a_tick_in_the_future_shows_that_the_clock_was_set_back(examine: Callable[..., Checks]) -> None:
    """A state that was written later than now is told, with what follows."""
    later = clock.now() + timedelta(hours=1)
    save_vitals("sqlite:///x.db", Vitals(later, last_tick=later))
    found = examine()["clock"]

    assert found["state"] == "check"
    assert "in the future" in found["told"]


def test_a_server_that_does_not_answer_fails(examine: Callable[..., Checks]) -> None:
    """A state on a server is asked for, and its password is not told."""
    text = "postgresql://u:hidden-word@127.0.0.1:1/x"
    found = [doctor_places._server(text)]

    assert found[0].state == "failed"
    assert "hidden-word" not in found[0].told


def _nothing() -> doctor_side.Scene:
    from stoploss.rules.policy import PolicySet

    return doctor_side.Scene(PolicySet(()), os.environ, time.monotonic, time.monotonic() + 60)
