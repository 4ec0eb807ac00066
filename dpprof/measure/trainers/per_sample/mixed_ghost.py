"""DP-SGD with two backward passes, the first without weight gradients: mixed ghost clipping.

The top of a model (loss and last layer), often large, needs one backward where the rest takes two.
"""

from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from dpprof.measure.trainers.draws import restore, state_of
from dpprof.measure.trainers.nested import named_leaves
from dpprof.measure.trainers.per_sample.book import Book
from dpprof.measure.trainers.per_sample.functions import below_last_layer
from dpprof.measure.trainers.per_sample.trainer import PerSampleTrainer
from dpprof.vocabulary.norm_forms import NormCost


class DPMixedGhostTrainer(PerSampleTrainer):
    """Mixed ghost clipping: a first backward computes norms, a second one the clipped sums.

    From "Scalable and Efficient Training of Large Convolutional Neural Networks with Differential Privacy",
    Bu et al. 2022. Holds hardly more than standard training. Unlike the authors' code, factors weigh sums,
    not losses, so that everything above the last layer's input is differentiated once, and its weights are
    summed as by `DPBookKeepingTrainer`.
    """

    keeps = False

    def compute_outputs(self, inputs: Any) -> Any:
        """Run the model, and note where the second backward may begin."""
        outputs = super().compute_outputs(inputs)
        self._ends = [
            get_gradient_edge(output)
            for _, output in named_leaves(outputs)
            if output.requires_grad and not output._backward_hooks  # which would run twice
        ]
        return outputs

    def _reduced(self, losses: Tensor) -> Tensor:
        return losses

    def _accumulate_clipped(self, loss: Tensor) -> None:
        generator = state_of(self.device)
        with self.phase("backward_norms"), self._only_norms():
            ends, self._ends = self._ends, []  # a step's graph goes with it
            start = differentiate(loss, ends, self.book)
            self.observer.label("output_gradients", [("top", start.gradient)])
            start.backward(again=True)
        with self.phase("clip"):
            self.book.factors = self._factors()
            self._sum_kept(self.book.factors)
        with self.phase("backward_weighted"):
            restore(self.device, generator)  # so that what a checkpoint draws again is the same
            start.backward(again=False)


class Start(NamedTuple):
    """Edge of the graph that every path from the losses passes, with the gradient of their sum there."""

    edge: GradientEdge
    gradient: Tensor

    def backward(self, *, again: bool) -> None:
        """Run backward from here. `again` keeps the graph for one more."""
        torch.autograd.backward([self.edge], [self.gradient], retain_graph=again)


def differentiate(losses: Tensor, outputs: list[GradientEdge], book: Book) -> Start:
    """Run backward from the losses, shape (B,), down to where it has to run twice.

    That is below the last layer if the losses depend only on its output and nothing else uses its weights;
    the book then keeps what their clipped sums need. Else it is the only output that is used, or the losses.
    """
    edge = _only_source(losses, outputs)
    if edge is None:
        return Start(get_gradient_edge(losses), torch.ones_like(losses))
    (gradient,) = torch.autograd.grad(losses, [edge], torch.ones_like(losses))
    last = below_last_layer(edge)
    if last is None or not all(map(book.has_one_use, last[1].parameters)):
        return Start(edge, gradient)
    below, layer = last
    with patch.multiple(book, keeps=True, keeps_larger=False):  # what clipped sums need
        (of_input,) = torch.autograd.grad([edge], [below], [gradient])
    if layer.frozen_weight is not None:
        book.costs[book.names[layer.frozen_weight]] = NormCost("", 0, 0, 0, is_booked=True)
    return Start(below, of_input)


def _only_source(losses: Tensor, outputs: list[GradientEdge]) -> GradientEdge | None:
    """Return the one output that the losses come from.

    None if a path to a parameter bypasses it, if there are several, which may depend on each other, or if the
    loss has a checkpoint that only a whole backward can run.
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
