"""The page: complete in itself, and careful with names."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from api.stubs import Stub, client, tokens

import stoploss.api

STATIC = Path(next(iter(stoploss.api.__path__))) / "static"
OURS = ("page.html", "page.css", "page.js", "dom.js", "charts.js")


class References(HTMLParser):
    """What a page asks for, and the attributes of its elements."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.attributes |= {name for name, _ in attrs}
        self.found += [value for name, value in attrs if name in ("src", "href") and value is not None]


def test_the_page_needs_no_token_and_holds_no_number(service: Stub) -> None:
    """The page itself is the same for everybody; its numbers are asked for with a token."""
    with_tokens = client(service, tokens()).get("/")

    assert with_tokens.headers["content-type"] == "text/html; charset=utf-8"
    assert with_tokens.text == client(service).get("/").text
    assert "4412" not in with_tokens.text


def test_everything_that_the_page_asks_for_is_here(service: Stub) -> None:
    """Scripts and styles come from the same place, so that the page works without the internet."""
    asker, page = client(service), References()
    page.feed(asker.get("/").text)

    files = [name for name in page.found if not name.startswith(("#", "data:"))]
    assert len(files) == 5
    for name in files:
        assert asker.get(f"/{name}").status_code == 200, name
    for module in re.findall(r'from "\./(\w+\.js)"', asker.get("/static/page.js").text):
        assert asker.get(f"/static/{module}").status_code == 200, module
    assert not {name for name in page.attributes if name == "style" or name.startswith("on")}


@pytest.mark.parametrize("name", OURS)
def test_nothing_of_ours_asks_elsewhere_or_makes_markup_of_texts(name: str) -> None:
    """No address of another machine, and no way for a name to become markup."""
    text = (STATIC / name).read_text("utf-8")

    assert not re.search(r"https?://|//cdn", text)
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )
    assert not re.search(r"localStorage|document\.cookie", text)


def test_the_page_shares_the_colours_of_the_reports(service: Stub) -> None:
    """The tokens of light and dark are those of the audit's page."""
    text = client(service).get("/static/base.css").text

    assert "prefers-color-scheme: dark" in text
    used = set(re.findall(r"var\((--\w+)\)", (STATIC / "page.css").read_text("utf-8")))
    used |= set(re.findall(r'"(--\w+)"', (STATIC / "charts.js").read_text("utf-8")))
    assert used <= set(re.findall(r"(--\w+):", text))


def test_what_others_wrote_stands_with_its_licence() -> None:
    """uPlot names its licence beside it, and is small."""
    assert "MIT" in (STATIC / "uplot.LICENSE").read_text("utf-8")
    assert (STATIC / "uplot.min.js").stat().st_size < 60_000
