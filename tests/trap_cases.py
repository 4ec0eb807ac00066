"""The limits of Opacus that the workloads of `example_trapped` hit, with what is said of each."""

import dataclasses

import example_trapped

from dpprof.config.experiment import ExperimentConfig
from dpprof.measure.trainers.base import SENTENCES as ANY_SENTENCES
from dpprof.measure.trainers.opacus.foreseen import SENTENCES as OPACUS_SENTENCES
from dpprof.vocabulary.trainers import BUILT_IN, STANDARD

SENTENCES = OPACUS_SENTENCES | ANY_SENTENCES
OPACUS = "dpprof.measure.trainers.opacus."
PRIVATE = tuple(info.name for info in BUILT_IN if info.target.startswith(OPACUS) and info.is_default)
FLAT, GHOST, FAST = PRIVATE
TRAINED = (STANDARD, *PRIVATE)
# Three samples, so that no other dimension is mistaken for the batch's.
CONFIG = ExperimentConfig(model_size="tiny", batch_size=3, seq_len=4).resolve(cuda_available=False)


def configured(workload: str, trainer: str) -> ExperimentConfig:
    module = "example_trapped" if workload in vars(example_trapped) else "example_broken"
    return dataclasses.replace(CONFIG, trainer=trainer, workload=f"{module}:{workload}")


def said(trap: str, **words: object) -> str:
    return SENTENCES[trap].format(**words)


FIRST: dict[str, object] = {"module": "body.layers.0"}
OF_FIRST, OF_SECOND = (f"body.layers.{n}.weight, body.layers.{n}.bias" for n in (0, 1))
# Workload, the trainers that it traps, and what is said.
TRAPS: list[tuple[str, tuple[str, ...], str]] = [
    ("positions_t", PRIVATE, said("ids", **FIRST, length=4, batch_size=3)),
    ("positions_1t", PRIVATE, said("ids", **FIRST, length=1, batch_size=3)),
    ("flattened", PRIVATE, said("inputs", **FIRST, length=12, batch_size=3)),
    ("positions_expanded", (GHOST,), said("not_contiguous", **FIRST)),
    ("four_dimensions", (GHOST,), said("dimensions", **FIRST)),
    ("keyword", PRIVATE, said("keywords", **FIRST)),
    ("unused", PRIVATE, said("unused", parameters=OF_SECOND)),
    ("detached", PRIVATE, said("unused", parameters=OF_FIRST)),
    ("by_function", PRIVATE, said("unused", parameters=OF_FIRST)),
    ("norm_without_bias", PRIVATE, said("norm_bias", module="body")),
    ("dropout_under_functorch", PRIVATE, said("random", module="body", parameters="scale")),
    ("relu_module", PRIVATE, said("in_place_module", module="body.1")),
    ("bag", PRIVATE, said("bag", module="bag")),
    ("lstm", PRIVATE, said("recurrent", **FIRST, kind="LSTM")),
    ("lstm_state", PRIVATE, said("recurrent", **FIRST, kind="LSTM")),
    ("gru", PRIVATE, said("recurrent", **FIRST, kind="GRU")),
    ("rnn", PRIVATE, said("recurrent", **FIRST, kind="RNN")),
    ("attention", PRIVATE, said("attention", **FIRST)),
    ("encoder", PRIVATE, said("attention", module="body.self_attn")),
    ("tied", (GHOST,), said("tied", modules="tokens and head", parameter="tokens.weight")),
    ("reused", (GHOST,), said("reused", **FIRST)),
    ("batch_norm", PRIVATE, said("batch_norm", **FIRST, kind="BatchNorm1d")),
    ("instance_norm", PRIVATE, said("running_statistics", **FIRST, kind="InstanceNorm1d")),
    ("scaled_with_buffer", PRIVATE, said("buffers", module="body", buffers="shift")),
    ("vision_of_two", PRIVATE, said("several_inputs", module="the model", parameters="cls_token, pos_embed")),
]
