"""Dicts and lists that templates are given: they look like ordinary ones and refuse to be changed.

The same objects are given to one rendering after the other, so a change would stay and grow.
"""

from typing import Any, NoReturn


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise TypeError(
        "a given value cannot be changed; make one of your own, as in dict(items, port=80) or [*ips, other]"
    )


class GivenDict(dict[str, Any]):
    """A dict that cannot be changed."""

    __slots__ = ()
    __setitem__ = __delitem__ = __ior__ = update = pop = popitem = setdefault = clear = _refuse


class GivenList(list[Any]):
    """A list that cannot be changed."""

    __slots__ = ()
    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse
    append = extend = insert = pop = remove = reverse = sort = clear = _refuse
