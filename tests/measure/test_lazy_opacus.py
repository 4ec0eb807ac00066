"""What the cheap import of Opacus leaves out, and that nothing is missing when it is asked for."""

import subprocess
import sys


def run(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_measuring_process_does_without_the_accountants() -> None:
    program = """
import sys
from dpprof.measure import lazy_opacus
lazy_opacus.install()
import dpprof.measure.experiment
import dpprof.measure.workloads.dp_attention
print([name for name in ("opacus.accountants", "scipy.stats", "mlflow") if name in sys.modules])
"""
    assert run(program) == "[]"


def test_opacus_is_whole_once_something_in_it_is_asked_for() -> None:
    program = """
from dpprof.measure import lazy_opacus
lazy_opacus.install()
from opacus.grad_sample import GradSampleModule
import opacus
from opacus import PrivacyEngine
print(opacus.GradSampleModule is GradSampleModule, PrivacyEngine.__name__, opacus.__version__)
"""
    assert run(program).startswith("True PrivacyEngine ")
