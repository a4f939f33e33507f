"""What is concluded about the curves of one run, and the settings that decide it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LossSettings:
    """Where the lines lie. Shares are fractions; counts are logged records, not steps.

    Attributes:
        window: records of which the level before a spike is the median.
        scatter_window: records whose median jump from one to the next gives the scatter.
        baseline: records below which that level counts as thin.
        memory: records after a spike in which it is the verdict of an otherwise healthy run.
        spike_deviations: robust standard deviations above the level that make a spike.
        spike_share: share of the level that a spike must rise at least.
        persistent: records in a row that turn a spike into divergence.
        trend_points: records that the last half of a run must hold before it is judged.
        significance: standard errors that tell a trend from chance.
        flat_share: a loss is flat when it falls by less than this share between the halves of the window.
        swing_share: scatter, as a share of the level, below which nothing is called oscillating.
        patience: evaluations since the best one before a rise counts.
        rise_share: share by which evaluations must have risen.
        early_share: share of the planned run in which a rise of evaluations is not judged.
        non_finite_run: records in a row that are not finite.
        hang_factor: multiples of the longest step seen that make a hang.
        pause_seconds: a pause up to here is never a hang (an evaluation, a checkpoint).
    """

    window: int = 32
    scatter_window: int = 64
    baseline: int = 16
    memory: int = 128
    spike_deviations: float = 6.0
    spike_share: float = 0.1
    persistent: int = 5
    trend_points: int = 30
    significance: float = 2.1
    flat_share: float = 0.008
    swing_share: float = 0.1
    patience: int = 3
    rise_share: float = 0.01
    early_share: float = 0.4
    non_finite_run: int = 2
    hang_factor: float = 5.0
    pause_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Point:
    """One record: its training step and value."""

    step: float
    value: float


@dataclass(frozen=True, slots=True)
class Spike:
    """Records in a row above what the records before let expect.

    Attributes:
        step: step of its first record.
        end: step of its last record.
        records: how many there are.
        jump: step of the first record of its highest burst.
        peak: the highest value.
        level: the median before it.
        open: whether the log ends inside it.
    """

    step: float
    end: float
    records: int
    jump: float
    peak: float
    level: float
    open: bool


@dataclass(frozen=True, slots=True)
class Also:
    """Lesser facts that a reader should know; none of them is a verdict.

    Attributes:
        spikes: the last spikes of the training loss, oldest first (at most 50).
        spike_count: how many there were in all.
        resumes: times that steps went back.
        redone_records: records that a later one replaced.
        duplicates: records that were read again and counted once.
        non_finite: records of loss, evaluation or gradient norm that were not finite.
        notes: sentences.
    """

    spikes: tuple[Spike, ...] = ()
    spike_count: int = 0
    resumes: int = 0
    redone_records: int = 0
    duplicates: int = 0
    non_finite: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """Steps from the last record to the target if the trend holds.

    `high` is infinite where the slow end of the interval never arrives.
    """

    steps: float
    low: float
    high: float
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Numbers:
    """Derived numbers that are recorded as signals; None where they cannot be told.

    Attributes:
        trend: falling, flat, rising or cannot-tell.
        slope: change of the training loss per step, as a share of its mean (negative is falling).
        spike: newest training loss as a multiple of the median before it.
        gap: how far the newest evaluation loss lies above the training loss, as a share.
        since_best: seconds since the best record; None without a clock.
        steps_since_best: steps since the best record.
        evals_since_best: evaluations since the best one.
        forecast: distance to the declared target.
        progress: share of the planned steps that is done.
        steps_per_hour: speed over the newest tenth of the run.
        speed_ratio: that speed against the median speed of the run before; below 1 is slower.
    """

    trend: str = "cannot-tell"
    slope: float | None = None
    spike: float | None = None
    gap: float | None = None
    since_best: float | None = None
    steps_since_best: float | None = None
    evals_since_best: int | None = None
    forecast: Forecast | None = None
    progress: float | None = None
    steps_per_hour: float | None = None
    speed_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class LossVerdict:
    """The verdict on one run.

    Attributes:
        verdict: one of the values of the signal loss.verdict.
        since_step: the step at which what the verdict says began; None where nothing began.
        since_index: the same as a position among the records of the judged curve.
        points: records of the training loss, or of the evaluations where it is not logged.
        curve: the signal that `best` and `last` belong to.
        best: best finite record before the trouble began.
        last: newest record, finite or not.
        sudden: records from the last good one to the first bad one; 1 is from one to the next.
        synchronous: steps between the trouble in training and in evaluation; None where only one shows it.
        persistent: records since the trouble began.
        evidence: short sentences with numbers; what speaks for the verdict.
        strategy: what the learning rate and the gradient add; never a cause by itself.
        grad_norm_lead: records by which the gradient norm rose first; None where it is not measured.
        wasted_share: part of the run after its useful end; 0 for a good run, None where unknown.
        also: lesser facts.
        numbers: derived numbers.
    """

    verdict: str
    since_step: float | None = None
    since_index: int | None = None
    points: int = 0
    curve: str | None = None
    best: Point | None = None
    last: Point | None = None
    sudden: int | None = None
    synchronous: float | None = None
    persistent: int | None = None
    evidence: tuple[str, ...] = ()
    strategy: tuple[str, ...] = ()
    grad_norm_lead: int | None = None
    wasted_share: float | None = None
    also: Also = field(default=Also())
    numbers: Numbers = field(default=Numbers())
