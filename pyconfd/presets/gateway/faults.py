"""Why a rule of a route cannot be served, found while it is parsed."""

from typing import NamedTuple, NoReturn


class RuleFault(NamedTuple):
    """One value of a rule that is not taken. ``reason`` is that of the route's condition ``Accepted``.

    ``field`` is its path in the rule, as in ``matches[0].path.value``; ``detail`` says what would be taken.
    """

    reason: str
    field: str
    value: str
    detail: str


UNSUPPORTED = "UnsupportedValue"
INCOMPATIBLE = "IncompatibleFilters"


class InvalidRule(ValueError):  # noqa: N818 - it carries a RuleFault out of a parser
    """Ends the parsing of a rule."""

    def __init__(self, fault: RuleFault) -> None:
        self.fault = fault
        super().__init__(fault.detail)


def refuse(field: str, value: object, detail: str, reason: str = UNSUPPORTED) -> NoReturn:
    """End the parsing of a rule.

    Raises:
        InvalidRule: always.
    """
    raise InvalidRule(RuleFault(reason, field, str(value), detail))
