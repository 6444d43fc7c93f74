"""What ``pyconfd move --write`` makes of generated Ingresses, by a real HAProxy, against what ingress-nginx says."""

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from pyconfd.app.moving_objects import Left, Written, gateway_objects, objects_of
from pyconfd.model.snapshot import Key
from tests.moving.__main__ import Result, judged, refusals, report
from tests.moving.oracle import Made, documented, generated
from tests.moving.stage import GATEWAY_ADDRESS, MovingStage, moving_stage

_AT_A_TIME = 60
"""Ingresses: a namespace has 64 hosts with certificates."""


def results_of(stage: MovingStage, ingresses: Sequence[Made]) -> Iterator[Result]:
    """Serve what is written, and return how requests are answered; what is left out, or said to differ, is refused."""
    stage.address = GATEWAY_ADDRESS
    told = refusals(stage.context(*stage.beside, *_documents(ingresses)))
    keys = [Key("shop", made.name) for made in ingresses if made.name not in told]
    found = objects_of(stage.snapshot(*stage.beside, *_documents(ingresses)), stage.options, keys)
    objects = [each for one in found.values() if not isinstance(one, Left) for each in one.objects]
    context = stage.serving(*stage.beside, *map(yaml.safe_dump, (*gateway_objects(), *objects)))
    wrong = Counter(f"{each.ref.kind} {each.field}: {each.detail}" for each in context.refused)
    for text, count in wrong.items():
        sys.stdout.write(f"{count:4}  {text}\n")
    for made in ingresses:
        one = found.get(Key("shop", made.name))
        why = told.get(made.name, "") if one is None else f"left out: {one.why}" if isinstance(one, Left) else ""
        if isinstance(one, Written) and one.differs:
            why = f"told: {one.differs[0]}"
        yield judged(stage, made, why, documented(made))


def _documents(ingresses: Sequence[Made]) -> list[str]:
    return [yaml.safe_dump(each) for made in ingresses for each in made.documents]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, moving_stage(Path(folder)) as stage_:
        ingresses_ = list(generated(int(sys.argv[1]) if len(sys.argv) > 1 else 1))
        parts = (ingresses_[at : at + _AT_A_TIME] for at in range(0, len(ingresses_), _AT_A_TIME))
        report([each for part in parts for each in results_of(stage_, part)])
