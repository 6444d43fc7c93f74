"""One endpoint of etcd, through etcd3gw over its JSON gateway; the library's exceptions end here."""

import ssl
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar
from urllib.parse import urlsplit

import requests
import urllib3
from etcd3gw import Etcd3Client
from etcd3gw.exceptions import ConnectionTimeoutError, Etcd3Exception

from pyconfd.etcd.failures import EtcdError, EtcdFailure, error_of_answer, shown
from pyconfd.settings import EtcdSettings

CONNECT_TIMEOUT_S = 2.0
_Result = TypeVar("_Result")


class Gateway:
    """One endpoint. Not for several threads at once."""

    def __init__(self, url: str, settings: EtcdSettings) -> None:
        parts = urlsplit(url)
        self.url = url
        self._session = _session(settings)
        self._timeout_s = settings.timeout_s
        self._client = Etcd3Client(
            host=parts.hostname or "",
            port=parts.port or 2379,
            protocol=parts.scheme,
            session=self._session,
        )
        # The library hands it to requests as it is, which takes the pair.
        self._client.timeout = (min(CONNECT_TIMEOUT_S, settings.timeout_s), settings.timeout_s)  # type: ignore[assignment]

    def ask(self, call: Callable[[Etcd3Client], _Result]) -> _Result:
        """Return what ``call`` gets from the library.

        Raises:
            EtcdError: it failed, in whatever way.
        """
        with _translated(self.url):
            return call(self._client)

    def login(self, user: str, password: str) -> None:
        """Get a token and send it from now on.

        Raises:
            EtcdError: user and password are not accepted, or the endpoint does not answer.
        """
        self._session.headers.pop("Authorization", None)
        body = {"name": user, "password": password}
        answer = self.ask(lambda client: client.post(client.get_url("/auth/authenticate"), json=body))
        token = answer.get("token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token:
            raise EtcdError(EtcdFailure.BAD_ANSWER, self.url, "the login gave no token")
        self._session.headers["Authorization"] = token

    @property
    def logged_in(self) -> bool:
        """Whether a token is sent; etcd may have forgotten it."""
        return "Authorization" in self._session.headers

    def watch(self, key: bytes, silence_s: float) -> "Stream":
        """Watch a key from now on; ``silence_s`` without a word ends it.

        Raises:
            EtcdError: the watch was refused, or the endpoint does not answer.
        """
        with _translated(self.url):
            body = {"create_request": {"key": b64encode(key).decode()}}
            url = self._client.get_url("/watch")
            # The library's own watcher has no time-out, and dies in silence when etcd compacts.
            answer = self._session.post(url, json=body, stream=True, timeout=(CONNECT_TIMEOUT_S, silence_s))
            if answer.status_code != requests.codes["ok"]:
                text = answer.text
                answer.close()
                raise error_of_answer(self.url, text)
        return Stream(self.url, answer)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()


class Stream:
    """The answers to a watch, line by line."""

    def __init__(self, url: str, answer: requests.Response) -> None:
        self._url = url
        self._answer = answer

    def lines(self) -> Iterator[str]:
        """Return each line as it comes, until etcd or :meth:`interrupt` ends it.

        Raises:
            EtcdError: the connection broke, or was silent for too long.
        """
        with _translated(self._url):
            for line in self._answer.iter_lines(decode_unicode=False):
                if line.strip():
                    yield line.decode("utf-8", "replace")

    def interrupt(self) -> None:
        """End :meth:`lines` in another thread; the socket is closed by :meth:`close`."""
        try:
            self._answer.raw.shutdown()
        except (OSError, RuntimeError, ValueError, AttributeError):
            return  # it has ended already

    def close(self) -> None:
        """Give the connection back."""
        self._answer.close()


def _session(settings: EtcdSettings) -> requests.Session:
    session = requests.Session()
    # The environment has no say: REQUESTS_CA_BUNDLE would win over the configured CA, http_proxy over the route.
    session.trust_env = False
    # requests would take the CAs that it brings along, not those of the system.
    session.verify = settings.ca or ssl.get_default_verify_paths().cafile or True
    if settings.cert:
        session.cert = (settings.cert, settings.key)
    return session


@contextmanager
def _translated(url: str) -> Iterator[None]:
    """Turn what the libraries raise into EtcdError."""
    try:
        yield
    except EtcdError:
        raise
    except ConnectionTimeoutError as error:
        raise EtcdError(EtcdFailure.TIMEOUT, url, "no answer in time") from error
    except Etcd3Exception as error:
        cause = error.__context__
        if isinstance(cause, requests.exceptions.RequestException):
            raise _of_transport(url, cause) from error
        raise error_of_answer(url, error.detail_text or str(error)) from error
    except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
        raise _of_transport(url, error) from error
    except OSError as error:
        # requests says so of a CA file or a client certificate that is not there.
        raise EtcdError(EtcdFailure.CREDENTIALS, url, shown(str(error))) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EtcdError(
            EtcdFailure.BAD_ANSWER, url, f"an answer that is none of etcd's: {shown(str(error))}"
        ) from error


def _of_transport(url: str, error: Exception) -> EtcdError:
    text = str(error)
    if isinstance(error, requests.exceptions.SSLError) or "SSLError" in text or "[SSL" in text:
        return EtcdError(EtcdFailure.TLS, url, f"no trusted connection: {_reason(text)}")
    if isinstance(error, requests.exceptions.Timeout) or "timed out" in text:
        return EtcdError(EtcdFailure.TIMEOUT, url, "no answer in time")
    if isinstance(error, requests.exceptions.JSONDecodeError):
        return EtcdError(EtcdFailure.BAD_ANSWER, url, "an answer that is no JSON")
    return EtcdError(EtcdFailure.UNREACHABLE, url, f"no connection: {_reason(text)}")


def _reason(text: str) -> str:
    """Return the innermost reason: urllib3 nests them, and repeats the URL each time."""
    for mark in ("SSLError(", "NewConnectionError(", "Caused by "):
        _, found, rest = text.rpartition(mark)
        if found:
            text = rest
            break
    return shown(text.rsplit(": ", 1)[-1].partition(" (_ssl")[0].strip("')\"( ") or text)
