"""A GPU for tests without one: arithmetic happens on the CPU, tensors claim a CUDA device, and what CUDA would refuse is
refused.

    with pretend.Cuda() as cuda:
        simulate(federation_on_cuda, method, rounds)
    cuda.waits  # Counter of places "fedlib/simulation.py:280" where the host read a tensor and so waited for the device
    cuda.copies  # the same of copies from the host to the device

An error as on CUDA: an operation on tensors of two devices (a CPU scalar may join, except in `cat` and `stack`, and
nothing but `copy_` writes to another device), `numpy()` of a tensor that is on the device, a CPU generator that draws
there and, under `torch.use_deterministic_algorithms`, what it lists as without a deterministic kernel, differentiated or
called.

The device belongs to a tensor's storage, so that views, `.data` and what autograd saves have it too. Two modes work
together: one sees the calls from Python (`.device`, `.to`, a `device=`), the other every operation below autograd, those
of a backward pass too. Not seen: what reads memory past the operations, such as `torch.save`.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fedlib import RunSpec, lab, simulate, simulation, training

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[1]
LIBRARIES = (str(Path(torch.__file__).parent), __file__)  # a place is the caller's of these

# Operations whose CUDA kernels wait for the device: their result has a size, or is a number, of the host's.
READS = {
    "_local_scalar_dense", "nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive", "equal",
    "allclose", "bincount", "_linalg_svd", "_linalg_eigh", "linalg_eig", "_linalg_solve_ex", "linalg_inv_ex",
}  # fmt: skip
# Without a deterministic CUDA kernel, by the list in the documentation of torch.use_deterministic_algorithms.
UNDETERMINED = {
    "avg_pool3d_backward", "_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", "adaptive_max_pool2d_backward",
    "max_pool3d_with_indices_backward", "fractional_max_pool2d_backward", "fractional_max_pool3d_backward",
    "max_unpool2d", "max_unpool3d", "upsample_linear1d_backward", "upsample_bilinear2d_backward",
    "upsample_bicubic2d_backward", "upsample_trilinear3d_backward", "reflection_pad1d_backward",
    "reflection_pad2d_backward", "reflection_pad3d_backward", "nll_loss2d_forward", "_ctc_loss_backward",
    "put_", "put", "histc", "grid_sampler_2d_backward", "grid_sampler_3d_backward",
}  # fmt: skip


def undetermined(name: str, overload: str, tensors: list[Tensor], args: tuple[Any, ...]) -> bool:
    """Whether the list names an operation, with these arguments."""
    if name in ("median", "nanmedian"):
        return overload == "dim"
    if name == "bincount":
        return len(tensors) > 1  # with weights
    if name in ("cumsum", "cumsum_"):
        return tensors[0].is_floating_point()
    if name in ("scatter_reduce", "scatter_reduce_"):
        return "prod" in args
    return name in UNDETERMINED


def place() -> tuple[str, set[Any]]:
    """Where the code that is not torch's calls from, "file:line", and the code objects of all that is being called."""
    frame, where, codes = sys._getframe(1), "", set()
    while frame is not None:
        file = frame.f_code.co_filename
        if not where and not file.startswith(LIBRARIES):
            known = Path(file).is_relative_to(ROOT)
            where = f"{Path(file).relative_to(ROOT) if known else file}:{frame.f_lineno}"
        codes.add(frame.f_code)
        frame = frame.f_back  # type: ignore[assignment]
    return where, codes


class Cuda(TorchFunctionMode):
    """See the module. inside: functions whose waits and copies are counted apart, by function, in `waits_inside` and
    `copies_inside`.
    """

    def __init__(self, *inside: Any) -> None:
        super().__init__()
        self.inside = {function.__code__: function.__name__ for function in inside}
        self.waits, self.copies = Counter(), Counter()
        self.waits_inside, self.copies_inside = ({each: Counter() for each in self.inside.values()} for _ in range(2))
        self._held: dict[int, tuple[StorageWeakRef, torch.device]] = {}
        self._within: torch.device | None = None  # the device of the call from Python that is being answered
        self._stack = ExitStack()

    def __enter__(self) -> "Cuda":
        autocast, group = torch.autocast, torch._C._group_tensors_by_device_and_dtype
        pretended = {
            "cuda.is_available": lambda: True,
            "cuda.device_count": lambda: 2,
            "backends.mps.is_available": lambda: True,
            "cuda.is_current_stream_capturing": lambda: False,
            "autocast": lambda _, *given, **named: autocast("cpu", *given, **named),
            "_C._group_tensors_by_device_and_dtype": lambda *given: self._grouped(group(*given)),
        }
        for name, value in pretended.items():
            self._stack.enter_context(mock.patch(f"torch.{name}", value))
        self._stack.enter_context(_Operations(self))
        return super().__enter__()

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)
        self._stack.close()

    # ------------------------------------------------------------------------------------------ who is on the device

    def device(self, tensor: Tensor) -> torch.device:
        """The device that a tensor claims; a storage's address is not used again while a weak reference is held."""
        held = self._held.get(tensor.untyped_storage()._cdata)
        return held[1] if held else CPU

    def put(self, value: Any, device: torch.device) -> Any:
        """The tensors within `value` claim `device` from now on."""
        for tensor in tensors_in(value):
            storage = tensor.untyped_storage()
            self._held.pop(storage._cdata, None)
            if device.type == "mps" and tensor.dtype == torch.float64:
                raise TypeError(f"Cannot convert a MPS Tensor to float64 dtype ({place()[0]})")
            if device != CPU:
                self._held[storage._cdata] = StorageWeakRef(storage), device
        if len(self._held) > 20000:
            self._held = {address: held for address, held in self._held.items() if not held[0].expired()}
        return value

    def count(self, kind: str) -> None:
        where, codes = place()
        getattr(self, kind)[where] += 1
        for code in codes & self.inside.keys():
            getattr(self, f"{kind}_inside")[self.inside[code]][where] += 1

    def moved(self, tensor: Tensor, device: torch.device) -> Tensor:
        """A copy on another device, or the tensor itself."""
        if self.device(tensor) == device:
            return tensor
        self.count("waits" if device == CPU else "copies")
        return self.put(tensor.clone(), device)

    def _grouped(self, groups: dict[Any, Any]) -> dict[Any, Any]:
        """What optimisers and clipping ask, tensors by device and type, with the devices that are claimed."""
        found = {}
        for (_, dtype), group in groups.items():
            # how many steps there were is counted on the host
            devices = {self.device(one) for one in tensors_in(group) if one.dim() or self.device(one) != CPU}
            if len(devices) > 1:
                raise RuntimeError(f"Expected all tensors to be on the same device: got {devices} ({place()[0]})")
            found[devices.pop(), dtype] = group
        return found

    # ------------------------------------------------------------------------------------------ calls from Python

    def __torch_function__(self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs, name = dict(kwargs or {}), getattr(function, "__name__", "")
        given = list(tensors_in((args, kwargs)))
        devices = {self.device(tensor) for tensor in given} - {CPU}
        if name == "__get__" and function.__self__ in (Tensor.device, Tensor.is_cuda, Tensor.is_cpu):
            found = self.device(args[0])
            return {"device": found, "is_cuda": found != CPU, "is_cpu": found == CPU}[function.__self__.__name__]
        if name in ("to", "cpu", "cuda"):
            return self._to(name, *args, **kwargs)
        if devices and name in ("numpy", "__array__"):
            raise TypeError(f"can't convert {args[0].dtype} tensor on {self.device(args[0])} to numpy ({place()[0]})")
        if devices and name == "tolist":
            self.count("waits")
        wanted = kwargs.pop("device", None)
        if wanted is not None and (wanted := real(wanted)) != CPU and "generator" in kwargs:
            raise RuntimeError(f"Expected a 'cuda' device type for generator but found 'cpu' ({place()[0]})")
        kwargs |= {"device": CPU} if wanted is not None else {}
        before, self._within = self._within, wanted or next(iter(devices), None)
        try:
            made = function(*args, **kwargs)
        finally:
            self._within = before
        if wanted is not None and name in ("tensor", "as_tensor", "asarray"):
            return self.moved(made, wanted) if wanted not in devices else made
        if wanted is not None or (devices and name not in ("copy_", "__set__")):
            self.put(made, wanted or next(iter(devices)))
        return made

    def _to(self, name: str, tensor: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if name != "to":
            return self.moved(tensor, CPU if name == "cpu" else real("cuda"))
        if args and isinstance(args[0], Tensor):
            args = (self.device(args[0]), args[0].dtype, *args[1:])
        copy = kwargs.pop("copy", False)
        device, dtype, _, layout = torch._C._nn._parse_to(*args, **kwargs)
        here = self.device(tensor)
        same = tensor.to(dtype or tensor.dtype, copy=copy, memory_format=layout or torch.preserve_format)
        return self.moved(self.put(same, here), here if device is None else real(device))


def real(device: Any) -> torch.device:
    """`cuda` is `cuda:0`."""
    device = torch.device(device)
    return torch.device("cuda", device.index or 0) if device.type == "cuda" else device


def tensors_in(value: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor))


class _Operations(TorchDispatchMode):
    """Every operation, forward and backward."""

    def __init__(self, cuda: Cuda) -> None:
        super().__init__()
        self.cuda = cuda

    def __torch_dispatch__(self, operation: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        cuda, kwargs, name = self.cuda, kwargs or {}, operation._schema.name.removeprefix("aten::")
        given = list(tensors_in((args, kwargs)))
        on = [cuda.device(tensor) for tensor in given]
        devices = set(on) - {CPU}
        if not devices:  # a kernel that makes a tensor makes it where its arguments are
            return (
                cuda.put(operation(*args, **kwargs), cuda._within)
                if cuda._within and not given
                else operation(*args, **kwargs)
            )
        if name == "copy_":
            if on[0] != on[1] and (on[0] == CPU or given[1].dim()):  # a number of the host's travels with the launch
                cuda.count("waits" if on[0] == CPU else "copies")
            return operation(*args, **kwargs)
        indexing = name in ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
        indices = list(tensors_in(args[1])) if indexing else []
        for tensor, device in zip(given, on, strict=True):
            joins = (
                tensor.dim() == 0 and name not in ("cat", "stack") and not (name.endswith("_") and tensor is given[0])
            )
            if device == CPU and not joins:
                if any(tensor is index for index in indices) and on[0] != CPU:
                    cuda.count("copies")
                    continue
                raise RuntimeError(
                    f"Expected all tensors to be on the same device: {name} got {', '.join(map(str, on))} ({place()[0]})"
                )
        if len(devices) > 1:
            raise RuntimeError(f"Expected all tensors to be on the same device: {name} got {sorted(map(str, devices))}")
        if kwargs.get("generator") is not None:
            raise RuntimeError(f"Expected a 'cuda' device type for generator but found 'cpu' ({place()[0]})")
        if torch.are_deterministic_algorithms_enabled() and undetermined(name, operation._overloadname, given, args):
            raise RuntimeError(f"{name} does not have a deterministic implementation on CUDA ({place()[0]})")
        if name in READS or (name == "repeat_interleave" and not kwargs.get("output_size")):
            cuda.count("waits")
        masked = any(index.dtype in (torch.bool, torch.uint8) for index in indices)
        if masked and (name in ("index", "_unsafe_index") or args[2].numel() > 1):  # one number is filled in, unread
            cuda.count("waits")
        return cuda.put(operation(*args, **kwargs), devices.pop())


def simulated(method: Any, **asked: Any) -> Cuda:
    """What two rounds with two of four clients on a pretended device wait for and copy; in training and in steps too."""
    size = {"num_clients": 4, "participation": 0.5, "rounds": 2, "batch_size": 16}
    with Cuda(training.train, training.step, simulation._round) as cuda:
        federation = lab.federation_of(lab.resolve(RunSpec(**size, device="cuda", **asked)))
        assert federation.pool.stored.device.type == "cuda"
        assert simulate(federation, method, 2, 0.5).status == "finished"
    return cuda
