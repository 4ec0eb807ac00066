"""A model and an optimizer for each fold, gone when the next one begins."""

import gc
import weakref

import torch
from torch import nn

torch.manual_seed(0)
for fold in range(3):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(25 if fold == 1 else 2):
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4)).sum()
        loss.backward()
        optimizer.step()
    alive = [weakref.ref(one) for one in (model, optimizer, loss, *model.parameters())]
    print(f"fold {fold}, loss {loss.item():.6f}")
    del model, optimizer, loss
    gc.collect()
    print([one() is None for one in alive])
