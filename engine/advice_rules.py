"""The arithmetic of advice: policy -> what to change, by how much, and what that saves.

Every rule takes what was measured of one resource and gives a draft, or None where there is
nothing to say. Numbers come from these measurements only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stoploss.engine.advice import DAY, HOUR, Advice, Measured
from stoploss.engine.costs.book import NoPrice
from stoploss.engine.costs.money import money, price_text
from stoploss.engine.costs.priced import UNIT_BYTES
from stoploss.engine.spot import fit
from stoploss.rules.units import MONTH, format_duration

MONTH_HOURS = MONTH / 3600.0
MEMORY_TO_USE = 0.9
"""Share of the GPU memory that a larger batch may fill: the rest is for peaks."""
KEPT_DAYS = 30
"""Days that logs are kept at least: what is taken in during them is a month's worth."""


@dataclass(frozen=True, slots=True)
class Draft:
    """An advice without its name; money per hour."""

    change: str
    why: str
    saves: float | None
    risk: str
    check: str


def more_loader_workers(of: Measured) -> Draft | None:
    """n' = ceil(n x step / (step - data time)): the wait is hidden behind the computing."""
    data, step = of.mean("train.data_time"), of.mean("train.step_time")
    risk = "more workers take CPU and memory of the host; where those are full, it gets slower"
    check = "train.data_time under 10% of train.step_time, host.cpu.utilization under 90%"
    if data is None or step is None:
        return Draft(
            "log train.data_time and train.step_time; they tell how many loader workers are missing",
            "the GPUs wait, and how long a step waits for data was not measured",
            None,
            risk,
            check,
        )
    if not 0.3 * step <= data < step:
        return None
    workers = of.newest("data.workers")
    saves, sum_ = _saves(of, data / step)
    if workers:
        enough = math.ceil(workers * step / (step - data) - 1e-9)
        change = f"raise the loader workers of each rank from {workers:g} to {enough}"
        how = f"{workers:g} x {_s(step)} / ({_s(step)} - {_s(data)}), rounded up"
    else:
        change = (
            f"use {step / (step - data):.1f} times as many loader workers; log data.workers for the number"
        )
        how = f"{_s(step)} / ({_s(step)} - {_s(data)})"
    why = f"{_s(data)} of {_s(step)} per step ({data / step:.0%}) wait for data; {how}; {sum_}"
    return Draft(change, why, saves, risk, check)


def synchronise_less_often(of: Measured) -> Draft | None:
    """Fewer synchronisations for the same samples: what they cost is shared by more of them."""
    share = of.mean("train.comm_share")
    if share is None or share < 0.2:
        return None
    risk = "the global batch has to stay equal, else the learning rate no longer fits"
    check = "train.comm_share falls, train.samples_per_second rises, eval.loss stays where it was"
    micro = of.newest("train.grad_accumulation")
    if micro is None:
        return Draft(
            "synchronise once per optimiser step; log train.grad_accumulation for the number",
            f"{share:.0%} of the step is communication; it would be divided by the micro-batches of a step",
            None,
            risk,
            check,
        )
    if micro >= 2:
        saved = share * (1 - 1 / micro)
        saves, sum_ = _saves(of, saved)
        why = (
            f"{share:.0%} of the step is communication; if each of {micro:g} micro-batches synchronises, "
            f"once per step is 1/{micro:g} of it: {share:.0%} x (1 - 1/{micro:g}) = {saved:.0%}; {sum_}"
        )
        change = f"accumulate without synchronising (no_sync) over the {micro:g} micro-batches of a step"
        return Draft(change, why, saves, risk, check)
    saves, sum_ = _saves(of, share / 2)
    why = (
        f"{share:.0%} of the step is communication; half as many ranks share it among twice the samples: "
        f"{share:.0%} / 2; {sum_}; a step takes {2 - share:.1f} times as long"
    )
    change = "take half as many ranks with two micro-batches each: the same global batch, half the traffic"
    return Draft(change, why, saves, risk, check)


def larger_batch(of: Measured) -> Draft | None:
    """The batch that fills the memory: what does not grow with it leaves even more room."""
    gpu, memory = of.busiest("gpu.utilization"), of.busiest("gpu.memory.utilization")
    cpu = of.busiest("host.cpu.utilization")
    if gpu is None or memory is None or cpu is None or max(gpu, memory, cpu) >= 0.7:
        return None
    factor = MEMORY_TO_USE / max(memory, 0.01)
    batch = of.newest("train.batch_size")
    change = f"try a batch {factor:.1f} times as large; log train.batch_size for the number"
    if batch:
        change = f"raise the batch from {batch:g} to {math.floor(batch * factor + 1e-9)}"
    return Draft(
        change,
        f"for 95% of an hour GPU use stayed under {gpu:.0%}, GPU memory under {memory:.0%} and CPU under "
        f"{cpu:.0%}; {MEMORY_TO_USE:.0%} / {memory:.0%} = {factor:.1f}; what it saves is not known before it "
        "is tried: compare train.samples_per_second",
        None,
        "a larger batch may need another learning rate, and out-of-memory ends the run",
        "train.samples_per_second rises, eval.loss per sample stays where it was",
    )


def use_tensor_cores(of: Measured) -> Draft | None:
    """Mixed precision: how much faster it is differs from model to model."""
    active, tensor = of.mean("gpu.sm_active", HOUR), of.mean("gpu.tensor_active", HOUR)
    if active is None or tensor is None:
        return None
    return Draft(
        "train in bf16 mixed precision, or allow TF32 for matrix products",
        f"the multiprocessors had work {active:.0%} of an hour, the tensor cores {tensor:.1%}; what it saves "
        "is not known before it is tried: compare train.samples_per_second",
        None,
        "reduced precision can move the loss; work that needs double precision stays as it is",
        "gpu.tensor_active above 10%, train.samples_per_second rises, eval.loss stays where it was",
    )


def preprocess_on_cpu(of: Measured) -> Draft | None:
    """What waits for storage needs no GPU."""
    use, wait = of.mean("gpu.utilization", HOUR), of.mean("host.io_wait", HOUR)
    if use is None:
        return None
    saves, sum_ = _saves(of, 1.0)
    waits = "" if wait is None else f", the CPUs waited for storage {wait:.0%}"
    return Draft(
        "run it on a CPU instance with fast storage, and give the GPUs back",
        f"the GPUs worked {use:.0%} of an hour{waits}; {sum_}, less the price of the CPU instance",
        saves,
        "libraries that decode or augment on GPUs need a CPU build",
        "the same records per hour at a lower cost.per_hour",
    )


def use_spot(of: Measured) -> Draft | None:
    """The difference of two prices that were read."""
    price, spot = of.newest("instance.price"), of.newest("instance.spot_price")
    if price is None or spot is None or spot >= price:
        return None
    save, rate = of.newest("checkpoint.save_time"), of.newest("instance.reclaim_rate")
    fits = "" if save is None else f"; {fit(save).words}"
    odds = "" if rate is None else f"; {rate:.0%} of this type are taken back in a month"
    currency = of.book.currency
    sum_ = f"{money(price, currency)}/h - {money(spot, currency)}/h = {money(price - spot, currency)}/h"
    return Draft(
        "run it on spot capacity, with a checkpoint on the notice of a reclaim",
        f"{sum_}{odds}{fits}",
        price - spot,
        "a reclaim costs the work since the last checkpoint and the time of a restart",
        "cost.redone stays far under what is saved",
    )


def colder_tier(of: Measured) -> Draft | None:
    """What is kept costs less where it is read slowly."""
    bill, cold = of.bill(), of.storage_price("cold")
    size, unread = of.newest("storage.size"), of.newest("storage.last_read")
    saves, sum_ = None, "what it saves is unknown: storage.size is unknown"
    missing = next((item.reason for item in (bill, cold) if isinstance(item, NoPrice)), None)
    if missing is not None:
        sum_ = f"what it saves is unknown: {missing}"
    elif size is not None and not isinstance(bill, NoPrice) and not isinstance(cold, NoPrice):
        then = size / UNIT_BYTES[cold.unit] * cold.amount / MONTH_HOURS
        if then >= bill.per_hour:
            return None
        saves, month = bill.per_hour - then, bill.per_hour * MONTH_HOURS
        currency = of.book.currency
        sum_ = (
            f"{bill.told} = {money(month, currency)}/month, cold {money(then * MONTH_HOURS, currency)}/month"
        )
    read = "" if unread is None else f"nobody has read it for {format_duration(unread)}; "
    return Draft(
        "move it to the cold tier",
        f"{read}{sum_}",
        saves,
        "reading from cold storage is slow and billed; data that is needed again costs more there",
        "storage.last_read goes on growing for a month",
    )


def faster_tier(of: Measured) -> Draft | None:
    """Slow storage is cheap until accelerators wait for it."""
    readers = of.newest("storage.readers")
    if not readers:
        return None
    return Draft(
        "move it to the fast tier for as long as it is read, and back afterwards",
        f"{readers:g} {'job reads' if readers == 1 else 'jobs read'} from slow storage; what waiting costs "
        "shows where the jobs log train.data_time",
        None,
        "fast storage costs more per month, also while nobody reads",
        "train.data_time under 10% of train.step_time; cost.per_step falls by more than the tier costs",
    )


def sample_logs(of: Measured) -> Draft | None:
    """Dropping what need not be taken in, against keeping it for a shorter time: the larger one first."""
    speed = of.gained("logs.bytes", HOUR)
    debug, repeats = of.mean("logs.debug_share", HOUR), of.mean("logs.repeat_ratio", HOUR)
    take, keep = of.book.rate("log-ingest"), of.book.rate("log-storage-month")
    if speed is None or isinstance(take, NoPrice) or isinstance(keep, NoPrice):
        return None
    # Read as rates: bytes per hour to the sizes that are billed per month.
    size = speed * MONTH_HOURS / UNIT_BYTES[take.unit]
    share, what = max((debug or 0.0, "debug lines"), (repeats or 0.0, "lines that repeat an earlier one"))
    days = (of.newest("logs.retention") or 0.0) / DAY
    dropped = size * share * take.amount
    shortened = size * max(0.0, days / KEPT_DAYS - 1.0) * keep.amount
    currency = of.book.currency
    price = price_text(take.amount, take.unit, currency)
    rows = [f"{size:,.0f} GiB/month x {share:.0%} x {price} = {money(dropped, currency)}/month"]
    if shortened:
        rows.append(
            f"keeping it {KEPT_DAYS} instead of {days:.0f} days saves {money(shortened, currency)}/month"
        )
    if dropped >= shortened and dropped > 0:
        change = f"sample the {what}" + (" before anything is kept for a shorter time" if shortened else "")
        saves = dropped
    elif shortened:
        change, saves = f"keep the log for {KEPT_DAYS} instead of {days:.0f} days", shortened
    else:
        return None
    return Draft(
        change,
        "; ".join(rows),
        saves / MONTH_HOURS,
        "what was dropped is not there when a run fails: log everything again as soon as one is unwell; "
        "loss, learning rate and gradient norm are never sampled",
        "logs.rate falls, logs.error_share does not",
    )


def checkpoint_less_often(of: Measured) -> Draft | None:
    """Towards the interval at which saving and redone work cost least together."""
    return _interval(of, seldom=True)


def checkpoint_more_often(of: Measured) -> Draft | None:
    """The same from the other side."""
    return _interval(of, seldom=False)


def best_interval(save: float, between_failures: float) -> float:
    """sqrt(2 x save time x time between failures), in seconds (Young)."""
    return math.sqrt(2.0 * save * between_failures)


def _interval(of: Measured, *, seldom: bool) -> Draft | None:
    save, interval = of.newest("checkpoint.save_time"), of.newest("checkpoint.interval")
    restarts = of.gained("job.attempts", DAY)
    if not save or not interval:
        return None
    word = "less" if seldom else "more"
    risk = "failures come in bursts; a checkpoint before anything risky stays worth its time"
    check = "checkpoint.save_time / checkpoint.interval and cost.redone together fall"
    if restarts is None:
        return Draft(
            f"save {word} often; log job.attempts for the number",
            f"a save takes {_s(save)} every {format_duration(interval)}; the best interval is sqrt(2 x save "
            "time x time between failures), and failures are not counted",
            None,
            risk,
            check,
        )
    if not restarts and not seldom:
        return None
    # Without a restart in a day a day is the least that lies between two.
    between = DAY / max(1.0, restarts)
    best = best_interval(save, between)
    if (best <= interval) if seldom else (best >= interval):
        return None
    now, then = _overhead(save, interval, between), _overhead(save, best, between)
    saves, sum_ = _saves(of, min(1.0, now - then))
    least = "at least " if not restarts else ""
    why = (
        f"sqrt(2 x {_s(save)} x {least}{format_duration(between)} between failures) "
        f"= {format_duration(best)}; saving and redoing take {now:.1%} of the time, then {then:.1%}; {sum_}"
    )
    change = f"save a checkpoint every {format_duration(best)} instead of every {format_duration(interval)}"
    return Draft(change, why, saves, risk, check)


def _overhead(save: float, interval: float, between: float) -> float:
    """Share of the time that goes into saving, and on average into work done again after a failure."""
    return save / interval + interval / (2.0 * between)


def stop_keep_best(of: Measured) -> Draft | None:
    """After the best evaluation every hour costs its whole price."""
    since, evaluations = of.newest("loss.since_best"), of.newest("loss.evals_since_best")
    saves, sum_ = _saves(of, 1.0)
    ago = "" if since is None else f", {format_duration(since)} ago"
    count = "some evaluations ago" if evaluations is None else f"{evaluations:g} evaluations ago"
    return Draft(
        "stop the run and keep its best checkpoint",
        f"the best evaluation was {count}{ago}; {sum_} until the planned end",
        saves,
        "some models improve again late; the best checkpoint has to be complete before anything ends",
        "the best checkpoint loads, and its evaluation repeats",
    )


def _saves(of: Measured, share: float) -> tuple[float | None, str]:
    """A share of what the resource is billed, with the arithmetic in words."""
    bill = of.bill()
    if isinstance(bill, NoPrice):
        return None, f"what it saves is unknown: {bill.reason}"
    amount = bill.per_hour * share
    return amount, f"{bill.told} x {share:.0%} = {money(amount, of.book.currency)}/h at most"


def _s(seconds: float) -> str:
    return f"{seconds:.3g} s"


Rule = Callable[[Measured], Draft | None]

RULES: Mapping[str, tuple[str, Rule]] = {
    "more-loader-workers": ("job", more_loader_workers),
    "synchronise-less-often": ("job", synchronise_less_often),
    "larger-batch": ("job", larger_batch),
    "use-tensor-cores": ("job", use_tensor_cores),
    "preprocess-on-cpu": ("job", preprocess_on_cpu),
    "use-spot": ("instance", use_spot),
    "colder-tier": ("volume", colder_tier),
    "faster-tier": ("volume", faster_tier),
    "sample-logs": ("log", sample_logs),
    "checkpoint-less-often": ("job", checkpoint_less_often),
    "checkpoint-more-often": ("job", checkpoint_more_often),
    "stop-keep-best": ("job", stop_keep_best),
}
"""Rule -> the kind of resource that it is about, and its arithmetic; each is a policy of pack:advice."""

SAME: Mapping[str, str] = {
    "input-bound": "more-loader-workers",
    "saw-tooth": "more-loader-workers",
    "tensor-cores-unused": "use-tensor-cores",
    "spot-eligible": "use-spot",
    "cold-on-fast": "colder-tier",
    "hot-on-slow": "faster-tier",
    "log-flood": "sample-logs",
    "debug-in-steady-state": "sample-logs",
    "retention-too-long": "sample-logs",
    "too-frequent-checkpoint": "checkpoint-less-often",
    "overfit": "stop-keep-best",
    "degrading": "stop-keep-best",
}
"""Policies of other packs that ask for an advice as well."""


def advise(policy: str, of: Measured) -> Advice | None:
    """The advice that a firing policy asks for on a resource; None where there is none to give."""
    name = SAME.get(policy, policy)
    kind, rule = RULES.get(name, (None, None))
    if rule is None or kind != of.resource.kind:
        return None
    draft = rule(of)
    if draft is None:
        return None
    return Advice(
        f"{name}:{of.resource.kind}/{of.resource.id}",
        draft.change,
        draft.why,
        draft.saves,
        of.book.currency,
        draft.risk,
        draft.check,
    )
