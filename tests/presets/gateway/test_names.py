"""What the name of a section says of the rule whose requests it takes."""

import pytest

from pyconfd.presets.gateway.routes import rule_of
from pyconfd.presets.routing.types import Decider, section_name


@pytest.mark.parametrize(
    ("section", "decider"),
    [
        ("gw_http_shop_cart_0", Decider("HTTPRoute", "shop", "cart", 0)),
        ("gw_grpc_shop_cart_15", Decider("GRPCRoute", "shop", "cart", 15)),
        ("gw_tls_shop_db_0", Decider("TLSRoute", "shop", "db", 0)),
        ("gw_tcp_shop_db_1_0", Decider("TCPRoute", "shop", "db", 1)),
        ("gw_http_shop_cart_2_failing", Decider("HTTPRoute", "shop", "cart", 2)),
        ("gw_http_shop_cart_12345678_3_1", Decider("HTTPRoute", "shop", "cart", 3)),
        ("gw_shop_web_80", None),
        ("gw_udp_shop_web_0", None),
        ("be_http_shop_web_0", None),
        ("ing_shop_web_80", None),
        ("gw_http_shop_cart", None),
        ("", None),
        (f"{section_name('gw', 'http', 'n' * 63, 'r' * 63)}_0", None),
    ],
)
def test_the_name_of_a_section_says_whose_rule_it_serves(section: str, decider: Decider | None) -> None:
    assert rule_of(section) == decider
