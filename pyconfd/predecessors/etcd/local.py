"""A publication made fit for this machine: in its own directory of files, with its own certificates.

Listeners of preset ``kubefigurator`` are requested by annotation, so a certificate that this machine lacks costs only
what requested it, as where that preset renders for its own machine. What the operator's own fragments name is left as
it is.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from pyconfd.errors import Problem, RejectedInput
from pyconfd.model.outcome import Step
from pyconfd.model.rendering import FOLDERS, FileKind, OutputFile, Piece, Rendering, noted_certificate
from pyconfd.predecessors.etcd.publication import Publication, PublishedFile, public_part

log = structlog.get_logger(__name__)

_LISTS = re.compile(r"""[ \t]crt-list[ \t]+["']?([^\s"']+)""")
_OWN_PIECE = "certificates of this machine"


class LocalFiles:
    """What of a publication is this machine's own: its directory of files, and its certificates.

    ``fault`` returns what is wrong with the certificate at a path, "" where it can be served.
    """

    def __init__(self, files_dir: str, fault: Callable[[str], str] = lambda _: "") -> None:
        self._files_dir = files_dir
        self._fault = fault
        self.lacking: Mapping[str, str] = {}
        """The certificates that listeners lacked in the last rendering, with their faults."""

    def rendering(self, published: Publication) -> Rendering:
        """Return the rendering for this machine; raises what :func:`localise` raises."""
        rendering, lacking = localise(published, self._files_dir, fault=self._fault)
        for path in lacking.keys() - self.lacking.keys():
            log.warning("certificate.lacking", path=path, problem=lacking[path], remedy="put certificate and key there")
        self.lacking = lacking
        return rendering

    def fingerprint(self, published: Publication) -> str:
        """Name what the rendering is made of; a missing certificate is a name too."""
        try:
            return self.rendering(published).digest
        except RejectedInput as error:
            return str(error)


def depends_on_files(published: Publication) -> bool:
    """Return whether the rendering depends on files of this machine."""
    return bool(published.certificates) or names_certificates(published.pieces)


def localise(
    published: Publication,
    files_dir: str,
    read: Callable[[str], bytes] | None = None,
    fault: Callable[[str], str] = lambda _: "",
) -> tuple[Rendering, Mapping[str, str]]:
    """Return the rendering for this machine, and the certificates that listeners lack, by path with their ``fault``.

    Paths below the producer's directory of files become paths below ``files_dir``. Certificates are not part of it:
    they belong to the operator and are neither written nor removed. A comment at the end names them by the SHA-256 of
    their public parts, so that a renewed one is a change.

    Raises:
        RejectedInput: certificates are not there, or cannot be read; names each of them.
    """
    own = files_dir.rstrip("/")
    paths = {file.path: _moved(file.path, published.pointer.files_dir, own) for file in published.pointer.files}
    directories = {f"{published.pointer.files_dir.rstrip('/')}/{folder}": f"{own}/{folder}" for folder in FOLDERS}
    move = _mover({**paths, **directories})
    # A list of certificates holds paths, too.
    lists = {path for piece in published.pieces for path in _LISTS.findall(piece.text)}
    maps = {
        paths[file.path]: move(file.content) if file.path in lists else file.content for file in sorted(published.maps)
    }
    served = servable([Piece(piece.fragment, move(piece.text)) for piece in published.pieces], maps, fault)
    note = _certificates(published.certificates, paths, read or _read)
    pieces = (*served.pieces, *([Piece(_OWN_PIECE, note)] if note else []))
    files = (OutputFile(FileKind.MAP, path, content) for path, content in served.maps.items())
    return Rendering(pieces, tuple(sorted(files, key=lambda file: file.path))), served.lacking


def _read(path: str) -> bytes:
    return Path(path).read_bytes()


def _moved(path: str, former: str, own: str) -> str:
    return own + path.removeprefix(former.rstrip("/"))


def _mover(paths: Mapping[str, str]) -> Callable[[str], str]:
    """Return what replaces whole paths in a text; nothing where all stay."""
    moved = {path: own for path, own in paths.items() if path != own}
    if not moved:
        return lambda text: text
    longest_first = sorted(moved, key=len, reverse=True)
    # A path ends where a word of the configuration ends, or an argument of map(...).
    pattern = re.compile(
        rf"(?<![\w./@-])({'|'.join(map(re.escape, longest_first))})(?=/?(?:[\s\"',)\]]|$))", re.MULTILINE
    )
    return lambda text: pattern.sub(lambda found: moved[found[1]], text)


def _certificates(
    certificates: tuple[PublishedFile, ...], paths: Mapping[str, str], read: Callable[[str], bytes]
) -> str:
    lines, problems = [], []
    for certificate in certificates:
        path = paths[certificate.path]
        try:
            content = read(path).decode("ascii", "replace")
        except OSError as error:
            message = f"the published configuration needs this certificate: {error.strerror or error}"
            problems.append(Problem(path, message, "put certificate and key there; keys are never published"))
            continue
        lines.append(noted_certificate(path, public_part(content)))
    if problems:
        raise RejectedInput(*problems, step=Step.CHECK)
    return "".join(lines)


_LISTENER = re.compile(
    r"^frontend k8s-service_\S+_listen\n(?:[ \t].*\n|\n)*?(?P<bind>[ \t]+bind \S+ ssl (?P<what>crt(?:-list)?) .*\n)",
    re.MULTILINE,
)
"""As the shipped fragment ``10-kubefigurator.tmpl`` writes it."""
_CERTIFICATE = re.compile(r""" crt (?:"(?P<quoted>[^"\\]+)"|(?P<plain>[^\s"'\\]+))""")
_LIST = re.compile(r""" crt-list (?:"(?P<quoted>[^"\\]+)"|(?P<plain>[^\s"'\\]+))""")


@dataclass(frozen=True, slots=True)
class ServableListeners:
    """Pieces and contents of maps without what cannot be bound; ``lacking`` says which files, and why."""

    pieces: tuple[Piece, ...]
    maps: Mapping[str, str]
    lacking: Mapping[str, str]


def names_certificates(pieces: Sequence[Piece]) -> bool:
    """Return whether any listener depends on files of this machine."""
    return any(_LISTENER.search(piece.text) for piece in pieces)


def servable(pieces: Sequence[Piece], maps: Mapping[str, str], fault: Callable[[str], str]) -> ServableListeners:
    """Leave out each certificate that has a ``fault`` ("" for none), and each bind that is left with none."""
    contents = dict(maps)
    lacking: dict[str, str] = {}

    def usable(path: str) -> bool:
        wrong = fault(path)
        if wrong:
            lacking[path] = wrong
        return not wrong

    def listed(bind: str) -> bool:
        found = _LIST.search(bind)
        path = _path_in(found) if found else ""
        if path not in contents:
            return True
        lines = contents[path].splitlines(keepends=True)
        kept = [line for line in lines if not line.strip() or usable(line.split()[0])]
        if kept:
            contents[path] = "".join(kept)
        return bool(kept)

    def rewritten(found: re.Match[str]) -> str:
        bind = found["bind"]
        if found["what"] == "crt-list":
            served = bind if listed(bind) else ""
        else:
            certificates = list(_CERTIFICATE.finditer(bind))
            bad = [each for each in certificates if not usable(_path_in(each))]
            served = "" if len(bad) == len(certificates) else bind
            for each in bad:
                served = served.replace(each[0], "", 1)
        left_out = "" if served else f"    # not bound here: {bind.split()[1]}, it has no certificate\n"
        return f"{found[0][: -len(bind)]}{served or left_out}"

    changed = tuple(Piece(piece.fragment, _LISTENER.sub(rewritten, piece.text)) for piece in pieces)
    return ServableListeners(changed, contents, lacking)


def _path_in(found: re.Match[str]) -> str:
    return found["quoted"] or found["plain"]
