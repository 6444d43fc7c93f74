"""Asks the daemon for a page, as its settings say: where it listens, with which token and certificate."""

import hmac
import http.client
import ssl

from pyconfd.errors import Problem, RejectedInput, TransientError
from pyconfd.settings.sections import StatusSettings
from pyconfd.status.listen import Listen, parse_listen
from pyconfd.status.page_access import PageAccess, leaf_certificate, read_secret_file, read_token

_BODY_LIMIT_BYTES = 32 * 1024 * 1024


class AnswerTooLong(RejectedInput):
    """The daemon answers with more than a command reads."""


def get(settings: StatusSettings, path: str, timeout_s: float) -> bytes:
    """Return the body of a page of the daemon.

    Raises:
        TransientError: no answer in time, or none for us: the daemon has other settings, or we may not read the token.
        AnswerTooLong: the page is longer than 32 MiB.
        RejectedInput: somebody answers otherwise than pyconfd would.
    """
    listen = parse_listen(settings.listen)
    url = f"{PageAccess(settings).scheme}://{listen}"
    token, wanted = _files(settings)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection = _connection(settings.tls_certificate, listen, timeout_s)
    try:
        connection.connect()
        if isinstance(connection.sock, ssl.SSLSocket):
            _verify(connection.sock, wanted, settings.tls_certificate, url)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read(_BODY_LIMIT_BYTES + 1)
    except (OSError, http.client.HTTPException) as error:
        raise TransientError(Problem(url, f"no answer: {_said(error)}")) from error
    finally:
        connection.close()
    if answer.status == http.HTTPStatus.UNAUTHORIZED:
        message = f"does not take {f'the token in {settings.token_file}' if headers else 'a request without a token'}"
        raise TransientError(Problem(url, message, "pyconfd reload, if status.token_file was changed since its start"))
    if answer.status != http.HTTPStatus.OK:
        raise RejectedInput(Problem(url, f"answers {answer.status}: that is not pyconfd"))
    if len(body) > _BODY_LIMIT_BYTES:
        message = f"the answer is longer than {_BODY_LIMIT_BYTES >> 20} MiB"
        raise AnswerTooLong(Problem(url + path.partition("?")[0], message, "ask for less: one object, or one server"))
    return body


def _connection(certificate: str, listen: Listen, timeout_s: float) -> http.client.HTTPConnection:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(listen.host, listen.host)  # noqa: S104 - compares, binds nothing
    if not certificate:
        return http.client.HTTPConnection(host, listen.port, timeout=timeout_s)
    # It need not name this address, nor come from a known authority: _verify() compares it with the setting's.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, listen.port, timeout=timeout_s, context=context)


def _files(settings: StatusSettings) -> tuple[str, bytes]:
    """Return the token and the certificate of the page, empty where there is none.

    Raises:
        TransientError: a file cannot be used; it names all of these.
    """
    token, certificate, problems = "", b"", list[Problem]()
    try:
        if path := settings.token_file:
            token = read_token(path, read_secret_file(path))
    except TransientError as error:
        problems += error.problems
    try:
        if path := settings.tls_certificate:
            certificate = leaf_certificate(path, read_secret_file(path))
    except TransientError as error:
        problems += error.problems
    if problems:
        raise TransientError(*problems)
    return token, certificate


def _verify(secured: ssl.SSLSocket, wanted: bytes, path: str, url: str) -> None:
    """Check, before anything is sent, that the page has the certificate of the setting, ``wanted``.

    Raises:
        TransientError: it has another one.
    """
    if not hmac.compare_digest(secured.getpeercert(binary_form=True) or b"", wanted):
        remedy = "pyconfd status names a file that the daemon could not use; else pyconfd reload"
        raise TransientError(Problem(url, f"presents another certificate than {path} has", remedy))


def _said(error: Exception) -> str:
    """Return an error in words, without its number."""
    return (isinstance(error, OSError) and error.strerror) or str(error)
