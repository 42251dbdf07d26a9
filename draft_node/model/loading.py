"""Loads the draft model, and sets up drafting with it."""

import torch

from draft_node.config import DraftConfig
from draft_node.model.drafter import Drafter
from draft_node.model.drafting import Drafting
from goodspeed.constraint.compiling import Constraints
from goodspeed.constraint.trial import Trial
from goodspeed.engine import checkpoints
from goodspeed.engine.checkpoints import Checkpoint
from goodspeed.engine.runner import Runner
from goodspeed.engine.tokenizing.vocabulary import Vocabulary


def load(config: DraftConfig) -> Checkpoint:
    """Loads the model; raises named errors if model, device or precision is not available."""
    torch.set_num_threads(config.threads or 1)
    # The target determines sampling defaults; the draft model's own matter only if it may write alone.
    generation_config = "auto" if config.fallback == "local" else "none"
    return checkpoints.load(config.model, device=config.device, dtype=config.dtype, generation_config=generation_config)


def make_drafting(config: DraftConfig, checkpoint: Vocabulary) -> Drafting:
    """Allocates the model's memory and thread; TypeError for a vocabulary without a model."""
    if not isinstance(checkpoint, Checkpoint):
        raise TypeError(f"{checkpoint.name} was loaded without its model, which cannot draft")
    runner = Runner(checkpoint, memory_fraction=config.memory_fraction, prefix_cache=True)
    constraints = Constraints(checkpoint, Trial(checkpoint))
    drafter = Drafter(checkpoint, runner, kind=config.proposal, constraints=constraints)
    return Drafting(drafter)
