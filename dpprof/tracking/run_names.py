"""What runs are called in MLflow: names that fit the column of its table."""

import re

from dpprof.config.experiment import ExperimentConfig
from dpprof.vocabulary.trainers import trainer_info


def short_name(name: str, config: ExperimentConfig, *, with_model: bool) -> str:
    """The short name of a run: `ghost b4 s512`, then what else its full name tells.

    `name` is the full one, as of its folder: `DPGhostClippingTrainer_small_bs4_seq512_bf16_rep2` becomes
    `ghost b4 s512 small bf16 #2` with the model, `ghost b4 s512 bf16 #2` without. A folder that was renamed
    keeps its name.
    """
    if not name.startswith(config.run_name):
        return name
    parts = [trainer_info(config.trainer).short_name, f"b{config.batch_size}", f"s{config.seq_len}"]
    if with_model:
        parts.append(config.model_name)
    elif config.train_name:
        parts.append(config.train_name)
    rest = name.removeprefix(config.run_name).split("_")
    return " ".join(parts + [re.sub(r"^rep(?=\d+$)", "#", word) for word in rest if word])
