"""The prometheus collector against answers that are typed in: errors, secrets, oddities, and bad options."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError
from support.prometheus_server import AT, Typed, collector, labels, readings, vector

from stoploss.collectors import prometheus_kube as kube
from stoploss.collectors.contract import CollectorError, Context
from stoploss.collectors.prometheus_calls import Answer as Told
from stoploss.collectors.prometheus_calls import QueryFailed, Series, matrix, parse
from stoploss.collectors.prometheus_calls import vector as parse_vector
from stoploss.collectors.prometheus_options import Options
from stoploss.collectors.prometheus_scene import Scene
from stoploss.collectors.registry import load
from stoploss.engine.model import Bad

Answer = Callable[[str, Mapping[str, str]], tuple[int, bytes]]
Serve = Callable[[Answer], Typed]

TARGET = {"job": "dcgm", "instance": "10.0.0.1:9400"}
UTIL = "DCGM_FI_DEV_GPU_UTIL"


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Makes servers, and closes them."""
    made: list[Typed] = []

    def new(answer: Answer) -> Typed:
        made.append(Typed(answer))
        return made[-1]

    yield new
    for server in made:
        server.close()


class World:
    """What an exporter tells, changed between looks."""

    def __init__(self) -> None:
        self.gpus = [0, 1, 2]
        self.up: int | None = 1
        self.status: dict[str, int] = {}
        self.warnings: tuple[str, ...] = ()

    def __call__(self, _: str, fields: Mapping[str, str]) -> tuple[int, bytes]:
        query = fields["query"]
        if query.startswith("up"):
            return 200, vector(*([] if self.up is None else [(TARGET, str(self.up))]))
        part = "ages" if query.startswith("label_replace") else "values"
        if status := self.status.get(part):
            return status, b"<html>gateway</html>"
        series = [
            (TARGET | {"UUID": f"GPU-{number}", "gpu": str(number), "Hostname": "n1"}, "0")
            for number in self.gpus
        ]
        if part == "ages":
            return 200, vector(*((metric | {"stoploss_metric": UTIL}, str(AT)) for metric, _ in series))
        shown = [(metric | {"__name__": UTIL}, value) for metric, value in series]
        return 200, vector(*shown, warnings=self.warnings)


def test_a_dead_target_makes_bad_readings_of_all_that_it_told(serve: Serve) -> None:
    """`up` of 0 is told as bad readings; a target that is scraped no more is not told at all."""
    world = World()
    made = collector(serve(world).url, which=("dcgm",))
    assert readings(made.look(AT))["n1/gpu0"] == {"gpu.utilization": 0.0}

    world.gpus, world.up = [], 0
    for _ in range(2):
        found = readings(made.look(AT))
        assert set(found) == {"n1/gpu0", "n1/gpu1", "n1/gpu2"}
        assert found["n1/gpu0"] == {"gpu.utilization": Bad("10.0.0.1:9400 does not answer")}

    world.up = None
    assert made.look(AT).samples == ()


def test_G_21_a_gpu_that_is_lost_leaves_its_neighbours_unknown(serve: Serve) -> None:
    """A GPU that its exporter tells no more is bad, and so is the activity of the host's others."""
    world = World()
    made = collector(serve(world).url, which=("dcgm",))
    made.look(AT)

    world.gpus = [0, 2]
    found = readings(made.look(AT))
    assert found["n1/gpu1"]["gpu.utilization"] == Bad("its exporter does not tell this GPU any more")
    assert found["n1/gpu0"]["gpu.utilization"] == Bad("another GPU of this host is lost: gpu1")

    world.gpus = [0, 1, 2]
    assert readings(made.look(AT))["n1/gpu0"]["gpu.utilization"] == 0.0


def test_a_partial_answer_loses_no_gpu(serve: Serve) -> None:
    """Where the server warns that something is missing, what is missing is not concluded to be lost."""
    world = World()
    made = collector(serve(world).url, which=("dcgm",))
    made.look(AT)

    world.gpus, world.warnings = [0, 2], ("store 10.0.0.7 is unavailable",)
    look = made.look(AT)
    assert readings(look)["n1/gpu0"]["gpu.utilization"] == 0.0
    assert "n1/gpu1" not in readings(look)
    assert look.notes == ("the server warns: store 10.0.0.7 is unavailable",)


def test_a_question_that_fails_makes_bad_readings(serve: Serve) -> None:
    """A status of 5xx for one question is a bad reading of what it concerned, never silence or idleness."""
    world = World()
    server = serve(world)
    made = collector(server.url, which=("dcgm",))
    made.look(AT)

    world.status["ages"] = 503
    look = made.look(AT)
    reason = f"{server.url.removeprefix('http://')} answers with status 503"
    assert readings(look)["n1/gpu0"] == {"gpu.utilization": Bad(reason)}
    assert look.notes == (f"dcgm-exporter: {reason}",)


def test_readings_without_their_targets_are_bad(serve: Serve) -> None:
    """Where `up` cannot be asked, a dead exporter could not be told from an idle GPU."""
    world = World()
    failing = {"now": False}

    def answer(path: str, fields: Mapping[str, str]) -> tuple[int, bytes]:
        return (500, b"") if failing["now"] and fields["query"].startswith("up") else world(path, fields)

    made = collector(serve(answer).url, which=("dcgm",))
    made.look(AT)
    failing["now"] = True

    assert isinstance(readings(made.look(AT))["n1/gpu0"]["gpu.utilization"], Bad)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, b"secret", "does not let us ask (status 401)"),
        (302, b"", "answers with status 302"),
        (200, b"<html>login</html>", "the answer is not one of a Prometheus server"),
        (
            503,
            b'{"status":"error","errorType":"timeout","error":"s3cret"}',
            "the query takes too long (status 503)",
        ),
        (200, b'{"status":"success","data":{"resultType":"scalar","result":[1,"1"]}}', "gives a scalar"),
    ],
)
def test_a_server_that_answers_nothing_fails_the_look(
    serve: Serve, status: int, body: bytes, words: str
) -> None:
    """Each refusal is a failed look with words of our own."""
    server = serve(lambda path, fields: (status, body))

    with pytest.raises(CollectorError) as error:
        collector(server.url).look(AT)

    assert words in error.value.reason
    assert "s3cret" not in error.value.reason


def test_a_server_that_cannot_be_reached_fails_the_look() -> None:
    """Nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    with pytest.raises(CollectorError, match=rf"^127\.0\.0\.1:{port} cannot be reached$"):
        collector(f"http://127.0.0.1:{port}").look(AT)


def test_a_server_that_hangs_fails_the_look_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that accepts and says nothing is left, and not asked again in the same look."""
    monkeypatch.setattr("stoploss.collectors.prometheus_calls.TIME_LIMIT", 0.2)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        with pytest.raises(CollectorError, match=r"did not answer in time$"):
            collector(f"http://127.0.0.1:{silent.getsockname()[1]}").look(AT)


def test_secrets_are_sent_and_never_shown(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token comes from a variable or a file, read at each look; a password goes with a user."""
    server = serve(lambda path, fields: (200, vector()))
    monkeypatch.setenv("MY_TOKEN", "t0psecret")
    secret = tmp_path / "token"
    secret.write_text("fr0mfile\n")

    made = collector(server.url, **{"token-env": "MY_TOKEN"}, tenant="lab")
    made.look(AT)
    collector(server.url, **{"token-file": str(secret)}).look(AT)
    collector(server.url, user="me", **{"password-env": "MY_TOKEN"}).look(AT)

    sent = {headers["authorization"] for headers in server.headers}
    assert sent == {"Bearer t0psecret", "Bearer fr0mfile", "Basic bWU6dDBwc2VjcmV0"}
    assert server.headers[0]["x-scope-orgid"] == "lab"
    assert "t0psecret" not in repr(made)

    secret.unlink()
    with pytest.raises(CollectorError, match="the token cannot be read from"):
        collector(server.url, **{"token-file": str(secret)}).look(AT)
    monkeypatch.delenv("MY_TOKEN")
    with pytest.raises(CollectorError, match="the variable MY_TOKEN holds no secret"):
        made.look(AT)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_only_a_certificate_that_is_trusted_is_asked(tmp_path: Path) -> None:
    """A server of one's own is asked with its CA file, and refused without; a missing file is told."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    name = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run(
        [*made, "-keyout", str(key), "-out", str(certificate), *name],
        check=True,
        capture_output=True,
        timeout=20,
    )
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(certificate, key)
    server = Typed(lambda path, fields: (200, vector()), secure)
    try:
        trusted = collector(server.url, which=(), **{"ca-file": str(certificate)}).look(AT)
        with pytest.raises(CollectorError, match=r"^the certificate of 127\.0\.0\.1:\d+ is not accepted$"):
            collector(server.url, which=()).look(AT)
        with pytest.raises(CollectorError, match="the certificates cannot be read from /nowhere"):
            collector(server.url, which=(), **{"ca-file": "/nowhere"}).look(AT)
    finally:
        server.close()

    assert trusted.samples == ()


def test_labels_to_match_are_quoted(serve: Serve) -> None:
    """A value with quotes stays a value."""
    server = serve(lambda path, fields: (200, vector()))
    collector(server.url, which=(), match={"cluster": 'a"} or vector(1) #'}).look(AT)

    assert server.asked[0]["query"] == 'up{cluster="a\\"} or vector(1) #"}'


def test_two_gpus_of_one_name_are_bad(serve: Serve) -> None:
    """Two UUIDs under one host and number make everything about it unknown."""

    def answer(_: str, fields: Mapping[str, str]) -> tuple[int, bytes]:
        if fields["query"].startswith("up"):
            return 200, vector((TARGET, "1"))
        name = "stoploss_metric" if fields["query"].startswith("label_replace") else "__name__"
        value = str(AT) if name == "stoploss_metric" else "0"
        same = TARGET | {"gpu": "0", "Hostname": "n1", name: UTIL}
        return 200, vector(*((same | {"UUID": uuid}, value) for uuid in ("GPU-a", "GPU-b")))

    look = collector(serve(answer).url, which=("dcgm",)).look(AT)

    found = readings(look)["n1/gpu0"]["gpu.utilization"]
    assert found == Bad("two GPUs of one name: GPU-a, GPU-b")
    assert labels(look, "n1/gpu0")["host"] == "n1"


def kube_job(
    phase: str, node: str, *verdicts: str, instances: tuple[str, ...] = ("a:1",)
) -> dict[str, object]:
    """Readings of a job of one pod below a Job, as so many kube-state-metrics tell it."""
    series, ages = [], []
    for instance in instances:
        target = {"job": "ksm", "instance": instance, "namespace": "lab"}
        pod = target | {"pod": "bert-0"}
        owner = {"created_by_kind": "Job", "created_by_name": "bert"}
        gpus = {"container": "main", "resource": "nvidia_com_gpu"}
        series += [
            Series(pod | owner | {"__name__": kube.INFO, "node": node}, 1.0),
            Series(pod | {"__name__": kube.PHASE, "phase": phase}, 1.0),
            Series(pod | gpus | {"__name__": kube.REQUESTS}, 8.0),
            Series(target | {"__name__": "kube_job_failed", "job_name": "bert", "condition": "true"}, 0.0),
        ]
        series += [
            Series(target | {"__name__": verdict, "job_name": "bert", "condition": "true"}, 1.0)
            for verdict in verdicts
        ]
        ages.append(Series(target, AT))
    scene = Scene(AT, Options(url="http://host:9090"), {})
    found = kube.cluster(Told(tuple(series)), Told(tuple(ages)), scene)
    told = list(kube.told(found, scene))
    assert {item.resource.id for item in told} == {"lab/job/bert"}
    return {item.signal: item.reading for item in told}


@pytest.mark.parametrize(
    ("phase", "node", "verdicts", "state", "gpus"),
    [
        ("Running", "n1", (), "running", 8.0),
        ("Pending", "", (), "queued", 0.0),
        ("Failed", "n1", (), "queued", 0.0),
        ("Failed", "n1", ("kube_job_failed",), "failed", 0.0),
        ("Succeeded", "n1", ("kube_job_complete",), "ended", 0.0),
        ("Unknown", "n1", (), Bad("the node of a pod is not heard from"), 8.0),
    ],
)
def test_a_job_stands_where_its_pods_and_its_controller_say(
    phase: str, node: str, verdicts: tuple[str, ...], state: object, gpus: float
) -> None:
    """A failed pod whose Job will try again is queued; GPUs are held on a node until the pod is over."""
    found = kube_job(phase, node, *verdicts)

    assert (found["job.state"], found["job.gpus"]) == (state, gpus)


def test_a_job_that_two_exporters_tell_is_bad() -> None:
    """GPUs that are told twice are neither counted twice nor once."""
    names = "kube_pod_container_resource_requests of ksm at"

    found = kube_job("Running", "n1", instances=("a:1", "b:1"))

    assert found["job.gpus"] == Bad(f"told twice: {names} a:1, {names} b:1")


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"status":"success"}', b"\xff", b"[" * 100_000])
def test_garbage_is_no_answer(body: bytes) -> None:
    """Whatever is not an answer is refused in words, cut short ones too."""
    with pytest.raises(QueryFailed, match=r"not one of a Prometheus server|answers oddly"):
        parse(body, "vector")


def test_answers_are_read_with_their_odd_numbers() -> None:
    """NaN, infinities and histograms are numbers that are none."""
    answer = parse_vector(vector(({"a": "1"}, "+Inf"), ({"a": "2"}, "NaN")))
    assert [str(item.value) for item in answer.series] == ["inf", "nan"]

    result = [{"metric": {}, "values": [[1.5, "2"], [3, "4"]]}]
    body = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    found, _ = matrix(json.dumps(body).encode())
    assert {at: [item.value for item in series] for at, series in found.items()} == {1.5: [2.0], 3.0: [4.0]}


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://me:pw@host"},
        {"url": "http://host?token=x"},
        {"url": "host:9090"},
        {"lookback": "10m"},
        {"which": ["gpu"]},
        {"match": {"a-b": "c"}},
        {"queries": [{"signal": "train.loss", "query": "x", "id": "{a"}]},
        {"queries": [{"signal": "train.loss", "query": "x"}]},
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object]) -> None:
    """Addresses with secrets, ages of no use, unknown parts and names that cannot be made."""
    with pytest.raises(ValidationError):
        load().options["prometheus"].model_validate({"url": "http://host:9090", **options})


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"signal": "train.los"}, "did you mean train.loss"),
        ({"signal": "job.state"}, "is a word"),
        ({"signal": "train.loss", "kind": "gpu"}, "it is a signal of job"),
        ({"signal": "job.zones"}, "works this signal out itself"),
    ],
)
def test_queries_that_do_not_fit_the_catalogue_are_refused(query: dict[str, str], words: str) -> None:
    """The collector is not built with a signal that it could not tell."""
    given = {"url": "http://host:9090", "queries": [{"query": "x", "id": "{a}", **query}]}

    with pytest.raises(CollectorError, match=words):
        load().build("prometheus", given, Context("n1"))
