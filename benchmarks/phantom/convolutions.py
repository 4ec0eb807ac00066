"""What cuDNN's planner asks for beside a convolution's tensors, as a multiple of them, on the stand-in.

Prints, for each part of training and each type, how many convolutions took within 10 % of a copy of their
tensors, how many took nothing, and the most. All are without groups and have at least 16 channels.

    PHANTOM_GPU=H100 python benchmarks/phantom/stand_in.py FOLDER benchmarks/phantom/convolutions.py
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor

# Size of the image, channels, kernel, stride: of ResNets, of nets for small images and of VGG.
SHAPES = [
    (56, 64, 64, 1, 1),
    (56, 64, 64, 3, 1),
    (56, 64, 256, 1, 1),
    (56, 256, 128, 1, 1),
    (56, 128, 128, 3, 2),
    (28, 128, 512, 1, 1),
    (28, 256, 256, 3, 2),
    (14, 256, 256, 3, 1),
    (14, 256, 1024, 1, 1),
    (14, 512, 512, 3, 2),
    (7, 512, 512, 3, 1),
    (7, 512, 2048, 1, 1),
    (32, 64, 64, 3, 1),
    (16, 128, 128, 3, 1),
    (8, 256, 256, 3, 1),
    (4, 512, 512, 3, 1),
    (32, 64, 128, 5, 1),
]


def taken(call: Callable[[], Tensor], tensors: list[Tensor]) -> float:
    """Return the bytes that a call takes beside its result, as a multiple of its tensors and the result."""
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = call()
    made = result.untyped_storage().nbytes()
    return (torch.cuda.max_memory_allocated() - before - made) / (
        sum(t.untyped_storage().nbytes() for t in tensors) + made
    )


def found() -> Iterator[tuple[str, float]]:
    """Yield the part, with its type, and the multiple for each convolution."""
    for batch, shape, dtype in itertools.product((8, 32, 256), SHAPES, (torch.float32, torch.bfloat16)):
        size, channels, made, kernel, stride = shape
        x = torch.empty(batch, channels, size, size, device="cuda", dtype=dtype)
        weight = torch.empty(made, channels, kernel, kernel, device="cuda", dtype=dtype)
        how = ([stride, stride], [kernel // 2] * 2, [1, 1], False, [0, 0], 1)
        y = torch.ops.aten.convolution(x, weight, None, *how)

        kind = str(dtype).removeprefix("torch.")
        forward = partial(torch.ops.aten.convolution, x, weight, None, *how)
        yield f"forward, {kind}", taken(forward, [x, weight])
        for index, name, read in ((0, "input", weight), (1, "weight", x)):
            backward = partial(_gradient, index, y, x, weight, [0], *how)
            yield f"gradient of the {name}, {kind}", taken(backward, [y, read])


def _gradient(index: int, *call: object) -> Tensor:
    wanted = [index == 0, index == 1, False]
    of_one: Tensor = torch.ops.aten.convolution_backward(*call, wanted)[index]
    return of_one


def main() -> None:
    """Print the counts."""
    multiples = defaultdict(list)
    for part, multiple in found():
        multiples[part].append(multiple)
    for part, some in multiples.items():
        near = sum(0.9 <= multiple <= 1.1 for multiple in some)
        none = sum(multiple < 0.05 for multiple in some)
        print(
            f"{part}: {near} of {len(some)} a copy of their tensors, {none} nothing, at most {max(some):.2f}"
        )


if __name__ == "__main__":
    main()
