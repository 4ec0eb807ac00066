"""The Hugging Face model of a workload's name, without importing transformers."""

from pathlib import Path

from dpprof.errors import ConfigError, DpprofError, refuse
from dpprof.json_files import read_json
from dpprof.vocabulary.huggingface import CAUSAL_LM, CLASSIFICATION, CONFIG_FILE, FAMILIES, NAMED_HELP, Family


def family_of(name: str) -> Family:
    """Return a listed family, or that of a config file or folder. Raises ConfigError if it cannot be used."""
    if name in FAMILIES:
        return FAMILIES[name]
    path = config_file(name)
    try:
        config = read_json(path)
        model_type, architectures = config["model_type"], config.get("architectures") or [""]
    except DpprofError as error:
        raise ConfigError(f"workload: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"workload: {path} is no config of transformers with a model_type: {error}"
        ) from None
    is_lm = str(architectures[0]).endswith(("ForCausalLM", "LMHeadModel"))
    return Family(str(model_type), CAUSAL_LM if is_lm else CLASSIFICATION)


def config_file(name: str) -> Path:
    """Return the config file of a path. Raises ConfigError if there is none."""
    path = Path(name)
    path = path / CONFIG_FILE if path.is_dir() else path
    if not path.is_file():
        raise refuse("workload", f"huggingface:{name}", f"huggingface:NAME with NAME {NAMED_HELP}")
    return path


def short_model_name(name: str) -> str:
    """Return the model's part of a run's name: the family, or the folder or file of a path."""
    if name in FAMILIES:
        return name
    path = Path(name)
    return path.resolve().parent.name if path.name == CONFIG_FILE else path.stem
