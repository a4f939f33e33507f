"""stoploss: policy-as-code rules that stop machine-learning training from losing money."""

__version__ = "0.1.0"
