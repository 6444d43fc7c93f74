"""Tokens of a Go template to its tree. Source: documentation of Go's ``text/template`` ("Actions", "Pipelines")."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyconfd.migrate.gotemplate.lexer import GoTemplateError, Places, Token, TokenKind, lex
from pyconfd.migrate.gotemplate.literals import code_of, number_of, text_of
from pyconfd.migrate.gotemplate.nodes import (
    Action,
    Branch,
    Call,
    Chain,
    Command,
    Comment,
    Define,
    Dot,
    Function,
    Jump,
    Literal,
    Pipeline,
    Template,
    Text,
    Variable,
)

_MAX_DEPTH = 60
"""How deep actions and parentheses may nest; deeper ones would exhaust the interpreter."""


def parse(text: str) -> Template:
    """Return the tree of a template.

    Raises:
        GoTemplateError: Go would refuse it.

    """
    return _Parser(text).run()


def _reader(read: Callable[[str], Any]) -> Callable[[Token], Any]:
    return lambda token: read(token.value)


_LITERALS: dict[TokenKind, Callable[[Token], Any]] = {
    TokenKind.STRING: _reader(text_of),
    TokenKind.CHAR: _reader(code_of),
    TokenKind.NUMBER: _reader(number_of),
    TokenKind.BOOL: lambda token: token.value == "true",
    TokenKind.NIL: lambda _token: None,
}


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = lex(text)
        self._places = Places(text)
        self._next = 0
        self._variables: list[str] = [""]
        self._ranges = 0
        self._depth = 0
        self._defined: dict[str, tuple[Any, ...]] = {}

    def run(self) -> Template:
        nodes, stopped = self._list(top=True)
        if stopped.kind is not TokenKind.END:
            raise self._error(f"unexpected {{{{{stopped.value}}}}}", stopped)
        return Template(tuple(nodes), self._defined)

    def _error(self, message: str, token: Token) -> GoTemplateError:
        return self._places.error(message, token.at)

    @contextmanager
    def _deeper(self, token: Token) -> Iterator[None]:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"nested more than {_MAX_DEPTH} deep", token)
        yield
        self._depth -= 1

    def _peek(self) -> Token:
        return self._tokens[self._next]

    def _take(self) -> Token:
        token = self._tokens[self._next]
        self._next = min(self._next + 1, len(self._tokens) - 1)
        return token

    def _expect(self, kind: TokenKind, where: str) -> Token:
        token = self._take()
        if token.kind is not kind:
            raise self._error(f"unexpected {token.value or 'end of the text'!r} in {where}", token)
        return token

    def _list(self, *, top: bool = False) -> tuple[list[Any], Token]:
        """Read nodes up to ``{{end}}``, ``{{else`` or the end of the text; give them and what ended them."""
        nodes: list[Any] = []
        while True:
            token = self._take()
            if token.kind is TokenKind.TEXT:
                nodes.append(Text(token.value, token.raw, token.trim_left, token.trim_right))
            elif token.kind is TokenKind.COMMENT:
                nodes.append(Comment(token.value, token.at))
            elif token.kind is TokenKind.END:
                return nodes, token
            else:
                keyword = self._peek()
                if keyword.kind is TokenKind.KEYWORD and keyword.value in ("end", "else"):
                    return nodes, self._take()
                nodes.append(self._action(token, top=top))

    def _action(self, opening: Token, *, top: bool) -> Any:  # noqa: PLR0911 - one for each kind of action
        token = self._peek()
        if token.kind is not TokenKind.KEYWORD:
            pipeline = self._pipeline("command", TokenKind.CLOSE)
            return Action(pipeline)
        self._take()
        match token.value:
            case "if" | "with" | "range":
                return self._branch(token)
            case "break" | "continue":
                self._expect(TokenKind.CLOSE, token.value)
                if not self._ranges:
                    raise self._error(f"{{{{{token.value}}}}} outside {{{{range}}}}", token)
                return Jump(token.value, token.at)
            case "template":
                name = self._name("template clause")
                if self._peek().kind is TokenKind.CLOSE:
                    self._take()
                    return Call(name, None, token.at)
                return Call(name, self._pipeline("template clause", TokenKind.CLOSE), token.at)
            case "block":
                name = self._name("block clause")
                value = self._pipeline("block clause", TokenKind.CLOSE)
                self._define(name, token)
                return Call(name, value, token.at)
            case _ if token.value == "define" and top:
                name = self._name("define clause")
                self._expect(TokenKind.CLOSE, "define clause")
                self._define(name, token)
                return Define(name, token.at)
        raise self._error("unexpected {{define}}", opening)

    def _name(self, where: str) -> str:
        token = self._expect(TokenKind.STRING, where)
        return str(self._literal(token).value)

    def _define(self, name: str, token: Token) -> None:
        variables, ranges = self._variables, self._ranges
        self._variables, self._ranges = [""], 0
        with self._deeper(token):
            nodes, stopped = self._list()
        self._variables, self._ranges = variables, ranges
        if stopped.value != "end":
            raise self._error(f"unexpected {stopped.value or 'end of the text'!r} in define of {name!r}", stopped)
        self._expect(TokenKind.CLOSE, "end")
        if _is_empty(self._defined.get(name, ())):
            self._defined[name] = tuple(nodes)
        elif not _is_empty(tuple(nodes)):
            raise self._error(f"multiple definition of template {name!r}", token)

    def _branch(self, token: Token, *, chained: bool = False) -> Branch:
        keyword = token.value
        known = len(self._variables)
        with self._deeper(token):
            pipeline = self._pipeline(keyword, TokenKind.CLOSE)
            self._ranges += keyword == "range"
            body, stopped = self._list()
            self._ranges -= keyword == "range"
            otherwise: tuple[Any, ...] | None = None
            is_chain = False
            if stopped.value == "else":
                following = self._peek()
                if following.kind is TokenKind.KEYWORD and following.value == keyword and keyword != "range":
                    self._take()
                    otherwise, is_chain = (self._branch(following, chained=True),), True
                else:
                    self._expect(TokenKind.CLOSE, "else")
                    nodes, stopped = self._list()
                    otherwise = tuple(nodes)
            if not is_chain:
                if stopped.value != "end" or stopped.kind is not TokenKind.KEYWORD:
                    raise self._error(f"unexpected {stopped.value or 'end of the text'!r} in {keyword}", stopped)
                self._expect(TokenKind.CLOSE, "end")
        del self._variables[known:]
        return Branch(keyword, pipeline, tuple(body), otherwise, token.at, chained)

    def _pipeline(self, where: str, closing: TokenKind) -> Pipeline:
        begin = self._peek()
        declared, assigns = self._declarations(where)
        commands: list[Command] = []
        while True:
            token = self._take()
            if token.kind is closing:
                break
            self._next -= 1
            commands.append(self._command())
            if self._peek().kind is TokenKind.PIPE:
                # Nothing need follow it: Go takes that too.
                self._take()
        if not commands:
            raise self._error(f"missing value for {where}", token)
        for command in commands[1:]:
            if isinstance(command.operands[0], Literal | Dot):
                raise self._places.error("non executable command in pipeline", command.at)
        return Pipeline(tuple(commands), begin.at, token.at, tuple(declared), assigns)

    def _declarations(self, where: str) -> tuple[list[Variable], bool]:
        declared: list[Variable] = []
        while self._peek().kind is TokenKind.VARIABLE:
            token, following = self._peek(), self._tokens[self._next + 1]
            is_last = following.kind in (TokenKind.DECLARE, TokenKind.ASSIGN)
            if not is_last and following.kind is not TokenKind.COMMA:
                break
            self._next += 2
            if following.kind is TokenKind.ASSIGN and token.value[1:] not in self._variables:
                raise self._error(f"undefined variable {token.value!r}", token)
            declared.append(Variable(token.value[1:], token.at))
            self._variables.append(token.value[1:])
            if is_last:
                return declared, following.kind is TokenKind.ASSIGN
            if where != "range" or len(declared) > 1:
                raise self._error(f"too many declarations in {where}", token)
        if declared:
            raise self._error("range can only initialize variables", self._peek())
        return [], False

    def _command(self) -> Command:
        operands: list[Any] = []
        begin = self._peek()
        while True:
            operand = self._operand()
            if operand is None:
                raise self._error(f"unexpected {self._peek().value or 'end of the text'!r} in operand", self._peek())
            operands.append(operand)
            following = self._peek()
            if following.kind in (TokenKind.CLOSE, TokenKind.RIGHT, TokenKind.PIPE):
                break
            if not following.spaced:
                raise self._error(f"unexpected {following.value!r} in operand", following)
        if isinstance(operands[0], Literal) and operands[0].value is None:
            raise self._error("nil is not a command", begin)
        if isinstance(operands[0], Literal | Dot) and len(operands) > 1:
            raise self._error("can't give argument to non-function", begin)
        return Command(tuple(operands), begin.at)

    def _operand(self) -> Any:
        base = self._term()
        if base is None:
            return None
        names: list[str] = []
        token = self._peek()
        while token.kind is TokenKind.FIELD and not token.spaced:
            names.append(self._take().value[1:])
            token = self._peek()
        if not names:
            return base
        if isinstance(base, Literal) or (isinstance(base, Dot) and base.at >= 0):
            raise self._error(f"unexpected . after term {token.value!r}", token)
        if isinstance(base, Chain):
            return Chain(base.base, (*base.names, *names), base.at)
        return Chain(base, tuple(names), base.at)

    def _term(self) -> Any:
        token = self._peek()
        node: Any = None
        match token.kind:
            case TokenKind.DOT:
                node = Dot(token.at)
            case TokenKind.FIELD:
                node = Chain(Dot(token.at), (token.value[1:],), token.at)
            case TokenKind.VARIABLE:
                if token.value[1:] not in self._variables:
                    raise self._error(f"undefined variable {token.value!r}", token)
                node = Variable(token.value[1:], token.at)
            case TokenKind.IDENTIFIER:
                node = Function(token.value, token.at)
            case TokenKind.LEFT:
                self._take()
                with self._deeper(token):
                    return self._pipeline("parenthesized pipeline", TokenKind.RIGHT)
            case kind if kind in _LITERALS:
                node = self._literal(token)
        if node is not None:
            self._take()
        return node

    def _literal(self, token: Token) -> Literal:
        try:
            return Literal(_LITERALS[token.kind](token), token.at)
        except ValueError as error:
            raise self._error(f"{token.value[:40]}: {error}", token) from None


def _is_empty(nodes: tuple[Any, ...]) -> bool:
    return all(
        isinstance(node, Comment | Define) or (isinstance(node, Text) and not node.value.strip()) for node in nodes
    )
