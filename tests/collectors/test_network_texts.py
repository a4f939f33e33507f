"""What the kernel and ss tell of the network, as typed-in texts: whole, cut short, and garbage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoploss.collectors import network_texts as texts

SNMP = (
    "Ip: Forwarding DefaultTTL\nIp: 1 64\n"
    "Tcp: RtoAlgorithm MaxConn ActiveOpens InSegs OutSegs RetransSegs InErrs\n"
    "Tcp: 1 -1 67 16990 10623 42 0\n"
    "Udp: InDatagrams\nUdp: 7\n"
)

SS = """State      Recv-Q Send-Q    Local Address:Port      Peer Address:Port Process
ESTAB      0      0             10.0.0.1:22            10.0.0.9:51000
\t cubic wscale:7,7 rto:204 rtt:4/2 ato:40 mss:1448 cwnd:10 bytes_sent:99 minrtt:0.1
ESTAB      0      0             10.0.0.1:29500         10.0.0.2:40001
\t cubic wscale:7,7 rto:201 rtt:0.5/0.25 mss:1448 cwnd:10 rcv_rtt:17.5 retrans:0/3
ESTAB      0      0      [fe80::1]%eth0:22       [fe80::2]%eth0:40002
\t cubic rto:202 rtt:1/0.5 mss:1428
ESTAB      0      0            127.0.0.1:8080         127.0.0.1:40003
\t cubic rto:200 rtt:0.01/0.01
ESTAB      0      0   [::ffff:10.0.0.1]:80   [::ffff:10.0.0.1]:40004
\t cubic rto:200 rtt:0.01/0.01
CLOSE-WAIT 1      0             10.0.0.1:22            10.0.0.9:51001
\t cubic rto:200 rtt:900/900
TIME-WAIT  0      0             10.0.0.1:22            10.0.0.9:51002
ESTAB      0      0             10.0.0.1:22            10.0.0.9:51003
\t cubic rto:1000 mss:1448
"""


def test_segments_are_found_by_their_headings() -> None:
    """Segments sent and sent again are read wherever the kernel puts the columns."""
    assert texts.parse_segments(SNMP) == texts.Segments(10623, 42)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no pair of lines"),
        ("Tcp: OutSegs RetransSegs\n", "no pair of lines"),
        (SNMP[: SNMP.index("10623")], "no pair of lines"),
        ("Tcp: OutSegs\nTcp: 1\n", "no RetransSegs"),
        ("Tcp: OutSegs RetransSegs\nTcp: 1 -2\n", "'-2' is not a count"),
    ],
)
def test_segments_that_are_cut_short_are_told(text: str, why: str) -> None:
    """A text without both counts is unparsable, with what is wrong with it."""
    with pytest.raises(texts.Unparsable, match=why):
        texts.parse_segments(text)


def test_round_trips_are_medians_over_connections_to_other_hosts() -> None:
    """Of established connections that leave the host the medians count; unmeasured ones do not."""
    assert texts.parse_round_trips(SS) == texts.RoundTrips(0.001, 0.0005, 3)


@pytest.mark.parametrize(
    "text",
    [
        SS.splitlines()[0],
        "\n".join(SS.splitlines()[:2]),
        "State\n\t rtt:1/1\n",
        "State\nESTAB 0 0 somewhere nowhere\n\t rtt:1/1\n",
        "State\nESTAB 0 0 10.0.0.1:1 10.0.0.2:2\n\t minrtt:1/1 rtt:1 rtt:x/y\n",
    ],
)
def test_no_connection_has_no_round_trip(text: str) -> None:
    """Without a measured connection to another host there is no figure, and not a zero."""
    assert texts.parse_round_trips(text) is None


@pytest.mark.parametrize("text", ["", "ss: command garbled", "\0\0"])
def test_what_ss_does_not_print_is_told(text: str) -> None:
    """A text without the heading is unparsable."""
    with pytest.raises(texts.Unparsable, match="no heading"):
        texts.parse_round_trips(text)


@given(st.text(max_size=60), st.integers(0, len(SS)))
def test_any_text_is_parsed_or_refused(noise: str, cut: int) -> None:
    """Whatever stands in a text, and wherever it is cut, no other error comes up."""
    for text in (noise, SS[:cut] + noise, SNMP[:cut] + noise):
        for parse in (texts.parse_segments, texts.parse_round_trips, texts.parse_rate, texts.parse_speed):
            try:
                parse(text)
            except texts.Unparsable:
                continue


@pytest.mark.parametrize(("text", "speed"), [("1000\n", 125e6), ("400000\n", 50e9)])
def test_speeds_are_bytes_a_second(text: str, speed: float) -> None:
    """Mbit/s of an interface become bytes a second."""
    assert texts.parse_speed(text) == speed


@pytest.mark.parametrize("text", ["-1\n", "0\n", "4294967295\n", "", "fast\n"])
def test_a_speed_that_is_not_told_is_no_number(text: str) -> None:
    """The kernel's ways to say unknown are no speeds."""
    with pytest.raises(texts.Unparsable):
        texts.parse_speed(text)


def test_rates_are_bytes_a_second() -> None:
    """The rate of an RDMA port becomes bytes a second; anything else is refused."""
    assert texts.parse_rate("100 Gb/sec (4X EDR)\n") == 12.5e9
    for text in ("0 Gb/sec", "100 Gb", "", "x"):
        with pytest.raises(texts.Unparsable):
            texts.parse_rate(text)
