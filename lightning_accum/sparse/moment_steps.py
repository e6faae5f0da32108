"""Lists of tensors as lines of memory, over which an optimizer steps together."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from lightning_accum._compat.torch_internals import foreach
from lightning_accum.sparse.kernel_library import At, Int, Real, fields, kernel_for, threads_among


def dense(tensor: Tensor) -> bool:
    """Returns whether the elements fill a contiguous range of memory, in any order."""
    return tensor.is_contiguous() or torch.empty_like(tensor).stride() == tensor.stride()


def same_layout(tensor: Tensor, other: Tensor) -> bool:
    """Returns whether two tensors of one shape have their elements in the same order in memory."""
    return all(
        size == 1 or one == two
        for size, one, two in zip(tensor.shape, tensor.stride(), other.stride(), strict=True)
    )


# Parameters, gradients, first and second moments, and their maxima if there are any.
Columns = Sequence[list[Tensor]]


@contextmanager
def staging(columns: Columns) -> Iterator[Columns]:
    """Yields copies of parameters and gradients like their moments, and copies parameters back."""
    moments = columns[2]
    params = [torch.empty_like(m).copy_(p) for m, p in zip(moments, columns[0], strict=True)]
    grads = [torch.empty_like(m).copy_(g) for m, g in zip(moments, columns[1], strict=True)]
    yield [params, grads, *columns[2:]]
    foreach("copy_")(columns[0], params)


_PLAIN = {Tensor, torch.nn.Parameter}
_EXPORT = 5  # index of `dltensor_from_py_object_no_sync` among the pointers of DLPack's table


class _Search(ctypes.Structure):
    _fields_ = (
        ("export", At),
        *fields(Int, "columns tensors"),
        *fields(At, "objects starts bytes elements"),
    )


class Places:
    """The memory of columns of tensors."""

    # A kernel gets addresses, and would write beyond a tensor whose memory was replaced, resized or
    # laid out differently since. So `find` reads device, dtype, shape, strides and address of every
    # tensor at every step, and a kernel uses the addresses of that call only. The parameters and
    # the moments themselves stay the same objects, which are kept alive here. With a compiled
    # kernel, and a torch that has DLPack's exchange of tensors in C, one call of C reads all
    # tensors; otherwise Python reads each, which takes longer.

    def __init__(self, params: list[Tensor], moments: Sequence[list[Tensor]]) -> None:
        self._fixed = [list(params), *map(list, moments)]
        self._plain = all(_PLAIN.issuperset(map(type, column)) for column in self._fixed)
        self.bytes = array("q", bytes(8 * len(params)))
        self.starts = [array("q", self.bytes) for _ in range(2 + len(moments))]
        self.elements = 0
        self._objects = [array("q", map(id, column)) for column in (params, params, *moments)]

    def find(self, grads: list[Tensor]) -> bool:
        """Finds where the tensors begin; returns whether a step may go over lines of memory."""
        # It may if all are plain tensors of one floating-point dtype on the CPU, and those at one
        # index are dense, of one shape, and have their elements in the same order in memory.
        params, *moments = self._fixed
        if len(grads) != len(params) or not self._plain or not _PLAIN.issuperset(map(type, grads)):
            return False
        # The bit says that numbers are to be read with the other sign, which C does not know.
        if any(map(Tensor.is_neg, grads)):
            return False
        export = _export()
        library = kernel_for(params[0].dtype) if export is not None else None
        if library is None:
            return self._ask([params, grads, *moments])
        return self._search(library, export, grads)

    def _search(self, library: ctypes.CDLL, export: int | None, grads: list[Tensor]) -> bool:
        self._objects[1] = array("q", map(id, grads))
        lists = _addresses(self._objects), _addresses(self.starts)
        elements = Int()
        task = _Search(
            export, len(self.starts), len(grads), *map(ctypes.addressof, lists),
            self.bytes.buffer_info()[0], ctypes.addressof(elements),
        )  # fmt: skip
        try:
            code = _find_places(library)(ctypes.byref(task))
        except RuntimeError:  # a tensor has no memory, or none that a CPU could read
            return False
        self.elements = elements.value
        return not code

    def _ask(self, columns: Sequence[list[Tensor]]) -> bool:
        """Finds where the tensors begin without a compiled search."""
        params, dtype = columns[0], columns[0][0].dtype
        for column in columns:
            for tensor, param in zip(column, params, strict=True):
                like = tensor.layout is torch.strided and tensor.shape == param.shape
                like = like and tensor.dtype == dtype and tensor.is_cpu
                if not like or not same_layout(tensor, param):
                    return False
        if not all(map(dense, params)):
            return False
        self.bytes = array("q", [param.nbytes for param in params])
        self.starts = [array("q", map(Tensor.data_ptr, column)) for column in columns]
        self.elements = sum(self.bytes) // dtype.itemsize
        return True


def _addresses(arrays: list[array[int]]) -> ctypes.Array[ctypes.c_void_p]:
    return (At * len(arrays))(*[each.buffer_info()[0] for each in arrays])


@cache
def _find_places(library: ctypes.CDLL) -> Callable[..., int]:
    """Returns the search, which runs while Python's lock is held."""
    address = ctypes.cast(library.find_places, At).value
    return ctypes.PYFUNCTYPE(ctypes.c_int, At)(address or 0)


@cache
def _export() -> int | None:
    """Returns the address of torch's function that describes a tensor to C; None if it has none."""
    capsule = getattr(Tensor, "__dlpack_c_exchange_api__", None)
    if capsule is None:
        return None
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = At, (ctypes.py_object, ctypes.c_char_p)
    table = get(capsule, b"dlpack_exchange_api")
    major, minor = (ctypes.c_uint32 * 2).from_address(table)
    if major != 1 or minor < 3:  # its layout is another
        return None
    address: int | None = (At * (_EXPORT + 1)).from_address(table)[_EXPORT]
    return address


_PIECE = 4096  # elements of a piece


class _Moments(ctypes.Structure):
    _fields_ = (
        *fields(Int, "tensors elements is_belief"),
        *fields(Real, "sign decay penalty beta1 beta2 inner size root floor"),
        *fields(At, "bytes param grad mean square most"),
    )


def step_moments(
    dtype: torch.dtype, places: Places, numbers: Sequence[float], is_belief: bool
) -> bool:
    """Steps tensors at places that were just found, if there is a kernel; returns whether."""
    # `numbers` are in the order of `optim._kernels.StepCoefficients`; all but gradients change.
    kernel = kernel_for(dtype)
    if kernel is None:
        return False
    pointers = [place.buffer_info()[0] for place in (places.bytes, *places.starts)]
    tensors, elements = len(places.bytes), places.elements
    task = _Moments(tensors, elements, is_belief, *numbers, *pointers)
    threads = threads_among(-(-elements // _PIECE), elements)
    kernel.step_moments(ctypes.byref(task), threads)
    return True
