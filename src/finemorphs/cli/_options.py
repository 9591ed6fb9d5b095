"""The estimators' parameters as options of the command line, read off their signatures.

``kernel_width : float, list of float, ...`` becomes ``--kernel-width 0.5`` or
``--kernel-width 0.2,0.4``. What a signature gains, the command line gains.
"""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import typer
from rich.markup import escape

from finemorphs.estimators import FineMorphsClassifier, FineMorphsRegressor

__all__ = ["EstimatorOption", "estimator_options", "option_parameters"]

# What a single call of a program has no use for, or says in its own way.
_HIDDEN = {"callbacks", "verbose", "warm_start"}


@dataclass(frozen=True)
class EstimatorOption:
    """One parameter: its name, the kinds of value it takes, its default and its help."""

    name: str
    kinds: frozenset[str]  # of "bool", "int", "float", "str", "list", "None"
    default: Any
    help: str

    @property
    def flag(self) -> str:
        """How it is written: ``--kernel-width``."""
        return "--" + self.name.replace("_", "-")

    def parse(self, value: Any) -> Any:
        """The value behind text of the command line; what TOML has typed is left as it is."""
        if not isinstance(value, str):
            return value
        if "None" in self.kinds and value.lower() == "none":
            return None
        if "bool" in self.kinds and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if "list" in self.kinds and "," in value:
            return [self._number(part) for part in value.split(",")]
        number = self._number(value, strict="str" not in self.kinds)
        return value if number is None else number

    def _number(self, text: str, strict: bool = True) -> int | float | None:
        for kind, convert in (("int", int), ("float", float)):
            if kind in self.kinds:
                try:
                    return convert(text)
                except ValueError:
                    continue
        if strict:
            raise ValueError(f"{self.flag} takes {self._words()}, but {text!r} came.")
        return None

    def _words(self) -> str:
        words = {"int": "a whole number", "float": "a number", "None": "'none'"}
        taken = [words[kind] for kind in ("int", "float", "None") if kind in self.kinds]
        if "int" in self.kinds and "float" in self.kinds:
            taken.remove("a whole number")
        if "list" in self.kinds:
            taken.append("several with commas between them")
        return " or ".join(taken)


def estimator_options() -> dict[str, EstimatorOption]:
    """Every parameter of the regressor, or of the classifier alone, that a call can set."""
    options: dict[str, EstimatorOption] = {}
    for kind in (FineMorphsRegressor, FineMorphsClassifier):
        hints = get_type_hints(kind.__init__)
        texts = _described(inspect.getdoc(kind) or "")
        for name, parameter in inspect.signature(kind).parameters.items():
            if name not in _HIDDEN and name not in options:
                kinds, text = _kinds(hints[name]), texts.get(name, "")
                options[name] = EstimatorOption(name, kinds, parameter.default, text)
    return options


def option_parameters() -> list[inspect.Parameter]:
    """The options as parameters of a function that typer reads; None where one is not given."""
    return [_parameter(option) for option in estimator_options().values()]


def _parameter(option: EstimatorOption) -> inspect.Parameter:
    default = "none" if option.default is None else option.default
    annotation: Any
    if option.kinds == {"bool"}:
        annotation = bool | None
        info = typer.Option(help=escape(option.help), rich_help_panel="Model")
    else:
        annotation = str | None
        info = typer.Option(
            option.flag,
            help=escape(f"{option.help} [default: {default}]"),
            rich_help_panel="Model",
            metavar="VALUE",
        )
    return inspect.Parameter(
        option.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[annotation, info],
    )


def _kinds(hint: Any) -> frozenset[str]:
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds: set[str] = set()
    for member in members:
        if get_origin(member) is Sequence:
            kinds |= {"list", *(kind.__name__ for kind in get_args(member))}
        elif member is type(None):
            kinds.add("None")
        elif member in (bool, int, float, str):
            kinds.add(member.__name__)
    return frozenset(kinds)


def _described(doc: str) -> dict[str, str]:
    """Texts of the parameters in a numpydoc docstring, each on one line."""
    section = doc.partition("Parameters\n----------\n")[2]
    section = re.split(r"\n\n[A-Z]\w+\n-+\n", section)[0]
    texts: dict[str, str] = {}
    for match in re.finditer(r"(?m)^(\w[\w, ]*) : (.*)\n((?:    .*\n?|\n)*)", section):
        body, kind = _plain(" ".join(match[3].split())), _typed(match[2])
        is_words = re.search(r'[{"]', match[2])
        text = (f"{body} [values: {kind}]" if is_words else body) if body else kind
        texts |= {name.strip(): text for name in match[1].split(",")}
    return texts


def _plain(text: str) -> str:
    """Text without the marks of reStructuredText."""
    return re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")


def _typed(kind: str) -> str:
    """The values of a parameter, as one types them."""
    kind = re.sub(r",? default=.*|,? or Loss|dict, ", "", kind)
    return re.sub(r'[{}"]', "", kind).replace("None", "none")
