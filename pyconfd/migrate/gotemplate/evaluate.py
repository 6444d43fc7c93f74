"""Operands, commands and pipelines of Go to Jinja expressions."""

import difflib
from typing import Any

from pyconfd.migrate.gotemplate import functions
from pyconfd.migrate.gotemplate.expressions import Expression, UntranslatableError, text
from pyconfd.migrate.gotemplate.nodes import Chain, Command, Dot, Function, Literal, Pipeline, Variable
from pyconfd.migrate.gotemplate.scope import Scope
from pyconfd.migrate.gotemplate.types import SEVERAL, Scalar, Schema, Struct


class Evaluator:
    """What a pipeline is at one place: what the variables and the dot are there."""

    def __init__(self, schema: Schema, scope: Scope, dot: Expression) -> None:
        self._schema, self._scope, self._dot = schema, scope, dot

    def pipeline(self, pipeline: Pipeline) -> Expression:
        """Return the value of a pipeline.

        Raises:
            UntranslatableError: a part of it has no counterpart.

        """
        value: Expression | None = None
        for command in pipeline.commands:
            value = self._command(command, value)
        if value is None:
            raise UntranslatableError("it is empty", pipeline.at)
        return value

    def _command(self, command: Command, final: Expression | None) -> Expression:
        first, *rest = command.operands
        if isinstance(first, Function):
            arguments = [self._operand(operand) for operand in rest] + ([final] if final else [])
            return self._call(first, tuple(arguments))
        if rest or final:
            if isinstance(first, Chain):
                raise UntranslatableError(f".{first.names[-1]} takes no arguments", first.at)
            raise UntranslatableError("can't give argument to non-function", command.at)
        return self._operand(first)

    def _operand(self, node: Any) -> Expression:
        match node:
            case Literal():
                return _literal(node)
            case Dot():
                return self._dot
            case Variable():
                return self._variable(node)
            case Function():
                return self._call(node, ())
            case Pipeline():
                if node.declared:
                    raise UntranslatableError("a variable is declared inside parentheses", node.at)
                return self.pipeline(node)
            case Chain():
                value = self._operand(node.base)
                for name in node.names:
                    value = self._field(value, name, node.at)
                return value
        raise UntranslatableError(f"{type(node).__name__} is not known", 0)

    def _variable(self, node: Variable) -> Expression:
        binding = self._scope.find(node.name)
        if binding is None:
            raise UntranslatableError(f"undefined variable ${node.name}", node.at)
        return binding.value

    def _field(self, value: Expression, name: str, at: int) -> Expression:
        kind = value.kind
        if kind is Scalar.ANY and not isinstance(self._schema.root, Struct):
            return functions.dynamic_field(value, name)
        if kind in (Scalar.ANY, Scalar.MIXED, SEVERAL) and not (kind is SEVERAL and name == "String"):
            raise UntranslatableError(f".{name} of {functions.OF_SEVERAL_TYPES}", at)
        if not isinstance(kind, Struct):
            raise UntranslatableError(f"what stands before .{name} has no fields", at)
        if name in kind.fields:
            code, field_kind = kind.fields[name]
            return Expression(code if kind.is_root else functions.attribute(value, code), field_kind)
        if name == "String" and not kind.is_root:
            return functions.string_of(value)
        close = difflib.get_close_matches(name, kind.fields, n=1)
        meant = f"; did you mean .{close[0]}?" if close else f"; it has {', '.join(kind.fields)}"
        raise UntranslatableError(f"{kind.name} has no .{name}{meant}", at)

    def _call(self, node: Function, arguments: tuple[Expression, ...]) -> Expression:
        if node.name in self._schema.functions:
            codes = ", ".join(argument.code for argument in arguments)
            return Expression(f"{node.name}({codes})", self._schema.functions[node.name])
        if reason := functions.WITHOUT_COUNTERPART.get(node.name):
            raise UntranslatableError(f"function {node.name}: {reason}", node.at)
        translate = functions.BUILTIN.get(node.name)
        if translate is None:
            known = [*functions.BUILTIN, *self._schema.functions]
            close = difflib.get_close_matches(node.name, known, n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise UntranslatableError(f"there is no function {node.name}{meant}", node.at)
        try:
            return translate(arguments)
        except functions.WrongArgumentsError as error:
            raise UntranslatableError(f"{node.name}: {error}", node.at) from None


def _literal(node: Literal) -> Expression:
    match node.value:
        case None:
            return Expression("none", Scalar.NIL)
        case bool():
            return Expression(str(node.value).lower(), Scalar.BOOL)
        case str():
            return text(node.value)
        case int():
            return (
                Expression(str(node.value), Scalar.INT)
                if node.value >= 0
                else Expression(f"({node.value})", Scalar.INT)
            )
    return Expression(f"({node.value!r})" if "-" in repr(node.value) else repr(node.value), Scalar.FLOAT)
