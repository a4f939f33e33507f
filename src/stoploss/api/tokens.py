"""Who may do what: tokens with scopes, read from a file or from variables.

```yaml
version: 1
tokens:
  - {name: oncall, token-env: STOPLOSS_ONCALL, scopes: [read, approve, admin]}
  - {name: vision, token-file: /run/secrets/vision, scopes: [read, approve], team: vision}
  - {name: nodes, token-env: STOPLOSS_NODES, scopes: [ingest]}
```

Only a token's hash is compared, and all of them are, so that how long it takes says nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

from stoploss.engine.costs.accounts import NO_TEAM
from stoploss.engine.masking import Masker
from stoploss.rules.diagnostics import Diagnostics, Position
from stoploss.rules.loading.files import read_files
from stoploss.rules.loading.structure import check, expect_mapping
from stoploss.rules.models.base import Section
from stoploss.rules.models.fields import NAME, TEXT, Reads, choices, problem

SCOPES = ("read", "approve", "ingest", "admin")
SHORTEST = 16
"""Characters of a token; shorter ones can be guessed."""
WHOLE = ("ingest", "admin")
"""Scopes that concern every team, and go with none."""


class TokensError(Exception):
    """The tokens cannot be used; the text says why and what to do, and holds no token."""


def _secret(value: Any) -> str:
    if not isinstance(value, str):
        raise problem("wrong-type", "a token stands as something else than a text", "quote it")
    return value


def _version(value: Any) -> int:
    if value != 1 or isinstance(value, bool):
        raise problem("unsupported-version", "the version is not 1", "write version: 1")
    return 1


class _Token(Section):
    name: Annotated[str, NAME]
    token: Annotated[str | None, Reads(_secret, {"type": "string"})] = None
    token_env: Annotated[str | None, TEXT] = None
    token_file: Annotated[str | None, TEXT] = None
    scopes: Annotated[tuple[str, ...], choices(*SCOPES)]
    team: Annotated[str | None, TEXT] = None
    placeholders: ClassVar[dict[str, Any]] = {"name": "unnamed", "scopes": ["read"]}


class _File(Section):
    version: Annotated[int, Reads(_version, {"const": 1})]
    tokens: tuple[_Token, ...]
    placeholders: ClassVar[dict[str, Any]] = {"version": 1, "tokens": []}


@dataclass(frozen=True, slots=True)
class Token:
    """One token: its name, which the ledger names as who decided, its hash, and what it may do.

    `team`: it sees and decides only what is that team's; None is everything.
    """

    name: str
    digest: bytes = field(repr=False)
    scopes: frozenset[str]
    team: str | None = None


class Tokens:
    """All tokens; none at all is meant for one's own machine."""

    def __init__(self, tokens: Iterable[Token] = (), secrets: Iterable[str] = ()) -> None:
        """Keep the tokens; `secrets` are taken out of whatever is answered."""
        self._tokens = tuple(tokens)
        self.masker = Masker({f"TOKEN_{at}": secret for at, secret in enumerate(secrets)})

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def __len__(self) -> int:
        return len(self._tokens)

    def find(self, presented: str) -> Token | None:
        """The token that was presented; None where it is none of them."""
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        found = None
        for token in self._tokens:
            if hmac.compare_digest(digest, token.digest):
                found = token
        return found


def made(items: Iterable[tuple[str, str, Iterable[str], str | None]]) -> Tokens:
    """Tokens of (name, token, scopes, team).

    Raises:
        TokensError: one is short, twice there, or has scopes that do not go together.
    """
    tokens: dict[str, Token] = {}
    secrets: list[str] = []
    for name, secret, scopes, team in items:
        wanted = frozenset(scopes)
        if wrong := _wrong(name, secret, wanted, team):
            raise TokensError(f"token {name}: {wrong}")
        if name in tokens:
            raise TokensError(
                f"token {name}: there are two of this name; the ledger could not tell them apart"
            )
        if secret in secrets:
            raise TokensError(f"token {name}: it is the same as another; make one for each")
        secrets.append(secret)
        tokens[name] = Token(name, hashlib.sha256(secret.encode()).digest(), wanted, team)
    return Tokens(tokens.values(), secrets)


def _wrong(name: str, secret: str, scopes: frozenset[str], team: str | None) -> str | None:
    if not name or not name.isprintable():
        return "its name is none"
    if len(secret) < SHORTEST or not secret.isascii() or not secret.isprintable() or " " in secret:
        return (
            f"it has fewer than {SHORTEST} characters, or others than a header can carry; "
            "make one with: openssl rand -hex 32"
        )
    if not scopes or scopes - set(SCOPES):
        return f"give it scopes out of {', '.join(SCOPES)}"
    if team is None:
        return None
    if whole := [scope for scope in WHOLE if scope in scopes]:
        return f"{' and '.join(whole)} concern every team; leave the team out, or the scope"
    if not team.isprintable() or set(team) & set("\"'\\") or team in ("", "?", NO_TEAM):
        return f"{team!r} names no team"
    return None


def read(path: str, environ: Mapping[str, str]) -> Tokens:
    """Tokens of a YAML or JSON file; what it names is read now.

    Raises:
        TokensError: it cannot be read, or holds a mistake; all of them are told.
    """
    diagnostics = Diagnostics()
    document = next(iter(read_files([path], diagnostics).documents.values()), None)
    root = None
    if document is not None and document.root is not None:
        root = expect_mapping(document.root, "a file of tokens", diagnostics)
    checked = None if root is None else check(_File, root, diagnostics).value
    if checked is not None and not checked.tokens and not diagnostics.has_errors:
        diagnostics.add("bad-value", "there is no token", Position(path), fix="give one, or no file")
    if checked is None or diagnostics.has_errors:
        # Without the source lines, as they may hold tokens.
        told = "\n".join(
            f"{item.position}: {item.message}" + (f" ({item.fix})" if item.fix else "")
            for item in diagnostics.sorted()
        )
        raise TokensError(told or f"{path}: there is nothing in it")
    try:
        return made((item.name, _read(item, environ), item.scopes, item.team) for item in checked.tokens)
    except TokensError as error:
        raise TokensError(f"{path}: {error}") from None


def from_environment(
    names: Iterable[str], environ: Mapping[str, str], scopes: Iterable[str] = SCOPES
) -> Tokens:
    """A token per variable, each with these scopes, named like its variable.

    Raises:
        TokensError: a variable is not set, or what it holds is no token.
    """
    wanted = tuple(scopes)
    return made((name, _variable(name, environ), wanted, None) for name in names)


def _read(item: _Token, environ: Mapping[str, str]) -> str:
    given = [key for key in ("token", "token_env", "token_file") if getattr(item, key) is not None]
    if len(given) != 1:
        raise TokensError(f"token {item.name}: give one of token, token-env and token-file")
    if item.token is not None:
        return item.token
    if item.token_env is not None:
        return _variable(item.token_env, environ)
    try:
        return Path(item.token_file or "").read_text("utf-8").strip()
    except (OSError, UnicodeError) as error:
        raise TokensError(f"token {item.name}: its file cannot be read ({type(error).__name__})") from None


def _variable(name: str, environ: Mapping[str, str]) -> str:
    if not environ.get(name):
        raise TokensError(f"the variable {name} is not set; it holds a token")
    return environ[name]


def loopback(host: str) -> bool:
    """Whether an address or a name is this machine's own, that nobody else reaches."""
    name = host.strip().strip("[]").rstrip(".").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def refuse_to_bind(host: str, tokens: Tokens) -> str | None:
    """Why the API must not listen there; None where it may."""
    if tokens or loopback(host):
        return None
    where = host or "every address"
    return (
        f"listening on {where} without tokens would let anybody who reaches this machine read and decide; "
        "give a file of tokens, or listen on 127.0.0.1"
    )
