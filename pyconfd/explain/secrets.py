"""What became of a Secret: which certificate files hold it, or why none does. Pure; no value of it is repeated."""

from collections.abc import Sequence

from pyconfd.explain.evidence import Evidence
from pyconfd.explain.fates import refused_value
from pyconfd.model.explanation import AnyFate, NotApplied, NotAsked, NotRendered, ObjectFate, Served, TurnedAway
from pyconfd.model.kubernetes import ObjectRef, Secret
from pyconfd.model.preset import PresetName
from pyconfd.model.rendering import FileKind, Rendering
from pyconfd.model.snapshot import Key
from pyconfd.presets.certificates import from_base64, key_body

TLS = "kubernetes.io/tls"


def fate_of_secret(key: Key, evidence: Evidence) -> ObjectFate:
    """Return the fate of a Secret that was read."""
    secret = evidence.snapshot.secrets[key]
    ref = ObjectRef("Secret", key.namespace, key.name, evidence.snapshot.cluster)
    mine = [each for each in evidence.refused if each.ref.kind == "Secret" and each.ref[1:3] == key]
    refused = tuple(refused_value(each, evidence) for each in mine)
    fate = _fate(key, secret, evidence, tuple(sorted({each.reason for each in refused})))
    remedy = refused[0].remedy if refused else ""
    if isinstance(fate, NotRendered):
        remedy = "give it to certificate_file in a fragment, and name the file in a bind"
    because = f"type {secret.type or '(none)'}"
    created = secret.metadata.creation_timestamp or ""
    return ObjectFate(str(ref), ref.cluster, "", because, (), fate, refused, remedy, created)


def why_not_read(key: Key, evidence: Evidence) -> str:
    """Return why a Secret that nobody knows of may exist all the same."""
    if key.namespace in evidence.secret_namespaces:
        return f"the cluster has no Secret {key.name} in namespace {key.namespace}, or pyconfd may not read it"
    return f"Secrets of namespace {key.namespace} are not read: add it to kubernetes.secret_namespaces"


def _fate(key: Key, secret: Secret, evidence: Evidence, refused: tuple[str, ...]) -> AnyFate:
    bodies = _keys_in(secret)
    if files := _files_with(bodies, evidence.serving):
        return Served((), files)
    if refused:
        return TurnedAway(refused)
    own = evidence.options.configmap
    of_configmap = PresetName.CONFIGMAP in evidence.presets and key == (own.namespace, own.keys)
    if secret.type != TLS and not of_configmap:
        return NotAsked((f"fragments get Secrets of type {TLS} only",))
    if _files_with(bodies, evidence.desired):
        return NotApplied()
    return NotRendered((f"{key.namespace}/{key.name}",), "no fragment writes it to a certificate file")


def _keys_in(secret: Secret) -> list[str]:
    """Return the private keys as certificate files hold them."""
    found = []
    for name, value in (secret.data or {}).items():
        try:
            found.append(key_body(from_base64(value, name)))
        except ValueError:
            continue  # another value of the Secret
    return found


def _files_with(bodies: Sequence[str], rendering: Rendering | None) -> tuple[str, ...]:
    files = rendering.files if rendering is not None else ()
    certificates = (file for file in files if file.kind is FileKind.CERTIFICATE)
    return tuple(file.path for file in certificates if any(body in file.content for body in bodies))
