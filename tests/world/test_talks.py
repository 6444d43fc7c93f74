"""A conversation with the real API server about status, Leases and Events goes the same way with the fake."""

from typing import Any

import pytest

from tests.world.apiserver import ApiServer
from tests.world.cluster import Cluster
from tests.world.exchange import TRANSCRIPTS, Exchange, Talk

TALKS = sorted(path.stem.removeprefix("talk-") for path in TRANSCRIPTS.glob("talk-*.json"))
WORDY = {400, 422}
"""Where the real server's words are those of its own parsers."""


def compared(answer: Exchange) -> Any:
    """Return what of an answer has to be the same: how it went, and of objects the status and who applied what."""
    body = answer.body
    if not isinstance(body, dict):
        return answer.status, body
    if answer.request.startswith("POST"):  # the defaults of each kind
        return answer.status
    if body["kind"] == "Status":
        return (
            answer.status,
            body["status"],
            body.get("reason"),
            None if answer.status in WORDY else body.get("message"),
        )
    owners = [
        {key: owner.get(key) for key in ("manager", "subresource", "fieldsV1")}
        for owner in body["metadata"].get("managedFields", ())
        if owner["operation"] == "Apply"
    ]
    status = {name: part for name, part in (body.get("status") or {}).items() if part}
    return answer.status, body["kind"], status, owners


@pytest.mark.parametrize("name", TALKS)
def test_the_fake_answers_in_a_conversation_as_the_real_one_did(name: str) -> None:
    talk = Talk.read(TRANSCRIPTS / f"talk-{name}.json")
    cluster = Cluster()
    if name == "absent-api":
        cluster.uninstall("gateway.networking.k8s.io")
    with ApiServer(cluster) as server:
        ours = talk.hold(server.url)
    for step, (answer, real) in enumerate(zip(ours, talk.answers, strict=True), 1):
        assert (step, compared(answer)) == (step, compared(real))
