"""The FLOPs that a record's step needs in theory, and those that were counted for the same."""

from dpprof.config.flat import from_flat
from dpprof.record.ledger import LedgerResult
from dpprof.record.record import Record
from dpprof.vocabulary.theory import LayerCall
from dpprof.vocabulary.trainers import TRAINERS


def flops_in_theory(record: Record, ledger: LedgerResult) -> int | None:
    """Of all linear layers and convolutions of a step, by the trainer's formula; None where there is none."""
    config = from_flat(record.config)
    info = TRAINERS.get(config.trainer)
    if info is None or info.theory is None or not ledger.layers:
        return None
    options = config.trainer_options
    calls = (
        LayerCall(
            row.shape,
            row.element_size,
            row.weight_trains,
            row.bias_trains,
            row.input_has_gradient,
            row.is_recomputed,
            row.is_booked,
        )
        for row in ledger.layers
    )
    return sum(info.theory(call, options) for call in calls)


def flops_of_layers(ledger: LedgerResult) -> int:
    """What was counted, attention apart."""
    return sum(row.flops for row in ledger.traffic if row.operator_class != "attention")
