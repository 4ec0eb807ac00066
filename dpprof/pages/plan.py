"""Page of a plan: the recommended row, the Pareto front, and every figure with its basis."""

from pathlib import Path

from markupsafe import Markup

from dpprof.findings.plan import answer as said
from dpprof.findings.plan.answer import at_least, span
from dpprof.findings.plan.data import Fitted, PlanData, TrainingOption
from dpprof.pages import document as doc
from dpprof.pages import svg
from dpprof.pages.written import write_answer
from dpprof.record.figures.privacy import rounded_up
from dpprof.record.figures.step import UNKNOWN
from dpprof.vocabulary.colors import trainer_color, trainer_symbol
from dpprof.vocabulary.formats import number, whole
from dpprof.vocabulary.trainers import short_name
from dpprof.vocabulary.units import GIB

# Ratio of prices from which axes are logarithmic.
_FAR_APART = 5.0
_JOINED = "A dotted line joins the front: no other way has both less noise and fewer hours. "
# Marks of two trainers may lie on each other.
_SEEN_THROUGH = 0.4
_OVER_BATCH = (
    "Noise / batch is the standard deviation of the noise in the mean gradient, over the clipping norm: what "
    "training feels, comparable across batches."
)


def write_plan(data: PlanData, folder: Path) -> tuple[str, list[Path]]:
    """Write the plan in all its forms; return its text and the files."""
    return write_answer(folder, "plan", page(data), said.to_data(data))


def page(data: PlanData) -> doc.Document:
    """Return a plan with its tables."""
    verdict = doc.Styled("Recommended" if data.recommended else "No recommendation")
    parts: list[doc.Part] = [
        doc.Sentence(said.question(data)),
        doc.Sentence((verdict, f": {said.reason(data)}"), "answer"),
    ]
    if data.recommended:
        parts.append(doc.Sentence(said.summary(data), "answer"))
    if data.advice:
        parts.append(doc.Sentence(f"{data.advice} Each change is in the advice beside this plan.", "answer"))
    parts += [doc.Sentence(text, "warning") for text in said.weak_privacy(data)]
    if caveats := said.caveats(data):
        parts.append(doc.Points(caveats))
    parts += [*doc.told(said.waits(data)), *_chart(data)]
    if data.options:
        parts += [doc.Heading("Ways to train"), _options(data), doc.Sentence(_physical(data), "note")]
    parts += [doc.Heading("Noise for the budget"), _noises(data), doc.Sentence(_OVER_BATCH, "note")]
    parts += [doc.Heading("Memory"), _memory(data)]
    measured = [(short_name(f.config.trainer), f.measured) for f in data.fitted if f.measured]
    runs = [f"Measured with {trainer}: {', '.join(steps.names)}." for trainer, steps in measured]
    folders = [folder for one in data.fitted for folder in one.folders]
    parts += [doc.Heading("What it rests on"), doc.Points([*said.rests_on(data), *runs])]
    return doc.Document(
        f"{data.name}: plan", [*parts, doc.Points(folders, "The run folders of the estimates")]
    )


def _physical(data: PlanData) -> str:
    waiting = " Both are those of the device that draws the most samples: the others wait for it."
    return (
        "The physical batch is the most samples that one device takes at once. `Physical batches` is how "
        "many of them a logical step takes on average; hardly any step of a whole training takes more than "
        f"`at most`.{waiting if data.asked.num_devices > 1 else ''}"
    )


def _first(data: PlanData) -> str:
    return "recommended" if data.recommended else "next best"


def _options(data: PlanData) -> doc.Table:
    front, best = data.front, data.recommended or data.next_best

    def mark(one: TrainingOption) -> str:
        if one is best:
            return _first(data)
        return "on the front" if one in front else ""

    columns: list[doc.ColumnOf] = [
        ("trainer", str, lambda one: doc.TrainerName(one.trainer)),
        ("logical batch", whole, lambda one: one.noise.logical_batch),
        ("hours", str, lambda one: span(one.hours)),
        ("noise / batch", "{:.3g}".format, lambda one: one.noise.over_batch),
        ("verdict", str, mark),
        ("physical batch", whole, lambda one: one.physical_batch),
        ("physical batches", number, lambda one: one.num_physical),
        ("at most", whole, lambda one: one.most_physical),
        ("step [s]", str, lambda one: span(one.step)),
        ("device-hours", str, lambda one: span(one.device_hours)),
        ("cost", str, lambda one: span(one.cost)),
        ("time rests on", str, lambda one: one.basis),
    ]
    left_out = set() if data.asked.price_per_device_hour else {"cost"}
    if len({one.basis for one in data.options}) == 1:
        left_out |= {"time rests on"}
    if all(one.basis == UNKNOWN for one in data.options):
        left_out |= {"hours", "step [s]", "device-hours", "cost"}
    columns = [column for column in columns if column[0] not in left_out]
    bold = [i for i, one in enumerate(data.options) if one is best]
    return doc.table_of(data.options, columns, name="options", bold=bold)


def _noises(data: PlanData) -> doc.Table:
    columns: list[doc.ColumnOf] = [
        ("logical batch", whole, lambda noise: noise.logical_batch),
        ("noise multiplier", rounded_up, lambda noise: noise.guarantee.noise_multiplier),
        ("sample rate", "{:.3g}".format, lambda noise: noise.sample_rate),
        ("steps", whole, lambda noise: noise.steps),
        ("epochs", number, lambda noise: noise.epochs),
        ("accountant", str, lambda noise: noise.guarantee.accountant.upper()),
        (
            "by RDP",
            doc.figure,
            lambda n: rounded_up(n.by_rdp.noise_multiplier) if n.by_rdp else n.why_not_rdp,
        ),
        ("epsilon", rounded_up, lambda noise: noise.guarantee.epsilon),
        ("noise / batch", "{:.3g}".format, lambda noise: noise.over_batch),
    ]
    return doc.table_of(data.noises, columns, name="noise")


def _memory(data: PlanData) -> doc.Table:
    columns: list[doc.ColumnOf] = [
        ("trainer", str, lambda one: doc.TrainerName(one.config.trainer)),
        ("largest physical batch", doc.figure, _largest),
        ("needs GiB", number, lambda one: one.needed_bytes and one.needed_bytes / GIB),
        ("in phase", str, lambda one: one.peak_phase or ""),
    ]
    return doc.table_of(data.fitted, columns, name="memory")


def _largest(one: Fitted) -> str:
    if one.failure:
        return "failed"
    return at_least(one.largest, one.is_at_least) if one.largest else "none fits"


def _chart(data: PlanData) -> list[doc.Part]:
    """Plot noise against time for options with comparable times, with the Pareto front joined."""
    known = [option for option in data.comparable if option.price]
    if len(known) < 2:
        return []
    hours = [option.price or 0.0 for option in known]
    noises = [1e3 * option.noise.over_batch for option in known]
    x = svg.plot_x(hours, is_log=max(hours) > _FAR_APART * min(hours))
    y = svg.plot_y(noises, is_log=max(noises) > _FAR_APART * min(noises))
    drawn = [svg.axes(x, y, "hours", "noise / batch, in thousandths")]
    points = [(x.at(one.price or 0.0), y.at(1e3 * one.noise.over_batch)) for one in data.front]
    drawn.append(svg.line(points, class_="line join"))
    drawn += [_point(option, data, x, y) for option in known]
    made = svg.chart("Noise in the mean gradient against hours of training", *drawn, name="front")
    trainers = dict.fromkeys(option.trainer for option in data.comparable)
    legend = [doc.TrainerName(trainer) for trainer in trainers]
    joined = _JOINED if len(data.front) > 1 else ""
    return [doc.Chart(made, legend, "Noise against time", f"{joined}The large mark is {_first(data)}.")]


def _point(option: TrainingOption, data: PlanData, x: svg.Scale, y: svg.Scale) -> Markup:
    title = [
        f"{short_name(option.trainer)}, logical batch {option.noise.logical_batch:,}",
        f"{span(option.hours)} hours",
        f"noise / batch {number(1e3 * option.noise.over_batch)} thousandths",
    ]
    return svg.mark(
        trainer_symbol(option.trainer),
        x.at(option.price or 0.0),
        y.at(1e3 * option.noise.over_batch),
        trainer_color(option.trainer),
        *title,
        fill_opacity=_SEEN_THROUGH,
        radius=1.5 * svg.RADIUS if option is data.recommended else svg.RADIUS,
    )
