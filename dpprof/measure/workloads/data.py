"""Token batches for the built-in model."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor


def get_random_dataloader(
    batch_size: int,
    seq_len: int,
    vocab_size: int,
    device: str | torch.device,
    *,
    data: str = "random",
    seed: int = 0,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield `(input_ids, labels)` without end, both (B, T) int64 on the device; labels are the next tokens.

    `data` is `random` (uniform tokens), `zipf` (token k with a frequency proportional to 1 / (k + 1), roughly
    as in natural text; repeated tokens change the cost of an embedding's ghost norm), or the path of a UTF-8
    text file, read as byte tokens at random places. The same seed gives the same batches on one kind of
    device.
    """
    generator = torch.Generator(device).manual_seed(seed)
    shape = (batch_size, seq_len + 1)
    if data == "random":
        while True:
            yield _split(torch.randint(vocab_size, shape, generator=generator, device=device))
    if data == "zipf":
        weights = 1.0 / torch.arange(1, vocab_size + 1, device=device)
        while True:
            draws = torch.multinomial(
                weights, batch_size * (seq_len + 1), replacement=True, generator=generator
            )
            yield _split(draws.view(shape))
    tokens = torch.frombuffer(bytearray(Path(data).read_bytes()), dtype=torch.uint8).to(device)
    offsets = torch.arange(seq_len + 1, device=device)
    while True:
        starts = torch.randint(len(tokens) - seq_len, (batch_size, 1), generator=generator, device=device)
        yield _split(tokens[starts + offsets].long())


def _split(ids: Tensor) -> tuple[Tensor, Tensor]:
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
