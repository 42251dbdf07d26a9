"""The draft model before its training: a small Llama over the tokens that the target says most."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM

from goodspeed.engine.gguf.pruned_vocabulary import KeptTokens
from training.smollm2.stored import Answer

SHAPE = {"hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4, "intermediate_size": 768}
NUM_KEPT = 12_288
DROPOUT = 0.15
"""Share of the outputs of embedding, attention and MLP that training leaves out: answers are soon learned by heart."""

PRIOR = 0.25
"""Share of the counts that comes from the tokens' ids: byte-level BPE finds frequent ones first."""


def create(num_kept: int, context_len: int, seed: int = 0) -> LlamaForCausalLM:
    """Returns a model with fresh weights, in float32."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        **SHAPE,
        num_key_value_heads=SHAPE["num_attention_heads"],
        vocab_size=num_kept,
        max_position_embeddings=context_len,
        rope_parameters={"rope_type": "default", "rope_theta": 100_000.0},
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = LlamaForCausalLM(config).float()
    of_layers = [part for layer in model.model.layers for part in (layer.self_attn.o_proj, layer.mlp)]
    for part in (model.model.embed_tokens, *of_layers):
        part.register_forward_hook(lambda part, _, output: functional.dropout(output, DROPOUT, part.training))
    return model


def begin_with(model: LlamaForCausalLM, embedding: Tensor) -> None:
    """Sets the embedding to the target's of the kept tokens [num_kept, hidden], by its principal components."""
    _, _, components = torch.pca_lowrank(embedding, q=model.config.hidden_size, niter=2)
    found = (embedding - embedding.mean(0)) @ components
    model.get_input_embeddings().weight.data.copy_(found / found.std() * 0.05)


def choose_kept(answers: Sequence[Answer], embedding: Tensor, always: Sequence[int], number: int) -> KeptTokens:
    """Chooses the tokens that the target says most, and the nearest kept one of each other by the target's embedding
    [vocab, hidden]. always: kept whatever their number."""
    vocab_size = len(embedding)
    counts = np.zeros(vocab_size)
    for answer in answers:
        np.add.at(counts, answer.tokens, 1.0)
        np.add.at(counts, answer.likely.astype(np.int64), 0.5 * np.exp(answer.log_probs.astype(np.float64)))
        np.add.at(counts, answer.prompt, 0.1)  # answers repeat words of their prompts
    prior = 1 / (np.arange(vocab_size) + 1000.0)
    counts += PRIOR * counts.sum() * prior / prior.sum()
    counts[list(always)] = np.inf
    tokens = np.sort(np.argsort(-counts, kind="stable")[:number])
    unit = functional.normalize(embedding.float(), dim=-1)
    kept = unit[torch.from_numpy(tokens)]
    nearest: NDArray[np.int64] = torch.cat([(rows @ kept.T).argmax(1) for rows in torch.split(unit, 2048)]).numpy()
    nearest[tokens] = np.arange(len(tokens))
    return KeptTokens(tokens, nearest)
