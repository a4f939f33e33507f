"""The HTTP API and the page of a running stoploss, as an ASGI application over a small interface."""
