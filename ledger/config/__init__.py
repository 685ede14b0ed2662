"""Configuration: YAML files and dotted overrides, merged, then validated once against a strict model.

`load_config` is what every command line of the three packages calls. A configuration is an instance of a subclass of
`StrictModel`; `dump_config` writes one as a file that loads on its own. What a key means is the business of
the model that declares it; reading recipes back from a run is that of `ledger.records`.
"""

from __future__ import annotations

from ledger.config.load import dump_config, file_of, load_config
from ledger.config.model import LeafClass, StrictModel, leaf, leaf_classes, require_leaf_classes

__all__ = [
    "LeafClass",
    "StrictModel",
    "dump_config",
    "file_of",
    "leaf",
    "leaf_classes",
    "load_config",
    "require_leaf_classes",
]
