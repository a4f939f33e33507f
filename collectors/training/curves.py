"""Records put together as the curves of runs."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from stoploss.collectors.training.records import Reader, Record
from stoploss.engine.model import Curve, TrainingLog


def _column() -> array[float]:
    return array("d")


@dataclass(slots=True)
class _Columns:
    steps: array[float] = field(default_factory=_column)
    values: array[float] = field(default_factory=_column)
    times: array[float] = field(default_factory=_column)


@dataclass(slots=True)
class Assembly:
    """Records put together as curves."""

    _runs: dict[int, dict[str, _Columns]] = field(default_factory=dict)

    def extend(self, records: Iterable[Record]) -> None:
        """Add records in the order of the log."""
        for run, signal, step, value, time in records:
            columns = self._runs.setdefault(run, {}).get(signal)
            if columns is None:
                columns = self._runs[run][signal] = _Columns()
            columns.steps.append(step)
            columns.values.append(value)
            columns.times.append(time)

    def series(self, run: int, signal: str) -> tuple[array[float], array[float], array[float]] | None:
        """Steps, values and times of one curve so far."""
        columns = self._runs.get(run, {}).get(signal)
        return None if columns is None else (columns.steps, columns.values, columns.times)

    def logs(self, reader: Reader, source: str, run_name: str) -> tuple[TrainingLog, ...]:
        """One log for each run that has a curve or a declared fact."""
        told = [run for run in range(reader.run + 1) if self._runs.get(run) or reader.facts[run]]
        return tuple(
            TrainingLog(
                run=run_name if len(told) == 1 else f"{run_name}#{index}",
                source=source,
                format=reader.name,
                curves=self._curves(run),
                facts=dict(reader.facts[run]),
                notes=reader.notes.lines(),
            )
            for index, run in enumerate(told, 1)
        )

    def _curves(self, run: int) -> Mapping[str, Curve]:
        return {
            signal: Curve(signal, columns.steps[:], columns.values[:], columns.times[:])
            for signal, columns in self._runs.get(run, {}).items()
        }
