"""What a template may hold: data and methods of data, never a class, a function, a module or a frame.

From any of these a template reaches the rest of the process: ``__subclasses__`` and ``__globals__`` are public there.
"""

import types
from typing import Any

_CODE = (
    type,
    types.AsyncGeneratorType,
    types.ClassMethodDescriptorType,
    types.CodeType,
    types.CoroutineType,
    types.FrameType,
    types.FunctionType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.MethodWrapperType,
    types.ModuleType,
    types.TracebackType,
    types.WrapperDescriptorType,
)


def is_code(value: Any) -> bool:
    """Return whether ``value`` belongs to the program and not to its data; a method of a value does not."""
    if isinstance(value, types.BuiltinFunctionType):
        return isinstance(value.__self__, types.ModuleType)
    return isinstance(value, _CODE)


def is_data_name(name: str) -> bool:
    """Return whether a template may name an attribute so; the others are private to Python."""
    return not name.startswith("_")
