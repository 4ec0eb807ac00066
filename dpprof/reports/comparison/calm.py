"""Whether a run's steps were timed in peace: without others on its processors, at a steady pace.

The limits come from 72 clean passes of `tiny` and `small` with three trainers, 16 alone and 56 beside one or
more busy processes, on a virtual machine with 2 cores (torch with 2 threads, Linux 6.18):

- Beside a busy process others had 0.5 to 1.6 of the processors. Alone it was at most 0.1 in passes of 0.1 s
  and more, and two ticks of the kernel's clock in shorter ones.
- Beside a busy process the run was preempted 127 to 550 times a second, alone 0 to 100 times, but for one
  pass with 142 whose steps took a quarter longer. How often depends on the system's scheduler.
- Beside a busy process the interquartile range of the steps was 1 % of the median and more: a steady
  neighbour makes steady steps (800 ms instead of 2). Alone it was 1 to 23 %, but for one pass of 0.05 s. So a
  narrow range proves nothing. A wide one says that the median is worth little, whatever the reason: virtual
  machines change their pace by a third.
"""

from collections.abc import Mapping, Sequence

# Processors that others may have beyond those that the step leaves free.
_OTHERS_PROCESSORS = 0.25
_SWITCHES_PER_S = 125.0
_RESTLESS_PCT = 25.0
# A shorter time is taken for this long: a tick (10 ms) or a single switch would count for too much.
_SHORTEST_S = 0.1


def disturbances(
    figures: Mapping[str, float], step_s: Sequence[float], environment: Mapping[str, str]
) -> list[str]:
    """Why a run's step times do not compare, in words; empty if it was calm, as far as its figures tell.

    `figures` go by metric name and `step_s` are the timed steps in seconds.
    """
    timed_s = sum(step_s)
    if not timed_s:
        return []
    share = min(1.0, timed_s / _SHORTEST_S)
    found = []
    others = figures.get("overhead/others_processor_pct", 0.0) / 100
    cores = int(environment.get("cpu_cores", 0))
    # A step on a GPU keeps one processor busy, which launches kernels.
    threads = 1 if "gpu" in environment else int(environment.get("torch_threads", cores))
    threads *= int(environment.get("ranks_here", 1))
    if share * others - max(0, cores - threads) > _OTHERS_PROCESSORS:
        found.append(f"other processes used {others:.1f} of {cores or 'the'} processors")
    switches = figures.get("overhead/involuntary_switches_per_step", 0.0) * len(step_s) / timed_s
    if share * switches > _SWITCHES_PER_S:
        found.append(f"it was preempted {switches:.0f} times a second")
    median = figures.get("latency/step_ms_median", 0.0)
    iqr = figures.get("latency/step_ms_iqr", 0.0)
    varies = "step/mean_batch" in figures  # under Poisson sampling steps differ anyway
    if not varies and 100 * iqr > _RESTLESS_PCT * median:
        share_pct = 100 * iqr / median
        found.append(f"the interquartile range of its steps is {share_pct:.0f} % of their median")
    return found
