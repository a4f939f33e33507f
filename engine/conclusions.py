"""What findings come to together: incidents, causes and advice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stoploss.engine.advice import Advisor
from stoploss.engine.costs.accounts import Accounts
from stoploss.engine.evaluation.evaluator import Episode, RowStatus
from stoploss.engine.evaluation.explain_numbers import NumberExplainer
from stoploss.engine.incidents import Incident, Incidents, explained, priced
from stoploss.engine.promises import Promise, Promises
from stoploss.rules.catalogue import Catalogue
from stoploss.rules.policy import PolicySet

if TYPE_CHECKING:
    from stoploss.engine.findings import Finding


class Conclusions:
    """Takes what the policies of each resolution say; draws the conclusions at the end."""

    def __init__(self, policies: PolicySet, catalogue: Catalogue, accounts: Accounts) -> None:
        self._incidents = Incidents(policies.correlations)
        self._advisor = Advisor(catalogue)
        self._accounts = accounts
        self._promises = Promises(catalogue)

    def take(
        self,
        explainer: NumberExplainer,
        episodes: Sequence[Episode],
        rows: Sequence[RowStatus],
        found: Iterable[tuple[RowStatus, Finding]],
    ) -> list[Finding]:
        """Take one resolution at its newest slot: what ended, every row, and the findings among them.

        Returns those findings.
        """
        found = list(found)
        prices = self._accounts.prices(explainer.frame.resolution)
        self._incidents.take(explainer, episodes, rows, found)
        self._advisor.take(explainer, prices, found)
        self._promises.take(explainer, prices, episodes, rows)
        return [finding for _, finding in found]

    def drawn(self, findings: Sequence[Finding]) -> tuple[tuple[Finding, ...], tuple[Incident, ...]]:
        """The findings with their causes and advice, and the incidents with their price."""
        incidents = self._incidents.joined(findings)
        told = self._advisor.advised(explained(findings, incidents))
        return told, priced(incidents, told, self._accounts)

    @property
    def promises(self) -> tuple[Promise, ...]:
        """Advice that was taken: what it promised, and what it brought."""
        return tuple(self._promises.found)
