"""torch's mode of fake tensors, several times as fast where the same call came before.

torch remembers the results of calls by what it reads of the arguments: most of an estimate's time, as it
reads much of them that follows from the rest. Here, what torch has answered from its memory is remembered
again, by a key that tells apart all that torch's does, and is read in a tenth of the time.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

# Arguments that are part of a key as they are, with their type, as 1 equals 1.0 and True.
_PLAIN = frozenset(
    (int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
)


class _NoKey(Exception):
    """An argument about which a key would not tell all."""


class _Argument(NamedTuple):
    """A result that is an argument, changed in place."""

    index: int


class _Form(NamedTuple):
    """A result that is a new tensor: with memory of its own, or over that of the argument `view_of`."""

    shape: torch.Size
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype
    device: torch.device
    view_of: int | None


_Result = _Argument | _Form | int | None


class QuickFakeTensorMode(FakeTensorMode):
    """Fake tensors, also of what is made without torch; calls known to torch's cache are answered here."""

    def __init__(self) -> None:
        # Data that a workload makes without torch, such as by numpy, becomes fake when used.
        super().__init__(allow_non_fake_inputs=True)
        # By all that a call depends on: its results, several ones in a tuple.
        self._known: dict[tuple[Any, ...], list[_Result] | tuple[_Result, ...]] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: nothing is compiled here, and torch's guard against compiling takes time."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Run an operator on fake tensors."""
        kwargs = kwargs or {}
        try:
            key = self._key(func, args, kwargs)
        except _NoKey:
            return super().__torch_dispatch__(func, types, args, kwargs)
        known = self._known.get(key)
        if known is not None:
            made = [self._made(result, args) for result in known]
            return tuple(made) if isinstance(known, tuple) else made[0]
        before = FakeTensorMode.cache_info()
        results = super().__torch_dispatch__(func, types, args, kwargs)
        if FakeTensorMode.cache_info() == dataclasses.replace(before, hits=before.hits + 1):
            self._learn(key, func, args, results)
        return results

    def _key(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return all that a call depends on. Raises _NoKey."""
        found = [
            func,
            torch.get_default_dtype(),
            torch._C._get_default_device(),
            torch.is_inference_mode_enabled(),
        ]
        self._add(found, args)
        for name, value in kwargs.items():
            self._add(found, (name, value))
        return tuple(found)

    def _add(self, found: list[Any], values: Iterable[Any]) -> None:
        """Add what a result may depend on of some arguments."""
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                if value.fake_mode is not self or value.constant is not None:
                    raise _NoKey
                found += (
                    value.shape,
                    value.stride(),
                    value.storage_offset(),
                    value.untyped_storage().nbytes(),
                    value.dtype,
                    value.fake_device,
                    value.requires_grad,
                    # Whether it is sparse, quantized, conjugated, negated, or made for inference.
                    torch._C._dispatch_keys(value).raw_repr(),
                )
            elif kind in _PLAIN:
                found += (kind, value)
            elif kind is list or kind is tuple or kind is torch.Size:
                found += (kind, len(value))
                self._add(found, value)
            else:
                raise _NoKey

    def _learn(self, key: tuple[Any, ...], func: Any, args: Sequence[Any], results: Any) -> None:
        """Remember results that torch made from what it reads of the arguments alone."""
        several = isinstance(results, tuple)
        forms = [_form(result, func, args) for result in (results if several else [results])]
        self._known[key] = tuple(forms) if several else forms

    def _made(self, result: _Result, args: Sequence[Any]) -> Any:
        """Make a result anew, as torch does."""
        if isinstance(result, _Argument):
            return args[result.index]
        if not isinstance(result, _Form):
            return result
        with torch._C._DisableTorchDispatch():
            made = torch.empty_strided(result.shape, result.stride, dtype=result.dtype, device="meta")
            if result.view_of is not None:
                storage = args[result.view_of].untyped_storage()
                made.set_(storage, result.offset, result.shape, result.stride)
        return FakeTensor(self, made, result.device)


def _form(result: Any, func: Any, args: Sequence[Any]) -> _Result:
    for index, argument in enumerate(args):
        if argument is result and isinstance(result, Tensor):
            return _Argument(index)
    if not isinstance(result, FakeTensor):
        return result
    view_of = next(i for i, x in enumerate(args) if isinstance(x, Tensor)) if func.is_view else None
    form = result.shape, result.stride(), result.storage_offset(), result.dtype, result.fake_device
    return _Form(*form, view_of)
