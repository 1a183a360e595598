"""torch.export: the operators of a module for a batch whose size is a rare prime."""

import warnings
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram

from proofmap.errors import ModelError, first_line
from proofmap.graph.torch.operators.operator_table import CONVERTERS
from proofmap.runtime.memory import is_out_of_memory
from proofmap.runtime.silence import quiet

EXPORT_BATCH_SIZE = 29  # samples in the exported batch: a prime that is no usual size, so that no other axis has it

# Operators that export must not decompose, because bounds of the parts are looser or missing.
KEPT_OPERATORS = """
linear matmul batch_norm prelu hardswish hardsigmoid silu mish gelu softplus elu selu celu leaky_relu log_sigmoid
softshrink hardshrink threshold rrelu
pad stack roll max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
avg_pool1d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d
upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec
_upsample_nearest_exact1d.vec _upsample_nearest_exact2d.vec _upsample_nearest_exact3d.vec
upsample_linear1d.vec upsample_bilinear2d.vec upsample_trilinear3d.vec upsample_bicubic2d.vec
_upsample_bilinear2d_aa.vec _upsample_bicubic2d_aa.vec
masked_fill.Scalar masked_fill.Tensor tril triu lerp.Scalar lerp.Tensor einsum cumsum col2im unbind.int
softmax.int log_softmax.int glu bilinear scaled_dot_product_attention layer_norm rms_norm group_norm instance_norm
logsumexp lstm.input gru.input rnn_tanh.input rnn_relu.input
"""


def kept_operators() -> list[Any]:
    """Return those of `KEPT_OPERATORS` that this version of torch has."""
    names = (name.split(".") for name in KEPT_OPERATORS.split())
    ops = (getattr(getattr(torch.ops.aten, name, None), (*overload, "default")[0], None) for name, *overload in names)
    return [op for op in ops if op is not None]


def export(model: nn.Module, x: Tensor) -> ExportedProgram:
    """Export the model. Operators are decomposed only if one has no converter, since that takes ten times as long."""
    try:
        with warnings.catch_warnings(), quiet():
            warnings.simplefilter("ignore")  # torch.export warns about itself
            exported: ExportedProgram = torch.export.export(model, (x,), strict=False)
            if not _has_converters(exported):
                exported = exported.run_decompositions(_decompositions())
    except Exception as error:  # export raises nearly anything
        if is_out_of_memory(error):
            raise
        raise ExportError(first_line(error), tuple(x.shape[1:])) from error
    signature = exported.graph_signature
    if len(signature.user_inputs) != 1 or len(signature.user_outputs) != 1:
        raise ModelError(
            f"got a model with {len(signature.user_inputs)} inputs and {len(signature.user_outputs)} outputs, expected "
            "one tensor in and the logits out: wrap it in a module that picks them"
        )
    if signature.buffers_to_mutate:
        changed = ", ".join(map(repr, signature.buffers_to_mutate.values()))
        raise ModelError(f"the model writes to its buffers ({changed}), expected one that keeps no state")
    return exported


class ExportError(ModelError):
    """The error for a model that torch.export cannot follow."""

    def __init__(self, reason: str, shape: tuple[int, ...]) -> None:
        self.reason: str = f"torch.export cannot follow ({reason})"
        super().__init__(
            f"torch.export cannot follow the model on a batch of {EXPORT_BATCH_SIZE} of shape {shape} ({reason}): "
            "check that it takes one tensor of that shape, any number of samples, and that its forward has no branches "
            "on values"
        )


class FailingModelError(ExportError):
    """The error for a model that does not run on the inputs itself."""

    def __init__(self, said: str, reason: str) -> None:
        self.reason = reason
        ModelError.__init__(self, said)


def _has_converters(exported: ExportedProgram) -> bool:
    """Return whether every call that depends on the input has a converter; calls of constants are computed.

    No converter is for an operator that writes to its arguments, and no such call counts as one of constants.
    """
    moving = set(exported.graph_signature.user_inputs)
    for node in exported.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        moves = any(before.name in moving for before in node.all_input_nodes)
        if moves:
            moving.add(node.name)
        schema = getattr(node.target, "_schema", None)
        if str(node.target) not in CONVERTERS and (moves or schema is None or schema.is_mutable):
            return False
    return True


def _decompositions() -> Any:
    table = torch.export.default_decompositions()
    for op in kept_operators():
        table.pop(op, None)
    return table


def stored_tensors(program: ExportedProgram) -> dict[str, Tensor]:
    """Return parameters, buffers and constants by the names of their placeholders."""
    sign, tensors = program.graph_signature, {**program.state_dict, **program.constants}
    held = {**sign.inputs_to_parameters, **sign.inputs_to_buffers, **sign.inputs_to_lifted_tensor_constants}
    return {name: tensors[key] for name, key in held.items()}


def module_path(node: fx.Node) -> str:
    """Return the path of the module that made the node, or the node's name in the export."""
    paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values() if path]
    return paths[-1] if paths else node.name


def evaluate_call(program: ExportedProgram, points: Tensor, last: fx.Node) -> Tensor:
    """Return the value of a call for a batch of the exported size."""
    tensors = {**stored_tensors(program), program.graph_signature.user_inputs[0]: points}
    values: dict[fx.Node, Any] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            values[node] = tensors[node.name]
        elif node.op == "call_function":
            args, kwargs = (fx.node.map_arg(part, values.__getitem__) for part in (node.args, node.kwargs))
            values[node] = node.target(*args, **kwargs)
        if node is last:
            break
    value: Tensor = values[last]
    return value
