"""Every diagnostic code with its severity and what to do about it.

`stoploss explain CODE` prints an entry. A diagnostic with a code that is not listed
here cannot be made.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of problem: `severity` is error, warning or info; `help` is one paragraph."""

    severity: str
    title: str
    help: str


def _error(title: str, text: str) -> Code:
    return Code("error", title, text)


def _warning(title: str, text: str) -> Code:
    return Code("warning", title, text)


def _info(title: str, text: str) -> Code:
    return Code("info", title, text)


CODES: dict[str, Code] = {
    # files and YAML
    "file-unreadable": _error(
        "a file cannot be read",
        "The file is missing, is a folder, may not be read, or is not UTF-8 text. Check the path and its permissions.",
    ),
    "file-empty": _error(
        "a file holds no policies",
        "A policy file needs at least `version: 1` and one entry under `policies:` or `include:`. An empty file is "
        "refused, so that a truncated deployment is noticed.",
    ),
    "yaml-syntax": _error(
        "the YAML cannot be parsed", "The text is not well-formed YAML at the place shown."
    ),
    "yaml-feature": _error(
        "a YAML feature that policies do without",
        "Tags, anchors, aliases, merge keys and several documents in one file are refused: each hides what a policy "
        "does from the person who reads it.",
    ),
    "yaml-scalar": _error(
        "a bare scalar that YAML readers disagree about",
        "Bare on, off, yes, no, 22:30 and 010 mean different things to different YAML readers. Quote the value.",
    ),
    "unquoted-condition": _error(
        "a condition must be quoted as a whole",
        "A condition that begins with a quote, or holds `: ` or ` #`, or stands in flow style, is cut by YAML. Put the "
        "whole condition in single quotes.",
    ),
    "unexpanded-template": _error(
        "a template was not filled in",
        "A placeholder such as {team} or {{ team }} stands where a value is needed. Fill it in before loading; only "
        "${NAME} is expanded by stoploss.",
    ),
    # structure
    "unknown-key": _error(
        "a key that does not exist here",
        "Keys form a closed list; a key that is not read would silently do nothing.",
    ),
    "duplicate-key": _error(
        "a key given twice", "Keep one of the two; YAML would silently keep only the last."
    ),
    "missing-key": _error("a required key is missing", "Add the key that the message names."),
    "wrong-type": _error(
        "a value of the wrong type",
        "The message says what stands there and what is expected, with an example.",
    ),
    "bad-value": _error("a value that is not allowed", "The message says which values are allowed."),
    "unsupported-version": _error("a version this program does not read", "Write `version: 1`."),
    "duplicate-name": _error(
        "two things of one name",
        "Names of policies, budgets and correlations are unique over all files of a run.",
    ),
    "unknown-zone": _error(
        "a time zone that does not exist", "Use a name of the IANA time-zone database, such as Europe/Berlin."
    ),
    "bad-schedule": _error(
        "a schedule that cannot be read",
        "A schedule has five cron fields; weekdays are written by name (mon-sun), because programs disagree on which "
        "day 0 is.",
    ),
    "bad-quantity": _error(
        "a quantity that cannot be read",
        "A quantity is a number with its unit, such as 5%, 30m, 10 GB, $4.10/GPU-hour or 100 GPU-hours.",
    ),
    "wrong-unit": _error("a unit of another dimension", "The two sides must measure the same thing."),
    "mixed-currency": _error(
        "more than one currency", "A policy set uses one currency; nothing is converted silently."
    ),
    "unknown-pack": _error("a pack that does not exist", "`include:` takes pack:NAME or a path to a file."),
    "include-cycle": _error("files that include each other", "Break the circle of includes."),
    "unknown-collector": _error(
        "a collector that does not exist", "The message lists the collectors there are."
    ),
    "unknown-action": _error("an action that does not exist", "The message lists the actions there are."),
    "unknown-option": _error(
        "an option that does not exist", "The message lists the options of that plug-in."
    ),
    "unknown-budget": _error("a budget that does not exist", "`budget:` names an entry of `budgets:`."),
    "unknown-policy": _error(
        "a policy that does not exist", "An exemption or correlation names a policy of this set."
    ),
    # conditions
    "condition-syntax": _error(
        "a condition that cannot be parsed", "The caret shows where; the message says what was expected."
    ),
    "condition-too-long": _error(
        "a condition that is too long", "A condition has at most 2,000 characters and 50 levels of nesting."
    ),
    "chained-comparison": _error("a chained comparison", "Write `a < x and x < b`."),
    "foreign-operator": _error(
        "an operator of another language", "Write and, or, not and == instead of &&, ||, ! and =."
    ),
    "unknown-signal": _error(
        "a signal that does not exist", "`stoploss explain SIGNAL` describes each signal."
    ),
    "unknown-name": _error(
        "a name that does not exist",
        "Bare names are signals and kind, id, job, host, instance, team, user, env, class, stage; any other label is "
        "written label.NAME.",
    ),
    "unknown-function": _error(
        "a function that does not exist", "The message lists the functions there are."
    ),
    "wrong-argument": _error("an argument that does not fit", "The message says what the function takes."),
    "wrong-function": _error(
        "a function that does not fit the signal",
        "Gauges take avg, min, max, pNN, count and last; counters increase, rate and last; events sum, rate and count; "
        "states and text last; curves last, min, max and avg; attributes stand alone.",
    ),
    "type-mismatch": _error("two sides that cannot be compared", "The message names both sides' units."),
    "share-needs-percent": _error(
        "a share compared with a plain number", "A share is written with %: 5% rather than 5 or 0.05."
    ),
    "ambiguous-suffix": _error(
        "a suffix with two readings", "Write the unit out: 5kB, 5000, 5KiB, 5m or 5MB."
    ),
    "no-path": _error(
        "two kinds without a relation",
        "Values meet along the relations team - job - gpu, host, instance, checkpoint, log, volume, process, and "
        "instance - host - gpu.",
    ),
    "unknown-value": _error(
        "a value outside the closed list", "The signal can only take the values the message lists."
    ),
    "bad-regex": _error("a regular expression that cannot be compiled", "The caret shows where."),
    "labels-only": _error(
        "a signal where only labels and attributes may stand",
        "`where`, `protect`, exemptions and budgets select by labels and attributes, which have no age.",
    ),
    # safety
    "no-condition": _error(
        "a destructive step without a condition",
        "A policy that changes or ends something must say when. Nothing overrides this.",
    ),
    "negated-label": _error(
        "a destructive policy that selects by what is absent",
        "`!=` and `not` are also true where the label is missing. Add has(label) so that an untagged resource is not "
        "swept up.",
    ),
    "missing-grace": _error("an expiry or grace that is missing", "The message names the key to add."),
    # lint
    "destructive-without-for": _warning(
        "a destructive step without `for`",
        "One bad minute is then enough to start it. Add `for: 10m` or longer.",
    ),
    "window-too-short": _error(
        "a window shorter than the collector's interval",
        "Such a window is empty most of the time, so the condition is never known. Make it at least two intervals.",
    ),
    "window-too-long": _warning(
        "a window of more than 1,440 slots",
        "Use a coarser `resolution` for this policy; memory grows with the window.",
    ),
    "quantile-is-max": _info(
        "a quantile that equals the maximum",
        "pNN is the nearest rank; over fewer than 100/(100-NN) slots it is the maximum. Use max, or a longer window.",
    ),
    "ends-job-from-below": _warning(
        "a step that ends a job from a policy about something else",
        "One GPU of a job must not end the job. Use `each: job`, where every GPU has to agree.",
    ),
    "always-true": _warning(
        "a condition that is always true", "Remove it or compare with something that varies."
    ),
    "always-false": _warning("a condition that is never true", "The policy can never fire."),
    "no-collector": _info(
        "a signal that no enabled collector provides",
        "The condition is unknown until a collector provides it.",
    ),
    "unmatched-budget": _info("a budget that matches nothing", "No resource seen matches its `where`."),
    "no-runbook": _warning(
        "a high severity without contact or runbook",
        "Someone is woken by this. Say who (`contact:`) and what to do (`runbook:`).",
    ),
    "unset-variable": _warning(
        "an environment variable that is not set", "The receiver is unavailable until the variable is set."
    ),
    "expired-exemption": _warning("an exemption that has expired", "It no longer protects anything."),
    # recorded signals
    "recorded-unreadable": _error(
        "a recorded file cannot be read",
        "The file is missing, has gone, may not be read, or is of no known format. Recordings end in .csv, .jsonl, "
        ".csv.gz, .jsonl.gz or .parquet.",
    ),
    "recorded-encoding": _error(
        "a recorded file is not UTF-8", "Save the file as UTF-8; a byte-order mark is fine."
    ),
    "recorded-damaged": _error(
        "a recorded file is damaged",
        "The file is not what its name says, or was cut off. Record or copy it again.",
    ),
    "recorded-missing-column": _error(
        "a recording without a required column",
        "A recording has the columns time, resource, kind, signal and value, each once; every and label.NAME are "
        "optional.",
    ),
    "recorded-needs-extra": _error(
        "Parquet needs an extra",
        "Install it with: pip install 'stoploss[parquet]', or export the file as CSV.",
    ),
    "recorded-nothing": _error(
        "nothing was recorded", "No sample could be read from the given files and folders; check the path."
    ),
    "recorded-empty": _warning("a recorded file without rows", "The file is empty or holds only a header."),
    "recorded-extra-column": _warning(
        "a column that is not read", "Labels are columns named label.NAME; other columns do nothing."
    ),
    "recorded-unknown-signal": _warning(
        "recorded rows of a signal that does not exist",
        "Their rows are skipped. `stoploss signals` lists all signals.",
    ),
    "recorded-unknown-kind": _warning(
        "recorded rows of a kind that does not exist",
        "Their rows are skipped; the message lists the nearest kind.",
    ),
    "recorded-wrong-kind": _warning(
        "a recorded signal on a resource that cannot have it",
        "Their rows are skipped. Check the column `kind`.",
    ),
    "recorded-bad-time": _warning(
        "a recorded time that cannot be read",
        "Their rows are skipped. Times are ISO 8601, or seconds since 1970 as a number.",
    ),
    "recorded-bad-every": _warning(
        "a recorded interval that cannot be read",
        "Write `every` as a duration, such as 30s. The median gap is used.",
    ),
    "recorded-bad-row": _warning(
        "a recorded row that cannot be read", "The row is skipped and the others are read. A row is one line."
    ),
    "recorded-truncated": _warning(
        "a recording that stops in the middle",
        "What came before is used. The file may still be written, or was cut off.",
    ),
    "recorded-long-line": _warning("a recorded line that is too long", "A line has at most 1,000,000 bytes."),
}
