"""`dpprof watch --target`: a value that nobody knows goes to logs, and decides nothing."""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from conftest import Ended, call_dpprof, lay_out_store

# The line after it is the sixteenth.
SCRIPT = """
import cmath, copy, json, logging, math, random, statistics
from collections import deque
import numpy as np
import torch

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    optimizer.zero_grad()
    loss = model(torch.ones(3, 4)).pow(2).mean()
    loss.backward()
    optimizer.step()
    x = loss.item()
    losses = deque([x, 2 * x], 10)
"""
DECIDE = """
x > 1 | 1 > x | x == 0.0 or x in (0.5, 1) | bool(x) | x in {0.0, 1.0} | max(losses) | float(x) |
float(loss) > 1 | complex(loss).real > 1 | complex(x).real > 1 | int(loss) |
x.real > 1 or x.conjugate() > 1 | x.imag > 0 | x.is_integer() | x.as_integer_ratio() | x.hex() < "0x2" |
divmod(x, 2)[1] > 1 | divmod(2, x)[0] > 1 | 2 // x > 1 | 5 % x > 1 | round(x, 2) > 1 | abs(-x) > 1 |
math.exp(x) > 1 | math.exp(loss) > 1 | math.floor(x) | math.isclose(x, 1) | math.copysign(1, x) > 0 |
math.modf(x) | math.fsum(losses) > 1 | math.fsum(each for each in losses) > 1 |
math.prod(losses, start=2) > 1 | math.hypot(x, 1) > 1 | math.dist([x], [1]) > 1 | cmath.sqrt(x).imag > 0 |
cmath.polar(x) | statistics.mean(losses) > 1 | statistics.fmean(iter(losses)) > 1 |
statistics.median(losses) > 1 | statistics.stdev(losses) > 1 | statistics.quantiles(losses) |
random.lognormvariate(0, x) > 1 | random.random() < x | np.mean(losses) > 1 | np.array([x]) |
np.float64(x) > 1 | np.exp(x) > 1 | np.greater(x, 1) | np.signbit(x) | np.float64(1) > x | np.ones(2) * x |
x * np.ones(2) | np.float64(2) * x > 1 | np.zeros(3).fill(x) | np.random.normal(x) > 1 |
x * loss > 1 and True | torch.tensor(x).item() > 1 | torch.tensor([x]) > 1 and True |
torch.tensor(losses).mean().item() > 1 |
torch.tensor([[each.item()] for each in (loss, loss)]).max().item() > 1 | torch.as_tensor(x).item() > 1 |
torch.tensor(x, dtype=torch.bool).item() | torch.tensor(x, dtype=torch.bfloat16).item() > 1 |
torch.scalar_tensor(x).item() > 1 | torch.full((), x).item() > 1 | torch.FloatTensor([x]).item() > 1 |
bool(torch.tensor(1.0) > x) | (torch.tensor(1.0) * x).item() > 1 | torch.tensor(0.0).add_(x).item() > 1 |
(torch._foreach_add_(each := [torch.tensor(0.0)], x), each[0].item() > 1)[1] |
((each := torch.tensor([0.0])).__setitem__(0, x), each.item() > 1)[1] |
((each := torch.tensor([0.0], dtype=torch.half)).__setitem__(0, x), each.item() > 1)[1] |
bool(torch.where(torch.tensor(True), x, 2.0)) | bool(torch.isnan(loss).logical_or_(loss > 1)) |
((each := torch.isnan(model.weight))[0].fill_(True), each.any().item())[1] |
torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer).step(x) |
torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer).step(loss) | copy.deepcopy(x) > 1 |
copy.deepcopy(torch.tensor(1.0)) > x and True |
logging.getLogger("its").addFilter(lambda _: float(x) > 1) or logging.getLogger("its").error("log") |
loss.detach().numpy()
"""
LOG = {
    "text": """
    print(f"{loss:.3f} {x:8.2e}", "%.3f" % x, x, round(x, 3), round(100 * x), 5 // x, 2 ** x, divmod(x, 2))
    print(sum(losses) / len(losses), f"{statistics.mean(losses):.3f}", statistics.fmean(losses), [x])
    print(f"{math.exp(x):.2f}", math.sqrt(loss), np.exp(x), np.float64(2) * x, np.int64(2) + x, math.sqrt(4))
    assert not math.isnan(x) and np.isfinite(x) and not ~np.isfinite(x) and math.isfinite(loss)
    assert x is not None and x != "auto" and type(x * loss) is type(loss) and isinstance(x, float)
    assert torch.tensor(2.0).item() * 2 > 3 and math.isnan(torch.tensor(math.nan).item())
    one = torch.tensor(1.0); one * x; assert one.item() == 1 and copy.deepcopy(one).item() == 1
    masked = torch.isnan(model.weight); torch.ones(2, 4).masked_fill_(masked, 0); assert not masked.any()
""",
    "logging": 'logging.warning("%.3f %s %.2f", x, x, loss); logging.getLogger("mine").error(f"{x:.2f}")',
    "json": 'print(json.dumps({"loss": x}), json.dumps([x], indent=2)); json.dump(x, open("log.json", "w"))',
    "tqdm": """
    from tqdm import tqdm
    with tqdm(range(2)) as bar: bar.set_postfix(loss=x, text=f"{x:.3f}", tensor=loss)
""",
    "rich": "import rich; rich.print(x, {'loss': x})",
    "tensorboard": """
    from torch.utils.tensorboard import SummaryWriter
    with SummaryWriter("events") as writer:
        writer.add_scalar("number", x, 1)
        writer.add_scalar("tensor", loss, 1)
        writer.add_scalar("constant", torch.tensor(0.5), 1)
        writer.add_scalars("both", {"number": x, "perplexity": math.exp(x)}, 1)
""",
    "mlflow": """
    import mlflow
    with mlflow.start_run():
        mlflow.log_metric("loss", x, step=1)
        mlflow.log_metrics({"tensor": loss, "mean": statistics.mean(losses)})
""",
    "matplotlib": """
    import matplotlib.pyplot as plot
    plot.plot(losses); plot.axhline(x); plot.text(1, x, f"{x:.2f}"); plot.savefig("losses.png")
""",
}


def watch(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Ended:
    """Watch a script in this process."""
    (folder / "mine.py").write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path])
    steps = ("--warmup-steps", "2", "--measured-steps", "1")
    return call_dpprof(folder, "watch", *steps, "--target", "H100", "mine.py")


@pytest.mark.parametrize("decides", DECIDE.replace("\n", " ").strip().split(" | "))
def test_what_nobody_knows_decides_nothing(
    decides: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = watch(tmp_path, f"{SCRIPT}    bool({decides})\n", monkeypatch)
    assert "dpprof: mine.py:16 needs the value of a tensor, which --target does not compute" in ended.stderr
    assert ended.returncode == 1


@pytest.mark.parametrize("log", LOG)
def test_what_nobody_knows_is_logged(log: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if log in ("tqdm", "tensorboard", "mlflow") and find_spec(log) is None:
        pytest.skip("it is not installed")
    lay_out_store(tmp_path)
    text = LOG[log] if LOG[log].startswith("\n") else f"    {LOG[log]}\n"
    ended = watch(tmp_path, SCRIPT + text, monkeypatch)
    assert ended.returncode == 0, ended.stderr
    assert "estimated peak" in ended.stdout
