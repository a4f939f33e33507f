"""An audit as one page of HTML that needs nothing else: no script, no request, no font.

It opens in a browser, survives a mail client, and prints. The numbers of every picture stand
in words beside it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from stoploss import __version__
from stoploss.engine.audit import Audit
from stoploss.reports import audit_heat, audit_view

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, those that turn the direction of text around, and halves of characters."""


def render(audit: Audit) -> str:
    """The page. It shows the findings that cost most and counts the rest."""
    view = audit_view.view(audit)
    heat = audit_heat.picture(audit.heat, audit.timezone) if audit.heat else None
    return _template().render(v=view, heat=heat, version=__version__).rstrip() + "\n"


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_readable,
    )
    return environment.get_template("audit.html.j2")


def _readable(value: Any) -> Any:
    """A name that holds control characters shows where they are, and cannot use them."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return _UNSEEN.sub("\ufffd", value)
    return value
