"""From a pass to machine code: compiled once for a process, kept on disk for the next.

Compiling a pass takes a tenth of a second in a few dimensions, seconds in many. Its object code
goes to ``$FINEMORPHS_CACHE_DIR``, or to ``finemorphs`` in the user's cache directory; a directory
that cannot be written, or a file that is damaged, costs only that.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import torch
from llvmlite import ir

from finemorphs.engines import _cpu_ir, _cpu_passes
from finemorphs.engines._cpu_ir import FLOAT32, FLOAT64
from finemorphs.engines._cpu_passes import PASSES, PassBuilder, Profile, Tiling

__all__ = ["Native", "Recipe", "Support", "cache_directory", "compiled", "is_compiled", "tiling"]

Native = Callable[[int], None]  # takes the address of its int64 arguments; frees the GIL

NUMBERS = {torch.float32: FLOAT32, torch.float64: FLOAT64}


@dataclass(frozen=True)
class Recipe:
    """One function to compile: a pass, for a kernel's shape and a dimension."""

    name: str
    dtype: torch.dtype
    profile: Profile
    dim: int

    def write(self, module: ir.Module) -> None:
        PassBuilder(
            module,
            PASSES[self.name],
            self.profile,
            self.dim,
            NUMBERS[self.dtype],
            tiling(self.name, self.dtype, self.dim),
        ).build()


@dataclass(frozen=True)
class Support:
    """``pack`` or ``collect``, which know no kernel and any dimension."""

    name: str
    dtype: torch.dtype

    def write(self, module: ir.Module) -> None:
        write = {"pack": _cpu_passes.build_pack, "collect": _cpu_passes.build_collect}
        number = NUMBERS[self.dtype]
        write[self.name](module, number, _vector_bytes() // number.itemsize)


@cache
def tiling(name: str, dtype: torch.dtype, dim: int) -> Tiling:
    """What was measured to be fastest; for the processor at hand."""
    number = NUMBERS[dtype]
    lanes = _vector_bytes() // number.itemsize
    vectors, columns = {"product": (1, 2), "self_product": (2, 4)}.get(name, (2, 2))
    if dim > 32:  # more would double the seconds that compiling takes there
        columns = 1
    return Tiling(lanes, vectors, columns, block=32)


_functions: dict[Recipe | Support, Native] = {}
_engines: list[Any] = []  # owners of the machine code
_lock = threading.Lock()


def _new_lock() -> None:
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


def is_compiled(recipe: Recipe | Support) -> bool:
    """Whether the function is at hand, in this process or on disk."""
    return recipe in _functions or _read(_file_name(recipe)) is not None


def compiled(recipe: Recipe | Support) -> Native:
    """The function of that recipe, compiled if it must be."""
    known = _functions.get(recipe)
    if known is not None:
        return known
    with _lock:
        if recipe not in _functions:
            file = _file_name(recipe)
            code = _read(file)
            if code is None:
                code = _compile(recipe)
                _write(file, code)
            _functions[recipe] = _link(code, recipe.name)
    return _functions[recipe]


def _compile(recipe: Recipe | Support) -> bytes:
    module = ir.Module(name=recipe.name)
    recipe.write(module)
    machine = _target_machine()
    parsed = llvm.parse_assembly(str(module))
    parsed.triple, parsed.data_layout = machine.triple, str(machine.target_data)
    # The passes are vectors and register blocks already: what is left is tidying.
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_unrolling = options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(parsed, builder)
    return bytes(machine.emit_object(parsed))


def _link(code: bytes, name: str) -> Native:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _engines.append(engine)
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return prototype(engine.get_function_address(name))


@cache
def _features() -> dict[str, bool]:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return dict(llvm.get_host_cpu_features())


def _target_machine() -> Any:
    _features()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(),
        features=llvm.get_host_cpu_features().flatten(),
        opt=3,
        jit=True,
    )


def _vector_bytes() -> int:
    features = _features()
    return 64 if features.get("avx512f") else 32 if features.get("avx") else 16


# -- on disk


def cache_directory() -> Path:
    """Where compiled passes are kept."""
    chosen = os.environ.get("FINEMORPHS_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or "~/AppData/Local"
    elif sys.platform == "darwin":
        base = "~/Library/Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(os.path.expanduser(base)) / "finemorphs"


@cache
def _fingerprint() -> str:
    """Everything that the machine code depends on but the recipe."""
    parts = [
        llvmlite.__version__,
        str(llvm.get_host_cpu_name()),
        llvm.get_default_triple(),
        str(sorted(_features().items())),
    ]
    for module in (_cpu_ir, _cpu_passes, sys.modules[__name__]):
        source = module.__file__
        assert source is not None
        parts.append(hashlib.sha256(Path(source).read_bytes()).hexdigest())
    return "\n".join(parts)


def _file_name(recipe: Recipe | Support) -> Path:
    key = hashlib.sha256(f"{_fingerprint()}\n{recipe}".encode()).hexdigest()
    return cache_directory() / f"{recipe.name}-{key[:32]}.o"


def _read(file: Path) -> bytes | None:
    """The object code, if the file is there and its checksum, the first 32 bytes, is right."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    checksum, code = content[:32], content[32:]
    return code if hashlib.sha256(code).digest() == checksum else None


def _write(file: Path, code: bytes) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as temporary:
            temporary.write(hashlib.sha256(code).digest() + code)
        os.replace(temporary.name, file)
    except OSError:
        pass
