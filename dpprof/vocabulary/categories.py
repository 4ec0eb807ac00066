"""Categories of the memory of a training step."""

from dpprof.vocabulary.parallel import COMMUNICATION

CATEGORIES = {
    "parameters": "the model's weights, or this rank's shards of them",
    "gathered_parameters": "weights gathered from all ranks, while a layer needs them",
    "buffers": "the model's buffers",
    "optimizer_state": "what the optimizer keeps between steps",
    "inputs": "the batch and its targets",
    "outputs": "the model's output and the loss, which the training loop keeps in variables",
    "activations": "what forward leaves for backward, or backward has computed again",
    "gradients": "p.grad, the ordinary gradient or the one that the optimizer uses",
    "summed_gradients": "sums of clipped gradients",
    "per_sample_gradients": "a gradient for each sample, as computed and as stored",
    "output_gradients": "gradients of layers' outputs, booked until the clip factors are known",
    "gradient_norms": "norms of per-sample gradients",
    "gram_matrices": "two T x T matrices per sample and layer, which ghost norms are made of",
    "clip_factors": "the factor that scales each sample's gradient",
    "noise": "noise, and what is made on the way to it",
    COMMUNICATION: "buffers of collectives: what ranks send each other and get",
    "temporary": "made in passing by an operator, gradients of activations among them",
    "other": "there before the step, and nothing that the trainer holds",
}
# Categories that only exist with several ranks.
OF_RANKS = ("gathered_parameters", COMMUNICATION)
