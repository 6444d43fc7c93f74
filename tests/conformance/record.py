"""Record what a real API server answers: ``python -m tests.conformance.record``, as root.

Each file ``talk-NAME.json`` among the transcripts is a conversation: requests in order, each with its answer. The
requests are kept and the answers written again. ``{3.metadata.resourceVersion}`` in a request is a value of the third
answer.
"""

import json
import ssl
import tempfile
from pathlib import Path

from tests.conformance.controlplane import CACHE, ControlPlane
from tests.conformance.namespaces import enter
from tests.world.exchange import TRANSCRIPTS, Talk

CRDS = CACHE / "gateway-api" / "config" / "crd" / "standard"


def main() -> None:
    """Record all conversations on one control plane; the first, without the Gateway API, before its CRDs are there."""
    enter("tests.conformance.record")
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        context = ssl.create_default_context(cafile=str(plane.ca))
        paths = sorted(TRANSCRIPTS.glob("talk-*.json"), key=lambda path: (path.stem != "talk-absent-api", path.stem))
        for path in paths:
            talk = Talk.read(path)
            answers = talk.hold(plane.url, context=context, headers={"Authorization": f"Bearer {plane.token}"})
            path.write_text(json.dumps(talk.document(answers), indent=1) + "\n", encoding="utf-8")
            print(path.name, *(answer.status for answer in answers))
            if path is paths[0]:
                plane.apply("-f", str(CRDS))
                plane.kubectl("wait", "--for=condition=Established", "customresourcedefinitions", "--all")


if __name__ == "__main__":
    main()
