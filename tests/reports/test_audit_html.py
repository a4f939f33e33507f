"""The audit as a page."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audits import AT, NASTY, audit, exemption, finding, policy, unknown, waste
from support.scenes import Scene, recording
from support.scenes import policy as policy_text

from stoploss.engine.audit import CollectorStatus
from stoploss.engine.costs.model import Amount, Totals
from stoploss.engine.heatmap import HeatMap, HeatRow
from stoploss.reports import audit_csv, audit_heat, audit_html, audit_json, audit_table, svg
from stoploss.rules.diagnostics import Position
from stoploss.rules.policy import Step

ROOT = Path(__file__).parents[2]
VOID = {"meta", "br", "rect", "line", "path"}
HERE = Position("p.yaml")


class Page(HTMLParser):
    """Text and tags of a page; a tag that is not closed in its turn is an error."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source, self.open, self.tags, self.attributes = source, list[str](), list[str](), list[str]()
        self.pieces: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []
        self.text = " ".join("".join(self.pieces).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]
        if tag not in VOID:
            self.open.append(tag)
        self.part(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.part(tag)

    def part(self, tag: str) -> None:
        if tag != "bdi":
            self.pieces.append(" ")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.pieces.append(data)


def heat(rows: int = 2, columns: int = 24) -> HeatMap:
    """GPUs of two jobs, busy and idle in turns, with a hole."""
    start = AT.timestamp() - columns * 3600
    cells = [None, 0.0, 0.02, 0.5, 0.97]
    return HeatMap(
        tuple(start + 3600 * k for k in range(columns)),
        3600.0,
        tuple(
            HeatRow(f"g{n}", f"job-{n % 2}", "n1", tuple(cells[(k * k + n) % 5] for k in range(columns)))
            for n in sorted(range(rows), key=lambda n: n % 2)
        ),
    )


MONEY = Totals(
    by_kind={"on-demand": Amount(61.2, 1412.8, 57.6), "committed": Amount(12.0, 20.0)},
    by_policy={"idle-gpu": 41.2, "other": 20.0},
    by_team={"vision": 61.2},
    by_cause={"waste": 61.2},
    without_price=2,
)


def test_it_needs_nothing_else() -> None:
    """No script, no request, no font from elsewhere, no event handler: one file that a mail can carry."""
    page = Page(audit_html.render(audit([finding(waste=waste(4.1))], [unknown()], totals=MONEY, heat=heat())))

    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(page.tags)
    assert not {"src", "href", "srcset", "action"} & set(page.attributes)
    assert not [name for name in page.attributes if name.startswith("on")]
    assert not re.search(r"https?:|url\(|@import|@font-face", page.source)


def test_the_figures_are_those_of_the_totals() -> None:
    """Money of two kinds stands side by side and is not added; unknown cost is counted beside it."""
    page = Page(audit_html.render(audit([finding(waste=waste(4.1))], [unknown()], totals=MONEY, heat=heat())))

    assert "burning now $61.20/h at on-demand prices $12.00/h committed, not added" in page.text
    assert "the cost of 2 findings is unknown" in page.text
    assert "so far $1,413 since each finding began $20.00 committed" in page.text
    assert "not known 1 checks that could not be decided" in page.text
    assert "idle-gpu 41.20 67% other 20.00 33%" in page.text
    assert "would save $57.60/h on-demand" in page.text


def test_without_money_it_counts_findings_and_shows_no_zero() -> None:
    """Where nothing has a price the cost is unknown, the cuts count, and money has no column."""
    page = Page(audit_html.render(audit([finding("a"), finding("b", of=policy("x", cause="data"))])))

    assert "burning now unknown no policy that fires says what it wastes" in page.text
    assert "By cause cause findings share data 1 50% undecided 1 50%" in page.text
    assert "per hour" not in page.text
    assert "$0" not in page.text


def test_nothing_firing_is_said_in_words() -> None:
    """A clean audit is a page too."""
    page = Page(audit_html.render(audit()))

    assert "burning now nothing no policy fires" in page.text
    assert "No policy fires or is about to." in page.text
    assert "Every policy could be decided" in page.text


def test_nothing_firing_beside_unknowns_is_not_called_nothing() -> None:
    """As long as something could not be decided, only nothing known burns."""
    page = Page(audit_html.render(audit([], [unknown()])))

    assert "burning now nothing known no policy fires" in page.text


def test_a_finding_says_its_evidence_and_how_its_cost_came_about() -> None:
    """Who, since when, on what samples, and the arithmetic with the source of the price."""
    dear = finding("a", owner="4412", waste=waste(4.1), stale_since=AT)
    odd = finding("b", waste=waste(None, missing="no price for gpu model X"), exemption=exemption("on loan"))
    page = Page(audit_html.render(audit([dear, odd])))

    assert "$4.10 $41.00 10h medium idle-gpu on gpu a since 2026-12-01 04:00 UTC · job 4412" in page.text
    assert "nothing is known of it since 2026-12-01 14:00 UTC" in page.text
    assert "max(gpu.utilization, 30m) < 5% : 1% 30 of 30 samples" in page.text
    assert "2 GPUs x 100% · our price list (on-demand)" in page.text
    assert "unknown unknown 10h exempt idle-gpu" in page.text
    assert "exempt through 2027-01-31: on loan" in page.text
    assert "cost unknown: no price for gpu model X" in page.text


def test_findings_stand_by_money_and_what_does_not_count_last() -> None:
    """The dearest first, then those without a price, then pending, then exempt."""
    found = [
        finding("exempt", waste=waste(99.0), exemption=exemption()),
        finding("pending", waste=waste(98.0), state="pending"),
        finding("unpriced"),
        finding("cheap", waste=waste(1.0)),
        finding("dear", waste=waste(2.0)),
    ]
    page = Page(audit_html.render(audit(found)))

    places = [
        page.text.index(f"on gpu {name}") for name in ("dear", "cheap", "unpriced", "pending", "exempt")
    ]
    assert all(a < b for a, b in pairwise(places))


def test_what_is_unknown_is_grouped_and_counted() -> None:
    """One line per policy and reason with a few names; failed collectors and missing prices beside it."""
    unknowns = [unknown(f"n{n}", reason="not supported on MIG") for n in range(5)] + [
        unknown("z", reason="late")
    ]
    failed = CollectorStatus("checkpoints", ok=False, reason="permission denied")
    priceless = finding("a", waste=waste(None, missing="no price"))
    page = Page(audit_html.render(audit([priceless], unknowns, collectors=(failed,), heat=heat())))

    assert "not supported on MIG gpu n0, gpu n1, gpu n2 and 2 more 5 resources" in page.text
    assert "late gpu z 1 resource" in page.text
    assert "checkpoints: permission denied" in page.text
    assert "The cost of 1 finding is unknown: no price." in page.text
    assert "job-0 79%" in page.text


def test_steps_are_named_and_said_not_to_be_carried_out() -> None:
    """Nothing will happen; what the policies that fire ask for is listed once."""
    steps = (Step("alert", {}, HERE), Step("terminate", {}, HERE, after=1800.0, approve="required"))
    page = Page(
        audit_html.render(
            audit([finding("a", policy("x", steps=steps)), finding("b", policy("y", steps=steps))])
        )
    )

    assert "Nothing: an audit only looks, and this version carries out no step." in page.text
    assert "alert, terminate after 30m with approval x, y" in page.text


def named(name: str) -> str:
    """A page on which a name stands wherever a user's text can stand."""
    one = policy(name, summary=name, runbook=name)
    labels = {"team": name, "user": name}
    return audit_html.render(
        audit(
            [finding(name, one, labels=labels, owner=name, exemption=exemption(name))],
            [unknown(name, one, reason=name)],
            {name: 1},
            collectors=(CollectorStatus(name, ok=False, reason=name),),
            notes=(name,),
            heat=HeatMap((0.0,), 60.0, (HeatRow(name, name, name, (0.5,)),)),
        )
    )


@settings(max_examples=25, deadline=None)
@given(st.text(min_size=1))
def test_any_name_is_text_and_nothing_else(text: str) -> None:
    """Markup, quotes, control characters and turned text, wherever they stand, stay visible text."""
    page, plain = Page(named(text + NASTY)), Page(named("plain"))

    assert page.tags == plain.tags
    assert page.attributes == plain.attributes
    assert page.text.count("<b>\"x\"&'y'</b>\ufffd\ufffd[31m\ufffd") == plain.text.count("plain")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", page.source)
    page.source.encode()


@pytest.mark.slow
def test_P_D29_ten_thousand_findings_are_all_in_json_and_csv_and_counted_on_the_page() -> None:
    """The page shows the 200 dearest of them, counts the rest, and stays small with a full heat map."""
    found = [finding(f"n{n:05}", waste=waste(float(n))) for n in range(10_000)]
    said = audit(found, [unknown(f"u{n}", reason=f"r{n}") for n in range(10_000)], heat=heat(256, 168))
    page = audit_html.render(said)

    assert page.count('id="f-n') == 200
    assert 'id="f-n09999"' in page
    assert 'id="f-n09800"' in page
    assert "9,800 more findings are not shown here" in page
    assert "9,900 more reasons are in the json" in page
    assert len(page.encode()) < 3_000_000
    assert len(json.loads(audit_json.render(said))["findings"]) == 10_000
    assert len(list(csv.reader(io.StringIO(audit_csv.render(said))))) == 10_001
    assert "… and 9980 more" in audit_table.render(said)


def test_an_unknown_cell_is_not_painted_and_a_zero_is() -> None:
    """What nobody saw leaves the hatching bare; 0% has the colour of empty, and idle spans an outline."""
    drawn = str(
        svg.heat_rows([[0.0, 0.0, None, 1.0], [None, 0.0, None, 0.96]], idle_below=0.05, row_height=12)
    )
    painted = dict(re.findall(r'class="(\w+)"[^>]* d="([^"]*)"', drawn))

    assert painted["empty"] == "M0 0h2v1h-2zM3 0h1v1h-1zM1 1h1v1h-1zM3 1h1v1h-1z"
    assert painted["full"] == "M3 0h1v1h-1zM3 1h1v1h-1z"
    assert painted["idle"] == "M0 0h2M0 1h1M1 2h1M0 0v1M1 1v1M2 0v2"
    assert 'viewBox="0 0 4 2"' in drawn


def test_every_picture_has_its_numbers_in_words() -> None:
    """The heat map is described for a screen reader, and its table has a row per GPU."""
    page = Page(audit_html.render(audit(heat=heat(4))))

    assert 'aria-label="GPU use of job-0: mean ' in page.source
    assert page.source.count("<svg") == page.source.count('aria-hidden="true">') - 1
    for name in ("g0", "g1", "g2", "g3"):
        assert re.search(rf"{name} job-\d n1 \d+% \d+% \d+%", page.text)


@pytest.mark.parametrize(
    ("hours", "labels"),
    [
        (0.5, ["13:30", "13:45"]),
        (24, ["18:00", "00:00", "06:00", "12:00"]),
        (168, ["25 Nov", "27 Nov", "29 Nov", "1 Dec"]),
    ],
)
def test_the_axis_has_few_round_local_times(hours: float, labels: list[str]) -> None:
    """Ticks lie at round times of the reader's zone, however long the map is."""
    begin = AT.timestamp() - hours * 3600
    cells = (0.5,) * 10
    starts = tuple(begin + k * hours * 360 for k in range(10))
    drawn = audit_heat.picture(HeatMap(starts, hours * 360, (HeatRow("a", None, None, cells),)), "UTC")

    assert re.findall(r">([^<]+)</text>", str(drawn.axis)) == labels


def test_text_is_readable_in_light_and_in_dark() -> None:
    """Every colour of text has a contrast of at least 4.5 to 1 against its page."""
    source = audit_html.render(audit())
    for theme in re.findall(r":root \{([^}]*--page[^}]*)\}", source):
        tokens = dict(re.findall(r"--(\w+): (#\w{6})", theme))
        for name in ("ink", "soft", "high", "medium", "low"):
            assert contrast(tokens[name], tokens["page"]) >= 4.5, name
        for name in ("hue", "idle"):
            assert contrast(tokens[name], tokens["empty"]) >= 3, name
    assert len(re.findall(r"--page: #", source)) == 2


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as accessibility guidelines reckon it."""
    bright, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def luminance(colour: str) -> float:
    """The relative luminance of `#rrggbb`."""
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_the_command_writes_the_page_and_keeps_the_table(scene: Scene) -> None:
    """A real audit of a recording becomes a page that holds its finding and its GPUs."""
    values = {("gpu", "a<b>", "gpu.utilization"): [0] * 40}
    signals = scene.write("s.csv", recording(values, labels={"a<b>": {"job": "4412"}}))
    file, out = scene.write("p.yaml", policy_text("max(gpu.utilization, 30m) < 5%")), scene.folder / "o.HTML"
    table = scene.run("audit", file, "--signals", signals, "--out", str(out))
    page = Page(out.read_text(encoding="utf-8"))

    assert "BURNING NOW" in table
    assert "medium p on gpu a<b>" in page.text
    assert "a<b> 4412 no host known 0% 100% 100%" in page.text


@pytest.mark.slow
def test_the_page_of_the_example_fleet_is_small(scene: Scene) -> None:
    """A week of 32 GPUs and all their findings fit well below a megabyte."""
    out, signals = scene.folder / "fleet.html", scene.folder / "signals"
    command = [sys.executable, str(ROOT / "examples" / "fleet" / "generate.py"), "--out", str(signals)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    scene.run("audit", str(ROOT / "policies.example.yaml"), "--signals", str(signals), "--out", str(out))

    page = Page(out.read_text(encoding="utf-8"))
    assert len(page.source) < 1_000_000
    assert "2 GPUs on n4, mean unknown" in page.text
