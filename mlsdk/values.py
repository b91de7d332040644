"""DeviceValue: a tensor on a device as the host sees it; what a TensorProxy stands for."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np
import torch

from mlsdk.errors import ContextError, InputMismatch
from mlsdk.fitting import array_of, cast_to, refuse_traced
from mlsdk.pipeline.ir.graph import type_text
from mlsdk.pipeline.trace.dtypes import ALLOWED, DTYPE_OF_TORCH
from mlsdk.runtime import events
from mlsdk.runtime.buffers import Buffer
from mlsdk.runtime.iospec import IOSpec
from mlsdk.runtime.session import Session

# Results up to this size stay on the host once they were read.
KEPT_BYTES = 64 * 1024 * 1024


class DeviceValue:
    """`buffer`: where it lies, or None as long as nobody needs it on the device. `ready`: the last job that writes it.

    `steady`: the buffer stays where it is, so that a function may read it there. `snapshot`: the content on the host,
    where it is known and cannot change; nobody may write into that array.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        dtype: str,
        shape: tuple[int, ...],
        buffer: Buffer | None,
        steady: bool = True,
    ) -> None:
        self.session = session
        self.name = name
        self.dtype = dtype
        self.shape = shape
        self.buffer = buffer
        self.spec = buffer.spec if buffer is not None else IOSpec(dtype, shape)
        self.steady = steady
        self.ready: Future[Any] | None = None
        self.packed: Future[Any] | None = None  # the last transfer has read its source
        self.snapshot: np.ndarray | None = None
        self.written = False
        self.kept = False  # what was read once is kept on the host: a result, which does not change

    # --- device to host ---

    def read(self) -> np.ndarray:
        """The content, which must not be written to; waits for everything that writes it."""
        session = self.session
        session.check_open()
        if not self.written:
            raise ContextError(f"nothing was loaded into {self.name} yet; call load_from first")
        if self.ready is not None:
            session.wait(self.ready)
        ready = self.ready
        with session.memory_lock:
            if self.snapshot is not None:
                return self.snapshot
            assert self.buffer is not None
            buffer = self.buffer
            with events.span("D2H", f"read {self.name}"):
                packed = buffer.read()
        session.counters.downloads += 1
        session.counters.downloaded_bytes += buffer.nbytes
        array = buffer.unpack(packed)
        if self.kept and array.nbytes <= KEPT_BYTES:
            with session.memory_lock:
                if self.ready is ready:
                    self.snapshot = array
        return array

    # --- host to device ---

    def load(self, source: torch.Tensor, clone: bool) -> None:
        """Begin a transfer. `source` has this value's dtype and shape; without `clone` it is read later, at the latest
        when the next call that needs this value returns."""
        session, buffer, name = self.session, self._own_buffer(), self.name
        session.staging.take(buffer.nbytes)
        try:
            source = source.detach()
            if clone:
                source = source.clone()
            version = version_of(source)

            def pack() -> Any:
                with events.span("H2D", f"pack {name}", f"{session.name}: packing"):
                    packed = buffer.pack(array_of(source), name)
                if not clone and version_of(source) != version:
                    raise ContextError(
                        f"the tensor that {name} was loaded from with clone=False was changed before it was read; "
                        "keep it as it is until the next call that uses it has returned, or load it with clone=True"
                    )
                return packed

            self.packed = session.loader.submit(pack)
            packed = self.packed

            def commit() -> None:
                with session.memory_lock, events.span("H2D", f"write {name}", f"{session.name}: transfers"):
                    self.store(buffer, packed.result())

            self.ready = session.submit(commit)
        except BaseException:
            session.staging.give(buffer.nbytes)
            raise
        self.written = True
        self.ready.add_done_callback(lambda _: session.staging.give(buffer.nbytes))

    def load_value(self, other: DeviceValue) -> None:
        """Begin a copy from another value of the same dtype and shape."""
        session, buffer = self.session, self._own_buffer()
        if other.session is not session or other.buffer is None:
            self.load(torch.from_numpy(np.array(other.read())), clone=False)
            return

        def copy() -> None:
            with session.memory_lock:
                self.snapshot = None
                copy_value(other, buffer)

        self.ready = session.submit(copy)
        self.written = True

    def _own_buffer(self) -> Buffer:
        if self.buffer is None:  # a result that is on the host only
            self.buffer = self.session.allocate(self.spec, self.name)
        return self.buffer

    def store(self, buffer: Buffer, packed: Any) -> None:
        """Write an image; for jobs that hold the memory lock."""
        self.snapshot = None
        buffer.write(packed)
        buffer.sent(packed)
        self.session.counters.uploads += 1
        self.session.counters.uploaded_bytes += buffer.nbytes

    def check_source(self, tensor: Any) -> None:
        """Raise InputMismatch unless `tensor` has this value's shape and dtype, and dense elements."""
        refuse_traced(tensor, f"what {self.name} is loaded from")
        if tensor.dtype not in DTYPE_OF_TORCH or tensor.layout != torch.strided or tensor.is_quantized:
            raise InputMismatch(
                f"{self.name} cannot be loaded from a {tensor.dtype} tensor of layout {tensor.layout}; give a dense tensor "
                f"of {ALLOWED}"
            )
        if tensor.device.type == "meta":
            raise InputMismatch(f"{self.name} cannot be loaded from a tensor on the device meta; give one with data")
        self.check_type(DTYPE_OF_TORCH[tensor.dtype], tuple(tensor.shape))

    def check_type(self, dtype: str, shape: tuple[int, ...]) -> None:
        if dtype != self.dtype or shape != self.shape:
            raise InputMismatch(
                f"{self.name} is {type_text(self.dtype, self.shape)}, and cannot be loaded from {type_text(dtype, shape)}; "
                "give the same dtype and shape"
            )


def copy_value(source: DeviceValue, into: Buffer) -> None:
    """Bring what `source` holds into another buffer; for jobs that hold the memory lock."""
    session = source.session
    if source.buffer is None:
        assert source.snapshot is not None
        into.write(into.pack(cast_to(source.snapshot, into.spec.dtype, source.name), source.name))
        session.counters.uploads += 1
        session.counters.uploaded_bytes += into.nbytes
    else:
        copy_buffer(session, source.buffer, into, source.name)


def copy_buffer(session: Session, source: Buffer, into: Buffer, name: str) -> None:
    """Copy, by memory where the layouts agree, through the host where they do not."""
    if source is into:
        return
    if source.spec.is_memcopyable_to(into.spec):
        into.write(source.read())
        session.counters.device_copies += 1
        return
    array = source.unpack(source.read())
    into.write(into.pack(cast_to(array, into.spec.dtype, name).reshape(into.spec.shape), name))
    session.counters.conversions += 1


def version_of(tensor: torch.Tensor) -> int:
    """Counts torch's writes into a tensor; tensors of inference mode have no counter."""
    return 0 if tensor.is_inference() else tensor._version
