"""A publication as it stands on this machine: in its own directory of files, with its own certificates."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from pyconfd.errors import Problem, RejectedInput
from pyconfd.etcd.listeners import servable
from pyconfd.etcd.publication import Published, PublishedFile, public_part
from pyconfd.model.outcome import Step
from pyconfd.model.rendering import FileKind, OutputFile, Piece, Rendering, noted_certificate

_LISTS = re.compile(r"""[ \t]crt-list[ \t]+["']?([^\s"']+)""")
_OWN_PIECE = "certificates of this machine"


def localise(
    published: Published,
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
    directories = {
        f"{published.pointer.files_dir.rstrip('/')}/{kind.value}": f"{own}/{kind.value}" for kind in FileKind
    }
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
