"""infoflow's own models, which declare their stacks: transformers has none of their kind."""

from typing import Any

from transformers import AutoConfig, AutoModel, PreTrainedModel

from ._anatomy import Stack

OWN: dict[str, type[PreTrainedModel]] = {}
"""By the class name in a checkpoint's configuration."""


class AbstractOwnModel(PreTrainedModel):
    """A model without attention. It declares its stacks and padding instead of being observed."""

    def stacks(self) -> tuple[Stack, ...]:
        """Its stacks; their layers have no attention."""
        raise NotImplementedError

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        config: Any = cls.config_class
        OWN[cls.__name__] = cls
        AutoConfig.register(config.model_type, config)
        AutoModel.register(config, cls)
