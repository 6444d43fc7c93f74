"""``pyconfd fragments``: where the shipped fragments are, or a copy of them."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from pyconfd import fragments as shipped
from pyconfd import wiring  # noqa: F401 - registers the presets, which know their fragments
from pyconfd.cli.command import command
from pyconfd.cli.exits import Exit
from pyconfd.cli.output import print_text
from pyconfd.errors import ConfigurationError, Problem
from pyconfd.model.context import PresetName


@command(
    examples={
        "pyconfd fragments": "the directory of the usual ones",
        "pyconfd fragments --copy-to /etc/pyconfd": "to edit them there",
        "pyconfd fragments --preset kubefigurator --copy-to /etc/pyconfd": "those of another preset",
    },
    exits={Exit.CONFIGURATION: "not writable"},
    cls=click.Command,
)
@click.option(
    "--preset",
    "presets",
    multiple=True,
    type=click.Choice([name.value for name in PresetName]),
    help="The fragments of this preset; may be repeated. [default: domains]",
)
@click.option("--copy-to", metavar="DIR", type=click.Path(file_okay=False), help="Copy what is not there yet.")
def fragments(presets: tuple[str, ...], copy_to: str | None) -> int:
    """Show or copy the shipped fragments.

    Print where they are, or copy them with their tests; no file is overwritten.
    """
    chosen = presets or (PresetName.DOMAINS,)
    if copy_to is not None:
        for line in _copied({**shipped.of_presets(chosen), **shipped.tests_of(chosen)}, copy_to):
            print_text(line)
    elif presets:
        print_text("\n".join(map(str, shipped.of_presets(presets).values())))
    else:
        print_text(shipped.directory())
    return Exit.OK


def _copied(files: Mapping[str, Path], target: str) -> Iterator[str]:
    """Copy files below ``target`` by their names, and say so; a file that is there is never overwritten.

    Raises:
        ConfigurationError: the target cannot be written.
    """
    for name, origin in files.items():
        try:
            Path(target, name).parent.mkdir(parents=True, exist_ok=True)
            with Path(target, name).open("xb") as file:
                file.write(origin.read_bytes())
        except FileExistsError:
            if not Path(target, name).is_file():
                raise ConfigurationError(Problem(target, "cannot be written: a file is in the way")) from None
            yield f"kept    {name} (it is there already)"
        except OSError as error:
            place = str(error.filename or target)
            raise ConfigurationError(Problem(place, f"cannot be written: {error.strerror}")) from error
        else:
            yield f"copied  {name}"
