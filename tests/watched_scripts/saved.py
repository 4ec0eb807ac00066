"""Saves, copies, pickles, scripts and sends its model while it trains."""

import copy
import io
import pickle

import torch
import torch.multiprocessing as mp
from torch import nn


def evaluate(model: nn.Module, results: "mp.SimpleQueue[float]") -> None:
    """Send what another process makes of the model."""
    results.put(float(model(torch.ones(1, 4)).sum()))


def main() -> None:
    """Train."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(30):
        optimizer.zero_grad()
        loss = model(torch.ones(3, 4)).sum()
        loss.backward()
        optimizer.step()
        if number % 5 == 1:
            file = io.BytesIO()
            torch.save((model, optimizer.state_dict()), file)
            again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
            assert torch.equal(torch.jit.script(again)(torch.ones(3, 4)), model(torch.ones(3, 4)))
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    worker = context.Process(target=evaluate, args=(model, results))
    worker.start()
    print(f"loss {loss.item():.6f}, of a worker {results.get():.6f}")
    worker.join()


if __name__ == "__main__":
    main()
