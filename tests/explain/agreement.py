"""Where ``pyconfd explain URL`` says that random requests go, against where HAProxy leads them."""

import ssl
from collections import Counter
from pathlib import Path
from random import Random

from pyconfd.explain.request import ClientRequest
from pyconfd.explain.request_answer import explain_request
from pyconfd.model.explanation import RequestAnswer
from tests.explain.random_requests import Served, cluster, request
from tests.explain.real import SERVED, Answered, NamedBackends

_OF_EACH_CLUSTER = 100


def answer_of(asked: ClientRequest, served: Served) -> RequestAnswer:
    answer = explain_request(asked, served.evidence).request
    assert answer is not None
    return answer


def agrees(answer: RequestAnswer, got: Answered) -> bool:
    """Return whether a client got what was said."""
    if got.status in {status for status, _ in answer.sometimes} and not got.backend:
        return True
    if answer.closed or answer.status:
        return got == Answered(answer.status, "", answer.location)
    return got.status == SERVED and got.backend in {name for name, share in answer.backends if share}


def _first(pem: str) -> str:
    end = "-----END CERTIFICATE-----"
    return pem[pem.index("-----BEGIN CERTIFICATE-----") : pem.index(end) + len(end)]


def compare(haproxy: NamedBackends, cases: int, seed: int) -> tuple[list[str], Counter[str]]:
    """Return those that differ, in words, and how many requests of each kind there were."""
    differing, kinds = list[str](), Counter[str]()
    for number in range(-(-cases // _OF_EACH_CLUSTER)):
        served = cluster(seed, number, str(haproxy.folder))
        haproxy.serve(served.seen.rendering, served.seen.context)
        files = [each for each in served.seen.context.files if each.path.endswith(".pem")]
        certificates = {Path(each.path).name: ssl.PEM_cert_to_DER_cert(_first(each.content)) for each in files}
        rng = Random(f"asked/{seed}/{number}")
        for _ in range(min(_OF_EACH_CLUSTER, cases - number * _OF_EACH_CLUSTER)):
            asked = request(rng, served)
            answer, got = answer_of(asked, served), haproxy.ask(asked)
            kinds["closed" if answer.closed else str(answer.status or "served")] += 1
            kinds["of several backends"] += len(answer.backends) > 1
            kinds["not covered"] += bool(answer.uncovered)
            presented = [each.text.partition(" ")[0] for each in answer.steps if each.part == "certificate"]
            kinds["certificates"] += bool(presented and got.certificate)
            is_other = presented and got.certificate and got.certificate != certificates[presented[0]]
            # No header of these clusters has a value for which it matters that HAProxy sets it.
            # Its answer decides, and no such service is there.
            asks = any("lets this client in" in each for each in answer.uncovered)
            has_end = not asks and (answer.closed or answer.status or answer.backends or not answer.uncovered)
            if is_other or (has_end and not agrees(answer, got)):
                steps = "\n    ".join(f"{each.part} {each.result} {each.text}" for each in answer.steps)
                differing.append(f"{served.name}: {dict(asked.asked)} {asked.headers}\n  got {got}\n    {steps}")
    return differing, kinds
