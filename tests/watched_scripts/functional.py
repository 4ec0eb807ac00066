"""Per-sample gradients by torch.func, clipped by hand, without a DP library."""

import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
model = nn.Linear(4, 2)
weights: dict[str, torch.Tensor] = dict(model.named_parameters())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def loss_of(values: dict[str, torch.Tensor], sample: torch.Tensor) -> torch.Tensor:
    """Return the loss of a sample."""
    outputs: torch.Tensor = functional_call(model, values, (sample[None],))
    return outputs.square().sum()


for _ in range(25):
    batch = torch.randn(5, 4)
    found = vmap(grad(loss_of), in_dims=(None, 0))(weights, batch)
    norms = torch.stack([one.flatten(1).norm(dim=1) for one in found.values()]).norm(dim=0)
    for name, weight in weights.items():
        weight.grad = torch.einsum("b,b...->...", 1 / norms.clamp(min=1), found[name]) / 5
    optimizer.step()
print(f"{model.weight.sum().item():.6f}")
