"""DDP on two ranks. `torchrun --nproc-per-node 2 -m dpprof watch examples/own_loops/ddp.py`."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(
    nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
)
optimizer = torch.optim.AdamW(model.parameters())
torch.manual_seed(1 + dist.get_rank())  # each rank has images of its own
for _ in range(40):
    images, labels = torch.randn(32, 1, 28, 28), torch.randint(10, (32,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
dist.all_reduce(loss.detach())
if dist.get_rank() == 0:
    print(f"sum of losses {loss.item():.6f}")
dist.barrier()
del model, optimizer, loss  # else torch may abort at exit
dist.destroy_process_group()
