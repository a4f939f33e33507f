"""The prometheus collector and a real server that holds the past of many clusters, one a test."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.prometheus_server import (
    AT,
    Exporter,
    Past,
    Running,
    collector,
    filled,
    labels,
    needed,
    readings,
)

from stoploss.engine.model import UNREADABLE, Bad, Look

pytestmark = pytest.mark.real

GPU = {"UUID": "GPU-0", "gpu": "0", "Hostname": "n1", "modelName": "NVIDIA H100 80GB HBM3"}
NEVER = Bad("the newest sample is older than 2m")


def gpus(past: Past) -> None:
    """Clusters about GPUs."""
    for name, value in {
        "GPU_UTIL": 97.0,
        "POWER_USAGE": 612.5,
        "FB_USED": 1024.0,
        "FB_FREE": 3072.0,
        "FB_RESERVED": 0.0,
        "SM_CLOCK": 1980.0,
        "GPU_TEMP": 61.0,
        "MEM_COPY_UTIL": 80.0,
        "XID_ERRORS": 79.0,
        "PSTATE": 0.0,
        "TOTAL_ENERGY_CONSUMPTION": 7.2e6,
        "CLOCK_THROTTLE_REASONS": 4.0,
        "ECC_DBE_VOL_TOTAL": 2.0,
    }.items():
        past.add("whole", f"DCGM_FI_DEV_{name}", value, **GPU, namespace="lab", pod="bert-0")
    past.add("whole", "DCGM_FI_PROF_DRAM_ACTIVE", 0.25, **GPU)
    past.add("whole", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0.5, **GPU)
    past.add("whole", "DCGM_FI_DEV_GPU_UTIL", 0.0, **GPU | {"UUID": "GPU-1", "gpu": "1"})
    past.add("whole", "up", 1)
    # `ended`: seconds before AT at which the newest sample was taken.
    past.add("old", "DCGM_FI_DEV_GPU_UTIL", 0.0, **GPU, ended=150)
    past.add("old", "DCGM_FI_DEV_POWER_USAGE", 70.0, **GPU, ended=90)
    past.add("old", "up", 1)
    past.add("odd", "DCGM_FI_DEV_GPU_UTIL", 2147483632.0, **GPU)
    past.add("odd", "DCGM_FI_DEV_POWER_USAGE", float("nan"), **GPU)
    past.add("odd", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 9223372036854775792.0, **GPU)
    past.add("odd", "DCGM_FI_PROF_SM_ACTIVE", 140737488355330.0, **GPU)
    past.add("odd", "up", 1)
    past.add("twice", "DCGM_FI_DEV_GPU_UTIL", 0.0, **GPU)
    past.add("twice", "DCGM_FI_DEV_GPU_UTIL", 90.0, **GPU, instance="10.0.0.2:9400")
    past.add("nameless", "DCGM_FI_DEV_GPU_UTIL", 0.0, **GPU | {"UUID": ""})
    for name, value in (("DEV_GPU_UTIL", 0.0), ("DEV_POWER_USAGE", 434.0), ("PROF_GR_ENGINE_ACTIVE", 0.8)):
        for part in ("1", "2"):
            past.add("mig", f"DCGM_FI_{name}", value, **GPU, GPU_I_ID=part, GPU_I_PROFILE="3g.40gb")
    past.add("mig", "up", 1)
    past.add("none", "up", 1)
    past.add("shared", "DCGM_FI_DEV_GPU_UTIL", 60.0, **GPU, namespace="lab", pod="a")
    past.add("shared", "DCGM_FI_DEV_GPU_UTIL", 60.0, **GPU, namespace="lab", pod="b")
    past.add("slurm", "DCGM_FI_DEV_GPU_UTIL", 60.0, **GPU, hpc_job="4412")
    own = {"namespace": "monitoring", "pod": "dcgm-x"}
    past.add("sidecar", "DCGM_FI_DEV_GPU_UTIL", 0.0, **GPU, **own)
    past.add(
        "sidecar",
        "DCGM_FI_DEV_GPU_UTIL",
        60.0,
        **GPU | {"UUID": "GPU-1", "gpu": "1"},
        **own,
        exported_namespace="lab",
        exported_pod="bert-0",
    )
    past.add("sidecar", "up", 1, **own)


def hosts(past: Past) -> None:
    """Clusters about hosts."""
    node = {"job": "node", "instance": "10.0.0.1:9100"}
    past.add("hosts", "up", 1, **node)
    past.add("hosts", "node_uname_info", 1, nodename="n1", **node)
    for cpu in ("0", "1"):
        for mode, share in (("idle", 0.5), ("user", 0.3), ("iowait", 0.15), ("steal", 0.05)):
            past.add(
                "hosts",
                "node_cpu_seconds_total",
                lambda before, share=share: (1000 - before) * share,  # type: ignore[misc]
                cpu=cpu,
                mode=mode,
                **node,
            )
    past.add("hosts", "node_pressure_io_waiting_seconds_total", lambda before: (1000 - before) * 0.2, **node)
    past.add("hosts", "node_memory_MemTotal_bytes", 1000.0, **node)
    past.add("hosts", "node_memory_MemAvailable_bytes", 250.0, **node)
    past.add("hosts", "node_boot_time_seconds", AT - 3600, **node)
    past.add("hosts", "node_netstat_Tcp_RetransSegs", 7.0, **node)
    for device, count in (("eth0", 100.0), ("lo", 1e9), ("veth12ab", 1e9), ("docker0", 1e9)):
        past.add("hosts", "node_network_receive_bytes_total", count, device=device, **node)
        past.add("hosts", "node_network_transmit_bytes_total", count, device=device, **node)
    past.add("hosts", "node_network_speed_bytes", 1.25e9, device="eth0", **node)
    past.add("hosts", "node_network_up", 1, device="eth0", **node)
    for device, count in (("nvme0n1", 500.0), ("nvme0n1p1", 500.0), ("dm-0", 500.0)):
        past.add("hosts", "node_disk_read_bytes_total", count, device=device, **node)
    for part, size in (("size", 1000.0), ("free", 400.0), ("avail", 300.0)):
        for mount, device, kind in (("/", "/dev/nvme0n1p1", "ext4"), ("/run", "tmpfs", "tmpfs")):
            past.add(
                "hosts",
                f"node_filesystem_{part}_bytes",
                size,
                mountpoint=mount,
                device=device,
                fstype=kind,
                **node,
            )


def jobs(past: Past) -> None:
    """Clusters about jobs."""
    kube = {"job": "ksm", "instance": "10.0.0.9:8080", "namespace": "lab"}
    past.add("kube", "up", 1, job="ksm", instance="10.0.0.9:8080", namespace="monitoring")
    past.add("kube", "up", 1)
    owned = {"created_by_kind": "Job", "created_by_name": "bert"}
    for number, phase in ((0, "Running"), (1, "Pending")):
        pod, node = f"bert-{number}", "n1" if number == 0 else ""
        past.add("kube", "kube_pod_info", 1, pod=pod, node=node, **owned, **kube)
        past.add("kube", "kube_pod_labels", 1, pod=pod, label_team="vision", **kube)
        for word in ("Running", "Pending", "Failed"):
            past.add("kube", "kube_pod_status_phase", float(word == phase), pod=pod, phase=word, **kube)
        past.add(
            "kube",
            "kube_pod_container_resource_requests",
            4.0,
            pod=pod,
            container="main",
            resource="nvidia_com_gpu",
            unit="integer",
            **kube,
        )
    owner = {"owner_kind": "JobSet", "owner_name": "big"}
    past.add("kube", "kube_job_owner", 1, job_name="bert", **owner, **kube)
    past.add("kube", "kube_pod_info", 1, pod="web", node="n1", **kube)
    past.add("kube", "DCGM_FI_DEV_GPU_UTIL", 60.0, **GPU, namespace="lab", pod="bert-0")
    past.add("kube", "DCGM_FI_DEV_GPU_UTIL", 60.0, **GPU | {"UUID": "GPU-1", "gpu": "1"})
    other = GPU | {"UUID": "GPU-2", "gpu": "2"}
    past.add("kube", "DCGM_FI_DEV_GPU_UTIL", 60.0, **other, namespace="lab", pod="gone")
    past.add("own", "my_loss", lambda before: before / 100, run="a", team="vision")
    past.add("own", "my_loss", float("nan"), run="b")
    past.add("own", "my_loss", 1.0, run="c", ended=180)
    past.add("own", "my_loss", 1.0)
    past.add("own", "my_busy", 45.0, run="a")
    past.add("gap", "DCGM_FI_DEV_GPU_UTIL", lambda before: before / 10, **GPU, ended=300)
    past.add("gap", "up", lambda before: float(before >= 300))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server for the clusters of all tests."""
    needed()
    past = Past()
    for fill in (gpus, hosts, jobs):
        fill(past)
    running = filled(tmp_path_factory.mktemp("prometheus"), past)
    yield running
    running.close()


def seen(server: Running, cluster: str, *which: str, **options: object) -> Look:
    """One look at one cluster."""
    made = collector(server.url, match={"cluster": cluster}, which=which or ("dcgm",), **options)
    return made.look(AT)


def test_a_gpu_is_told_in_units_of_the_catalogue(server: Running) -> None:
    """Percent becomes a share, MiB bytes, mJ Wh; the name is that of the gpu collector."""
    look = seen(server, "whole")

    assert readings(look)["n1/gpu0"] == {
        "gpu.model": "NVIDIA H100 80GB HBM3",
        "gpu.utilization": 0.97,
        "gpu.power": 612.5,
        "gpu.memory.used": 2.0**30,
        "gpu.memory.total": 2.0**32,
        "gpu.memory.utilization": 0.25,
        "gpu.clock.sm": 1980.0,
        "gpu.temperature": 61.0,
        "gpu.memory.active": 0.25,
        "gpu.xid": "79",
        "gpu.performance_state": "P0",
        "gpu.energy": 2.0,
        "gpu.throttled": 1.0,
        "gpu.throttle_reason": "power",
        "gpu.ecc.uncorrected": 2.0,
        "gpu.tensor_active": 0.5,
    }
    assert readings(look)["n1/gpu1"]["gpu.utilization"] == 0.0
    assert look.inventories == frozenset()


def test_the_job_of_a_gpu_is_that_of_its_pod(server: Running) -> None:
    """Without kube-state-metrics a pod is a job; an unused GPU beside it has none."""
    look = seen(server, "slurm")
    assert labels(look, "n1/gpu0") == {"host": "n1", "uuid": "GPU-0", "job": "4412"}

    look = seen(server, "sidecar")
    assert labels(look, "n1/gpu0")["job"] is None
    assert labels(look, "n1/gpu1")["job"] == "lab/pod/bert-0"


def test_jobs_are_named_by_what_stands_above_their_pods(server: Running) -> None:
    """With kube-state-metrics the job is the last controller; a pod that is not told leaves it unreadable."""
    look = seen(server, "kube", "dcgm", "kube")

    assert labels(look, "n1/gpu0")["job"] == "lab/jobset/big"
    assert labels(look, "n1/gpu1")["job"] is None
    assert labels(look, "n1/gpu2")["job"] is UNREADABLE
    assert readings(look, "job") == {
        "lab/jobset/big": {"job.state": "running", "job.gpus": 4.0, "job.nodes": 1.0}
    }
    assert labels(look, "lab/jobset/big") == {
        "team": "vision",
        "namespace": "lab",
        "name": "big",
        "owner": "JobSet",
        "scheduler": "kubernetes",
        "host": "n1",
    }


def test_a_gpu_that_pods_share_has_no_readable_job(server: Running) -> None:
    """The exporter repeats a shared GPU for each pod: one reading, and no job picked at random."""
    look = seen(server, "shared")

    assert readings(look)["n1/gpu0"]["gpu.utilization"] == 0.6
    assert labels(look, "n1/gpu0")["job"] is UNREADABLE


def test_G_27_a_sample_that_is_too_old_is_never_said_again(server: Running) -> None:
    """A value older than the lookback is bad although the server still gives it; a younger one is told."""
    found = readings(seen(server, "old"))["n1/gpu0"]

    assert found["gpu.utilization"] == NEVER
    assert found["gpu.power"] == 70.0
    assert readings(seen(server, "old", lookback="5m"))["n1/gpu0"]["gpu.utilization"] == 0.0


def test_G_16_no_exporter_is_no_idle_gpu(server: Running) -> None:
    """Where nothing is told of GPUs nothing is told, and a note says why."""
    look = seen(server, "none")

    assert look.samples == ()
    assert look.notes == ("no series of dcgm-exporter",)


def test_G_25_blanks_and_nan_are_bad_readings(server: Running) -> None:
    """Numbers that stand for none, and NaN, are no readings."""
    found = readings(seen(server, "odd"))["n1/gpu0"]

    assert found["gpu.utilization"] == Bad("sentinel value 2147483632")
    assert found["gpu.power"] == Bad("not a number")
    assert isinstance(found["gpu.energy"], Bad)
    assert found["gpu.sm_active"] == Bad("sentinel value 140737488355330")


def test_two_series_for_one_gpu_are_bad_and_both_named(server: Running) -> None:
    """Two exporters that tell one GPU make it unknown; neither is picked."""
    both = (
        "DCGM_FI_DEV_GPU_UTIL of exporter at 10.0.0.1:9400, DCGM_FI_DEV_GPU_UTIL of exporter at 10.0.0.2:9400"
    )

    assert readings(seen(server, "twice"))["n1/gpu0"]["gpu.utilization"] == Bad(f"told twice: {both}")


def test_a_gpu_without_uuid_is_left_out_with_a_note(server: Running) -> None:
    """A series that does not say which GPU it is of is not told."""
    look = seen(server, "nameless")

    assert look.samples == ()
    assert "GPUs without UUID are left out: DCGM_FI_DEV_GPU_UTIL of exporter at 10.0.0.1:9400" in look.notes


def test_P_A8_mig_slices_know_only_their_profiling_counters(server: Running) -> None:
    """The classic 0 of a slice is not supported; its share of the engine is told, power stays on the GPU."""
    look = seen(server, "mig")
    found = readings(look)

    assert found["n1/gpu0/gi1"] == {
        "gpu.engine_active": 0.8,
        "gpu.model": "NVIDIA H100 80GB HBM3",
        "gpu.mig": "enabled",
        "gpu.utilization": Bad("not supported on MIG"),
    }
    assert found["n1/gpu0"]["gpu.power"] == 434.0
    assert found["n1/gpu0"]["gpu.utilization"] == Bad("not supported on MIG")
    assert labels(look, "n1/gpu0/gi2") == {"host": "n1", "parent": "n1/gpu0", "profile": "3g.40gb"}


def test_a_host_is_told_by_its_node_name(server: Running) -> None:
    """Shares come from rates, bytes from hardware alone, and memory in use leaves out caches."""
    look = seen(server, "hosts", "node")
    found = readings(look, "host")["n1"]

    assert found["host.cpu.utilization"] == pytest.approx(0.3)
    assert found["host.io_wait"] == pytest.approx(0.15)
    assert found["host.cpu.steal"] == pytest.approx(0.05)
    assert found["host.cpu.count"] == 2.0
    assert found["host.pressure.io"] == pytest.approx(0.2)
    assert found["host.memory.used"] == 750.0
    assert found["host.memory.utilization"] == 0.75
    assert found["host.uptime"] == 3600.0
    assert found["network.retransmits"] == 7.0
    assert found["network.received"] == 100.0
    assert found["network.bytes"] == 200.0
    assert found["network.link_speed"] == 1.25e9
    assert found["network.utilization"] == 0.0
    assert found["host.disk.read"] == 500.0
    assert readings(look, "volume") == {
        "n1:/": {
            "storage.capacity": 1000.0,
            "storage.used": 600.0,
            "storage.free": 300.0,
            "storage.utilization": pytest.approx(600 / 900),
            "storage.inodes.utilization": Bad("the file system counts no inodes"),
        }
    }
    assert labels(look, "n1:/") == {"host": "n1", "mount": "/"}


def test_queries_tell_any_number_of_the_catalogue(server: Running) -> None:
    """Names and labels come from the series, curves keep NaN, old and nameless series are not told."""
    asked = {
        "signal": "train.loss",
        "query": 'my_loss{cluster="own"}',
        "id": "{run}",
        "labels": {"team": "team"},
    }
    busy = {"signal": "gpu.utilization", "query": 'max by (run) (my_busy{cluster="own"})', "id": "n1/{run}"}
    look = collector(server.url, which=(), queries=[asked, {**busy, "times": 0.01}]).look(AT)
    found = readings(look)

    assert found["a"] == {"train.loss": 0.0}
    assert found["b"]["train.loss"] != found["b"]["train.loss"]
    assert found["c"] == {"train.loss": NEVER}
    assert found["n1/a"] == {"gpu.utilization": 0.45}
    assert labels(look, "a") == {"team": "vision"}
    assert labels(look, "b") == {"team": None}
    assert look.notes == ("query 1 (train.loss): series without run are left out",)


def test_the_age_of_an_expression_is_asked_for(server: Running) -> None:
    """With `newest` an expression over an old series is bad."""
    query = {
        "signal": "train.loss",
        "query": 'avg by (run) (my_loss{cluster="own"})',
        "newest": 'min by (run) (timestamp(my_loss{cluster="own"}))',
        "id": "{run}",
    }
    found = readings(collector(server.url, which=(), queries=[query]).look(AT))

    assert found["c"] == {"train.loss": NEVER}
    assert found["a"] == {"train.loss": 0.0}


def test_a_query_that_is_refused_costs_itself_alone(server: Running) -> None:
    """The server's words on a broken query stand in a note; everything else is told."""
    broken = {"signal": "train.loss", "query": "sort(", "id": "{run}"}
    look = seen(server, "whole", queries=[broken])

    assert readings(look)["n1/gpu0"]["gpu.utilization"] == 0.97
    assert any("it refuses the query" in note and "parse error" in note for note in look.notes)


def test_history_tells_the_looks_of_the_past(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each instant is one look, as it would have been made, in pieces that the server allows."""
    monkeypatch.setattr("stoploss.collectors.prometheus.CHUNK", 3)
    made = collector(server.url, match={"cluster": "gap"}, which=("dcgm",))
    looks = list(made.history(AT - 600, AT, 60))

    told: list[tuple[float, object]] = [
        (look.samples[0].time - AT, readings(look)["n1/gpu0"]["gpu.utilization"]) for look in looks
    ]
    down = Bad("10.0.0.1:9400 does not answer")
    assert told[:6] == [(-600.0 + 60 * n, pytest.approx(0.6 - 0.06 * n)) for n in range(6)]
    assert told[6:] == [(-240.0 + 60 * n, down) for n in range(5)]
    assert [look.samples for look in looks] == [
        collector_look.samples for collector_look in made_again(server, AT - 600, AT)
    ]


def made_again(server: Running, begin: float, end: float) -> Iterator[Look]:
    """The same looks, one at a time."""
    made = collector(server.url, match={"cluster": "gap"}, which=("dcgm",))
    for number in range(int((end - begin) / 60) + 1):
        yield made.look(begin + 60 * number)


@pytest.mark.slow
def test_gpus_behind_a_dead_exporter_are_unknown_not_idle(tmp_path: Path) -> None:
    """A real scrape, then the exporter dies: what it told is bad, and its job unreadable."""
    needed()
    shown = ",".join(f'{name}="{text}"' for name, text in GPU.items())
    exporter = Exporter(f'DCGM_FI_DEV_GPU_UTIL{{{shown},pod="a",namespace="lab"}} 0\n')
    scrape = f'{{job_name: dcgm, scrape_interval: 1s, static_configs: [{{targets: ["{exporter.address}"]}}]}}'
    running = Running(tmp_path, f"scrape_configs: [{scrape}]")
    try:
        made = collector(running.url, which=("dcgm",), every="2s")
        running.wait(lambda: bool(made.look(time.time()).samples))
        alive = made.look(time.time())
        exporter.close()
        running.wait(lambda: isinstance(made.look(time.time()).samples[0].reading, Bad))
        dead = made.look(time.time())
    finally:
        running.close()

    assert readings(alive)["n1/gpu0"]["gpu.utilization"] == 0.0
    assert labels(alive, "n1/gpu0")["job"] == "lab/pod/a"
    assert readings(dead)["n1/gpu0"]["gpu.utilization"] == Bad(f"{exporter.address} does not answer")
    assert labels(dead, "n1/gpu0")["job"] is UNREADABLE
