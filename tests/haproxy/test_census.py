"""How many servers a text sends traffic to."""

from pyconfd.haproxy.config.text import census_of
from pyconfd.model.context import Census

TEXT = """
backend a
    server one 192.0.2.1:80 check
    server two 192.0.2.2:80 weight 0
    server three 192.0.2.3:80 disabled
    server four 192.0.2.4:80 weight 10
    default-server weight 0
listen b
    bind :1
    server five 192.0.2.5:80
    server-template t 1-3 192.0.2.6:80
    server-template u 1-3 192.0.2.7:80 disabled
peers p
    server local 127.0.0.1:1024
backend empty
    server
"""


def test_servers_that_take_traffic_are_counted() -> None:
    assert census_of(TEXT) == Census(claimed=4, total=7)
    assert census_of("") == Census(0, 0)
