"""Stores images, and the weights of convolutions, with their channels last.

See https://docs.pytorch.org/tutorials/intermediate/memory_format_tutorial.html.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from dpprof.errors import refuse

_IMAGES = 4  # dimensions: samples, channels, height, width


class ChannelsLast:
    """Batches whose tensors of four dimensions are stored as (B, height, width, channels)."""

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            yield tree_map_only(Tensor, _channels_last, batch)


def store_channels_last(model: nn.Module) -> str:
    """Store the weights of convolutions so; return the change. Raises ConfigError if there are none."""
    if not any(parameter.dim() == _IMAGES for parameter in model.parameters()):
        raise refuse("channels_last", True, "false: the model has no convolution over images")
    convert: Any = model.to  # its types leave this form out
    convert(memory_format=torch.channels_last)
    return "channels_last: images and the weights of convolutions are stored with their channels last"


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == _IMAGES else tensor
