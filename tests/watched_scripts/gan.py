"""Two models, two optimizers, and a batch that goes through both."""

import gc
import weakref

import torch
from torch import nn

torch.manual_seed(0)
generator, critic = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
of_generator = torch.optim.Adam(generator.parameters())
of_critic = torch.optim.Adam(critic.parameters())
for _ in range(30):
    real, made = torch.randn(6, 8), generator(torch.randn(6, 4))
    of_critic.zero_grad()
    (critic(made.detach()).mean() - critic(real).mean()).backward()
    of_critic.step()
    of_generator.zero_grad()
    loss = -critic(made).mean()
    loss.backward()
    of_generator.step()
print(f"loss {loss.item():.6f}")
alive = [weakref.ref(one) for one in (generator, critic, of_generator, of_critic)]
del generator, critic, of_generator, of_critic, loss, made
gc.collect()
print([one() is None for one in alive])
