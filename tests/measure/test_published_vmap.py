"""Opake's step as a trainer, `benchmarks/published/vmap.py`: both clips are right; torch's issues more."""

import json
from pathlib import Path

from conftest import ROOT
from forked import fork

# In a process of its own: Opake changes functions of torch.
PROGRAM = """
import json, sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from dpprof.config.estimating import EstimatingConfig
from dpprof.config.flat import parse_experiment
from dpprof.config.measuring import MeasuringConfig
from dpprof.config.named_trainers import load_named
from dpprof.measure.experiment import run_experiment
from dpprof.measure.gradient_check import Case
from dpprof.record.folder import RunFolder

load_named("vmap:TORCH,vmap:FOREACH")
small = {"train": "lora", "model_size": "tiny", "batch_size": 3, "seq_len": 8}
found = {}
for name in ("TORCH", "FOREACH"):
    settings = small | {"trainer": f"vmap:{name}"}
    case = Case(parse_experiment(settings | {"device": "cpu"}, MeasuringConfig).resolve(cuda_available=False))
    error = case.error("float32", case.clipped_mean(case.per_sample_gradients()))
    config = parse_experiment(
        settings | {"device": "cuda", "target": "A100-40GB", "savings": False}, EstimatingConfig
    )
    config = config.resolve(cuda_available=False)
    folder = RunFolder(Path(name))
    folder.create(config)
    clip = run_experiment(config, folder, lambda _: None).ledger.phase_s["clip"]
    found[name] = {"error": error, "operators": clip.operators, "seconds": clip.seconds}
print(json.dumps(found))
"""


def test_both_clips_are_right_and_torch_s_takes_the_host_longer(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = fork(program, ROOT / "benchmarks" / "published", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    each, listed = json.loads(done.stdout.splitlines()[-1]).values()
    assert max(each["error"], listed["error"]) < 1e-5
    tensors, microbatches = 2 * 12, 2
    assert 30 < each["operators"] / (tensors * microbatches) < 36, "the source counts 33 kernels"
    assert listed["operators"] < tensors * microbatches
    assert each["seconds"] > 3 * listed["seconds"]
