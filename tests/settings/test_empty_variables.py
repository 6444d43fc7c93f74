"""Variables of the environment that are set to nothing."""

from pyconfd.settings import Source, resolve


def test_an_empty_listen_switches_the_page_off() -> None:
    found = resolve({}, {"PYCONFD_STATUS_LISTEN": "", "PYCONFD_LOG_LEVEL": ""}, lambda _: "")
    assert found.settings.status.listen == ""
    assert found.origins["status.listen"].source is Source.ENVIRONMENT
    assert found.origins["log.level"].source is Source.DEFAULT
