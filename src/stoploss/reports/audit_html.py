"""An audit as one page of HTML that needs nothing else: no script, no request, no font.

It opens in a browser, survives a mail client, and prints. The numbers of every picture stand
in words beside it.
"""

from __future__ import annotations

from stoploss import __version__
from stoploss.engine.audit import Audit
from stoploss.reports import audit_causes, audit_heat, audit_view, plan
from stoploss.reports.pages import template


def render(audit: Audit) -> str:
    """The page. It shows the findings that cost most and counts the rest."""
    view = audit_view.view(audit)
    heat = audit_heat.picture(audit.heat, audit.timezone) if audit.heat else None
    causes = audit_causes.causes(audit)
    rows = plan.planned(audit)
    page = template("audit.html.j2").render(v=view, heat=heat, causes=causes, plan=rows, version=__version__)
    return page.rstrip() + "\n"
