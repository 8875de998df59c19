"""Names for the blocks of a trace: parameters, gradients, optimizer state, buffers, inputs, found by their addresses.

Around each optimizer step of a traced iteration the tensors of all modules and of the optimizer are looked at, and the
trace records which block each lies in. Nothing is kept alive, and no device memory is touched or requested.

    Model.blocks.0.up.weight             the parameter, and its gradient
    Model.blocks.0.up.weight:exp_avg     state of the optimizer
    Model.blocks.0.up.weight:main        the optimizer's own copy (Megatron's main_param), and its gradient
    AdamW.0.3:main                       one whose parameter is not known: group 0, number 3

An optimizer's own tensors belong to parameters that say so (main_param), in whose memory they lie (shards that are
views, as of Megatron's distributed optimizer in fp32), or that have, one after the other, the same shapes: copies are
made in the order of the model's parameters. A flattened buffer holds many tensors, and the trace has the names of all
of them. Of a tensor that is made of others (DTensor, quantized weights) these are named. Inputs are seen where models
are called (inputs.py).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, NamedTuple, Optional

from stalloc.core import log
from stalloc.train.marking.inputs import ModelInputs
from stalloc.train.marking.paths import ModulePaths

PARAMETER, GRADIENT, OPTIMIZER_STATE, BUFFER, INPUT = 1, 2, 3, 4, 5  # TensorRole in proto/trace.proto

_DISCOVERIES = 3  # modules may be made after the first step; later ones are not looked for
_MAIN = ":main"


class _Parameter(NamedTuple):
    """The names of a module."""

    identity: int
    name: str
    shape: tuple[int, ...]
    trained: bool
    block: int  # 0: without memory
    begin: int  # in the block, bytes
    end: int

    @property
    def place(self) -> tuple[int, int]:
        return self.block, self.begin


def _block_of(tensor: Any) -> int:
    """The address at which a tensor's memory begins; 0: it has none."""
    address: int = tensor.untyped_storage().data_ptr()
    return address


class TensorNames:
    """Reports to `library` which tensor lies where. Called on the thread that runs the loop. A failure is reported
    once."""

    def __init__(
        self,
        library: Any,
        torch: Any,
        paths: ModulePaths,
        wanted: Callable[[], bool],
        block_of: Callable[[Any], int] = _block_of,
    ) -> None:
        self._library = library
        self._block_of = block_of
        self._torch = torch
        self._paths = paths
        self._wanted = wanted
        self._texts: dict[str, int] = {}
        self._names: dict[int, str] = {}  # by id of the parameter; of this iteration
        self._parameters: list[_Parameter] = []  # of modules, in their order; of this iteration
        self._iteration_begins = True
        self._discoveries = 0
        self._failed = False
        self.inputs = ModelInputs(torch, paths, self._wants_inputs, self._report_input)

    def next_iteration(self, _: int = 0) -> None:
        """Gradients will be other blocks now."""
        self._iteration_begins = True
        self.inputs.next_iteration()

    def before_step(self, optimizer: Any) -> None:
        """Gradients are there. Of several optimizers the first to step has the modules looked at."""
        self._look(lambda: self._name_gradients(optimizer))

    def after_step(self, optimizer: Any) -> None:
        """State is there, also that of a first step."""
        self._look(lambda: self._name_state(optimizer))

    def resolve(self) -> None:
        """What modules hold at this moment, for loops without an optimizer of torch's."""
        self._look(self._name_modules)

    def layer_inputs(self, layer: str, tensors: Iterable[Any]) -> bool:
        """What a layer of this path was called with; on any thread. False: it is not in the trace."""

        def report() -> None:
            blocks = {self._block_of(part) for tensor in tensors for part in _plain(tensor)}
            for block in blocks - {0}:
                self._library.layer_input(block, self._text(layer))

        self._look(report)
        return not self._failed and self._wanted()

    def _look(self, look: Callable[[], None]) -> None:
        if self._failed or not self._wanted():
            return
        try:
            look()
        except Exception as error:  # whatever a model's own attributes may raise must not end its training
            self._failed = True
            log.warning(f"blocks of the trace get no names from now on: {type(error).__name__}: {error}")

    def _wants_inputs(self) -> bool:
        return not self._failed and self._wanted()

    def _report_input(self, tensor: Any, name: str) -> None:
        self._look(lambda: self._report(tensor, name, INPUT))

    # -- What there is

    def _name_gradients(self, optimizer: Any) -> None:
        if self._iteration_begins:
            self._iteration_begins = False
            self._name_modules()
        self._name_groups(optimizer)

    def _name_modules(self) -> None:
        if self._discoveries < _DISCOVERIES:
            self._discoveries += 1
            self._paths.discover(self._torch)
        self._names, self._parameters = {}, []
        for module, path in self._paths.items():
            for name, parameter in _members(module, "_parameters"):
                if id(parameter) not in self._names:
                    self._names[id(parameter)] = f"{path}.{name}"
                    self._name_parameter(parameter, f"{path}.{name}", PARAMETER)
                    self._parameters.append(self._known(parameter, f"{path}.{name}"))
            for name, buffer in _members(module, "_buffers"):
                self._report(buffer, f"{path}.{name}", BUFFER)

    def _name_parameter(self, parameter: Any, name: str, role: int) -> None:
        for inner in _flattened_names(parameter, name):
            self._report(parameter, inner, role)
            self._report(parameter.grad, inner, GRADIENT)
        self._report(getattr(parameter, "main_grad", None), name, GRADIENT)  # Megatron, Apex
        self._report(getattr(parameter, "ds_tensor", None), name, PARAMETER)  # DeepSpeed's shard
        main = getattr(parameter, "main_param", None)
        if isinstance(main, self._torch.Tensor) and main is not parameter:
            self._names[id(main)] = name + _MAIN
            self._report(main, name + _MAIN, OPTIMIZER_STATE)
            self._report(main.grad, name + _MAIN, GRADIENT)

    # Without any module its parameters are the model; else those that no module has are views or copies.
    def _name_groups(self, optimizer: Any) -> None:
        known = bool(self._names)
        self._recognise([parameter for group in optimizer.param_groups for parameter in group["params"]])
        for group_number, group in enumerate(optimizer.param_groups):
            for number, parameter in enumerate(group["params"]):
                if id(parameter) in self._names:
                    self._report(parameter.grad, self._names[id(parameter)], GRADIENT)
                    continue
                name = f"{type(optimizer).__name__}.{group_number}.{number}{_MAIN if known else ''}"
                self._names[id(parameter)] = name
                self._name_parameter(parameter, name, OPTIMIZER_STATE if known else PARAMETER)

    def _recognise(self, parameters: list[Any]) -> None:
        """Names those that lie in a module's parameter, and those that are copies of all that are trained."""
        owned = {id(parameter) for parameter in parameters if id(parameter) in self._names}
        own = [parameter for parameter in parameters if id(parameter) not in self._names]
        if not own or not self._parameters:
            return
        holders = sorted((known for known in self._parameters if known.block), key=lambda known: known.place)
        begins = [known.place for known in holders]
        copies = []
        for parameter in own:
            block, begin, end = self._place(parameter)
            at = bisect.bisect_right(begins, (block, begin)) - 1
            if block and at >= 0 and holders[at].block == block and end <= holders[at].end:
                self._names[id(parameter)] = holders[at].name
            else:
                copies.append(parameter)
        trained = [known for known in self._parameters if known.trained and known.identity not in owned]
        if [tuple(copy.shape) for copy in copies] == [known.shape for known in trained]:
            for copy, known in zip(copies, trained):
                self._names[id(copy)] = known.name + _MAIN
                self._report(copy, known.name + _MAIN, OPTIMIZER_STATE)

    def _known(self, parameter: Any, name: str) -> _Parameter:
        shape = tuple(parameter.shape)
        return _Parameter(id(parameter), name, shape, bool(parameter.requires_grad), *self._place(parameter))

    def _place(self, parameter: Any) -> tuple[int, int, int]:
        """Its block, and where it begins and ends in it, in bytes; zeros without memory of its own."""
        part = next(_plain(parameter), parameter)
        try:
            block, begin = self._block_of(part), part.storage_offset() * part.element_size()
        except (RuntimeError, NotImplementedError):  # no storage
            return 0, 0, 0
        return block, begin, begin + part.numel() * part.element_size()

    def _name_state(self, optimizer: Any) -> None:
        for parameter, state in optimizer.state.items():
            name = self._names.get(id(parameter))
            if name is not None:
                for path, tensor in self._tensors_in(state):
                    self._report(tensor, f"{name}{path}", OPTIMIZER_STATE)

    def _tensors_in(self, state: Any, path: str = "") -> Iterator[tuple[str, Any]]:
        if isinstance(state, self._torch.Tensor):
            yield path, state
        elif isinstance(state, Mapping):
            for key, value in state.items():
                yield from self._tensors_in(value, f"{path}:{key}")
        elif isinstance(state, (list, tuple)):
            for number, value in enumerate(state):
                yield from self._tensors_in(value, f"{path}:{number}")

    # -- Where it lies

    def _report(self, tensor: Optional[Any], name: str, role: int) -> None:
        if not isinstance(tensor, self._torch.Tensor):
            return
        for part in _plain(tensor):
            try:
                block = self._block_of(part)
            except (RuntimeError, NotImplementedError):  # no storage: sparse, meta, functional
                continue
            if block:
                offset = part.storage_offset() * part.element_size()
                bytes_inside = part.numel() * part.element_size()
                self._library.name_tensor(block, offset, bytes_inside, role, self._text(name))

    def _text(self, name: str) -> int:
        number = self._texts.get(name)
        if number is None:
            number = self._texts[name] = self._library.text(name.encode("utf-8", "replace"))
        return number


def _members(module: Any, table: str) -> Iterator[tuple[str, Any]]:
    for name, tensor in list((module.__dict__.get(table) or {}).items()):
        if tensor is not None:
            yield name, tensor


# FSDP's flat parameter knows what it is made of.
def _flattened_names(parameter: Any, name: str) -> list[str]:
    inside = getattr(parameter, "_fqns", None)
    if not inside:
        return [name]
    holder = name.rpartition(".")[0]
    return [f"{holder}.{inner}" for inner in inside]


def _plain(tensor: Any) -> Iterator[Any]:
    """The tensors with storages of their own that a tensor is made of: itself, but for wrappers."""
    local = getattr(tensor, "_local_tensor", None)  # DTensor
    if local is not None:
        yield from _plain(local)
    elif hasattr(tensor, "__tensor_flatten__"):
        for attribute in tensor.__tensor_flatten__()[0]:
            inner = getattr(tensor, attribute, None)
            if inner is not None:
                yield from _plain(inner)
    else:
        yield tensor
