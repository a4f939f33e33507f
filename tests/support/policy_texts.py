"""Policy files for tests: a good one with every section, and one per mistake."""

from __future__ import annotations

import textwrap

# ruff: noqa: E501

GOOD = """\
version: 1
settings:
  mode: warn
  timezone: Europe/Berlin
  limits: {gpus-per-run: 8, money-per-hour: $100/h}
collectors:
  gpu: {every: 30s, devices: [0, 1]}
  training: {paths: [/runs]}
prices: {gpu-hour: {H100: $4.10/GPU-hour}, kind: on-demand}
fixed-costs:
  - {name: cluster, cost: $730/month, share-by: team}
budgets:
  - {name: one-experiment, each: job, limit: 100 GPU-hours}
  - {name: vision, each: team, where: 'team == "vision"', limit: $20000, per: month}
notify: {ml: "${SLACK_URL}", owner: "mailto:{user}@example.org"}
protect: ['label.keep == "true"', 'job =~ "^release-"']
exemptions:
  - {policy: idle-gpu, where: 'job == "eval-svc"', reason: bursty, owner: infra, expires: 2027-01-31}
policies:
  - name: idle-gpu
    summary: A job whose GPUs do nothing.
    each: job
    where: env == "research" and class == "train"
    when:
      - max(gpu.utilization, 30m) < 5%   # of every GPU
      - any: [gpu.power < 100W, "increase(train.step, 30m) == 0"]
      - none: ['job.phase == "loading"']
    for: 10m
    hold: 5m
    severity: high
    contact: ml
    runbook: docs/idle.md
    except-phase: [setup, loading]
    active: {from: "08:00", until: "20:00", schedule: "* * * * mon-fri", quiet: 22:00-07:00}
    waste: 100%
    budget: one-experiment
    then:
      - alert: {to: owner, repeat: 6h, require-ack: {within: 2h, then: [alert: {to: ml}]}}
      - snapshot: {after: 20m}
      - downscale: {after: 25m, power-cap: 300W}
      - terminate: {after: 30m, approve: required, grace: 2m}
correlate:
  - {name: stall, cause: infrastructure, join: job, all: [idle-gpu], within: 10m, then: [alert: {to: ml}]}
"""


def policy(body: str = "", *, each: str = "job", when: str = "- max(gpu.utilization, 30m) < 5%") -> str:
    """A file with one policy."""
    lines = [f"version: 1\npolicies:\n  - name: one\n    each: {each}"]
    if when:
        lines.append("    when:\n" + textwrap.indent(textwrap.dedent(when).strip("\n"), "      "))
    lines.append(textwrap.indent(textwrap.dedent(body).strip("\n"), "    "))
    return "\n".join(lines) + "\n"


EXEMPTION = "exemptions: [{{policy: {}, where: 'job == \"a\"', reason: r, owner: o{}}}]\n"
CORRELATION = "correlate: [{{name: c, cause: waste, join: job, all: {}}}]\n"
ENDING = "for: 5m\nthen: [terminate: {}]"

MISTAKES: list[tuple[str, str, str, int, int, str]] = [
    # name, file, code, line, column, what the fix or message holds
    ("P_B9_unknown_zone", "version: 1\nsettings: {timezone: Mars/Base}\n" + policy().split("\n", 1)[1], "unknown-zone", 2, 22, ""),
    ("near_zone", policy('active: {timezone: Europe/Berln}'), "unknown-zone", 7, 24, "Europe/Berlin"),
    ("P_B11_no_grace", policy("then:\n- alert: {to: owner, require-ack: {then: []}}"), "missing-grace", 8, 39, "within"),
    ("P_B13_numeric_weekday", policy('active: {schedule: "0 9 * * 0"}'), "bad-schedule", 7, 24, "sun"),
    ("P_B13_four_fields", policy('active: {schedule: "0 9 * *"}'), "bad-schedule", 7, 24, "minute"),
    ("P_B13_hour_24", policy('active: {schedule: "0 24 * * mon"}'), "bad-schedule", 7, 24, "'24'"),
    ("P_C4_unknown_key", policy("sevrity: high"), "unknown-key", 7, 5, "severity"),
    ("P_C4_unknown_top_key", "version: 1\npolices: []\n", "unknown-key", 2, 1, "policies"),
    ("P_C4_unknown_nested_key", policy("limits: {gpu-per-run: 8}"), "unknown-key", 7, 14, "gpus-per-run"),
    ("P_C5_misspelt_signal", policy(when="- max(gpu.utl, 30m) < 5%"), "unknown-signal", 6, 13, "gpu.utilization"),
    ("P_C6_text_for_a_number", policy(when="- 'gpu.utilization < \"5\"'"), "type-mismatch", 6, 10, ""),
    ("P_C6_share_needs_percent", policy(when="- max(gpu.utilization, 30m) < 5"), "share-needs-percent", 6, 37, "5%"),
    ("P_C7_no_condition", policy("then: [terminate: {after: 5m}]", when=""), "no-condition", 5, 12, "when"),
    ("P_C7_empty_condition", policy("then: [tier: {}]", when="[]"), "no-condition", 7, 12, "when"),
    ("P_C10_placeholder_text", policy("contact: {team}"), "unexpanded-template", 7, 14, "${NAME}"),
    ("P_C10_placeholder_twice", policy("contact: {{ team }}"), "unexpanded-template", 7, 14, "${NAME}"),
    ("P_C10_placeholder_inside", policy("contact: ml-{{ team }}"), "unexpanded-template", 7, 14, "${NAME}"),
    ("P_C10_placeholder_condition", policy(when="- {team}"), "unexpanded-template", 6, 9, "${NAME}"),
    ("P_C10_empty", policy("contact:"), "wrong-type", 7, 13, "text"),
    ("G_18_key_of_another_place", policy("gpus-per-run: 8"), "unknown-key", 7, 5, ""),
    ("G_18_option_of_another_action", policy("then: [alert: {grace: 5m}]"), "unknown-option", 7, 20, ""),
    ("for_without_unit", policy("for: 10"), "wrong-unit", 7, 10, "10m"),
    ("for_in_bytes", policy("for: 10GB"), "wrong-unit", 7, 10, "duration"),
    ("for_negative", policy("for: -5m"), "bad-value", 7, 10, ""),
    ("waste_plain", policy("waste: 50"), "share-needs-percent", 7, 12, "50%"),
    ("waste_over", policy("waste: 150%"), "bad-value", 7, 12, ""),
    ("severity", policy("severity: hgih"), "bad-value", 7, 15, "high"),
    ("severity_list", policy("severity: [high]"), "bad-value", 7, 15, ""),
    ("phase", policy("except-phase: [setup, evaluate]"), "bad-value", 7, 27, "evaluating"),
    ("each", "version: 1\npolicies:\n- {name: a, each: gpus, when: 'nonsense('}\n", "bad-value", 3, 19, "gpu"),
    ("missing_each", "version: 1\npolicies:\n- {name: a, when: 'nonsense('}\n", "missing-key", 3, 3, "each"),
    ("no_version", "policies:\n- {name: a, each: job}\n", "missing-key", 1, 1, "version: 1"),
    ("version_2", "version: 2\npolicies:\n- {name: a, each: job}\n", "unsupported-version", 1, 10, "version: 1"),
    ("root_list", "- a\n", "wrong-type", 1, 1, ""),
    ("policies_mapping", "version: 1\npolicies: {name: a}\n", "wrong-type", 2, 11, "list"),
    ("policy_text", "version: 1\npolicies: [idle-gpu]\n", "wrong-type", 2, 12, ""),
    ("name_number", "version: 1\npolicies:\n- {name: 12, each: job}\n", "wrong-type", 3, 10, '"12"'),
    ("name_spaces", "version: 1\npolicies:\n- {name: idle gpu, each: job}\n", "bad-value", 3, 10, "idle-gpu"),
    ("unknown_action", policy("then: [terminat: {}]"), "unknown-action", 7, 12, "terminate"),
    ("action_as_text", policy("then: [terminate]"), "wrong-type", 7, 12, "terminate: {}"),
    ("misspelt_required", "version: 1\npolicies:\n- {nme: a, each: job}\n", "unknown-key", 3, 4, "name"),
    ("misspelt_when", policy("whn: [gpu.power < 5W]\nthen: [terminate: {}]", when=""), "unknown-key", 5, 5, "when"),
    ("misspelt_version", "verson: 1\n" + policy().split("\n", 1)[1], "unknown-key", 1, 1, "version"),
    ("option_beside", policy("for: 5m\nthen:\n- terminate:\n  after: 30m"), "unknown-key", 10, 7, "indent"),
    ("exec_shell_line", policy("for: 5m\nthen: [exec: {command: rm -rf x}]"), "wrong-type", 8, 28, "[program"),
    ("exec_no_command", policy("for: 5m\nthen: [exec: {}]"), "missing-key", 8, 18, "command"),
    ("unknown_budget", policy("budget: vison"), "unknown-budget", 7, 13, ""),
    ("unknown_collector", policy() + "collectors: {gqu: {}}\n", "unknown-collector", 8, 14, "gpu"),
    ("collector_option", policy() + "collectors: {gpu: {device: [1]}}\n", "unknown-option", 8, 20, "devices"),
    ("collector_value", policy() + "collectors: {gpu: {devices: [a]}}\n", "wrong-type", 8, 30, ""),
    ("collector_every", policy() + "collectors: {gpu: {every: 15}}\n", "wrong-unit", 8, 27, "15s"),
    ("unknown_pack", policy() + "include: [pack:gpus]\n", "unknown-pack", 8, 11, ""),
    ("missing_include", policy() + "include: [other.yaml]\n", "file-unreadable", 8, 11, "path"),
    ("condition_colon", policy(when='- job == "a: b"'), "unquoted-condition", 6, 9, "'job == \"a: b\"'"),
    ("condition_hash", policy(when='- job == "a #b"'), "unquoted-condition", 6, 9, "quotes"),
    ("condition_flow", policy(when="[max(gpu.power, 30m) < 5W]"), "unquoted-condition", 6, 8, "quote"),
    ("condition_number", policy(when="- 5"), "wrong-type", 6, 9, ""),
    ("condition_empty_any", policy(when="- any: []"), "bad-value", 6, 9, ""),
    ("condition_junction", policy(when="- al: [gpu.power < 5W]"), "unknown-key", 6, 9, "all"),
    ("where_signal", policy("where: gpu.power < 5W"), "labels-only", 7, 12, ""),
    ("currency", policy("waste: $3/h\nlimits: {money-per-hour: €5/h}"), "mixed-currency", 8, 30, "USD"),
    ("currency_condition", policy("waste: $3/h", when="- cost.idle > €5"), "mixed-currency", 7, 12, ""),
    ("exemption_day", policy() + EXEMPTION.format("one", ", expires: 2027-02-30"), "bad-value", 8, 79, "2027-01-31"),
    ("exemption_grace", policy() + EXEMPTION.format("one", ""), "missing-grace", 8, 14, "expires"),
    ("exemption_policy", policy() + EXEMPTION.format("on-e", ", expires: 2027-01-01"), "unknown-policy", 8, 23, "one"),
    ("correlate_policy", policy() + CORRELATION.format("[one, two]"), "unknown-policy", 8, 59, ""),
    ("correlate_terminates", policy() + CORRELATION.format("one, then: [terminate: {}]"), "bad-value", 8, 65, "alert"),
    ("budget_limit", policy() + "budgets: [{name: b, each: job, limit: 100GB}]\n", "wrong-unit", 8, 39, "GPU-hours"),
    ("price", policy() + "prices: {gpu-hour: {H100: $4/h}}\n", "wrong-unit", 8, 27, "GPU-hour"),
    ("receiver", policy("then: [alert: {to: mll}]") + "notify: {ml: x}\n", "bad-value", 7, 24, "ml"),
    ("place_of_a_copy", policy("then: [snapshot: {path: kept}]"), "bad-value", 7, 29, "s3://BUCKET"),
    ("place_in_s3", policy('then: [snapshot: {path: "s3:/kept"}]'), "bad-value", 7, 29, "/backup"),
    ("variable", policy() + 'notify: {ml: "${SLACK URL}"}\n', "bad-value", 8, 14, "${NAME}"),
    ("negated", policy('where: team != "a"\n' + ENDING), "negated-label", 7, 12, "has(team)"),
    ("negated_not", policy('where: not label.keep == "a"\n' + ENDING), "negated-label", 7, 16, "has(label.keep)"),
]  # fmt: skip
