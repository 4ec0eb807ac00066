"""A plan as Markdown: what is recommended, why, and the tables behind it."""

from dpprof.figures.privacy import rounded_up
from dpprof.reports.markdown_table import markdown_table
from dpprof.reports.plan.data import PlanData, gib, span
from dpprof.vocabulary.formats import number
from dpprof.vocabulary.trainers import short_name


def render(data: PlanData) -> str:
    """The whole text."""
    return "\n".join(
        [
            f"# {data.name}\n",
            f"**{'Recommended' if data.recommended else 'No recommendation'}**: {data.reason}\n",
            *([f"{summary(data)}\n"] if data.recommended else []),
            *([f"{data.advice} Each change is in advice.md.\n"] if data.advice else []),
            *(f"- {caveat}" for caveat in data.caveats),
            *(["\n## Ways to train\n", options_table(data)] if data.options else []),
            "\n## Noise for the budget\n",
            noise_table(data),
            "\n## Memory\n",
            memory_table(data),
            "\n## What it rests on\n",
            *(f"- {line}" for line in data.rests_on),
            "",
        ]
    )


def summary(data: PlanData) -> str:
    """The recommended row in a sentence."""
    one = data.recommended
    assert one is not None, "asked for where there is one"
    text = (
        f"Noise multiplier {rounded_up(one.noise.guarantee.noise_multiplier)}, sample rate "
        f"{one.noise.sample_rate:.4g}, {one.noise.steps:,} steps; on each device physical batches of up to "
        f"{one.physical_batch:,}, {number(one.num_physical)} in a step on average, at most "
        f"{one.most_physical:,}. {span(one.hours.least, one.hours.most)} hours"
    )
    if one.num_devices > 1:
        text += f" on {one.num_devices} devices"
    if one.cost is not None:
        text += f", at a cost of {span(one.cost.least, one.cost.most)}"
    return f"{text}."


def options_table(data: PlanData) -> str:
    """A row for each trainer and logical batch."""
    header = ["logical batch", "trainer", "", "noise / batch", "physical batch", "physical batches"]
    header += ["at most", "step [s]", "hours", "device-hours"]
    if data.asked.price_per_device_hour:
        header.append("cost")
    front, best = data.front, data.recommended
    rows = []
    for one in data.options:
        mark = "recommended" if one is best else "on the front" if one in front else ""
        cells = [f"{one.noise.logical_batch:,}", short_name(one.trainer), mark, f"{one.noise.over_batch:.3g}"]
        cells += [f"{one.physical_batch:,}", number(one.num_physical), f"{one.most_physical:,}"]
        cells += [span(each.least, each.most) for each in (one.step, one.hours, one.device_hours)]
        if data.asked.price_per_device_hour:
            cells.append(span(one.cost.least, one.cost.most) if one.cost else "")
        rows.append(cells)
    return markdown_table(header, rows, right=3)


def noise_table(data: PlanData) -> str:
    """A row for each logical batch."""
    header = [
        "logical batch",
        "sample rate",
        "steps",
        "epochs",
        "noise multiplier",
        "by RDP",
        "noise / batch",
    ]
    rows = [
        [
            f"{noise.logical_batch:,}",
            f"{noise.sample_rate:.3g}",
            f"{noise.steps:,}",
            number(noise.epochs),
            f"{rounded_up(noise.guarantee.noise_multiplier)} ({noise.guarantee.accountant.upper()})",
            rounded_up(noise.by_rdp.noise_multiplier) if noise.by_rdp else noise.why_not_rdp,
            f"{noise.over_batch:.3g}",
        ]
        for noise in data.noises
    ]
    return markdown_table(header, rows, right=1)


def memory_table(data: PlanData) -> str:
    """A row for each trainer."""
    header = ["trainer", "largest physical batch", "needs GiB", "in phase"]
    rows = [
        [
            short_name(one.config.trainer),
            "failed" if one.failure else f"{one.largest:,}" if one.largest else "none fits",
            gib(one.needed_bytes),
            one.peak_phase or "",
        ]
        for one in data.fitted
    ]
    return markdown_table(header, rows, right=1)
