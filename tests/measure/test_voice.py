"""How a measuring process begins: its output, and a cheap import of Opacus."""

import subprocess
import sys

# Speaks before and after a workload has had its way with the output, of which nothing is left at the end.
PROGRAM = """
import os, sys
from dpprof.measure.entry import keep_descriptors, say, show
keep_descriptors()
say("one \\udc80")
sys.stdout.close()
sys.stderr = None
os.close(1)
os.close(2)
say("two")
show("three")
os.closerange(3, 64)
say("four")
sys.stdout = object()
say("five")
os._exit(0)
"""


def run(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", "-c", program], capture_output=True, text=True, check=True)


def test_it_is_heard_whatever_becomes_of_the_output() -> None:
    done = run(PROGRAM)
    assert done.stdout == "[dpprof] one \\udc80\n[dpprof] two\n"
    assert done.stderr == "three\n"


def test_the_measuring_process_does_without_the_accountants() -> None:
    program = """
import sys
from dpprof.measure.entry import defer_opacus
defer_opacus()
import dpprof.measure.experiment
import dpprof.measure.workloads.dp_attention
print([name for name in ("opacus.accountants", "scipy.stats", "mlflow") if name in sys.modules])
"""
    assert run(program).stdout == "[]\n"


def test_opacus_is_whole_once_something_in_it_is_asked_for() -> None:
    program = """
from dpprof.measure.entry import defer_opacus
defer_opacus()
from opacus.grad_sample import GradSampleModule
import opacus
from opacus import PrivacyEngine
print(opacus.GradSampleModule is GradSampleModule, PrivacyEngine.__name__, opacus.__version__)
"""
    assert run(program).stdout.startswith("True PrivacyEngine ")
