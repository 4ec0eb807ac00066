"""The top of a model, which needs one backward where all below takes two: the loss, and the last layer.

For a language model these are large: the gradients of loss and softmax have batch x sequence x vocabulary
numbers, and the last layer is often the widest.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dpprof.measure.trainers.nested import named_leaves
from dpprof.measure.trainers.per_sample.book import Book
from dpprof.measure.trainers.per_sample.functions import below_last_layer
from dpprof.vocabulary.norm_forms import NormCost


class Start(NamedTuple):
    """A place in the graph that every path from the losses passes, and the gradient of their sum there."""

    edge: GradientEdge
    gradient: Tensor

    def backward(self, *, again: bool) -> None:
        """Run backward from here. `again` keeps the graph for one more."""
        torch.autograd.backward([self.edge], [self.gradient], retain_graph=again)


def ends_of(outputs: object) -> list[GradientEdge]:
    """Where the graph of each output ends. One with a hook is left out, as it would be called twice."""
    return [
        get_gradient_edge(output)
        for _, output in named_leaves(outputs)
        if output.requires_grad and not output._backward_hooks
    ]


def differentiate(losses: Tensor, outputs: list[GradientEdge], book: Book) -> Start:
    """Run backward from the losses, shape (B,), down to where it has to run twice.

    That is below the last layer, if the losses come from its output alone and nothing else uses its weights:
    the book then keeps what their clipped sums are made of. Otherwise it is at the output that all losses
    come from, or at the losses themselves.
    """
    edge = _only_source(losses, outputs)
    if edge is None:
        return Start(get_gradient_edge(losses), torch.ones_like(losses))
    (gradient,) = torch.autograd.grad(losses, [edge], torch.ones_like(losses))
    last = below_last_layer(edge)
    if last is None or not all(map(book.has_one_use, last[1].parameters)):
        return Start(edge, gradient)
    below, layer = last
    with book.keeping():
        (of_input,) = torch.autograd.grad([edge], [below], [gradient])
    if layer.frozen_weight is not None:
        book.costs[book.names[layer.frozen_weight]] = NormCost("", 0, 0, 0, is_booked=True)
    return Start(below, of_input)


def _only_source(losses: Tensor, outputs: list[GradientEdge]) -> GradientEdge | None:
    """None where a path to a parameter avoids the outputs, where the losses use several of them, which may
    depend on each other, and where the loss has a checkpoint that takes only a whole backward.
    """
    found, seen, waiting = set(), set(), [losses.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if not node.next_functions or node.name() == "CheckpointFunctionBackward":
            return None
        for following, number in node.next_functions:
            edge = next((e for e in outputs if e.node is following and e.output_nr == number), None)
            if edge is None:
                waiting.append(following)
            else:
                found.add(edge)
    return found.pop() if len(found) == 1 else None
