"""Which Hugging Face model a workload's name means, and the changes to its config; free of transformers."""

import json
from pathlib import Path

from dpprof.errors import ConfigError
from dpprof.settings import refuse
from dpprof.vocabulary.huggingface import CAUSAL_LM, CLASSIFICATION, CONFIG_FILE, FAMILIES, NAMED_HELP, Family


def family_of(name: str) -> Family:
    """A listed family, or that of a config file or of a folder.

    Raises ConfigError if there is none of the name, or if the file cannot be used.
    """
    if name in FAMILIES:
        return FAMILIES[name]
    path = config_file(name)
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        model_type, architectures = config["model_type"], config.get("architectures") or [""]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"workload: {path} is no config of transformers with a model_type: {error}"
        ) from None
    is_lm = str(architectures[0]).endswith(("ForCausalLM", "LMHeadModel"))
    return Family(str(model_type), CAUSAL_LM if is_lm else CLASSIFICATION)


def config_file(name: str) -> Path:
    """The config file that a path means. Raises ConfigError if there is none."""
    path = Path(name)
    path = path / CONFIG_FILE if path.is_dir() else path
    if not path.is_file():
        raise refuse("workload", f"huggingface:{name}", f"huggingface:NAME with NAME {NAMED_HELP}")
    return path


def short_model_name(name: str) -> str:
    """What a run is called after: the family, or the folder or the file of a path."""
    if name in FAMILIES:
        return name
    path = Path(name)
    return path.resolve().parent.name if path.name == CONFIG_FILE else path.stem
