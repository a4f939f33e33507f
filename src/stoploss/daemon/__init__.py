"""stoploss as a program that runs: looks, evaluates, tells and acts, again and again."""
