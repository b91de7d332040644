"""The Recorder: a dispatch mode that writes down each aten operation while a Python function runs on Shadows.

It stands below autograd, so the operations of `loss.backward()` and `optimizer.step()` arrive like all others. Nothing
is computed, except what is known at trace time.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import torch
from torch.overrides import enable_reentrant_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from mlsdk.errors import WHAT_TO_DO, DataDependentControlFlow, Misuse, TraceError, UnsupportedOperator
from mlsdk.pipeline.trace.decompositions import DECOMPOSITIONS
from mlsdk.pipeline.trace.draws import Draws
from mlsdk.pipeline.trace.frames import torch_function, user_line
from mlsdk.pipeline.trace.instead import (
    ASSUMED,
    DATA_DEPENDENT,
    DYNAMIC_SHAPE,
    HIGHER_ORDER,
    INSTEAD,
    OPERATORS,
    WITHOUT,
)
from mlsdk.pipeline.trace.shadow import META, Shadow, shadow_like
from mlsdk.pipeline.trace.shapes import quick_shapes
from mlsdk.pipeline.trace.without_dynamo import without_dynamo

aten = torch.ops.aten

# Values known at trace time are computed up to this many elements; larger ones become nodes of the program.
KNOWN_ELEMENTS = 2**20

# The pseudo-operator of a tensor that the function made from Python numbers; its one argument is the content.
LITERAL = "literal"


@dataclass
class Record:
    """One operation: the aten operator, its arguments with Shadows for tensors, and its results.

    `draw`: for a random operator the mark of its draw; equal marks are the same random numbers.
    """

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any
    source: str = ""
    scope: str = ""
    draw: Any = None

    def results(self) -> list[Shadow]:
        """The result tensors, in order."""
        return list(tensors(self.result))

    def slots(self) -> list[Shadow | None]:
        """One entry for each result of the operator; None for one that was not asked for."""
        return list(self.result) if isinstance(self.result, (list, tuple)) else [self.result]


@dataclass
class Capture:
    """A real tensor that the function reached through its closure."""

    tensor: torch.Tensor
    shadow: Shadow
    source: str
    scope: str
    name: str = ""
    mutated_at: str = ""


@dataclass
class Tape:
    """What the Recorder wrote."""

    records: list[Record] = field(default_factory=list)
    captures: dict[int, Capture] = field(default_factory=dict)
    mutates: bool = False


def tensors(tree: Any) -> Iterable[Any]:
    """The tensors in nested lists and tuples."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from tensors(item)


def map_tensors(function: Callable[[Any], Any], tree: Any) -> Any:
    """`tree` with each tensor replaced; tuples and lists stay what they are."""
    if isinstance(tree, torch.Tensor):
        return function(tree)
    if isinstance(tree, list):
        return [map_tensors(function, item) for item in tree]
    if isinstance(tree, tuple):
        return tuple(map_tensors(function, item) for item in tree)
    return tree


# A tensor gets another storage: nothing that a value of a program could follow.
REPLACES_STORAGE = {
    aten.resize_.default,
    aten.resize_as_.default,
    aten.set_.default,
    aten.set_.source_Storage,
    aten.set_.source_Storage_storage_offset,
    aten.set_.source_Tensor,
    aten.set_.source_Tensor_storage_offset,
}

UNINITIALISED = (
    aten.empty.memory_format,
    aten.empty_like.default,
    aten.empty_strided.default,
    aten.new_empty.default,
    aten.new_empty_strided.default,
)


def storage_of(tensor: torch.Tensor) -> int:
    """A number for the storage of a real, dense tensor; 0 for others."""
    return tensor.untyped_storage()._cdata if tensor.layout == torch.strided and tensor.numel() else 0


def same_window(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors show the same elements of one storage."""
    return (
        a.dtype == b.dtype
        and a.shape == b.shape
        and a.stride() == b.stride()
        and a.storage_offset() == b.storage_offset()
    )


def numel(tensor: torch.Tensor) -> int:
    return tensor.numel()


@cache
def takes_device(func: Any) -> bool:
    """Whether an operator has a `device` argument."""
    return any(argument.name == "device" for argument in func._schema.arguments)


@cache
def write_places(func: Any) -> tuple[tuple[int, str], ...]:
    """Place and name of each argument that an operator writes."""
    return tuple(
        (place, argument.name)
        for place, argument in enumerate(func._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def honest_batch_norm(func: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """native_batch_norm writes its running statistics without declaring it; its siblings declare what they do."""
    x, weight, bias, mean, variance, training, momentum, epsilon = args
    if mean is None:
        return aten._native_batch_norm_legit.no_stats, (x, weight, bias, training, momentum, epsilon)
    if training:
        return aten._native_batch_norm_legit.default, args
    no_training = aten._native_batch_norm_legit_no_training.default
    return no_training, (x, weight, bias, mean, variance, momentum, epsilon)


# checks that are about the form of tensors, or about an operator that is refused itself
WITHOUT_EFFECT = {aten._assert_tensor_metadata.default, aten._linalg_check_errors.default}

# operators whose second argument is a list of indices
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}


def by_index(func: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """A selection by mask is one by the places of a mask that is known."""
    x, mask = args
    return (aten.index.Tensor, (x, [mask])) if x.shape == mask.shape else (func, args)


def physical(func: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """A conjugate is a tensor of its own: torch's is a view with a mark, which no Shadow carries."""
    return aten.conj_physical.default, args


def without_switches(func: Any, args: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
    """How torch.jit.trace writes a convolution: with switches for cuDNN behind the arguments."""
    return aten.convolution.default, args[:9]


REWRITES = {
    aten._convolution.default: without_switches,
    aten._convolution.deprecated: without_switches,
    aten.native_batch_norm.default: honest_batch_norm,
    aten.masked_select.default: by_index,
    aten._conj.default: physical,
}


class Recorder(TorchDispatchMode):
    """Records onto `tape`.

    `registered` maps id(real tensor) to the Shadow that stands for it. `scope()` is the current module path. With
    `origin` given, every record gets that (source, scope) instead of the user's current line. `on_capture(tensor)` is
    told about each real tensor when it is first met, and gives its name. `draws` marks random draws; without it they are
    parts of the draw of the record that `stand_for` was told last.
    """

    def __init__(
        self,
        registered: dict[int, Shadow] | None = None,
        scope: Callable[[], str] = lambda: "",
        origin: tuple[str, str] | None = None,
        on_capture: Callable[[torch.Tensor], str] = lambda tensor: "",
        draws: Draws | None = None,
    ):
        super().__init__()
        self.tape = Tape()
        self.registered = registered or {}
        self.by_storage: dict[int, list[torch.Tensor]] = {}  # storage -> the registered tensors in it
        self.scope = scope
        self.origin = origin
        self.on_capture = on_capture
        self.draws = draws
        self._marks: Iterator[Any] = iter(())
        self.last_line = ""  # the user's line of the last operation
        self.made: list[tuple[weakref.ref[Shadow], str]] = []
        self._forward_origins: dict[int, tuple[str, str]] = {}
        self._unknown: set[int] = set()  # storages of known values into which something unknown was written
        self._borrowed: set[int] = set()  # storages of the user's own tensors, which are never written

    # they arrive like all operators, and are refused by name
    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # torch would import torch._dynamo (1.1 s) only to keep torch.compile off this method
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        source, scope = self.where()
        if not isinstance(func, torch._ops.OpOverload):
            hint = HIGHER_ORDER.get(str(func), "")
            raise UnsupportedOperator.listing([Misuse(f"torch.{func}", source, scope, hint)], WHAT_TO_DO)
        if func.namespace in ("profiler", "prim"):
            return func(*args, **kwargs)
        if _names_meta(kwargs.get("device")):
            hint = "a program has no tensors without data; leave the device out"
            raise self.misuse(TraceError, f"{func.name()} on the device meta", hint)
        if func in (aten.lift_fresh.default, aten.lift_fresh_copy.default, aten.lift.default):
            return self.literal(args[0])
        if func is aten._fused_sdp_choice.default:
            return 0  # the mathematical form: the fused ones differ for rows that are masked completely
        if func in REWRITES:
            func, args = REWRITES[func](func, args)
        if args and isinstance(args[0], (int, float)) and isinstance(func._schema.arguments[0].type, torch.TensorType):
            args = self._as_tensors(func, args)
        if func in INDEXED:
            args = (args[0], self.unmasked(args[1]), *args[2:])
        if func is aten.as_strided.default:
            args = self._of_memory(*args)
        given = {id(tensor): tensor for tensor in tensors((args, tuple(kwargs.values())))}
        shadows = {number: self.shadow(tensor) for number, tensor in given.items()}

        def replace(tensor: torch.Tensor) -> Shadow:
            return shadows[id(tensor)]

        call = map_tensors(replace, tuple(args)), {key: map_tensors(replace, value) for key, value in kwargs.items()}
        written = [
            tensor
            for place, name in write_places(func)
            for tensor in tensors(args[place] if place < len(args) else kwargs.get(name))
        ]
        if torch.Tag.inplace_view in func.tags or func in REPLACES_STORAGE:
            self._change_shape(func, args, call)
            return args[0]
        result = self.evaluate(func, *call, [shadows[id(tensor)] for tensor in written])
        if result is NotImplemented:
            return self.take_apart(func, args, kwargs)
        if not func._schema.returns:
            return self._without_result(func, args, kwargs, call)
        made = list(tensors(result))
        if not made:
            return result
        draw = self._draw(kwargs.get("generator")) if torch.Tag.nondeterministic_seeded in func.tags else None
        self.tape.records.append(Record(func, *call, result, source, scope, draw))
        for item in made:
            item.made_at = item.made_at or source
            if func.is_view:
                item.viewed = weakref.ref(call[0][0].whole())
        if not written:
            return result
        self.tape.mutates = True
        for tensor in written:
            target = shadows[id(tensor)].whole()
            for capture in self.tape.captures.values():
                if capture.shadow is target and not capture.mutated_at:
                    capture.mutated_at = source or "the function"
        own = {id(shadows[id(tensor)]): tensor for tensor in written}
        return map_tensors(lambda tensor: own.get(id(tensor), tensor), result)

    def _without_result(self, func: Any, args: Any, kwargs: Any, call: Any) -> None:
        """An operator that gives nothing: what it does is done by its parts, or it is nothing that a program can do."""
        operands = list(tensors(call[0]))
        if write_places(func):
            if operands:
                self.take_apart(func, args, kwargs)
        elif func not in WITHOUT_EFFECT and any(self.known(operand) is None for operand in operands):
            source, scope = self.where()
            hint = "it has no result, and a program cannot stop; do this outside of the function"
            raise UnsupportedOperator.listing([Misuse(func.name(), source, scope, hint)], WHAT_TO_DO)

    def adopt(self, other: Recorder) -> None:
        """Take over what `other` knows about the contents of its Shadows."""
        self._unknown = set(other._unknown)
        self._borrowed = set(other._borrowed)

    def stand_for(self, record: Record) -> None:
        """What is recorded from now on is another form of `record`."""
        self.origin = (record.source, record.scope)
        self._marks = zip(itertools.repeat(record.draw or object()), itertools.count())

    def _draw(self, generator: torch.Generator | None) -> Any:
        return self.draws.next(generator) if self.draws is not None else next(self._marks)

    # --- where we are ---

    def where(self) -> tuple[str, str]:
        """Source line and module path of what runs now; for a backward operation those of its forward operation."""
        if self.origin is not None:
            return self.origin
        node = torch._C._current_autograd_node()
        if node is not None:
            forward = self._forward_origins.get(node._sequence_nr())
            if forward is None:
                return user_line(), self.scope()
            return forward[0], f"{forward[1]}/backward"
        here = user_line(), self.scope()
        self.last_line = here[0]
        # autograd made the operation's grad_fn just before the operation came here; a later, inner one keeps its entry
        self._forward_origins[torch.autograd._get_sequence_nr() - 1] = here
        return here

    def watch_results(self) -> None:
        """Remember each result weakly, to find those that outlive the trace."""
        free = {id(capture.shadow) for capture in self.tape.captures.values()}
        self.made = [
            (weakref.ref(shadow), record.source)
            for record in self.tape.records
            for shadow in record.results()
            if id(shadow) not in free
        ]

    # --- tensors from outside ---

    def shadow(self, tensor: torch.Tensor) -> Shadow:
        """The Shadow that stands for a tensor; a real one is noted as captured."""
        if isinstance(tensor, Shadow):
            if tensor.era is not Shadow.now:
                hint = "it holds no data: return it from that function, and pass the result in"
                raise self.misuse(TraceError, f"{tensor.origin()} is used in another one", hint)
            return tensor
        found = self.tape.captures.get(id(tensor))
        if found is not None:
            return found.shadow
        source, scope = self.where()
        shadow = self.registered.get(id(tensor))
        if shadow is None:
            for owner in self.by_storage.get(storage_of(tensor), ()):
                if same_window(tensor, owner):  # p.data, p.detach(): the same elements
                    return self.shadow(owner)
                if tensor.is_complex() and same_window(torch.view_as_real(tensor.detach()), owner):
                    parts = self.shadow(owner)
                    with self:
                        return aten.view_as_complex.default(parts)
                view = self._view_of(owner, tensor)
                if view is not None:
                    return view
            if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type != "cpu":
                raise TraceError(
                    f"a tensor of the closure at {source} is {tensor.layout} on {tensor.device}; "
                    "make it an ordinary CPU tensor, so that it can become a constant"
                )
            shadow = shadow_like(tensor)
            shadow.known = tensor.detach()
            self._borrowed.add(shadow.known.untyped_storage()._cdata)
        self.tape.captures[id(tensor)] = Capture(tensor, shadow, source, scope, self.on_capture(tensor))
        return shadow

    def _view_of(self, owner: torch.Tensor, tensor: torch.Tensor) -> Shadow | None:
        """A tensor of the closure that shows a part of a registered one, as a view of it; None where it shows more."""
        offset = tensor.storage_offset() - owner.storage_offset()
        reach = offset + sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride()))
        if not owner.is_contiguous() or tensor.dtype != owner.dtype or offset < 0 or reach >= owner.numel():
            return None
        base = self.shadow(owner)
        with self:
            return aten.as_strided.default(base, list(tensor.shape), list(tensor.stride()), offset)

    def _of_memory(self, tensor: torch.Tensor, size: Any, stride: Any, offset: int | None = None) -> tuple[Any, ...]:
        """The arguments of as_strided for the whole tensor that the given one is a view of, its axes in the order in which they
        lie: strides count places in memory, and those of a contiguous tensor are its elements."""
        shadow = self.shadow(tensor)
        whole: Any = shadow.whole()
        if self.known(shadow) is not None or whole.dtype != shadow.dtype:
            return tensor, size, stride, offset
        if not whole.elem.is_contiguous():
            strides = whole.elem.stride()
            with self:
                whole = whole.permute(sorted(range(whole.ndim), key=lambda axis: -strides[axis]))
        if not whole.elem.is_contiguous():
            what = "as_strided of a tensor that has no memory of its own for each element"
            raise self.misuse(TraceError, what, "copy it first: .contiguous()")
        return whole, size, stride, shadow.elem.storage_offset() if offset is None else offset

    def _as_tensors(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Numbers in the place of tensors, as which torch hands over the constants of a script."""
        kinds = [isinstance(argument.type, torch.TensorType) for argument in func._schema.arguments]
        return tuple(
            self.literal(torch.as_tensor(arg)) if tensor and isinstance(arg, (int, float)) else arg
            for tensor, arg in zip(kinds, args)
        )

    def literal(self, tensor: torch.Tensor) -> Shadow:
        """The Shadow of a tensor that the function made from Python numbers."""
        if isinstance(tensor, Shadow):
            return tensor
        shadow = shadow_like(tensor)
        shadow.known = tensor.detach().clone()
        self.tape.records.append(Record(LITERAL, (tensor.detach().clone(),), {}, shadow, *self.where()))
        return shadow

    def unmasked(self, indices: Any) -> Any:
        """Indices with each boolean mask that is known at trace time replaced by the places where it is true."""
        result: list[Any] = []
        for index in indices:
            mask = isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)
            content = self.known(self.shadow(index)) if mask else None
            if content is None:
                result.append(index)
            else:
                result.extend(self.literal(places) for places in content.nonzero(as_tuple=True))
        return result

    def known(self, shadow: Shadow) -> torch.Tensor | None:
        """The content of a Shadow, unless a write of something unknown reached its storage."""
        content = shadow.known
        if content is None or content.untyped_storage()._cdata in self._unknown:
            return None
        return content

    def content(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The content of any tensor that the function reaches, if it is known."""
        return self.known(self.shadow(tensor))

    def _change_shape(self, func: Any, args: Any, call: Any) -> None:
        """Operators like `x.t_()`, which give the tensor itself another shape over the same elements."""
        target = args[0]
        if func in REPLACES_STORAGE or not isinstance(target, Shadow):
            raise self.misuse(TraceError, f"{func.name()} changes the tensor itself", "make a new tensor instead")
        func(target.elem, *args[1:])
        with torch._C._DisableTorchDispatch():
            func(target, *args[1:])
        if target.known is not None:
            target.known = func(target.known.view_as(target.known), *args[1:])
        self.tape.records.append(Record(func, call[0], call[1], target, *self.where()))
        self.tape.mutates = True

    # --- evaluation ---

    def evaluate(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], written: list[Shadow]) -> Any:
        """The result, with Shadows for tensors; NotImplemented when torch cannot tell its shape."""
        operands = list(tensors((args, tuple(kwargs.values()))))
        contents = {id(operand): self.known(operand) for operand in operands}
        computable = torch.Tag.nondeterministic_seeded not in func.tags and None not in contents.values()
        for target in written:
            content = contents[id(target)]
            if content is None:
                continue
            storage = content.untyped_storage()._cdata
            if not computable or storage in self._borrowed:
                computable = False
                self._unknown.add(storage)

        def compute() -> Any:
            real_args = map_tensors(lambda operand: contents[id(operand)], args)
            real_kwargs = {key: map_tensors(lambda item: contents[id(item)], value) for key, value in kwargs.items()}
            result = func(*real_args, **real_kwargs)
            if func in UNINITIALISED:
                result.zero_()
            return result

        if needs_values(func, args, kwargs):
            if not computable:
                if func is aten._local_scalar_dense.default and torch_function() in ASSUMED:
                    return ASSUMED[torch_function()]
                what, hint = self._data_dependence(func, args)
                raise self.misuse(DataDependentControlFlow, what, hint)
            return map_tensors(self._known_shadow, compute())
        if computable and not written and not func.is_view and sum(map(numel, operands)) <= KNOWN_ELEMENTS:
            return map_tensors(self._known_shadow, compute())
        shapes = self.shapes(func, args, kwargs)
        if shapes is NotImplemented:
            return NotImplemented
        of_elem = {id(operand.elem): operand for operand in operands}
        result = map_tensors(lambda elem: of_elem[id(elem)] if id(elem) in of_elem else Shadow(elem), shapes)
        if computable and (written or func.is_view):
            for shadow, content in zip(tensors(result), tensors(compute())):
                if all(shadow is not target for target in written):
                    shadow.known = content
        return result

    @staticmethod
    def _known_shadow(content: torch.Tensor) -> Shadow:
        shadow = shadow_like(content)
        shadow.known = content if content.numel() <= KNOWN_ELEMENTS else None
        return shadow

    def shapes(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operator on meta tensors; NotImplemented when it has no meta function."""
        if func in WITHOUT:
            return NotImplemented
        fast = quick_shapes(func, args, kwargs)
        if fast is not None:
            return fast
        meta_args = map_tensors(lambda operand: operand.elem, args)
        meta_kwargs = {key: map_tensors(lambda operand: operand.elem, value) for key, value in kwargs.items()}
        if takes_device(func):
            meta_kwargs["device"] = META
        meta_kwargs.pop("pin_memory", None)
        if "generator" in meta_kwargs:
            meta_kwargs["generator"] = None
        try:
            with without_dynamo():
                return func(*meta_args, **meta_kwargs)
        except NotImplementedError:
            return NotImplemented

    def take_apart(self, func: Any, args: Any, kwargs: Any) -> Any:
        """The operator as smaller ones, recorded in its place. Raises UnsupportedOperator when there are none."""
        decomposition = find_decomposition(func)
        if decomposition is None:
            raise self.unsupported(func)
        with torch.no_grad(), enable_reentrant_dispatch(), without_dynamo(), self:
            result = decomposition(*args, **kwargs)
        if result is NotImplemented:
            raise self.unsupported(func)
        return result

    def unsupported(self, func: Any) -> UnsupportedOperator:
        source, scope = self.where()
        hint = WITHOUT.get(func) or OPERATORS.get(func._schema.name, "")
        return UnsupportedOperator.listing([Misuse(func.name(), source, scope, hint)], WHAT_TO_DO)

    # --- errors ---

    def misuse(self, error: type[TraceError], what: str, hint: str) -> TraceError:
        source, scope = self.where()
        return error.at(Misuse(what, source, scope, hint))

    def _state_behind(self, shadow: Shadow) -> list[str]:
        """The names of the registered tensors that a Shadow is computed from; none where there is something else, too."""
        captures = {id(capture.shadow): capture for capture in self.tape.captures.values()}
        maker = {id(result): record for record in self.tape.records for result in record.results()}
        names, todo, seen = [], [shadow], {id(shadow)}
        while todo:
            item = todo.pop()
            if self.known(item) is not None:
                continue
            capture, record = captures.get(id(item)), maker.get(id(item))
            if capture is None and record is None:
                return []
            if capture is not None:
                names.append(capture.name)
            for operand in tensors((record.args, tuple(record.kwargs.values()))) if record else ():
                if id(operand) not in seen:
                    seen.add(id(operand))
                    todo.append(operand)
        return sorted(filter(None, names))

    def _data_dependence(self, func: Any, args: tuple[Any, ...]) -> tuple[str, str]:
        if func is aten.index.Tensor:
            return DATA_DEPENDENT[aten.masked_select.default]
        if func in DATA_DEPENDENT:
            what, hint = DATA_DEPENDENT[func]
            within = torch_function()
            if within:
                return f"{what} within torch's {within}", INSTEAD.get(within, hint)
            names = self._state_behind(next(iter(tensors(args))))
            if names:
                return f"{what}, which is that of {', '.join(names)}", (
                    "what is registered may change; leave it out of what you register, and it is a constant"
                )
            return what, hint
        return f"{func.name()} {DYNAMIC_SHAPE[0]}", DYNAMIC_SHAPE[1]


def needs_values(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator's Python result, or the shape of its result, depends on the content of its operands."""
    if func is aten.index.Tensor:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    if func is aten._ctc_loss.Tensor and args[1].ndim == 2:
        return False  # torch cuts the labels off behind the longest sequence; we do not
    if func is aten.repeat_interleave.Tensor and kwargs.get("output_size") is not None:
        return False
    tags = func.tags
    return torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags


def _names_meta(device: Any) -> bool:
    return device is not None and torch.device(device).type == "meta"


def find_decomposition(func: Any) -> Callable[..., Any] | None:
    """How an operator is written with smaller ones: by us, by torch's composite kernel, or by torch's decomposition table.

    For lists of tensors (`_foreach_add_`) torch has a kernel that takes one tensor after the other.
    """
    for key in (func, func._schema.name):
        if key in DECOMPOSITIONS:
            return DECOMPOSITIONS[key]
    if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
        return func.decompose
    explicit = torch._C.DispatchKey.CompositeExplicitAutograd
    if "::_foreach_" in func.name() and func.has_kernel_for_dispatch_key(explicit):
        return partial(func._op_dk, explicit)
    from torch._decomp import decomposition_table

    return decomposition_table.get(func)
