"""Opake's functional DP-SGD, Poisson-sampled. `dpprof watch examples/own_loops/opake_dpsgd.py`."""

import torch
import torchopt
from opake.dpsgd.clipping import clipped_grad
from opake.dpsgd.noise import gaussian_noise
from opake.dpsgd.sampling import PoissonSampler
from opake.functional import make_functional
from opake.optimizers import sgd
from opake.random import key
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

RATE = 1 / 16
torch.manual_seed(0)
model, params = make_functional(
    nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)),
    disable_autograd_tracking=True,
)
data = TensorDataset(torch.randn(512, 1, 28, 28), torch.randint(10, (512,)))
loader = DataLoader(data, batch_sampler=PoissonSampler(data, RATE, n_steps=24, key=key(0)))


def loss_of_one(params: tuple[Tensor, ...], image: Tensor, label: Tensor) -> Tensor:
    """Return the loss of one sample."""
    return nn.functional.cross_entropy(model(params, image[None]), label[None])


gradient, clip_state = clipped_grad(
    loss_of_one, clipping_norm=1.0, batch_argnums=(1, 2), normalize_by=RATE * len(data)
)
add_noise, noise_state = gaussian_noise(noise_multiplier=1.0, key=key(1))
optimizer = sgd(lr=0.1, momentum=0.9)
state = optimizer.init(params)
for images, labels in loader:
    clipped, clip_state = gradient(params, images, labels, state=clip_state)
    noisy, noise_state = add_noise(clipped, noise_state)
    updates, state = optimizer.update(noisy, state, params=params)
    params = torchopt.apply_updates(params, updates)
print(f"weights {sum(tensor.sum().item() for tensor in params):.6f}")
