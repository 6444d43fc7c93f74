import pytest

from pyconfd.model.secrets import names_secret


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("stats_password", True),
        ("API_KEY", True),
        ("apikey", True),
        ("aws-secret-key", True),
        ("key_passphrase", True),
        ("db_pwd", True),
        ("token", True),
        ("token_file", False),
        ("monkey", False),
        ("key", False),
    ],
)
def test_secrets_are_known_by_their_names(name: str, secret: bool) -> None:
    assert names_secret(name) is secret
