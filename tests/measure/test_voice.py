import subprocess
import sys

# Speaks before and after a workload has had its way with the output, of which nothing is left at the end.
PROGRAM = """
import os, sys
from dpprof.measure.voice import keep_descriptors, say, show
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


def test_it_is_heard_whatever_becomes_of_the_output() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert done.stdout == "[dpprof] one \\udc80\n[dpprof] two\n"
    assert done.stderr == "three\n"
