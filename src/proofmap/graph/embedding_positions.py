"""Check that samples are not positions in an embedding table, which cannot move by a little."""

import inspect

from torch import Tensor, nn

from proofmap.errors import InputError

TOKENS = "input_ids"  # the argument of language models that takes positions, usually the first
FLOAT_KEYWORDS = {3: "inputs_embeds", 4: "pixel_values"}  # arguments of such models for floats, by the rank of x


def check_no_positions(model: nn.Module, x: Tensor) -> None:
    """Raise if x holds integers, and the model has an embedding table."""
    tables = (name for name, part in model.named_modules() if isinstance(part, nn.Embedding | nn.EmbeddingBag))
    name = None if x.is_floating_point() or x.is_complex() else next(tables, None)
    if name is None:
        return
    got = f"got x of type {x.dtype}, the positions of rows in {name!r}, expected floats: a position cannot move by a "
    if float_keyword(model, 3) is not None and hasattr(model, "get_input_embeddings"):
        raise InputError(
            f"{got}little, but its row can: explain the rows, as in "
            "pm.EVA(model, ball).explain(model.get_input_embeddings()(x))"
        )
    raise InputError(
        f"{got}little, but its row can: explain the network behind the table at the rows, as in "
        f"pm.EVA(behind, ball).explain(model.get_submodule({name!r})(x))"
    )


def float_keyword(model: nn.Module, rank: int) -> str | None:
    """Return the argument for floats of a model whose first argument takes positions; None for other models."""
    names = argument_names(model)
    keyword = FLOAT_KEYWORDS.get(rank)
    return keyword if names[:1] == [TOKENS] and keyword in names else None


def argument_names(model: nn.Module) -> list[str]:
    """Return the names of the arguments of the module's forward; none for TorchScript."""
    try:
        return list(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        return []
