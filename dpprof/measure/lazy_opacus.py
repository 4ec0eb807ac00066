"""Makes `import opacus` cheap: its `__init__` runs only when something in it is asked for.

That `__init__` imports the privacy accountants, and with them scipy.stats: half of Opacus's import time and
64 MiB of resident memory that no training step needs. Its submodules (`opacus.optimizers`, ...) import as
ever, and `opacus.PrivacyEngine` works too: asking for it runs the `__init__` then. The standard library's
`LazyLoader` cannot do this for a package, since importing a submodule reads the package's `__path__`.
"""

import importlib.util
import sys
from typing import Any


def install() -> None:
    """Put the lazy package in place, unless Opacus is imported already. Raises ImportError without Opacus."""
    if "opacus" in sys.modules:
        return
    spec = importlib.util.find_spec("opacus")
    if spec is None or spec.loader is None:
        raise ImportError("No module named 'opacus'")
    loader = spec.loader
    package = importlib.util.module_from_spec(spec)

    def load(name: str) -> Any:
        del package.__getattr__
        loader.exec_module(package)
        return getattr(package, name)

    package.__getattr__ = load  # type: ignore[method-assign]
    sys.modules["opacus"] = package
