"""stoploss: policy-as-code rules that stop machine-learning training from losing money."""

from __future__ import annotations

# Not from `typing`: importing that takes twenty times as long as all of this.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from stoploss.training.request import listen, requested
    from stoploss.training.sampling import SamplingFilter
    from stoploss.training.track import track

__version__ = "0.1.0"

__all__ = ["SamplingFilter", "__version__", "listen", "requested", "track"]

_LAZY = {
    "SamplingFilter": "stoploss.training.sampling",
    "listen": "stoploss.training.request",
    "requested": "stoploss.training.request",
    "track": "stoploss.training.track",
}
"""What a training program uses -> its module, which is imported at the first use."""


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    value: object = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
