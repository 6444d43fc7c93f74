"""What becomes of Ingresses that were written for ingress-nginx: the same, different, or refused. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import NamedTuple

from pyconfd.model.context import ALL_NAMESPACES, PresetName, Refusal, RefusalReason
from pyconfd.model.ingress import Ingress
from pyconfd.model.snapshot import Key, Snapshot
from pyconfd.presets import registry, values
from pyconfd.presets.annotations import AnnotationEffect, effects_of
from pyconfd.presets.ingress.classes import OwnClasses, class_of, own_classes
from pyconfd.presets.policies.nginx import PREFIX, is_canary, read_nginx
from pyconfd.presets.policies.nginx_snippets import SNIPPET
from pyconfd.presets.preset import PresetOptions

_MOST_CLASSES = 10
"""Classes that are named, of those that are not looked at."""
_OF_HOST = frozenset({f"{PREFIX}auth-tls-secret", f"{PREFIX}server-snippet"})
"""What ingress-nginx takes for the host, whichever Ingress says it: so it closed others' paths too."""
_SNIPPET = f"{PREFIX}{SNIPPET}"
_SNIPPETS = (_SNIPPET, f"{PREFIX}server-snippet", f"{PREFIX}auth-snippet")
_HINTS = (
    (("deny ", "allow "), "clients by their network: pyconfd.io/allow-networks or deny-networks"),
    (("client_max_body_size",), "a limit for bodies: pyconfd.io/max-body-size"),
    (("proxy_read_timeout", "proxy_send_timeout"), "a timeout: pyconfd.io/server-timeout"),
    (("proxy_set_header", "more_set_input_headers"), "headers for pods: pyconfd.io/request-headers"),
    (
        ("add_header", "more_set_headers", "more_clear_headers"),
        "headers of answers: pyconfd.io/response-headers or remove-response-headers",
    ),
    (("return 30", "rewrite "), "a redirect or another path: pyconfd.io/redirect or rewrite-path"),
    (("auth_request", "auth_basic"), "authentication"),
    (("return 4",), "requests that are refused: leave their path out"),
)


class Verdict(StrEnum):
    """What becomes of an Ingress."""

    SAME = "same"
    DIFFERENT = "different"
    REFUSED = "refused"
    """All of it, or paths of it, are not served."""


class Moves(NamedTuple):
    """What becomes of Ingresses, by name; ``notes`` say what was not looked at."""

    moves: tuple["IngressMove", ...]
    notes: tuple[str, ...]


class IngressMove(NamedTuple):
    """One Ingress. ``notes`` say what differs and what to write, ``opened`` what would be open that was closed."""

    key: Key
    verdict: Verdict
    notes: tuple[str, ...]
    opened: tuple[str, ...] = ()


def moves_of(snapshot: Snapshot, options: PresetOptions, classes: tuple[str, ...]) -> Moves:
    """Return what becomes of each Ingress of ``classes``.

    Nobody has to put Secrets into a file for this: where it has none, certificates are not looked at.
    """
    own = own_classes(snapshot.ingressclasses, classes)
    found = {key: each for key, each in snapshot.ingresses.items() if own.are_nginx(each)}
    options = replace(options, nginx_classes=classes, tls=replace(options.tls, namespaces=(ALL_NAMESPACES,)))
    # The preset gateway reads ReferenceGrants, which let an auth-url name a Service of another namespace.
    context = registry.translate(snapshot, (PresetName.INGRESS, PresetName.GATEWAY), options, registry.Memo())
    unseen = RefusalReason.NO_CERTIFICATE if not snapshot.secrets else None
    refused: defaultdict[Key, list[Refusal]] = defaultdict(list)
    for each in context.refused:
        if each.ref.kind == "Ingress" and each.reason is not unseen:
            refused[Key(each.ref.namespace, each.ref.name)].append(each)
    closing = _hosts_closed_by_others(found)
    moves = (_move(key, ingress, refused[key], closing) for key, ingress in sorted(found.items()))
    return Moves(tuple(moves), tuple(_not_looked_at(snapshot, own, found, classes)))


def _not_looked_at(
    snapshot: Snapshot, own: OwnClasses, found: Mapping[Key, Ingress], classes: tuple[str, ...]
) -> Iterator[str]:
    if not snapshot.ingresses:
        yield "there is no Ingress in it: kubectl get ingresses,ingressclasses,services,endpointslices,nodes -A -o yaml"
    others = Counter(class_of(each) for each in snapshot.ingresses.values() if not own.serve(each))
    if others:
        listed = ", ".join(
            f"{count} {'without a class' if name is None else f'of class {values.shortened(name)}'}"
            for name, count in others.most_common(_MOST_CLASSES)
        )
        more = f", and {len(others) - _MOST_CLASSES} more classes" if len(others) > _MOST_CLASSES else ""
        yield (
            f"not looked at, since their class is not {' or '.join(classes)}: {listed}{more};"
            " PYCONFD_INGRESS_NGINX_CLASSES=a,b names classes of ingress-nginx"
        )
    if not snapshot.secrets and any(each.spec.tls for each in found.values()):
        yield "certificates were not looked at: there are no Secrets in it; pyconfd reads kubernetes.secret_namespaces"


def _move(key: Key, ingress: Ingress, refused: list[Refusal], closing: Mapping[str, tuple[Key, str]]) -> IngressMove:
    stops = [each for each in refused if not each.reason.is_note]
    notes = [f"{each.field}{f' {each.value}' if each.value else ''}: {each.detail}" for each in refused]
    notes += _snippets(ingress) if not is_canary(ingress.metadata.annotations) else ()
    verdict = Verdict.REFUSED if stops else Verdict.DIFFERENT if notes else Verdict.SAME
    return IngressMove(key, verdict, tuple(notes), tuple(_opened(key, ingress, stops, closing)))


def _opened(key: Key, ingress: Ingress, stops: list[Refusal], closing: Mapping[str, tuple[Key, str]]) -> Iterator[str]:
    """Return what would be open that ingress-nginx closed."""
    annotations = ingress.metadata.annotations or {}
    if is_canary(annotations):
        return  # what restricts its main Ingress holds for its requests, there as here
    is_shut = any(each.reason is RefusalReason.UNSUPPORTED_ANNOTATION for each in stops)
    restricting = _restricts(ingress)
    for name in restricting:
        if not is_shut and not any(name in each.field for each in stops) and name not in read_nginx(annotations).read:
            yield f"{name} restricts, and is in ingress.ignored_annotations: implement it before you move"
    for host in dict.fromkeys(rule.host for rule in ingress.spec.rules or ()):
        other, name = closing.get(host, (key, ""))
        if other != key and not restricting:
            yield f"host {host}: {name} of Ingress {'/'.join(other)} was for all of the host: move these paths with it"


def _restricts(ingress: Ingress) -> list[str]:
    annotations = ingress.metadata.annotations
    headers = {_SNIPPET} & read_nginx(annotations).read
    found = effects_of(annotations)
    return [name for name, effect in found if effect is AnnotationEffect.RESTRICTS and name not in headers]


def _hosts_closed_by_others(ingresses: Mapping[Key, Ingress]) -> dict[str, tuple[Key, str]]:
    found: dict[str, tuple[Key, str]] = {}
    for key, ingress in sorted(ingresses.items()):
        annotations = ingress.metadata.annotations or {}
        for name in sorted(_OF_HOST & annotations.keys()) if not is_canary(annotations) else ():
            for rule in ingress.spec.rules or ():
                found.setdefault(rule.host, (key, name))
    return found


def _snippets(ingress: Ingress) -> Iterator[str]:
    """Return what snippets probably want; they are text here, and nothing of them is executed."""
    annotations = ingress.metadata.annotations or {}
    read = read_nginx(annotations).read
    for name in _SNIPPETS:
        text = annotations.get(name, "")
        if text and name not in read:
            wanted = [hint for words, hint in _HINTS if any(word in text for word in words)]
            fixed = ", of fixed values: there are no variables ($)" if "$" in text and wanted else ""
            yield f"{name} probably wants {'; '.join(wanted) or 'something that pyconfd does not know'}{fixed}"
