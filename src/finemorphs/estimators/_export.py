"""Writers of the prediction program: PyTorch's exported programs, and ONNX.

The input is ``X`` (n, d_X) and the output ``y`` or ``probabilities``, in single precision; the
number of rows is free. Names of features and labels of classes travel as metadata.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from finemorphs._typing import Tensor
from finemorphs._version import __version__
from finemorphs.estimators._tape import Operation, Tape

__all__ = ["FORMATS", "Program", "Signature"]

_OPSET = 17  # of ONNX, since 2022
_IR_VERSION = 8  # the container that came with it

_ON_TENSORS: dict[str, Callable[..., Tensor]] = {
    "Double": torch.Tensor.double,
    "Single": torch.Tensor.float,
    "MatMul": torch.matmul,
    "Add": torch.add,
    "Mul": torch.mul,
    "Relu": torch.relu,
    "Sqrt": torch.sqrt,
    "Exp": torch.exp,
    "Log": torch.log,
    "Softmax": partial(torch.softmax, dim=1),
}


@dataclass(frozen=True)
class Signature:
    """What goes in and out: X (n, n_features), and an output (n, *columns) of that name."""

    n_features: int
    output: str
    columns: tuple[int, ...]
    metadata: dict[str, Any]


class Program(torch.nn.Module):
    """A tape that PyTorch can run, and so export."""

    def __init__(self, tape: Tape) -> None:
        super().__init__()
        self._operations = tape.operations
        for name, values in tape.constants.items():
            self.register_buffer(name, torch.from_numpy(values))

    def forward(self, X: Tensor) -> Tensor:
        """Run the tape."""
        values = {"X": X, **dict(self.named_buffers())}
        for step in self._operations:
            values[step.output] = _ON_TENSORS[step.kind](*(values[name] for name in step.inputs))
        return values[self._operations[-1].output]


def _write_torch(path: str | os.PathLike[str], tape: Tape, signature: Signature) -> None:
    """A file for ``torch.export.load``; its metadata are the extra file "metadata.json"."""
    example = torch.zeros(2, signature.n_features)
    rows = torch.export.Dim("rows", min=1)
    program = torch.export.export(Program(tape).eval(), (example,), dynamic_shapes=({0: rows},))
    extra = {"metadata.json": json.dumps(signature.metadata)}
    torch.export.save(program, path, extra_files=extra)


def _write_onnx(path: str | os.PathLike[str], tape: Tape, signature: Signature) -> None:
    """A file for any ONNX runtime; its metadata are properties of the model."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError(
            "format='onnx' needs the package onnx, which is not installed; "
            "pip install 'finemorphs[export]'."
        ) from error
    helper, single = onnx.helper, onnx.TensorProto.FLOAT
    casts = {"Double": onnx.TensorProto.DOUBLE, "Single": single}

    def node(step: Operation) -> Any:
        if step.kind in casts:
            return helper.make_node("Cast", step.inputs, [step.output], to=casts[step.kind])
        return helper.make_node(step.kind, step.inputs, [step.output])  # softmax: the last axis

    *steps, last = tape.operations
    graph = helper.make_graph(
        [*map(node, steps), node(Operation(last.kind, last.inputs, signature.output))],
        "finemorphs",
        [helper.make_tensor_value_info("X", single, ["rows", signature.n_features])],
        [helper.make_tensor_value_info(signature.output, single, ["rows", *signature.columns])],
        [onnx.numpy_helper.from_array(values, name) for name, values in tape.constants.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="finemorphs",
        producer_version=__version__,
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    properties = {name: json.dumps(value) for name, value in signature.metadata.items()}
    helper.set_model_props(model, properties)
    onnx.checker.check_model(model, full_check=True)
    Path(path).write_bytes(model.SerializeToString())


FORMATS = {"onnx": _write_onnx, "torch": _write_torch}
