"""The PyKeOps engine against the reference, where PyKeOps is installed and can compile."""

from __future__ import annotations

import builtins
import importlib.util

import pytest
import torch

from finemorphs.engines.keops import KeOpsEngine
from finemorphs.engines.reference import ReferenceEngine
from finemorphs.exceptions import EngineError
from finemorphs.kernels import Kernel

installed = pytest.mark.skipif(
    importlib.util.find_spec("pykeops") is None, reason="PyKeOps is not installed"
)
KERNELS = [Kernel("matern", 3, 0.8), Kernel("gaussian", width=0.8)]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
# PyKeOps' own imports and its compiler's messages.
pytestmark = pytest.mark.filterwarnings("ignore")


@installed
@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_keops_agrees_with_the_reference(kernel, device):
    try:
        engine = KeOpsEngine()
        engine.product(kernel, *torch.ones(3, 4, 2, device=device))
    except EngineError as error:
        pytest.skip(f"PyKeOps cannot compile here: {error}")
    source = torch.Generator().manual_seed(0)
    x, p, q, b = torch.randn(4, 60, 3, generator=source, dtype=torch.float64).to(device)
    y, a = torch.randn(2, 23, 3, generator=source, dtype=torch.float64).to(device)
    reference = ReferenceEngine()
    for method, arguments in (
        ("product", (x, y, a)),
        ("self_product", (x, b)),
        ("adjoint", (x, y, p, q, a)),
        ("self_adjoint", (x, p, b)),
    ):
        results = getattr(engine, method)(kernel, *arguments)
        expected = getattr(reference, method)(kernel, *arguments)
        torch.testing.assert_close(results, expected, rtol=1e-10, atol=1e-10)


def test_without_pykeops_the_error_says_what_to_install(monkeypatch):
    plain_import = builtins.__import__

    def no_keops(name, *args, **kwargs):
        if name.startswith("pykeops"):
            raise ModuleNotFoundError("No module named 'pykeops'")
        return plain_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_keops)
    with pytest.raises(EngineError, match=r"pip install 'finemorphs\[keops\]'"):
        KeOpsEngine()
