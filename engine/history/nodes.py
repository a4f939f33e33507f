"""Which machine's collector looks at what, where nodes tell a central stoploss what they see.

A collector of a node is called NODE/COLLECTOR wherever collectors are named; one of this machine has its
plain name. Whether somebody looked at a resource is asked of the collectors of the machines that told of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


def key_of(node: str, collector: str) -> str:
    """What a node's collector is called; `node` is empty for this machine."""
    return f"{node}/{collector}" if node else collector


def collector_of(key: str) -> str:
    """The plain name of a collector."""
    return key.rpartition("/")[2]


def provided(collector: str, looks: Iterable[str]) -> bool:
    """Whether a collector looks on any machine."""
    return any(collector_of(key) == collector for key in looks)


def keys_of(collector: str, nodes: tuple[str, ...], looks: Collection[str]) -> tuple[str, ...]:
    """The collectors of one name, among those that look, that look at what these machines told of.

    Where none of the machines has such a collector this machine's looks for all: what a scheduler or a
    shared file system says is said of every node.
    """
    found = tuple(key for node in nodes if (key := key_of(node, collector)) in looks)
    return found or ((collector,) if collector in looks else ())


def together(one: tuple[str, ...], other: tuple[str, ...]) -> tuple[str, ...]:
    """The machines that told of a resource, of two parts of what was told of it."""
    if one == other:
        return one
    return tuple(sorted({*(one or ("",)), *(other or ("",))}))
