"""Where the slots of each resolution lie in a state."""

from __future__ import annotations

from pathlib import Path

from stoploss.engine.history.store_errors import file_of, parsed
from stoploss.engine.state_database import make_schema


def place_of(url: str, resolution: float, main: float) -> str:
    """Where the slots of a resolution lie, made where a server has no place for them yet.

    Raises:
        StoreError: it cannot be made.
    """
    if resolution != main and parsed(url).get_backend_name() == "postgresql":
        make_schema(url, schema_of(resolution))
    return store_url(url, resolution, main)


def store_url(url: str, resolution: float, main: float) -> str:
    """Where the slots of a resolution lie: the finest beside the state, others in a file of their own."""
    if resolution == main:
        return url
    file = file_of(parsed(url))
    if file is None:
        mark = "&" if "?" in url else "?"
        return f"{url}{mark}options=-csearch_path%3D{schema_of(resolution)}"
    path, name = Path(file), f"{resolution:g}s".replace(".", "_")
    return url.replace(str(path), str(path.with_name(f"{path.stem}-{name}{path.suffix}")))


def schema_of(resolution: float) -> str:
    """Where on a server the slots of a resolution lie that is not the state's own."""
    return f"stoploss_{resolution:g}s".replace(".", "_")
