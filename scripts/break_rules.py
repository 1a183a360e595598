"""Break one line of the package at a time on purpose, and check that the tests fail.

    python scripts/break_rules.py [--only WORD]

Each entry of the table changes one line in a copy of the tree and runs its tests, which must fail. If they pass, a test
is missing. If the line no longer exists, the entry must be rewritten.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Break:
    """One change: in `file`, `old` becomes `new`; `tests` must notice.

    file: a path from the folder of the package, or from the root if it begins with "benchmarks/".
    """

    file: str
    old: str
    new: str
    tests: str

    def path(self, root: Path) -> Path:
        """The file in a tree with this root."""
        return (
            root / self.file
            if self.file.startswith(("benchmarks/", "scripts/"))
            else root / "src" / "proofmap" / self.file
        )


HUNT_OF_SETS = "tests/test_hunt_sets.py"
SIZES, LAYERS_READ = "tests/rounding/test_magnitudes.py", "tests/graph/onnx/operators/test_operator_table.py"
TIED, DEFAULT = "tests/test_tied_classes.py", "tests/test_rigorous_default.py"
SCALAR = "tests/rules/test_scalar.py"
OUTPUTS, ONE_LOGIT = "tests/verify/test_objectives.py", "tests/test_one_logit.py"
VERIFIED_LOGIT = f"{ONE_LOGIT}::test_the_model_that_runs_decides_by_the_sign"
ONE_OUTPUT, WITHIN = "tests/proof/test_one_output.py", "tests/cli/commands/test_verify_outputs.py"
OUTPUT_WORDS = "tests/text/test_output_wording.py"
REASON_WORDS, REASON_FIGURES = "tests/text/test_reason_wording.py", "tests/plots/reasons"
REASON_PAGES, REASON_RUNS = "tests/report/panels/test_reason_panel.py", "tests/runs/test_reason_results.py"
REASON_METRICS, REASON_INPUT = "tests/metrics/test_reason_metrics.py", "tests/reasons/test_bad_input.py"
STAIRCASE = "tests/rounding/test_staircase_errors.py"
STATED_OUTPUT, FORGED_OUTPUT = "tests/proof/test_output_statement.py", "tests/proof/test_forged_outputs.py"
FORGED_PROPERTY, PROPERTY_FILE = "tests/proof/test_forged_properties.py", "tests/proof/test_property_file.py"
STATED_PROPERTY = "tests/proof/test_property_certificate.py"
FORGED_REASON, STATED_REASON = "tests/proof/test_forged_reasons.py", "tests/proof/test_sufficient_certificate.py"
SIGMOID_TREES = f"{STATED_REASON}::test_trees_prove_a_label_behind_a_sigmoid"
CURVE_FILE, CURVE = "plots/curves/overlap_curve.py", "tests/plots/curves"
WEIGHTS = "tests/graph/torch/test_trace.py::test_weights_that_are_not_finite_are_refused"
FOLLOWED, LAYERS, MASKED = (
    "tests/graph/torch/test_batch_axis_tracking.py",
    "tests/graph/torch/operators/test_layers.py",
    "tests/graph/builder/test_softmax_layers.py",
)
FREE_BALLS, LEAF_TREE = "tests/reasons/test_free_balls.py", "tests/reasons/test_leaf_tree.py"
UNIT_NETWORK, SUFFICIENT = "tests/reasons/test_unit_network.py", "tests/reasons/test_sufficient_set.py"
WITNESSES, BOUND_ORDERS = "tests/reasons/test_witnesses.py", "tests/reasons/test_bound_orders.py"
LEAST_SIZE, CONTRASTIVE = "tests/reasons/test_least_size.py", "tests/reasons/test_contrastive.py"
CONTRAST, FEW_GROUPS = "tests/reasons/test_contrast.py", "tests/reasons/test_few_groups.py"
FORGED_CONTRAST, STATED_CONTRAST = "tests/proof/test_forged_contrasts.py", "tests/proof/test_contrastive_certificate.py"
CONTRAST_WORDS, CONTRAST_RUNS = "tests/text/test_contrast_wording.py", "tests/runs/test_contrast_results.py"
CONTRAST_FIGURES, CONTRAST_PAGES = (
    "tests/plots/reasons/test_contrast_drawing.py",
    "tests/report/panels/test_contrast_panel.py",
)
UNIONS, CONTRAST_METRICS = "tests/search/test_group_unions.py", f"{REASON_METRICS}::test_contrastive_sets_have_metrics"
SMALLEST_CHANGE = f"{CONTRASTIVE}::test_the_set_is_the_smallest_that_changes_the_decision"
ROUNDED = "tests/rounding/test_bound_errors.py"
CURVES_CHECKED = "tests/proof/test_check_curves.py"
OF_PRODUCTS, OF_NORMS = "tests/rounding/test_product_errors.py", "tests/rounding/test_norm_errors.py"
HOSTILE = f"{ROUNDED}::test_hostile_networks_are_never_proven_wrongly"
BACKDOOR = f"{ROUNDED}::test_a_backdoor_is_proven_without_roundings_and_not_with_them"
FOLDED = f"{ROUNDED}::test_folded_constants_count_with_what_cancels_in_them"
ARRIVED = f"{ROUNDED}::test_rows_that_end_at_the_input_pay_for_the_sums_over_the_ball"
DOUBLE = f"{ROUNDED}::test_what_counts_as_one_rounding_is_summed_in_float64"
LINES = f"{ROUNDED}::test_lines_pay_for_what_they_read"
SUM = f"{ROUNDED}::test_a_sum_of_two_has_the_sign_that_it_has_without_rounding"
SINGLE, SUMS = "tests/rounding/test_float32_sums.py", "tests/runtime/test_block_sums.py"
NORMS = f"{ROUNDED}::test_all_norms_and_precisions"
TINY = "tests/rules/test_tiny.py"
JUMPS = "tests/rules/test_discontinuous.py"
QUANTISED = "tests/graph/onnx/operators/test_quantisation.py"
VERSIONS = "tests/verify/test_model_comparison.py"
HALVES = "tests/graph/torch/test_low_precision.py"
STAIRS = "tests/rules/test_rounding_steps.py"
MAXIMUM = "tests/rules/test_maximum.py"
LINEAR = "tests/rules/test_linear_operations.py"
SOUND = "tests/bounds/test_soundness.py"
FAMILY = "tests/bounds/test_family.py"
PUBLISHED = "tests/bounds/test_published.py"
WINDOWS = "tests/bounds/test_windows.py"
LARGER = "tests/rules/test_maximum_of_two.py"
PRODUCT = "tests/rules/test_elementwise_product.py"
PAIRS = "tests/graph/rewrite/test_pairwise_maximum.py"
SIEVE = "tests/bounds/test_prefilter.py"
CASES = "tests/bounds/test_cases.py"
GRADIENTS = "tests/bounds/test_gradients.py"
SLOPES = "tests/rules/test_slopes.py"
CHOICES = "tests/bounds/test_alpha.py::test_every_choice_is_used"
CLAIM = "tests/claims/test_claim.py"
CLAIMED_RUN = "tests/claims/test_run_claims.py"
SWOLLEN = "tests/proof/test_hostile_files.py"
HULL = "tests/claims/test_enclosing_box.py"
SEVERAL = "tests/explainers/test_several_inputs.py"
JOINED_CALLS, MODULES_READ = "tests/graph/test_joined_inputs.py", "tests/graph/torch/test_trace.py"
ONNX_INPUTS = "tests/graph/onnx/test_single_input.py"
MODULE_CALL = "tests/graph/torch/test_module_call.py"
WRITTEN = "tests/graph/onnx/test_write.py"
CHOSEN = "tests/bounds/test_alpha.py::test_chosen_numbers_are_those_of_the_rule_for_windows_and_dense_forms"
NO_LOOSER = "tests/bounds/test_alpha.py::test_no_looser_than_backward_on_deep_networks"
BUDGET = "tests/bounds/test_alpha.py::test_the_budget_is_kept"
BOTH_LINES = "tests/bounds/test_alpha.py::test_entries_without_a_choice_keep_both_of_their_lines"
MEMBERS = "tests/bounds/alpha/test_member_rows.py"
SIDES = f"{MEMBERS}::test_one_bound_alone_equals_the_bound_of_both"
PICKED = f"{MEMBERS}::test_picked_rows_have_the_same_bounds"
DESCENT = "tests/bounds/alpha/test_optimiser.py"
CHANGE = "tests/rules/test_secant_slopes.py"
TWIN = "tests/graph/rewrite/test_twin_network.py"
TWINS = "tests/bounds/differences/test_twin_bounds.py"
CUT = "tests/bounds/differences/test_halfspace.py"
ABOVE = "tests/bounds/differences/test_invprop.py"
DROPS = "tests/test_drops.py"
INCREMENTAL = "tests/execution/test_incremental.py"
HYBRID = "tests/explainers/methods/test_hybrid.py"
UNSTATED = "tests/explainers/test_explained_ball.py"
ENCLOSURE = "tests/explainers/methods/test_enclosure.py"
SPREAD = "tests/explainers/test_upsampling.py"
CURVES = "tests/metrics/removal/test_deletion_insertion.py"
FIDELITY = "tests/metrics/test_mu_fidelity.py"
ROBUSTNESS = "tests/metrics/test_robustness_sr.py"
STABILITY = "tests/metrics/test_recorded.py"
RANKS = "tests/bench/test_mean_ranks.py"
FILLS = "tests/metrics/removal/test_fill_values.py"
SPARSE = "tests/metrics/test_sparseness.py"
SENSITIVITY = "tests/metrics/test_max_sensitivity.py"
IMPUTED = "tests/metrics/removal/test_linear_imputation.py"
ROAD = "tests/metrics/removal/test_road.py"
REMOVAL = "tests/metrics/removal/test_f_fidelity.py"
RANDOM = "tests/metrics/test_randomisation.py"
ADVERSARIAL = "tests/metrics/removal/test_adversarial_deletion.py"
BASELINES = "tests/explainers/baselines"
EXPECTED = f"{BASELINES}/test_expected_gradients.py"
GUIDED = f"{BASELINES}/test_guided_backprop.py"
DEEPLIFT = f"{BASELINES}/test_deeplift.py"
RELEVANCE = f"{BASELINES}/test_lrp.py"
DESIGNS = f"{BASELINES}/test_global_sensitivity.py"
SURROGATE = f"{BASELINES}/test_surrogate.py"
BENCH = "tests/bench"
TABLE, MARKS, STORED = (
    "tests/bench/test_statistics.py",
    "tests/bench/test_marks.py",
    "tests/test_stored_results.py",
)
DRAWN = "tests/metrics/removal/test_deletion_insertion.py"
DOSSIER = "tests/dossier/test_dossier.py"
DOSSIER_OF_OUTPUTS = "tests/proof/test_dossier_of_outputs.py"
MODEL_PAIRS = "tests/verify/test_model_comparison.py"
NAMED_INPUTS = "tests/cli/commands/test_named_inputs.py"
OUTPUT_RUNS = "tests/runs/test_outputs.py"
SEVERAL_FILES = "tests/sources/test_several_files.py"
EVIDENCE = "tests/dossier/test_evidence.py"
TRUTH = "tests/ground_truth/test_truth_metrics.py"
HAND = "tests/ground_truth/test_hand_set_networks.py"
TETROMINOES = "tests/ground_truth/test_tetrominoes.py"
VERDICT = "tests/ground_truth/test_ranking.py"
GRIDS = "tests/ground_truth/test_picture_grids.py"
ESTIMATORS = "tests/graph/test_estimators.py"
WORDING = "tests/text/test_verdict_wording.py"
EXPLAINED_VERDICT = "tests/explainers/statements/test_explained_verdict.py"
CATEGORIES, DOMAINS = "tests/inputs/test_onehot_boxes.py", "tests/inputs/test_domain.py"
PROPERTY = "tests/verify/test_property.py"
PLANES, SEARCHED = "tests/search/properties/test_row_combinations.py", "tests/verify/test_property_search.py"
REFUTE = "tests/attack/test_counterexample.py"
SMOOTH = "tests/explainers/methods/test_smooth.py"
BLEND = "tests/explainers/methods/test_blend.py"
NESTED = "tests/explainers/methods/test_nested.py"
NOISE = "tests/explainers/methods/test_noise.py"
PATH = "tests/explainers/methods/test_path.py"
TIES = "tests/explainers/test_score_ties.py"
CHOOSE = "tests/explainers/test_auto.py"
OVERLAPS = "tests/verify/test_overlap.py"
RADII = "tests/verify/test_radius.py"
ROUNDING = "tests/rounding/test_crossed_bounds.py"
LEAPS = "tests/attack/test_restarts.py"
REACH = "tests/attack/test_lower_bounds.py"
AGREE = "tests/graph/test_agreement.py"
BROADCAST = "tests/graph/onnx/test_broadcast.py"
TRACED = "tests/graph/torch/operators/test_linear.py"
READ = "tests/graph/onnx/operators"
ATTENTION = "tests/graph/onnx/test_attention.py"
LEARNED = "tests/graph/onnx/operators/test_ml_domain.py"
RECURRENT = "tests/graph/onnx/operators/test_recurrent.py"
WHOLE = "tests/graph/onnx/test_single_sample.py"
FOREIGN = "tests/graph/test_opaque.py"
LAST = "tests/graph/rewrite/test_probability_head.py"
MODES = "tests/graph/torch/test_training_mode.py"
PROVEN = "tests/explainers/test_proven_scores.py"
PROBABLE = "tests/explainers/probable/test_probable_eva.py"
BETTING = "tests/explainers/probable/test_betting.py"
SHIFTED = "tests/explainers/probable/test_shifted_noise.py"
STORAGE = "tests/explainers/test_explanation_file.py"
JOINED = "tests/explainers/samples/test_concatenation.py"
INDEXED = "tests/explainers/samples/test_sample_choice.py"
FRAME = "tests/explainers/samples/test_explanation_frame.py"
DRAWS = "tests/explainers/test_draws.py"
CAPTUM = "tests/explainers/attribution/test_captum.py"
COMPARED = "tests/bench/test_compare.py"
LATEX = "tests/bench/test_table_latex.py"
LOADERS = "tests/inputs/test_loader_samples.py"
FUNCTION = "tests/metrics/test_function_metric.py"
TWO_SIDED = "tests/runs/test_two_sided.py"
POINTS = "tests/runs/test_attained_points.py"
UNITS = "tests/search/test_unstable_units.py"
RELAXED = "tests/search/test_beta_crown.py"
INTERVALS = "tests/search/test_unit_intervals.py"
FOREST = "tests/search/test_tightening.py"
STRAIGHT = "tests/search/test_lp.py"
NEURONS = "tests/search/neurons/test_neuron_splitting.py"
LEAVES = "tests/search/test_frontier.py"
SEARCH = "tests/search/test_branch_and_bound.py"
CLOSE = "tests/search/test_exact.py"
TOGETHER = "tests/search/test_parallel.py"
CREW = "tests/search/test_parallel.py"
WITH_RADII = "tests/rounding/test_search_errors.py"
BOXES = "tests/search/test_input_splitting.py"
COVER = f"{BOXES}::test_leaves_cover_every_member"
BALLS = f"{BOXES}::test_parts_lie_in_the_balls_that_stand_for_them"
CHECKED = "tests/proof/test_check.py"
CERTIFIED = "tests/proof/test_certificate.py"
GROWN = "tests/proof/test_proof_tree.py"
RUN_CERTIFIED = "tests/runs/test_run_certificates.py"
CHECKED_FILE = "tests/proof/test_check_file.py"
CHECKED_VERDICT = "tests/proof/test_verdict.py"
CHECKED_DOSSIER = "tests/proof/test_check_dossier.py"
CHECKED_TREE = "tests/proof/test_check_tree.py"
CHECKED_MODELS = "tests/proof/test_check_models.py"
CHECKED_HOSTILE = "tests/proof/test_check_hostile.py"
FORGED = "tests/proof/test_forged.py"
PARSED = "tests/proof/test_reader.py"
BROKEN = f"{BOXES}::test_whatever_breaks_a_step_off_what_is_proven_holds"

WAVES, SIGNS, COUNTED = (
    "tests/rules/test_waves.py",
    "tests/rules/test_signs.py",
    "tests/graph/onnx/operators/test_comparisons.py",
)
SPECIFIED, SHAPES_OF_NODES = "tests/sources/vnnlib/test_specification.py", "tests/graph/test_ops.py"

BREAKS = [
    # sine, cosine, floor and sign
    Break("rules/waves.py", "torch.where(high, 1, ends.amax(0))", "ends.amax(0)", WAVES),
    Break("rules/waves.py", "((x.upper - point) / (2 * pi)).floor()", "((x.lower - point) / (2 * pi)).ceil()", WAVES),
    Break("rules/waves.py", "return [-point, pi + point]", "return [-point, point]", WAVES),
    Break("rules/waves.py", "< _LARGEST_PLACE)", "< 1e300)", WAVES),
    Break("rules/rounding_steps.py", "early: float = 0.0", "early: float = 0.5", SCALAR),
    Break("rules/signs.py", "2.0**-17, 2.0**-118", "0.0, 0.0", SIGNS),
    Break("rules/signs.py", "y.upper + above * room", "y.upper", SIGNS),
    Break("rules/signs.py", "(x.upper, -x.lower)", "(-x.lower, x.upper)", SIGNS),
    Break("rules/signs.py", "return own + _", "return _", SIGNS),
    Break("rounding/magnitudes.py", "(signs.STEEPEST + 1) * either", "0 * either", SIGNS),
    Break("search/unstable_units.py", "(x.lower < x.upper) | (value.lower < value.upper)", "x.lower < x.upper", SIGNS),
    Break("graph/operation_values.py", 'torch.where(x == 0, node.attributes["at_zero"], x.sign())', "x.sign()", SIGNS),
    Break("graph/builder/scalar_functions.py", "abs(shift) < _SIGN_SHARE * scale", "abs(shift) < 3 * scale", SIGNS),
    Break("graph/onnx/operators/comparisons.py", "_SOFTMAX_ROOM = 2.0**-16", "_SOFTMAX_ROOM = 0.0", COUNTED),
    Break("graph/onnx/operators/comparisons.py", "{-1.0: -1.0, 1.0: 1.0", "{-1.0: 1.0, 1.0: 1.0", COUNTED),
    Break(
        "graph/onnx/operators/comparisons.py",
        "x, one - zero, zero)",
        "x, one, zero)",
        COUNTED,
    ),
    Break("graph/rewrite/fixed_inputs.py", " & (lower.to(graph.dtype).double() == lower)", "", COUNTED),
    Break("graph/rewrite/fixed_inputs.py", "bool((before.mask != 0).all())", "bool((before.mask != 0).any())", COUNTED),
    # specifications
    Break("sources/vnnlib/declared_variables.py", "index = index * n + k", "index = index + k", SPECIFIED),
    Break("sources/vnnlib/assertions.py", "float(limit), factor > 0", "float(limit), True", SPECIFIED),
    Break(
        "sources/vnnlib/assertions.py",
        '["or", ["<", second, third], [">"',
        '["and", ["<", second, third], [">"',
        SPECIFIED,
    ),
    Break(
        "sources/vnnlib/assertions.py", "self.common.upper, np.minimum)", "self.common.upper, np.maximum)", SPECIFIED
    ),
    Break("sources/vnnlib/expressions.py", 'r"\\1", token)', '"", token)', SPECIFIED),
    Break("graph/builder/output_shapes.py", "d * (k - 1) - 1) // s", "d * k) // s", SHAPES_OF_NODES),
    # the lines of scalar functions
    Break("rules/rounding_steps.py", "2.0**-17, 2.0**-17, 2.0**-118", "0.0, 0.0, 0.0", STAIRS),
    Break(
        "rules/rounding_steps.py", "(y.upper - slope * u.upper).minimum(first)", "(y.upper - slope * u.upper)", SCALAR
    ),
    Break(
        "rules/rounding_steps.py", "k - slope * (k - self.early) for", "k - slope * (k - self.early + 0.01) for", STAIRS
    ),
    Break("graph/operation_values.py", "scaled.round()", "scaled.floor()", QUANTISED),
    Break("graph/onnx/operators/quantisation.py", "float(info.min - shift)", "float(info.min)", QUANTISED),
    Break(
        "graph/rewrite/model_pair.py",
        "bias = other.weight - node.weight, _minus(",
        "bias = node.weight - other.weight, _minus(",
        VERSIONS,
    ),
    Break("graph/rewrite/model_pair.py", "-1.0, like)", "1.0, like)", VERSIONS),
    Break(
        "verify/model_comparison.py",
        "[result[..., 0].maximum(closer[..., 0])",
        "[result[..., 1].maximum(closer[..., 0])",
        VERSIONS,
    ),
    Break("verify/model_comparison.py", 'verdict == ("proven", "proven")', '"proven" in verdict', VERSIONS),
    Break("graph/torch/low_precision.py", "copy.deepcopy(model).float()", "model.float()", HALVES),
    Break("graph/torch/export.py", "(moves or schema is None or schema.is_mutable)", "moves", MODULES_READ),
    Break(
        "graph/torch/operators/operator_table.py",
        "_full_like(b, name, x, 1.0",
        "_full_like(b, name, x, 0.0",
        MODULES_READ,
    ),
    Break(
        "graph/torch/batch_axis_tracking.py",
        "partial(_full_like, value=1.0)",
        "partial(_full_like, value=0.0)",
        MODULES_READ,
    ),
    Break("rules/piecewise.py", "slope, -slope * negative)", "slope, -0.99 * slope * negative)", STAIRS),
    Break("rules/piecewise.py", "lower = (x.upper > -x.lower)", "lower = (x.upper < -x.lower)", PUBLISHED),
    Break("rules/piecewise.py", "torch.where(on, positive - negative, 1)", "(positive - negative + 1e-38)", TINY),
    Break(
        "rules/one_bend.py",
        "level = (x.lower >= x.upper) | ~torch.stack(lines).isfinite().all(0)",
        "level = x.lower >= x.upper",
        TINY,
    ),
    Break("rules/piecewise.py", "convex = left <= right", "convex = left <= right + 1", SCALAR),
    Break("rules/piecewise.py", "torch.where(middle <= top, rising", "torch.where(middle >= top, rising", SCALAR),
    Break("rules/piecewise.py", "kink = ((x.lower < low)", "kink = ((x.lower < low - 1)", SCALAR),
    Break("rules/one_bend.py", "return x.upper < 0\n", "return x.upper > 0\n", SCALAR),
    Break("rules/s_shaped.py", "return 0.0, 0.25", "return 0.0, 0.2", SCALAR),
    Break("rules/s_shaped.py", "return [point, -point]\n", "return [point]\n", SCALAR),
    Break(
        "rules/s_shaped.py", "sign * (bias + self.slack(node, sign * slope, points))", "sign * (bias - 1e-4)", SCALAR
    ),
    Break("rules/s_shaped.py", "right = where > middle", "right = where < middle", SCALAR),
    Break("rules/s_shaped.py", "kinks = [torch.full_like(slope, k) for k in (-3.0, 3.0)]", "kinks = []", SCALAR),
    # functions that jump
    Break("rules/discontinuous.py", "for end in (-inf, inf))]", "for end in (-inf,))]", JUMPS),
    Break("rules/discontinuous.py", "_KNOT_ULPS = 64", "_KNOT_ULPS = 0", JUMPS),
    Break("rules/discontinuous.py", "return (-limit, limit)", "return (limit,)", SCALAR),
    Break("rules/discontinuous.py", "return () if isinf(threshold) else (threshold,)", "return ()", JUMPS),
    Break("rules/s_shaped.py", "rsqrt() - 1).clamp(min=0)", "rsqrt()).clamp(min=0)", SCALAR),
    Break(
        "graph/builder/scalar_functions.py",
        "torch.finfo(b.precision).eps / 2",
        "2e-7",
        "tests/graph/builder/test_scalar_functions.py",
    ),
    Break(
        "graph/builder/scalar_functions.py",
        '[clamp(b, f"{name}.positive", total, low=0.0)]',
        "[total]",
        "tests/test_rigorous_default.py",
    ),
    Break(
        "bounds/engine.py",
        "if not rigorous or isinstance(error, RoomError):",
        "if isinstance(error, BoundError):",
        "tests/test_rigorous_default.py",
    ),
    # a form through lines
    Break("rules/scalar_lines.py", "upper = at_rows(self.upper_slope", "upper = at_rows(self.lower_slope", SOUND),
    Break("rules/scalar_lines.py", "negative = slope < 0", "negative = slope < -9", SCALAR),
    # the largest of several
    Break(
        "rules/maximum.py",
        "second = upper.scatter(-1, first, -inf)",
        "second = lower.scatter(-1, first, -inf)",
        MAXIMUM,
    ),
    Break("rules/maximum.py", 'a["stride"][k] - a["padding"][k]', 'a["stride"][k]', MAXIMUM),
    Break("rules/maximum.py", "rivals.sum(-1, keepdim=True) > 1", "rivals.sum(-1, keepdim=True) > 2", MAXIMUM),
    # linear operations
    Break("rules/rule.py", "node.weight.abs()", "node.weight", LINEAR),
    Break(
        "rules/rule.py",
        "return Interval(centre - radius, centre + radius)",
        "return Interval(centre, centre + radius)",
        LINEAR,
    ),
    Break("rules/rule.py", "lower_b, upper_b = lower_b + node.bias, upper_b + node.bias", "pass", LINEAR),
    Break("graph/builder/pooling.py", "mean=divisor is None", "mean=True", LINEAR),
    Break(
        "rules/linear_operations.py", "Interval(torch.minimum(*ends), torch.maximum(*ends))", "Interval(*ends)", LINEAR
    ),
    Break(
        "rules/linear_operations.py", "return (coefficients @ weight,)", "return (coefficients @ weight.abs(),)", LINEAR
    ),
    Break(
        "rules/linear_operations.py",
        "(coefficients,) * len(shapes)",
        "(coefficients / len(shapes),) * len(shapes)",
        LINEAR,
    ),
    # readers
    Break("graph/onnx/operators/operator_table.py", "b.broadcast_to(call.name, x, powers)", "x", BROADCAST),
    Break("graph/onnx/load.py", "not named or not all(", "not named and not all(", AGREE),
    Break("graph/agreement.py", "if off <= tolerance:", "if off >= 0:", AGREE),
    Break("graph/agreement.py", "if reference.other and", "if False and", AGREE),
    Break("graph/torch/model_agreement.py", "if precision != x.dtype and", "if False and", AGREE),
    Break(
        "graph/onnx/model_agreement.py",
        "require_agreement(graph, Reference(run, run.double, other=not steps), points, whose, _ADVICE)",
        "pass",
        AGREE,
    ),
    Break(
        "graph/operation_values.py",
        "return F.hardtanh(x,",
        "return x.clamp(",
        "tests/graph/builder/test_scalar_functions.py",
    ),
    Break("graph/operation_values.py", "torch.where(node.weight != 0, x, 0.0)", "x * node.weight", TRACED),
    Break("graph/builder/scatter.py", "kept = [(x, mask), (y, ~mask)]", "kept = [(x, mask), (y, mask)]", TRACED),
    Break("graph/builder/scatter.py", "not torch.equal(local, local[:1].expand_as(local)) or int", "int", TRACED),
    # samples aside, masks, attention, recurrent layers, norms
    Break("graph/torch/batch_axis_tracking.py", "    if len(places) > 1:\n", "    if False:\n", FOLLOWED),
    Break("graph/torch/batch_axis_tracking.py", "    if axis == x.axis:\n        raise x.error\n", "", FOLLOWED),
    Break(
        "graph/torch/batch_axis_tracking.py",
        "if not torch.equal(whole, whole[:1].expand_as(whole)):",
        "if False:",
        FOLLOWED,
    ),
    Break(
        "graph/torch/batch_axis_tracking.py",
        "    if one.axis >= len(b.shape(one.node)) - last:\n",
        "    if False:\n",
        FOLLOWED,
    ),
    Break(
        "graph/torch/batch_axis_tracking.py",
        "(value.axis, value.before, b.shape(value.node)[0]) != (0, 1, 1)",
        "value.axis",
        FOLLOWED,
    ),
    Break("graph/torch/batch_axis_tracking.py", "axis, outer // passed, x.error)", "axis, 1, x.error)", FOLLOWED),
    Break("graph/torch/batch_axis_tracking.py", "x.axis - sum(axis < x.axis for axis in gone)", "x.axis", FOLLOWED),
    Break(
        "graph/builder/softmax_layers.py",
        "hidden = None if node.bias is None else node.bias == -inf",
        "hidden = None",
        MASKED,
    ),
    Break("graph/builder/softmax_layers.py", "shown if hidden is None else shown & ~hidden", "shown", MASKED),
    Break("graph/builder/softmax_layers.py", "shown = kept | (node.weight == 0)", "shown = kept", MASKED),
    Break("graph/builder/softmax_layers.py", "not bool((node.weight > 0).all())", "False", MASKED),
    Break("graph/builder/softmax_layers.py", "torch.cat(places).argsort()", "torch.cat(places)", MASKED),
    Break("graph/builder/attention.py", "1 / sqrt(size) if scale is None else scale", "1 / sqrt(size)", LAYERS),
    Break("graph/builder/attention.py", "    if causal:\n", "    if False:\n", LAYERS),
    Break("graph/builder/unrolled_recurrent.py", "reverse or direction == 1", "reverse", LAYERS),
    Break("graph/builder/unrolled_recurrent.py", " for k in (0, 1, 3))", " for k in (1, 0, 3))", LAYERS),
    Break(
        "graph/torch/operators/recurrent.py", "not torch.equal(state, state[:, :1].expand_as(state))", "False", LAYERS
    ),
    Break("graph/torch/trace.py", "torch.isneginf(tensor) & own", "torch.isneginf(tensor)", WEIGHTS),
    Break("graph/torch/operators/norms.py", "1 / (count - less)", "1 / count", LAYERS),
    Break(
        "graph/torch/operators/norms.py",
        "if own or mean is None or var is None:",
        "if mean is None or var is None:",
        LAYERS,
    ),
    Break(
        "graph/builder/scalar_functions.py",
        "node.inputs == b.nodes[sign].inputs",
        "True",
        "tests/graph/builder/test_scalar_functions.py",
    ),
    Break(
        "graph/builder/scalar_functions.py",
        "if exponent != int(exponent):",
        "if False:",
        "tests/graph/builder/test_scalar_functions.py",
    ),
    Break("graph/builder/weighted_sums.py", "pads = (n, -1) if exclusive", "pads = (n - 1, 0) if exclusive", READ),
    Break(
        "graph/onnx/operators/resizing.py",
        '"ceil" if settings.rounding == "simple" and scale < 1 else settings.rounding',
        "settings.rounding",
        READ,
    ),
    Break(
        "graph/onnx/operators/node_inputs.py", "self.attributes.keys() - self.used - _WITHOUT_EFFECT", "()", ATTENTION
    ),
    Break("graph/onnx/load.py", "alone = batch == 1 or check(", "alone = True or check(", WHOLE),
    Break("graph/onnx/model_agreement.py", "if self.batch_first and any(", "if False and any(", WHOLE),
    Break("graph/onnx/single_sample.py", "return axis % rank", "return max(axis % rank - 1, 0)", WHOLE),
    Break(
        "graph/builder/weighted_layers.py",
        "(*shape[:-2], *shape[-1:]) if b.rank(y) > 1 else shape[:-1]",
        "shape[:-1]",
        WHOLE,
    ),
    Break("graph/onnx/operators/recurrent.py", "[0, 2, 3, 1]", "[0, 1, 2, 3]", RECURRENT),
    Break("graph/onnx/operators/recurrent.py", "[1, 0, 2]", "[0, 1, 2]", RECURRENT),
    Break("graph/onnx/operators/recurrent.py", 'reset_first = not call.get("', 'reset_first = call.get("', RECURRENT),
    Break("graph/onnx/operators/recurrent.py", '"forward") == "reverse"', '"forward") == "backward"', RECURRENT),
    Break("graph/onnx/operators/norms.py", 'and [node.attributes["axis"]] == axes', "", READ),
    Break("graph/onnx/operators/norms.py", "inverse), 1.0, entries=count)", "inverse), 0.5, entries=count)", READ),
    Break("graph/onnx/operators/norms.py", "if call.opset < 21:", "if False:", READ),
    Break("graph/builder/softmax_layers.py", "high=0.0", "high=-0.1", READ),
    Break("graph/builder/softmax_layers.py", "low=1.0", "low=1.5", READ),
    Break("graph/onnx/operators/reductions.py", "[y, *rest]", "[y]", READ),
    Break("graph/onnx/operators/ml_domain.py", "-offset * scale", "-offset", LEARNED),
    Break("graph/onnx/operators/ml_domain.py", "torch.cat([0 * one, one])", "torch.cat([-one, one])", LEARNED),
    Break(
        "graph/onnx/operators/shapes.py",
        "scalar_functions.affine_source(b, xs[0]) == (xs[1], -1.0, 1.0)",
        "True",
        LEARNED,
    ),
    Break("graph/onnx/message_fields.py", "np.isposinf(array).any()", "False", ATTENTION),
    # the walk
    Break("graph/walk.py", "pending[name] = pending[name] + part", "pending[name] = part", SOUND),
    Break("rules/rule.py", "create_graph=again", "create_graph=False", GRADIENTS),
    Break("rules/linear_operations.py", "if wide and not differentiated(coefficients)", "if wide", GRADIENTS),
    Break("rules/scalar_lines.py", "above * upper if watched else", "above * upper if False else", GRADIENTS),
    Break("rules/piecewise.py", "torch.where(bend, torch.maximum(left, right), start)", "1 + start.abs()", SLOPES),
    Break("rules/piecewise.py", "slopes[:, 0].clamp(0, 1)", "slopes[:, 0]", SLOPES),
    Break("rules/piecewise.py", "most = torch.stack([falling, rising], dim=1)", "most = torch.ones(())", SLOPES),
    Break("rules/one_bend.py", "given = clamp_to_interval(slopes[:, 0], x)", "given = slopes[:, 0]", SLOPES),
    Break("rules/maximum_of_two.py", "torch.where(either, 1, start)", "torch.where(either, 2, start)", SLOPES),
    Break("bounds/state.py", "torch.where(sides == side,", "torch.where(sides == -side,", CASES),
    Break("bounds/state.py", "self.empty |= crossed.flatten(1).any(1)", "pass", CASES),
    Break("bounds/state.py", "> _CROSSING_ULPS *", "> 0 *", CASES),
    Break("bounds/backsubstitution.py", "bias = bias + offset", "bias = offset", SOUND),
    Break("bounds/interval.py", "dot(values.clamp(max=0), lower)", "dot(values.clamp(max=0), upper)", SOUND),
    Break("bounds/forward.py", "below @ reached.lower_weight", "below @ reached.upper_weight", SOUND),
    Break("bounds/backward.py", "torch.cat([sign * form for", "torch.cat([form for", SOUND),
    # slopes that are chosen
    Break("bounds/method.py", "return (*Backward().plans, ", "return (*(), ", NO_LOOSER),
    Break(
        "bounds/alpha/optimiser.py", "lower = other.bounds < one.bounds", "lower = other.bounds > one.bounds", DESCENT
    ),
    Break("bounds/alpha/optimiser.py", ".clamp(free[name].least, free[name].most)", "", DESCENT),
    Break("bounds/alpha/optimiser.py", "values if row is None else values[row]", "values[:1]", DESCENT),
    Break("bounds/alpha/relaxation.py", "values * self.closed", "values", CHOSEN),
    Break("bounds/alpha/relaxation.py", "torch.equal(closed * low, closed * high)", "True", BOTH_LINES),
    Break("bounds/alpha/relaxation.py", "*slopes, bias = (closed * line for", "*slopes, bias = (line for", CHOSEN),
    Break("bounds/alpha/relaxation.py", "bias.double().index_add(0, entries.row, lift.double())", "bias", CHOSEN),
    Break("bounds/alpha/relaxation.py", "flat[case if len(flat) > 1 else 0, entry]", "flat[0, entry]", CHOSEN),
    Break("bounds/alpha/relaxation.py", "self.cached[0] is form", "len(self.cached[0]) == len(form)", CHOICES),
    Break("bounds/alpha/optimised_rows.py", "return forms, bias + self.lift", "return forms, bias", CHOICES),
    Break("bounds/alpha/optimised_rows.py", "key == start, by_intervals", "True, by_intervals", MEMBERS),
    Break("bounds/alpha/optimised_rows.py", "({}, lowest.bounds)", "({}, lowest.bounds - 0.02)", CHOICES),
    Break(
        "bounds/alpha/alpha_crown.py",
        "torch.minimum(bounds, self._optimised.final(specification, wanted))",
        "bounds",
        CHOICES,
    ),
    Break("bounds/alpha/optimised_rows.py", "(known[place] == keys)", "(known[place] >= keys)", MEMBERS),
    Break("bounds/alpha/optimised_rows.py", "if self.room >= 0:", "if True:", MEMBERS),
    Break("bounds/alpha/member_rows.py", "(gain > _OWN_ROW_GAIN) &", "(gain < -1) &", MEMBERS),
    Break("bounds/alpha/member_rows.py", "(member.lower - whole.lower)", "(whole.lower - member.lower)", MEMBERS),
    Break("bounds/alpha/optimised_rows.py", "self.origin.case[rows.case], len", "0 * rows.case, len", MEMBERS),
    Break(
        "bounds/alpha/optimised_rows.py",
        "pick(lowest.gained, lowest.parameters)",
        "pick(~lowest.gained, lowest.parameters)",
        MEMBERS,
    ),
    Break("bounds/backward.py", "torch.full_like(largest, inf)", "largest", SIDES),
    Break("bounds/backward.py", "torch.full_like(largest, -inf)", "-largest", SIDES),
    Break("bounds/backward.py", "(side,) if side else (1, -1)", "(1,) if side else (1, -1)", SIDES),
    Break("bounds/alpha/optimised_rows.py", "one + 1 if rows.side < 0 else", "one if rows.side < 0 else", SIDES),
    Break("bounds/alpha/optimised_rows.py", "lift=self.lift[rows]", "lift=self.lift[: int(rows.sum())]", PICKED),
    Break("bounds/alpha/optimised_rows.py", "owner=self.owner[rows]", "owner=self.owner[: int(rows.sum())]", PICKED),
    Break(
        "bounds/alpha/optimised_rows.py",
        "parameters[key][rows[entries.row]]",
        "parameters[key][: int(rows[entries.row].sum())]",
        PICKED,
    ),
    Break("inputs/window_forms.py", "site=self.site[rows]", "site=self.site[: int(rows.sum())]", PICKED),
    Break(
        "bounds/alpha/optimiser.py",
        "parameters[name].masked_scatter",
        "parameters[name].add(1).masked_scatter",
        DESCENT,
    ),
    Break("bounds/alpha/optimiser.py", "self.bounds.masked_scatter(rows, other.bounds)", "self.bounds - 1", DESCENT),
    Break("bounds/alpha/optimiser.py", "1 + sign * self.last / 2", "1 - sign * self.last / 2", DESCENT),
    Break("bounds/alpha/member_rows.py", "                optimised.forget(node.name)\n", "", MEMBERS),
    Break(
        "bounds/alpha/interval_gradients.py",
        "torch.cat([both.upper, -both.lower])",
        "torch.cat([both.upper, both.lower])",
        MEMBERS,
    ),
    Break("bounds/alpha/interval_gradients.py", "reversed(state.graph.nodes)", "state.graph.nodes", MEMBERS),
    Break("inputs/family.py", "dot(flat.abs(), radius)", "dot(flat, radius)", SOUND),
    Break("runtime/memory.py", '"slopes": 16', '"slopes": 1', BUDGET),
    Break("runtime/memory.py", '"curves": 48', '"curves": 1', BUDGET),
    # sharing
    Break("bounds/rows.py", "row, member[which]", "row, (member[which] + 1) % (int(member.max()) + 1)", SOUND),
    Break("bounds/node_facts.py", "elif node.inputs[0] in apart:", "elif node.inputs[0] in bounded:", PUBLISHED),
    Break("bounds/state.py", "replaces=not counts", "replaces=False", PUBLISHED),
    Break("bounds/engine.py", "torch.minimum(best, best[:, :1])", "best", FAMILY),
    Break("bounds/engine.py", "_smallest([flat[part], *bounds])", "_smallest(bounds)", FAMILY),
    Break("bounds/engine.py", "best > floor[:, None, None]", "best < floor[:, None, None]", FAMILY),
    # balls
    Break("inputs/family.py", "self._of((high - low) / 2, owner)", "self._of((high - low) / 3, owner)", SOUND),
    Break("inputs/family.py", "middle[:, None] + self.concretise", "self.concretise", SOUND),
    Break("rules/scalar_lines.py", "bias = dot(above, at_rows(", "bias = dot(values, at_rows(", SOUND),
    Break(
        "rules/linear_operations.py",
        "coefficients[:, used], weight[used]",
        "coefficients[:, used], weight[: len(used)]",
        FAMILY,
    ),
    Break(
        "inputs/concretise.py",
        "torch.maximum(coefficients * lower, coefficients * upper)",
        "(coefficients * upper)",
        "tests/inputs/test_concretise.py",
    ),
    Break(
        "inputs/concretise.py",
        "torch.maximum(sign * lower.double(), sign * upper.double())",
        "upper.double()",
        "tests/inputs/test_concretise.py",
    ),
    # windows
    Break("inputs/window_forms.py", "offset = tuple(o * t + b", "offset = tuple(o + b", WINDOWS),
    Break(
        "inputs/window_forms.py",
        "self.values * self.places.to_rows(inside.to(self.values.dtype))",
        "self.values",
        WINDOWS,
    ),
    Break(
        "inputs/window_forms.py", "offset = tuple(map(min, self.offset", "offset = tuple(map(max, self.offset", WINDOWS
    ),
    Break(
        "inputs/window_forms.py",
        "return values if self.site is None else",
        "return values if self.site is not None else",
        WINDOWS,
    ),
    Break(
        "rules/linear_operations.py", "tuple(-p for p in self.padding), tuple", "tuple(self.padding), tuple", WINDOWS
    ),
    Break(
        "rules/linear_operations.py",
        "share = compute(node, ones)[0] / inside",
        "share = compute(node, ones)[0]",
        WINDOWS,
    ),
    Break("rules/linear_operations.py", "starts = [sum(shape[0] for", "starts = [0 * sum(shape[0] for", WINDOWS),
    Break("rules/maximum.py", "place = place + inner * span", "place = inner * span", WINDOWS),
    Break("inputs/concretise.py", "rising[:, 1:] != rising[:, :-1]", "rising[:, 1:] == rising[:, :-1]", WINDOWS),
    Break("bounds/rows.py", "key = case * _GROUP_STRIDE + member - 1", "key = case * _GROUP_STRIDE + member", WINDOWS),
    # the sieve
    Break("rules/scalar_lines.py", "torch.minimum(tilt * x.lower, tilt", "torch.maximum(tilt * x.lower, tilt", SIEVE),
    Break("bounds/narrow_basis.py", "slope.abs() * error + half", "slope.abs() * error", SIEVE),
    Break("bounds/narrow_basis.py", "rule.magnitude(node, error)", "rule.apply(node, error)", SIEVE),
    Break("bounds/narrow_basis.py", "(above + linear - centre.flatten(1)).clamp(min=0)", "0 * linear", SIEVE),
    Break("bounds/interval.py", "dot(values.clamp(min=0), upper)", "dot(values.clamp(min=0), lower)", SIEVE),
    Break(
        "bounds/engine.py", "wanted = cheap > task.floor", "wanted = cheap < task.floor", "tests/verify/test_overlap.py"
    ),
    # samples, recomputed where they change
    Break(
        "graph/receptive_fields.py", "last = ((high + padding) // stride)", "last = ((high - 1) // stride)", INCREMENTAL
    ),
    Break("execution/cone.py", "return Window(low.minimum(room), size)", "return Window(low, size)", INCREMENTAL),
    Break("execution/incremental.py", "_MAX_POOL_PADDING = -torch.inf", "_MAX_POOL_PADDING = 0.0", INCREMENTAL),
    Break("execution/incremental.py", "replace(node, bias=None)", "replace(node)", INCREMENTAL),
    Break("execution/map_windows.py", "before == after and min(before)", "min(before)", INCREMENTAL),
    Break("execution/map_windows.py", "(before == before[0]).all()", "(before == before).all()", INCREMENTAL),
    Break(
        "execution/incremental.py",
        "start.size, steps, last, precision)",
        "start.size, steps, last, graph.dtype)",
        HYBRID,
    ),
    Break("execution/map_windows.py", "still = taken.clamp_(low, high)", "still = taken", INCREMENTAL),
    Break("graph/operation_values.py", "if x.shape[1] == 1:", "if x.shape[1] == 0:", INCREMENTAL),
    Break("graph/ops.py", "    return True\n", "    return False\n", HYBRID),
    Break(
        "graph/ops.py",
        '(F.silu, activation=True, curve="unbounded")',
        '(F.silu, activation=True, curve="bounded")',
        SIZES,
    ),
    Break("graph/ops.py", "plain=True, **more)", "**more)", LAYERS_READ),
    Break("execution/family_sampler.py", "self.precision or x.dtype", "self.precision or graph.dtype", HYBRID),
    Break("execution/family_sampler.py", "show(images, 1 + schedule.groups", "show(images, schedule.groups", HYBRID),
    Break("execution/map_windows.py", "- still.clamp(low, high)", "- still", INCREMENTAL),
    Break("execution/incremental.py", "(k / counts.double())", "(k / (k + 0 * counts.double()))", INCREMENTAL),
    # overlap
    Break(
        "verify/objective.py",
        "every + (every >= target[:, None])",
        "every + (every > target[:, None])",
        "tests/verify/test_overlap.py",
    ),
    Break(
        "verify/objective.py",
        "torch.eye(classes, dtype=logits.dtype,",
        "torch.eye(classes,",
        "tests/verify/test_overlap.py",
    ),
    Break("verify/radius_search.py", "proven=torch.where(holds, trial, known.proven)", "proven=trial", RADII),
    # both sides of an overlap, and of a radius
    Break(
        "verify/overlap_bounds.py", "torch.where(lower > upper, round_up(lower, upper.dtype), upper)", "upper", OVERLAPS
    ),
    Break("verify/overlap_bounds.py", "round_up(lower, upper.dtype)", "lower.to(upper.dtype)", OVERLAPS),
    Break(
        "verify/overlap_bounds.py", "check_attained(lower, upper, estimate_stored_error(upper))\n", "pass\n", OVERLAPS
    ),
    Break(
        "verify/overlap_bounds.py", "reached.minimum(upper) if self.certified", "reached if self.certified", OVERLAPS
    ),
    Break("verify/overlap_bounds.py", "low = (self.full_lower.double()", "low = (self.full.double()", OVERLAPS),
    Break("verify/overlap_bounds.py", "- self.frozen_lower.double()", "- self.frozen.double()", OVERLAPS),
    Break("inputs/membership.py", "kept = 1 - 8 * torch.finfo(family.x.dtype).eps", "kept = 1.0", REACH),
    Break(
        "attack/lower_bounds.py",
        "return round_into_ball(points, ",
        "return points.double() if index.numel() else (",
        REACH,
    ),
    Break(
        "attack/lower_bounds.py",
        "problem.value(inside, piece",
        "problem.value(points[start:stop].double(), piece",
        REACH,
    ),
    Break("attack/lower_bounds.py", "masked_fill(apart > 0, -inf)", "masked_fill(apart < 0, -inf)", REACH),
    Break("attack/lower_bounds.py", "            self._share_points(samples)\n", "", REACH),
    Break(
        "attack/lower_bounds.py",
        "best = _first_best(found, piece, len(value))",
        "best = torch.arange(len(piece))",
        REACH,
    ),
    Break(
        "attack/lower_bounds.py", "self._attack_members(better, self", "self._attack_members(better[:0], self", REACH
    ),
    Break("verify/radius_search.py", " & (margins(outputs, target) > 0)", "", RADII),
    Break("verify/radius_search.py", "torch.where(above, (left +", "torch.where(above & (left < 0), (left +", RADII),
    Break("verify/radius_search.py", "(margins(self.precise(points).flatten(1), target) > 0) & ", "", RADII),
    Break(
        "verify/radius_search.py",
        "beyond = (proven > (1 + _CONTRADICTION) * refuted)",
        "beyond = (proven > inf * refuted)",
        RADII,
    ),
    Break(
        "verify/radius_search.py",
        "refuted = round_up(known.refuted, proven.dtype)",
        "refuted = known.refuted.to(proven)",
        RADII,
    ),
    # the rows of the last pass
    Break("bounds/engine.py", "flat[part] > flat[part].gather(1, highest)", "flat[part] > inf", FAMILY),
    # values without an axis, and what a bound decides
    Break(
        "graph/rewrite/entry_axis.py", '"keepdim": True', '"keepdim": False', "tests/graph/rewrite/test_entry_axis.py"
    ),
    Break(
        "verify/objective.py",
        'in ("margin", "apart")',
        'in ("margin", "apart", "mean")',
        "tests/plots/test_figure_titles.py",
    ),
    # what is proven, and over which ball
    # what is proven of scores
    Break(
        "verify/overlap_bounds.py",
        "most = torch.maximum(self.frozen, self.nominal[:, None])",
        "most = self.frozen",
        PROVEN,
    ),
    Break("explainers/proven_scores.py", "added - removed[0].flip(2)", "added - removed[0]", PROVEN),
    Break("explainers/proven_scores.py", "> upper[:, None, :] + room", "> lower[:, None, :] + room", PROVEN),
    Break(
        "explainers/proven_scores.py",
        "(side.frozen_lower.double(), _upper(side))",
        "(_upper(side), _upper(side))",
        PROVEN,
    ),
    Break("explainers/proven_scores.py", "(least > most + room)", "(least > room)", PROVEN),
    Break("explainers/proven_scores.py", ".sum(2) - 1 for k in", ".sum(2) - 2 for k in", PROVEN),
    Break(
        "explainers/proven_scores.py", "torch.maximum(lower, -upper).clamp", "torch.maximum(lower, upper).clamp", PROVEN
    ),
    Break("explainers/proven_scores.py", "(lower > self.slack[:, None])", "(lower > 0)", PROVEN),
    Break("explainers/proven_scores.py", "_SLACK_ULPS = 64", "_SLACK_ULPS = 0", PROVEN),
    Break("explainers/proven_scores.py", "torch.where(present.", "torch.where(present.logical_not().", PROVEN),
    Break("explainers/proven_scores.py", "if not all(side.certified is True and", "if not all(True and", PROVEN),
    Break("explainers/batching.py", "value.clamp(lower, upper)", "value", PROVEN),
    Break(
        "explainers/batching.py",
        "torch.where(found, overlap.full_lower[:, None]",
        "torch.where(found, overlap.full[:, None]",
        PROVEN,
    ),
    Break(
        "explainers/statements/proven_ranks.py",
        "if proven == self.most:",
        "if proven:",
        "tests/explainers/statements/test_proven_ranks.py",
    ),
    Break(
        "runtime/outward_numbers.py",
        "format_overlap(upper, 'certified')}]",
        "format_overlap(upper, 'sampled')}]",
        "tests/runtime/test_outward_numbers.py",
    ),
    Break("explainers/explanation_file.py", "lower = LOWER if version >= 3 else ()", "lower = LOWER", STORAGE),
    Break("runs/results.py", "name in LOWER_BOUNDS and name not in self._texts[1]", "False", TWO_SIDED),
    Break("runs/results.py", "row - int(ends[ends <= row].max(initial=0))", "row % len(part) - 1", POINTS),
    Break("runs/attained_points.py", "members.ravel()[place] = value", "pass", POINTS),
    Break("runs/attained_points.py", "_bits(at[1:]) != _bits(", "(lambda v: v.ravel())(at[1:]) != np.ravel(", POINTS),
    Break("runs/worker.py", "points[row], x[row], masks[row] = found", "points[0], x[row], masks[row] = found", POINTS),
    Break(
        "report/finding_texts.py",
        "if not searched(e):\n        return\n",
        "if False:\n        return\n",
        "tests/report/test_finding_texts.py",
    ),
    Break(
        "explainers/explanation.py",
        "(self.target != self.overlap.target) & ",
        "",
        "tests/explainers/methods/test_eva.py",
    ),
    Break(
        "inputs/ball.py", "lower, upper = radius * (low - x), radius * (high - x)", "pass", "tests/inputs/test_ball.py"
    ),
    # a graph that is reused though its module has changed
    Break("verify/radius_search.py", "        except RoomError:\n            raise\n", "", RADII),
    Break("verify/overlap.py", "if len(same):", "if len(same) < 0:", "tests/verify/test_overlap.py"),
    Break("verify/radius_search.py", "torch.minimum(2 * trial, self.farthest)", "trial", RADII),
    Break("explainers/explainer.py", " bounds=self.bounds,", "", "tests/explainers/methods/test_eva.py"),
    # the ball that is taken where none was stated
    Break("explainers/explained_ball.py", "float(x.max())", "2 * float(x.max())", UNSTATED),
    Break("runtime/user_warning.py", "stacklevel=_user_stack_level()", "stacklevel=2", UNSTATED),
    Break(
        "runtime/memory.py", "min(budget // 2, _CPU_CHUNK_BYTES)", "_CPU_CHUNK_BYTES", "tests/runtime/test_memory.py"
    ),
    Break(
        "runtime/memory.py",
        "if 2 * torch.cuda.max_memory_reserved(device) <= budget else size",
        "if budget else size",
        "tests/runtime/test_memory.py",
    ),
    Break("explainers/methods/hybrid.py", "boxes // family.members", "len(task.x)", HYBRID),
    Break("inputs/window_forms.py", "self.to_rows(place)", "self.to_rows(place * 0)", WINDOWS),
    Break("explainers/methods/hybrid.py", "mask - first, count)", "mask, count)", HYBRID),
    Break("explainers/methods/hybrid.py", "torch.cat([drawn, climbed])", "drawn", ENCLOSURE),
    # sets around samples
    Break("explainers/methods/enclosure.py", "values.amin(0)", "values.amax(0)", ENCLOSURE),
    Break("explainers/methods/enclosure.py", "moved - part @ along, flat", "0 * moved, flat", ENCLOSURE),
    Break(
        "explainers/methods/enclosure.py",
        "values = directions(images, values)",
        "values = start[images, None]",
        ENCLOSURE,
    ),
    Break("explainers/methods/enclosure.py", "layer.weight @ centre + layer.bias", "layer.bias", ENCLOSURE),
    Break("explainers/methods/enclosure.py", "(turned.name, e.name)", "(turned.name, turned.name)", ENCLOSURE),
    Break("explainers/methods/enclosure.py", "value[one].minimum(", "value[one].maximum(", ENCLOSURE),
    Break("explainers/methods/enclosure.py", "radius @ rows.abs().mT", "radius @ rows.mT", ENCLOSURE),
    # smooth maps
    Break("explainers/upsampling.py", "(rows @ plain.double()", "(plain.double()", SPREAD),
    Break("explainers/upsampling.py", "weights / weights.sum(1, keepdim=True)", "weights / weights.sum()", SPREAD),
    Break("explainers/explanation_file.py", 'words.setdefault("smooth", False)', 'words["smooth"] = False', SPREAD),
    Break(
        "runs/results.py",
        '.get("smooth", False)',
        '.get("smoothed", False)',
        "tests/runs/test_dataset_run.py::test_maps_of_a_smooth_grid_are_those_of_the_library",
    ),
    Break(
        "explainers/objective_gradients.py", "(logits.shape[1] - 1) - decided", "logits.shape[1] - decided", BASELINES
    ),
    # maxima of two
    Break("rules/maximum_of_two.py", "open_, -rise * d.lower", "open_, -0.9 * rise * d.lower", LARGER),
    Break("rules/maximum_of_two.py", "second - slope * start", "second - 1.1 * slope * start", LARGER),
    Break("rules/maximum_of_two.py", "(d.upper > -d.lower).to", "(d.upper < -d.lower).to", LARGER),
    Break("rules/maximum_of_two.py", "from_b = b.upper > a.upper", "from_b = b.upper > -9", LARGER),
    Break("rules/maximum_of_two.py", "b.upper + (-d.lower).clamp(min=0)", "b.upper + (-d.upper).clamp(min=0)", LARGER),
    Break("rules/maximum_of_two.py", ".add_(below).sub_(of_b)", ".add_(below)", LARGER),
    Break("rules/linear_operations.py", "= start, step, (size", "= 0, step, (size", WINDOWS),
    Break(
        "graph/rewrite/pairwise_maximum.py",
        "start = pool.shape[axis], k * dilation",
        "start = pool.shape[axis], k",
        PAIRS,
    ),
    Break("graph/rewrite/pairwise_maximum.py", "len(shape), -1.0", "len(shape), 1.0", PAIRS),
    Break("graph/rewrite/pairwise_maximum.py", 'not any(a["padding"]) and', "", PAIRS),
    Break("bounds/node_facts.py", "moves(node) or isinstance(RULES.get", "isinstance(RULES.get", PAIRS),
    # models that are run, and what is taken off them
    Break("graph/opaque.py", "    if part is None:\n        return graph\n", "    return graph\n", FOREIGN),
    Break("graph/opaque.py", "for size in sizes]", "for size in ()]", FOREIGN),
    Break("graph/torch/opaque_part.py", "if path and not any(key in stack for stack in stacks)", "if path", FOREIGN),
    Break("graph/torch/hooked_module.py", "if call == site.call:", "if call == 1:", FOREIGN),
    Break("graph/rewrite/probability_head.py", "prod(b.shape(flat)) == b.shape(flat)[axes[0]]", "True", LAST),
    Break("graph/rewrite/probability_head.py", "prod(node.shape) == 1", "prod(node.shape) <= 2", LAST),
    Break("graph/rewrite/probability_head.py", "[[0.0], [1.0]]", "[[1.0], [0.0]]", LAST),
    Break("graph/torch/training_mode.py", "isinstance(module, _DropoutNd) and module.p > 0", "False", MODES),
    Break("graph/torch/training_mode.py", "if _differs_in_evaluation(model, x) else []", "if False else []", MODES),
    # metrics
    Break(
        "metrics/removal/deletion_insertion.py", "        return x, baseline\n", "        return baseline, x\n", CURVES
    ),
    Break("metrics/removal/deletion_insertion.py", "/ (curve.shape[1] - 1)", "/ curve.shape[1]", CURVES),
    Break("metrics/variables.py", "descending=True, stable=True", "descending=False, stable=True", CURVES),
    Break("metrics/mu_fidelity.py", "before[piece, None] - case.scores", "case.scores", FIDELITY),
    Break("metrics/mu_fidelity.py", "counts * self.subset).round()", "counts * 0.5).round()", FIDELITY),
    Break("metrics/robustness_sr.py", ".cummin(1).values\n", "\n", ROBUSTNESS),
    Break("metrics/robustness_sr.py", "holds = over.full < 0", "holds = over.full < 9", ROBUSTNESS),
    Break("metrics/robustness_sr.py", "lower.flip(1).cummax(1).values.flip(1)", "lower.cummax(1).values", ROBUSTNESS),
    Break("metrics/stability.py", "domain, self.half)", "domain)", STABILITY),
    Break("metrics/stability.py", 'self.over == "max"', "True", STABILITY),
    Break("metrics/removal/fill_values.py", "self.share * size", "self.share", FILLS),
    Break("metrics/sparseness.py", "case.subject.abs()", "case.subject", SPARSE),
    Break("metrics/max_sensitivity.py", "_PAPER_RADIUS * (high - low)", "_PAPER_RADIUS", SENSITIVITY),
    Break("metrics/removal/adversarial_deletion.py", ".gather(1, best)", "", ADVERSARIAL),
    Break(
        "metrics/removal/adversarial_deletion.py",
        "restrict(self.ball.at(near), free)",
        "self.ball.at(near)",
        ADVERSARIAL,
    ),
    Break("metrics/randomisation.py", "layers[-stage:]", "layers[:stage]", RANDOM),
    Break("metrics/randomisation.py", "shuffled(case.graph, layers", "shuffled(case.graph, layers[:0]", RANDOM),
    Break("metrics/removal/linear_imputation.py", "around * y - conv2d", "y - conv2d", IMPUTED),
    Break("metrics/removal/road.py", "* drawn * missing", "* drawn", ROAD),
    Break("metrics/removal/f_fidelity.py", "present.counts[:, None] - 1 - ranks", "-ranks", REMOVAL),
    Break("metrics/removal/f_fidelity.py", ".clamp(max=self.part)", "", REMOVAL),
    Break("bench/mean_ranks.py", "merit > merit[:, None]", "merit < merit[:, None]", RANKS),
    Break("bench/mean_ranks.py", "/ len(sets) for end", "for end", RANKS),
    # baselines
    Break("explainers/baselines/noisy_gradients.py", "return mean.abs()", "return mean", BASELINES),
    Break("explainers/baselines/noisy_gradients.py", "square - mean.square()", "square", BASELINES),
    Break("explainers/baselines/grad_cam.py", "return slope.mean(2)", "return slope.amax(2)", BASELINES),
    Break("explainers/baselines/grad_cam.py", "(2 + rising *", "(1 + rising *", BASELINES),
    Break("explainers/baselines/rise.py", "mean = total / seen", "mean = total / seen.mean()", BASELINES),
    Break("explainers/baselines/first_order.py", "reach[:, :1] - reach[:, 1:]", "reach[:, 1:]", BASELINES),
    Break("explainers/baselines/expected_gradients.py", "(strata + torch", "(0 * strata + torch", EXPECTED),
    Break("explainers/baselines/expected_gradients.py", "left * away", "left.flip(0) * away", EXPECTED),
    Break("explainers/baselines/guided_backprop.py", 'node.op == "relu" or', "False and", GUIDED),
    Break("explainers/baselines/guided_backprop.py", 'node.attributes["low"] == 0', "False", GUIDED),
    Break("explainers/baselines/deeplift.py", "arrived * (y - top)", "0 * arrived * (y - top)", DEEPLIFT),
    Break(
        "explainers/baselines/deeplift.py",
        "torch.where(near, slope, share",
        "torch.where(near, 0 * slope, share",
        DEEPLIFT,
    ),
    Break(
        "explainers/baselines/lrp.py", "torch.where(z < 0, -self.epsilon", "torch.where(z < 0, self.epsilon", RELEVANCE
    ),
    Break("explainers/baselines/lrp.py", "(z < 0, (lowered, raised))", "(z < 0, (raised, lowered))", RELEVANCE),
    Break(
        "explainers/baselines/lrp.py",
        "node.op in WEIGHTED or node.op in _UNWEIGHTED_SUMS",
        'operation_kind(node) == "linear"',
        RELEVANCE,
    ),
    Break("explainers/baselines/global_sensitivity.py", "row // self.designs - 1", "row // self.designs", DESIGNS),
    Break(
        "explainers/baselines/global_sensitivity.py", "centred = design - design.mean(0)", "centred = design", DESIGNS
    ),
    Break("explainers/baselines/surrogate.py", "(comb(groups, k) * k *", "(k *", SURROGATE),
    Break("explainers/baselines/surrogate.py", "size[:, None]).double()", "size[:1, None]).double()", SURROGATE),
    Break("explainers/baselines/surrogate.py", "bits.mean(1).sqrt()", "bits.mean(1)", SURROGATE),
    Break(
        "explainers/baselines/masked_samples.py",
        "baseline + (task.x[piece, None] - baseline)",
        "baseline + task.x[piece, None]",
        SURROGATE,
    ),
    # probabilistic bounds
    Break("explainers/probable/betting.py", "return high", "return values.mean(0)", BETTING),
    Break("explainers/probable/betting.py", "(middle - values)", "(values - middle)", BETTING),
    Break("explainers/probable/betting.py", ".sum(0) >= odds", ".sum(0) >= odds / 2", BETTING),
    Break("explainers/probable/shifted_noise.py", "ndtri(share) + steps", "ndtri(share) - steps", SHIFTED),
    Break(
        "explainers/probable/shifted_noise.py", "self.steps.square() / 2).exp()", "self.steps.square()).exp()", SHIFTED
    ),
    Break(
        "explainers/probable/shifted_noise.py",
        "torch.full_like(self.slope, -_MAX_DEVIATIONS)",
        "torch.zeros_like(self.slope)",
        SHIFTED,
    ),
    Break("explainers/probable/shifted_noise.py", "along.clamp(-_MAX_DEVIATIONS, _MAX_DEVIATIONS)", "along", SHIFTED),
    Break(
        "explainers/probable/probable_eva.py", "log(claims / (1 - self.level))", "log(1 / (1 - self.level))", PROBABLE
    ),
    Break("explainers/probable/probable_eva.py", "(answers, 1 - answers)", "(answers, answers)", PROBABLE),
    Break("explainers/probable/probable_eva.py", "(self.seed, stream, block)", "(self.seed, stream, 0)", PROBABLE),
    Break(
        "explainers/probable/probable_eva.py",
        "round_up(torch.stack(found), task.x.dtype)",
        "torch.stack(found).to(x.dtype)",
        PROBABLE,
    ),
    Break(
        "explainers/probable/probable_eva.py",
        "steps).lines(answers, along[",
        "0 * steps).lines(answers, along[",
        PROBABLE,
    ),
    Break(
        "explainers/probable/noisy_copies.py",
        "~(margins(logits, self.target) < 0)",
        "margins(logits, self.target) > 0",
        PROBABLE,
    ),
    Break("explainers/probable/noisy_copies.py", "slope / size.clamp(min=1e-300)[self.mask]", "slope", PROBABLE),
    Break("explainers/consistency.py", " and 0 < level < 1", "", PROBABLE),
    Break(
        "runtime/outward_numbers.py",
        '"probable": ROUND_CEILING',
        '"probable": ROUND_FLOOR',
        "tests/runtime/test_outward_numbers.py",
    ),
    Break("explainers/statements/explained_verdict.py", 'return "smoothed"', 'return "decision"', EXPLAINED_VERDICT),
    Break(
        "text/guarantee_statements.py",
        'if guarantee != "certified" or settings.get("rigorous"):',
        'if guarantee != "certified" or "rigorous" not in settings:',
        "tests/report/test_finding_texts.py",
    ),
    Break(
        "plots/figure_titles.py",
        'rigorous=bool(e.settings.get("rigorous"))',
        'rigorous="rigorous" in e.settings',
        "tests/plots/test_figure_titles.py",
    ),
    Break(
        "report/finding_page.py",
        'note if outcome in ("proven", "sufficient") else ""',
        '""',
        "tests/report/test_network_data.py",
    ),
    Break(
        "runs/totals.py",
        'rigorous=bool(job["settings"].get("rigorous"))',
        "rigorous=True",
        "tests/runs/test_results.py",
    ),
    Break(
        "report/panels/dataset_panel.py",
        'open=[*run_open(totals), *rounding(totals.guarantee, job["settings"])],',
        "open=run_open(totals),",
        "tests/report/panels/test_dataset_panel.py",
    ),
    Break("runs/totals.py", ' or guarantee == "probable"', "", "tests/runs/test_claims.py"),
    Break("runs/worker.py", "{ERRORS: e.errors}", "{}", "tests/runs/test_errors.py"),
    Break(
        "runs/totals_figure.py",
        'if decides(totals.objective) else f"largest',
        'if True else f"largest',
        "tests/runs/test_claims.py",
    ),
    Break("cli/explain_samples.py", 'entry.get("rigorous") is False', "False", "tests/cli/test_rigorous.py"),
    Break("cli/commands/run_command.py", '"certified" and not totals.rigorous', '"firm"', "tests/cli/test_rigorous.py"),
    Break("explainers/methods/smooth.py", "delta.clamp(family.lower[owner], family.upper[owner])", "delta", SMOOTH),
    Break("explainers/methods/smooth.py", "reach[:, :1] - reach[:, 1:]", "reach[:, 1:]", SMOOTH),
    Break("explainers/methods/smooth.py", "* (self.pairs / (self.pairs - 1))", "", SMOOTH),
    Break("explainers/methods/smooth.py", '"amax"', '"amin"', SMOOTH),
    Break("explainers/methods/smooth.py", "-first if ball.half is None", "first if ball.half is None", SMOOTH),
    Break("explainers/methods/smooth.py", "(spread / self.pairs).sqrt()", "spread.sqrt()", SMOOTH),
    Break(
        "explainers/methods/smooth.py",
        "(draw_unit_points(Ball(1.0), x, samples, seed) + 1) / 2",
        "draw_unit_points(Ball(1.0), x, samples, seed)",
        SMOOTH,
    ),
    Break("explainers/methods/smooth.py", "size[k] * torch.lerp", "torch.lerp", SMOOTH),
    Break("explainers/methods/smooth.py", 'if radii == "all":', "if False:", SMOOTH),
    Break("explainers/methods/blend.py", "(1 - self.share - self.noise) *", "(1 - self.share) *", BLEND),
    Break("explainers/methods/blend.py", "scores.abs().sum(1", "scores.sum(1", BLEND),
    Break("explainers/methods/noise.py", "(straight.double() + scattered.double()) / 2", "straight.double()", NOISE),
    Break("explainers/methods/noise.py", "turn[both] < away", "turn[both] > away", NOISE),
    Break("explainers/methods/noise.py", "(parts + torch.rand", "(torch.zeros(pairs) + torch.rand", NOISE),
    Break("explainers/methods/blend.py", "share * (room.upper - room.lower)", "share + 0 * room.upper", BLEND),
    Break("explainers/methods/blend.py", "gained.clamp(min=0)", "gained", BLEND),
    Break("explainers/objective_gradients.py", "+ 0.5) / steps", ") / steps", PATH),
    Break(
        "explainers/objective_gradients.py",
        "self.width * (1 - self.right_share)",
        "self.width * self.right_share",
        PATH,
    ),
    Break("explainers/objective_gradients.py", "_GAIN_TOLERANCE = 5e-5", "_GAIN_TOLERANCE = 5e-2", PATH),
    Break(
        "explainers/objective_gradients.py",
        "torch.cat([mesh.right[~which], new, right])",
        "torch.cat([mesh.right[~which], new, new])",
        PATH,
    ),
    Break("explainers/methods/path.py", "certified=False", "certified=True", PATH),
    Break("explainers/methods/nested.py", "certified=False", "certified=True", NESTED),
    Break("explainers/methods/nested.py", "restrict(family, free), target)", "family, target)", NESTED),
    Break("explainers/methods/nested.py", "(far > 0) & (far < inf)", "far < inf", NESTED),
    Break("explainers/methods/nested.py", "self.beyond * far", "far", NESTED),
    Break("explainers/methods/nested.py", "used.masked_fill(absent, -inf)", "used", NESTED),
    Break("explainers/methods/nested.py", "head.gather(1, again), order", "head, order", NESTED),
    Break("explainers/methods/smooth.py", "certified=False", "certified=True", SMOOTH),
    Break("explainers/proven_scores.py", "high[:, 1:] >= low[:, :-1]", "high[:, 1:] >= high[:, :-1]", TIES),
    Break("text/verdict.py", 'if kind in ("other", "own"):', 'if kind == "own":', "tests/plots/test_figure_titles.py"),
    Break(
        "text/verdict.py",
        "self.upper is not None and self.upper < 0",
        "self.upper is not None and self.upper <= 0",
        "tests/text/test_verdict.py",
    ),
    Break("inputs/ball.py", "if isinstance(given, list | tuple):", "if False:", "tests/inputs/test_ball.py"),
    Break(
        "verify/radius.py",
        "torch.where(side.full < 0, known.proven.maximum(size)",
        "torch.where(side.full < 0, known.proven.minimum(size)",
        CURVE,
    ),
    Break(
        "verify/radius.py",
        "if side.points is not None:\n            with full",
        "if False:\n            with full",
        CURVE,
    ),
    Break(CURVE_FILE, "upper.flip(1).cummin(dim=1).values.flip(1)", "upper.cummin(dim=1).values", CURVE),
    Break(CURVE_FILE, "lower.cummax(dim=1).values", "lower", CURVE),
    Break(CURVE_FILE, "size <= found.proven[:, None]", "size >= found.proven[:, None]", CURVE),
    Break(CURVE_FILE, "size > found.refuted[:, None]", "size < found.refuted[:, None]", CURVE),
    Break(CURVE_FILE, "    check_attained(lower, upper, estimate_stored_error(upper))\n", "", CURVE),
    Break(
        "verify/overlap.py",
        "if rigorous:\n            value = value.minimum(_rigorous_value_at(graph, points",
        "if False:\n            value = value.minimum(_rigorous_value_at(graph, points",
        CURVE,
    ),
    Break("verify/overlap.py", "return -round_up(-value, points.dtype)", "return round_up(value, points.dtype)", CURVE),
    Break("plots/curves/curve_figure.py", "_rounded(proven, ROUND_FLOOR)", "_rounded(proven, ROUND_CEILING)", CURVE),
    Break("plots/curves/curve_figure.py", "_rounded(refuted, ROUND_CEILING)", "_rounded(refuted, ROUND_FLOOR)", CURVE),
    Break("text/radius_table.py", "radius(value, ROUND_CEILING)", "radius(value)", "tests/verify/test_radius.py"),
    Break("plots/figure_look.py", '"magma", "RdBu_r"', '"jet", "RdYlGn"', "tests/plots/test_figure_look.py"),
    Break(
        "plots/overlay.py",
        "sample.detach().double().cpu() * factor",
        "sample.double()",
        "tests/plots/test_figure_look.py",
    ),
    Break("plots/figure_page.py", "with rc_context(self._saved_style):", "if True:", "tests/plots/test_paper_style.py"),
    Break("runtime/progress_bar.py", '            self._put("")', "            pass", "tests/runtime/test_progress.py"),
    Break("text/verdict.py", "if not self.lower > 0:", "if True:", "tests/plots/test_figure_titles.py"),
    Break("text/verdict.py", "below = all(", "below = any(", "tests/text/test_verdict.py"),
    Break("text/verdict_wording.py", "rounding_note(rigorous or verdict", "rounding_note(True or verdict", WORDING),
    Break(
        "report/finding_page.py",
        'rounding_note(bool(e.settings.get("rigorous")))',
        'rounding_note("rigorous" in e.settings)',
        "tests/report/test_network_data.py",
    ),
    Break("text/verdict_wording.py", '"" if rigorous else f" (', '"" if True else f" (', WORDING),
    Break(
        "explainers/statements/explained_verdict.py",
        'e.guarantee in ("certified", "none")',
        'e.guarantee != "sampled"',
        EXPLAINED_VERDICT,
    ),
    Break("plots/figure_titles.py", "_GAIN_TOLERANCE = 1e-4", "_GAIN_TOLERANCE = 1e-2", TIES),
    Break("registry.py", 'usual.get("objective", "margin")', '"margin"', "tests/runs/test_results.py"),
    Break("explainers/automatic/proof_choice.py", "if not bool((eps > 0).any()):", "if False:", CHOOSE),
    Break(
        "inputs/ball.py",
        "(own.lower < 0), low, own.lower)",
        "(own.lower < 9), low, own.lower)",
        "tests/inputs/test_ball.py",
    ),
    Break("inputs/ball.py", "low.isfinite() & (own.lower < 0)", "(own.lower < 0)", "tests/inputs/test_ball.py"),
    # properties of outputs, and points that refute
    Break("verify/property_bounds.py", "bool((part > 0).any())", "bool((part > -0.1).any())", PROPERTY),
    Break("verify/property_bounds.py", "lower = bias - above", "lower = bias + above", PROPERTY),
    Break("verify/property_bounds.py", "bool((part > 0).any())", "bool((part > 0).all())", PROPERTY),
    Break("verify/property_bounds.py", "self.lower - self.slack", "self.lower", PROPERTY),
    Break("verify/unsafe_region.py", "torch.where(self.strict, value < 0, value <= 0)", "(value <= 0)", PROPERTY),
    Break(
        "verify/property_attack.py", "if any(case.met(outputs) for case in met) else None", "if met else None", PROPERTY
    ),
    Break("verify/property.py", "!= SINGLE_SIGMOID and case.compares)", "!= SINGLE_SIGMOID)", PROPERTY),
    Break("verify/unsafe_region.py", "Ball(torch.where(radius > 0, wider, radius))", "Ball(0.9 * radius)", PROPERTY),
    # searches of properties: a multiplier, a clip and a case
    Break(
        "search/properties/row_combinations.py",
        "value = value - (planes.weight.abs()",
        "value = value + (planes.weight.abs()",
        PLANES,
    ),
    Break(
        "search/properties/row_combinations.py",
        "torch.where(planes.weight > 0, low",
        "torch.where(planes.weight < 0, low",
        PLANES,
    ),
    Break("search/properties/row_combinations.py", "low[:, None] + reach", "low[:, None] + 0.7 * reach", PLANES),
    Break(
        "search/properties/row_combinations.py",
        "empty = empty | (room < 0).any(1)",
        "empty = empty | (room < 0.1).any(1)",
        PLANES,
    ),
    Break("search/properties/row_combinations.py", "(best * bias).sum(1", "-(best * bias).sum(1", PLANES),
    Break("search/properties/box_search.py", "left = done.open.any(1)", "left = done.open.all(1)", SEARCHED),
    Break(
        "search/properties/box_bounds.py",
        "left[box, number] = ~excluded",
        "left[box, number] = ~excluded & (number == 0)",
        SEARCHED,
    ),
    Break("search/properties/box_bounds.py", "excluded = value > 0", "excluded = value > -0.1", SEARCHED),
    Break(
        "search/properties/box_bounds.py",
        "(multipliers * offset).sum(1) - lost",
        "-(multipliers * offset).sum(1) - lost",
        SEARCHED,
    ),
    Break(
        "search/properties/box_search.py",
        "low[row, split] = high[row + count, split] = at",
        "low[row, split] = at",
        SEARCHED,
    ),
    Break(
        "search/properties/unit_search.py",
        "bias=units.rows.bias + root.bias",
        "bias=units.rows.bias - root.bias",
        SEARCHED,
    ),
    Break(
        "search/unstable_units.py",
        "torch.where(at >= 0, shares.to(every), 0))",
        "-torch.where(at >= 0, shares.to(every), 0))",
        SEARCHED,
    ),
    Break("search/properties/unsafe_rows.py", "bias[self.index] = 0", "bias[self.index] *= 1", SEARCHED),
    Break("inputs/membership.py", "least, most = round_up(lower, dtype)", "least, most = lower.to(dtype)", PROPERTY),
    Break(
        "inputs/membership.py",
        "moved[out] = round_into_box(nearer, lower[out], upper[out], dtype)",
        "return moved",
        REFUTE,
    ),
    Break("attack/counterexample.py", "if float(outputs[0, becomes]) > float(outputs[0, target]):", "if True:", REFUTE),
    # two copies of a network
    Break("rules/secant_slopes.py", "slope, bias = least + rise, ", "slope, bias = least + 0.9 * rise, ", CHANGE),
    Break("rules/secant_slopes.py", "torch.where(either, -rise * d.lower, 0)", "torch.zeros_like(rise)", CHANGE),
    Break("rules/secant_slopes.py", "level = moves & (~known | ", "level = moves & ((most < 0) | ", CHANGE),
    Break(
        "rules/secant_slopes.py",
        "Interval(-slopes.upper, -slopes.lower)",
        "Interval(-slopes.lower, -slopes.lower)",
        CHANGE,
    ),
    Break(
        "rules/secant_slopes.py",
        "    return Interval(torch.minimum(x.lower, after.lower),",
        "    return x\n    (",
        CHANGE,
    ),
    Break("rules/secant_slopes.py", "compute(of, d.upper)", "compute(of, (d.lower + d.upper) / 2)", CHANGE),
    Break("rules/piecewise.py", "torch.where(x.lower >= 0, right, left)", "right", CHANGE),
    Break("rules/piecewise.py", "rising, flat = (x.lower >= low) &", "rising, flat =", CHANGE),
    Break("rules/one_bend.py", "for place in self.inflections(node):", "for place in ():", CHANGE),
    Break("rules/discontinuous.py", "torch.where(self._across(node, wide), inf, 0).to(x.lower)", "0", CHANGE),
    Break("graph/rewrite/twin_network.py", "replace(node, bias=None)", "node", TWIN),
    Break("graph/rewrite/twin_network.py", '"add", (a, rise.name)', '"add", (rise.name, rise.name)', TWIN),
    Break("bounds/differences/twin_bounds.py", "-forms, Backward()", "forms, Backward()", TWINS),
    Break(
        "bounds/differences/twin_bounds.py",
        "torch.where(within, -ball.upper, 0), torch",
        "torch.where(within, ball.lower, 0), torch",
        TWINS,
    ),
    Break("bounds/differences/twin_bounds.py", "torch.where(within, 0, -t * ball.upper)", "torch.zeros_like(v)", TWINS),
    Break(
        "bounds/differences/twin_bounds.py",
        "v = torch.where(within, move, 0)",
        "v = torch.where(within, 1.1 * move, 0)",
        TWINS,
    ),
    Break("bounds/differences/twin_bounds.py", "share = size\n", "share = size / 2\n", TWINS),
    Break(
        "bounds/differences/twin_bounds.py",
        "narrow.concat(whole), whole.pick(parts)",
        "narrow.concat(whole), narrow.concat(whole)",
        TWINS,
    ),
    Break("verify/overlap_bounds.py", "torch.minimum(high, self.drops[:, :, 1].double())", "high", DROPS),
    Break("verify/searched_overlap.py", "ends[which] = drops(", "ends[: len(which)] = drops(", DROPS),
    Break("verify/searched_overlap.py", "if one.stopped in _SPENT", "", DROPS),
    Break("verify/searched_overlap.py", "except (BoundError, KeyboardInterrupt):", "except ZeroDivisionError:", DROPS),
    Break(
        "verify/overlap_bounds.py",
        "check_score_bounds(*self._score_bounds(), estimate_stored_error(self.full)[:, None])",
        "pass",
        DROPS,
    ),
    Break(
        "verify/searched_overlap.py",
        "check_attained(searched.lower, upper, torch",
        "(searched.lower, upper, torch",
        ROUNDING,
    ),
    Break(
        "verify/searched_overlap.py",
        "torch.zeros_like(upper) if how.rigorous",
        "inf + torch.zeros_like(upper) if how.rigorous",
        ROUNDING,
    ),
    Break("verify/searched_overlap.py", "check_score_bounds(ends[..., 0], high, room)", "pass", ROUNDING),
    Break("verify/searched_overlap.py", "check_score_bounds(low, ends[..., 1], room)", "pass", ROUNDING),
    Break("verify/searched_overlap.py", "upper.maximum(searched.lower)", "upper", ROUNDING),
    Break(
        "verify/searched_overlap.py",
        "ends[..., 0].minimum(high), ends[..., 1].maximum(low)",
        "*ends.unbind(2)",
        ROUNDING,
    ),
    Break(
        "attack/restarts.py",
        "ball.project(torch.where(thrown, ends, start))",
        "torch.where(thrown, ends, start)",
        LEAPS,
    ),
    Break("attack/pgd.py", "        if time.monotonic() > until:\n            break\n", "", REACH),
    Break("attack/lower_bounds.py", "    bounds.until = inf\n", "", REACH),
    Break(
        "verify/searched_overlap.py", "seconds=max(_LEAST_SEARCH_SECONDS, seconds - spent)", "seconds=seconds", OVERLAPS
    ),
    Break("attack/restarts.py", "better = best > value", "better = best < value", LEAPS),
    Break("attack/lower_bounds.py", "bounds._restart(index, start, _REFINED_STARTS)", "start", LEAPS),
    Break("rounding/crossed_bounds.py", "torch.finfo(graph.dtype).eps", "1e-7", ROUNDING),
    Break(
        "rounding/crossed_bounds.py",
        "_STORED_ERRORS = {torch.float64: 1e-10}",
        "_STORED_ERRORS = {torch.float16: 1e-10}",
        ROUNDING,
    ),
    Break("rounding/crossed_bounds.py", "else node.weight.abs()", "else node.weight", ROUNDING),
    Break("rounding/crossed_bounds.py", "if node.op in LINEAR:", "if False:", ROUNDING),
    Break(
        "bounds/differences/invprop.py",
        "self.bound[:, None] >= (reached",
        "self.bound[:, None] > 0.1 + (reached",
        TWINS,
    ),
    Break(
        "bounds/differences/invprop.py",
        "found.bias[active] - floor[sample])",
        "found.bias[active] - floor[sample] - 0.1)",
        ABOVE,
    ),
    Break(
        "bounds/differences/invprop.py",
        "return bound - floor[sample] <",
        "return bound - floor[sample] < -1e9 *",
        ABOVE,
    ),
    Break("bounds/differences/halfspace.py", "[:, 0] + price * room", "[:, 0]", CUT),
    Break(
        "bounds/differences/halfspace.py",
        "high = torch.where(smaller, low, left)",
        "high = torch.where(smaller, left, low)",
        CUT,
    ),
    Break("bounds/state.py", " and self.cases.cut is None", "", ABOVE),
    # a network as units
    Break("search/unstable_units.py", "above, bent = x.lower >= place,", "above, bent = x.lower > place - 1,", UNITS),
    Break("search/unstable_units.py", "offset = offset - torch.where(above, height * place, 0)", "pass", UNITS),
    Break("search/unstable_units.py", "return at_units * self.jumps", "return at_units", UNITS),
    Break("search/unstable_units.py", "replace(rows, bias=rows.bias - piece.places[start:stop])", "rows", UNITS),
    Break("search/unstable_units.py", "z.lower - piece.places, z.upper - piece.places", "z.lower, z.upper", UNITS),
    Break(
        "search/unstable_units.py",
        "return UnitRows(weight, bias + weight @ family.x.flatten(), mix",
        "return UnitRows(weight, bias, mix",
        UNITS,
    ),
    # rows on parts
    Break("search/beta_crown.py", "up = c.clamp(min=0)\n", "up = 0.99 * c.clamp(min=0)\n", RELAXED),
    Break(
        "search/beta_crown.py",
        "lift, below, drop = -above * negative,",
        "lift, below, drop = -0.99 * above * negative,",
        RELAXED,
    ),
    Break("search/beta_crown.py", "(c[:, k] - up) * lines.below[:, k]", "(c[:, k] - up) * lines.above[:, k]", RELAXED),
    Break("search/beta_crown.py", "* lines.below[:, k] + multipliers[:, k]", "* lines.below[:, k]", RELAXED),
    Break(
        "search/beta_crown.py", "g.clamp(min=0) * x.lower[:, :width]", "g.clamp(min=0) * x.upper[:, :width]", RELAXED
    ),
    Break(
        "search/beta_crown.py", "g.clamp(max=0) * x.upper[:, :width]", "g.clamp(max=0) * x.lower[:, :width]", RELAXED
    ),
    Break("search/beta_crown.py", "bias = bias + ((c - up) * lines.drop[:, :width]).sum(1)", "pass", RELAXED),
    Break("search/beta_crown.py", "for level in reversed(units.levels):", "for level in units.levels:", RELAXED),
    Break(
        "search/beta_crown.py",
        "torch.where(g > 0, low, torch.where(g < 0, high,",
        "torch.where(g > 0, high, torch.where(g < 0, low,",
        RELAXED,
    ),
    Break("search/beta_crown.py", "ParameterChoice(slopes.clamp(0, 1), ", "ParameterChoice(slopes, ", RELAXED),
    Break("search/beta_crown.py", "lower = now.value < before.value", "lower = now.value < before.value + 1", RELAXED),
    Break("search/beta_crown.py", "        free[:, level.columns] = False", "        pass", RELAXED),
    Break(
        "search/beta_crown.py", "at[:, k] = (x.lower[:, k] + x.upper[:, k]) / 2", "at[:, k] = x.lower[:, k]", RELAXED
    ),
    Break(
        "search/ball_maxima.py", "delta = delta.mul_(self._free[member])", "pass", "tests/search/test_ball_maxima.py"
    ),
    Break("search/ball_maxima.py", "(other * form.sign()) @", "(other * form) @", "tests/search/test_ball_maxima.py"),
    # intervals of parts
    Break(
        "search/unit_intervals.py",
        "clamp(min=torch.finfo(objective.dtype).tiny ** 0.5)",
        "clamp(min=torch.finfo(torch.float64).tiny)",
        f"{INTERVALS}::test_a_half_that_no_point_has_leaves_nothing_and_no_infinity",
    ),
    Break("search/unit_intervals.py", "row if sign > 0 else row.negative(), here", "row, here", INTERVALS),
    Break("search/unit_intervals.py", "open_units = open_units & wanted[:, level.columns]", "pass", INTERVALS),
    Break(
        "search/unit_intervals.py",
        "value = found.bias + balls.supremum(found.form)\n",
        "value = found.bias + 0.9 * balls.supremum(found.form)\n",
        INTERVALS,
    ),
    Break(
        "search/unit_intervals.py",
        "empty = (lower > upper + _CROSSING_TOLERANCE * size).any(1)",
        "empty = (lower > upper).any(1)",
        INTERVALS,
    ),
    Break(
        "search/unit_intervals.py",
        "empty = (lower > upper + _CROSSING_TOLERANCE * size).any(1)",
        "empty = (lower > upper + 1e9).any(1)",
        INTERVALS,
    ),
    Break(
        "search/unit_intervals.py",
        "return Interval(torch.minimum(lower, upper), torch.maximum(lower, upper)), empty",
        "return Interval(lower, upper), empty",
        INTERVALS,
    ),
    Break(
        "search/unit_intervals.py",
        "lower[some] = torch.maximum(lower[some], -best.value)",
        "lower[some] = torch.maximum(lower[some], best.value)",
        INTERVALS,
    ),
    Break(
        "search/unit_intervals.py",
        "upper[some] = torch.minimum(upper[some], best.value)",
        "upper[some] = best.value - 0.1",
        INTERVALS,
    ),
    Break("search/unit_intervals.py", "bias[at] + best * self.bias[of] + swing", "bias[at] + swing", INTERVALS),
    Break("search/unit_intervals.py", "enumerate((1, -1)):", "enumerate((-1, 1)):", INTERVALS),
    Break(
        "search/unit_intervals.py",
        "index, row = (side < 0).long(), self.position[unit]",
        "index, row = (side < 0).long(), unit",
        INTERVALS,
    ),
    Break(
        "search/unit_intervals.py",
        "return torch.maximum(x.lower, self.lower[index, row]), torch",
        "return self.lower[index, row], torch",
        INTERVALS,
    ),
    Break("search/unit_intervals.py", "rows if side > 0 else rows.negative(), here,", "rows, here,", INTERVALS),
    Break("search/unit_intervals.py", "value.index_copy(0, at, closer)", "value", INTERVALS),
    Break(
        "search/unit_intervals.py",
        "torch.addcmul(form[at], best[:, None], self.form[of])",
        "torch.addcmul(form[at], best[:, None], self.form[at])",
        INTERVALS,
    ),
    Break("search/branch_and_bound.py", "top.clamp(min=self.excluded_upper)", "top", SEARCH),
    Break(
        "search/branch_and_bound.py",
        "self.excluded_upper = float(self._thresholds.min())",
        "self.excluded_upper = float(self._thresholds.max())",
        SEARCH,
    ),
    # linear parts
    Break("search/lp.py", ".to(multipliers) * side[used]", ".to(multipliers)", STRAIGHT),
    Break(
        "search/lp.py",
        "return (0 * objective, duals * (far / missed)) if missed > _LP_TOLERANCE else None",
        "return None",
        STRAIGHT,
    ),
    Break("search/lp.py", "signs = (1, -1) if self.norm == 1 else (1,)", "signs = (1,)", STRAIGHT),
    Break("search/lp.py", "if self.norm != 2 or size", "if True or size", STRAIGHT),
    # products, softmax, norms
    Break("rules/elementwise_product.py", "corners.amin(0), corners.amax(0)", "corners[0], corners[3]", PRODUCT),
    Break(
        "rules/elementwise_product.py", "lower_first=torch.lerp(b.lower, b.upper, t)", "lower_first=b.upper", PRODUCT
    ),
    Break(
        "rules/elementwise_product.py", "upper_second=torch.lerp(a.upper, a.lower, s)", "upper_second=a.upper", PRODUCT
    ),
    Break(
        "rules/elementwise_product.py",
        "-torch.lerp(a.lower * b.lower, a.upper * b.upper, t)",
        "-a.lower * b.lower",
        PRODUCT,
    ),
    Break("rules/elementwise_product.py", "through(s, x, above=False) for", "through(s, x, above=True) for", PRODUCT),
    Break("rules/matrix_product.py", "dot(rows.abs(), at_rows(self.radius", "dot(rows, at_rows(self.radius", PRODUCT),
    Break("rules/matrix_product.py", "a_half @ m.abs() + n.abs() @ b_half", "a_half @ m + n @ b_half", PRODUCT),
    Break("rules/matrix_product.py", "lower + corners.amin(0), upper", "lower + corners[0], upper", PRODUCT),
    Break("rules/matrix_product.py", "((b.upper - b.lower) / 2)\n", "((b.upper - b.lower) / 4)\n", PRODUCT),
    Break("rules/softmax.py", "x.lower - _others(x.upper, axis)", "x.lower - _others(x.lower, axis)", PRODUCT),
    Break("rules/softmax.py", "x.upper - _others(x.lower, axis)", "x.upper - _others(x.upper, axis)", PRODUCT),
    Break("rules/softmax.py", "alpha * (2 - at - rest", "alpha * (2.01 - at - rest", PRODUCT),
    Break("rules/softmax.py", "low.exp() + alpha * (z - low", "alpha * (z - low", PRODUCT),
    Break(
        "rules/softmax.py", "pushed(x.lower_weight, x.upper_weight", "pushed(x.lower_weight, x.lower_weight", PRODUCT
    ),
    Break("rules/softmax.py", "torch.where(level, 0, alpha)", "alpha", PRODUCT),
    Break("rules/one_bend.py", "-0.5 * x.rsqrt() / x", "-0.5 * x.rsqrt()", SCALAR),
    Break(
        "graph/rewrite/bilinear.py",
        '"axes": (len(shape) - 2,)',
        '"axes": (len(shape) - 3,)',
        "tests/graph/rewrite/test_bilinear.py",
    ),
    Break(
        "graph/rewrite/twin_network.py",
        'of.op != "max_pool" and not (OPERATIONS[of.op].entrywise',
        "False and not (OPERATIONS[of.op].entrywise",
        "tests/bounds/differences/test_twin_bounds.py::test_no_difference_is_outside",
    ),
    # splits of the inputs of any operation
    Break(
        "search/neurons/part_bounder.py",
        "multipliers.clamp(min=0) * x.lower",
        "multipliers.clamp(min=0) * x.upper",
        NEURONS,
    ),
    Break(
        "search/neurons/part_bounder.py",
        "multipliers.clamp(max=0) * x.upper",
        "multipliers.clamp(max=0) * x.lower",
        NEURONS,
    ),
    Break(
        "search/neurons/neuron_splitting.py",
        "upper[row, entry] = lower[row + count, entry] = at",
        "upper[row, entry], lower[row + count, entry] = at, (at + x.upper[row, entry]) / 2",
        NEURONS,
    ),
    Break(
        "search/neurons/neuron_splitting.py",
        "upper[row, entry] = lower[row + count, entry] = at",
        "lower[row, entry] = lower[row + count, entry] = at",
        NEURONS,
    ),
    Break("search/neurons/part_bounder.py", "best = torch.where(far < distance, kink, best)", "pass", NEURONS),
    Break("search/neurons/part_bounder.py", "ends = ends + SUM_MARGIN", "ends = ends - SUM_MARGIN", NEURONS),
    Break(
        "bounds/backsubstitution.py",
        "form = (form.dense() if isinstance(form, WindowForms) else form) + more",
        "pass",
        NEURONS,
    ),
    Break(
        "bounds/backsubstitution.py",
        "error = error + rounding.row_error(node, more, owner, first=False, paid_products=-1)",
        "pass",
        NEURONS,
    ),
    Break(
        "search/neurons/part_bounder.py",
        "(end.flatten(1) @ self.ball.x.flatten()) + self.offset[row]",
        "(end.flatten(1) @ self.ball.x.flatten())",
        NEURONS,
    ),
    # leaves
    Break("search/frontier.py", "        self._urgency[index] = -inf\n", "        pass\n", LEAVES),
    Break("search/frontier.py", "self._free = torch.cat([self._free, index])", "pass", LEAVES),
    Break("search/frontier.py", "self._free, self._end = self._free[count:], end", "self._end = end", LEAVES),
    Break(
        "search/frontier.py",
        "        index = torch.cat([again, torch",
        "        self._urgency[again] = urgency[: len(again)]\n        index = torch.cat([again, torch",
        LEAVES,
    ),
    # a search
    Break(
        "search/branch_and_bound.py",
        "self.closed_upper = torch.maximum(self.closed_upper, value[~left].amax(0))",
        "pass",
        SEARCH,
    ),
    Break(
        "search/branch_and_bound.py",
        "self.closed_upper = torch.maximum(self.closed_upper, value[~left].amax(0))",
        "self.closed_upper = value[~left].amax(0)",
        SEARCH,
    ),
    Break(
        "search/branch_and_bound.py", 'self.split_upper = urgent["value"].amax(0)', "self.split_upper = None", SEARCH
    ),
    Break("search/branch_and_bound.py", "top = torch.maximum(top, self.split_upper)", "pass", SEARCH),
    Break("search/branch_and_bound.py", 'self.leaves.add(later, self._urgency(later["value"]))', "pass", SEARCH),
    Break(
        "search/branching.py",
        "upper[row + count, unit] = torch.minimum(upper[row + count, unit], at)",
        "upper[row + count, unit] = torch.minimum(upper[row + count, unit], at - 0.1)",
        SEARCH,
    ),
    Break(
        "search/branching.py",
        "lower[row, unit] = torch.maximum(lower[row, unit], at)",
        "lower[row, unit] = torch.maximum(lower[row, unit], at + 0.1)",
        SEARCH,
    ),
    Break("search/branching.py", "side[count:] = -1", "pass", SEARCH),
    Break(
        "search/unstable_units.py",
        "low.double() > x.lower, torch.nextafter",
        "low.double() < x.lower, torch.nextafter",
        f"{SEARCH}::test_parts_are_kept_in_float32_and_no_closer",
    ),
    Break(
        "search/unstable_units.py",
        "high.double() < x.upper, torch.nextafter",
        "high.double() > x.upper, torch.nextafter",
        f"{SEARCH}::test_parts_are_kept_in_float32_and_no_closer",
    ),
    Break("search/branch_and_bound.py", "left = urgency > 0", "left = urgency > 0.1", SEARCH),
    Break("search/branch_and_bound.py", "left = (~empty).nonzero()", "left = empty.nonzero()", SEARCH),
    Break(
        "search/branch_and_bound.py",
        "return found.bias[:, None] + self.balls.member_suprema(found.form)",
        "return found.bias[:, None] + 0.99 * self.balls.member_suprema(found.form)",
        SEARCH,
    ),
    Break(
        "search/branch_and_bound.py",
        '        stopped = "interrupted"',
        '        stopped = ""',
        f"{SEARCH}::test_whatever_breaks_a_step_off_what_is_proven_holds",
    ),
    Break(
        "search/branch_and_bound.py",
        "self.root_upper = self.split_upper = above.amax(0)",
        "self.root_upper = above.amax(0)\n        self.split_upper = None",
        f"{SEARCH}::test_whatever_breaks_a_step_off_what_is_proven_holds",
    ),
    Break(
        "search/frontier.py",
        "if self.refuted(reached):",
        "if False:",
        f"{SEARCH}::test_what_is_enough_need_not_be_closer",
    ),
    Break("search/frontier.py", ".clamp(min=self.enough)", "", f"{SEARCH}::test_what_is_enough_need_not_be_closer"),
    # trees of ends
    Break(
        "search/branch_and_bound.py",
        "self.upper,\n            self.root_shares,",
        "self.reached,\n            self.root_shares,",
        SEARCH,
    ),
    Break("search/tightening.py", 'self._close(urgent["row"][~wanted], urgent["value"][~wanted])', "pass", FOREST),
    Break("search/tightening.py", "self._close(row[~left], value[~left])", "pass", FOREST),
    Break("search/tightening.py", "left = (~empty).nonzero().flatten()", "left = empty.nonzero().flatten()", FOREST),
    Break("search/tightening.py", "self.brancher.exact.supremum(found.form), above)", "0, above)", FOREST),
    Break("search/tightening.py", "-forest.upper[len(k) :]", "forest.upper[len(k) :]", FOREST),
    Break("search/tightening.py", 'scatter_reduce(0, row, value, "amax")', "scatter(0, row, value)", FOREST),
    Break(
        "search/unstable_units.py",
        "above = ((interval.lower >= 0) & ~left)",
        "above = ((interval.lower > 9) & ~left)",
        FOREST,
    ),
    Break("search/unstable_units.py", "- z.mix * above", "+ z.mix * above", FOREST),
    Break(
        "search/unstable_units.py",
        "UnitRows.concatenate([rows, rows.negative()], stop)",
        "UnitRows.concatenate([rows, rows], stop)",
        FOREST,
    ),
    # threads that share a batch
    Break("search/parallel.py", "column[start : start + size]", "column[start : start + size - 1]", CREW),
    Break("search/parallel.py", "torch.set_num_threads(1)  #", "pass  #", CREW),
    Break("search/parallel.py", "torch.set_num_threads(threads)  #", "pass  #", CREW),
    Break("search/parallel.py", "with torch.no_grad():", "if True:", CREW),
    Break(
        "search/parallel.py",
        "return list(_pool(os.getpid(), threads).map(alone, pieces))",
        "return map(work, pieces)",
        CREW,
    ),
    Break(
        "search/branch_and_bound.py",
        "self.parts += gone\n            if halves is not None:",
        "if not gone and halves:",
        SEARCH,
    ),
    Break(
        "search/tightening.py",
        "            self._add_leaves(leaves)\n\n    def _halves_of",
        "            pass\n\n    def _halves_of",
        FOREST,
    ),
    Break(
        "search/branch_and_bound.py",
        "(_BATCH_PARTS[kind], room, ",
        "(_BATCH_PARTS[kind], ",
        f"{SEARCH}::test_batches_fit_into_the_memory",
    ),
    # several searches at once
    Break(
        "search/frontier.py",
        "if self.halted.is_set():",
        "if False:",
        f"{CLOSE}::test_ctrl_c_ends_several_at_once_with_what_is_proven",
    ),
    Break(
        "search/exact.py",
        '"interrupted" if halted.is_set() else _stop_reason(',
        "_stop_reason(",
        f"{CLOSE}::test_ctrl_c_ends_several_at_once_with_what_is_proven",
    ),
    Break(
        "search/exact.py",
        '        if found.stopped == "interrupted":\n            halted.set()\n',
        "",
        f"{CLOSE}::test_ctrl_c_ends_all_samples_with_what_is_known",
    ),
    Break(
        "search/exact.py",
        "with full_precision(device), sums:",
        "with sums:",
        f"{CLOSE}::test_several_at_once_find_what_one_after_the_other_does",
    ),
    Break(
        "search/exact.py",
        "    with torch.no_grad():\n",
        "    if True:\n",
        f"{CLOSE}::test_several_at_once_find_what_one_after_the_other_does",
    ),
    Break(
        "search/exact.py",
        'return _without_bounds(self.value, "memory")',
        "raise",
        f"{CLOSE}::test_a_sample_without_memory_is_not_the_end_of_the_others",
    ),
    Break(
        "search/exact.py",
        "with suppress(RoomError):",
        "if True:",
        f"{CLOSE}::test_a_sample_without_memory_is_not_the_end_of_the_others",
    ),
    Break(
        "search/parallel.py",
        "except KeyboardInterrupt:\n        halted.set()",
        "except KeyboardInterrupt:\n        pass",
        TOGETHER,
    ),
    Break(
        "search/parallel.py",
        "        except BaseException:\n            halted.set()\n",
        "        except BaseException:\n",
        TOGETHER,
    ),
    Break(
        "search/parallel.py",
        "    except BaseException:\n        halted.set()\n",
        "    except BaseException:\n",
        TOGETHER,
    ),
    Break("search/parallel.py", "one(n) for n in range(count)]", "one(n) for n in done]", TOGETHER),
    Break(
        "attack/lower_bounds.py",
        "better = samples[self.value[samples, 0] > before]",
        "better = torch.arange(len(self.value))",
        REACH,
    ),
    Break(
        "attack/lower_bounds.py",
        "kept[piece[best]] = inside[best].to(kept.dtype)\n            value[piece[best]] = found[best]",
        "value[piece[best]] = found[best]\n            kept[piece[best]] = inside[best].to(kept.dtype)",
        REACH,
    ),
    Break(
        "runtime/compiled_kernels.py",
        "        with _COMPILE_LOCK:\n",
        "        if True:\n",
        "tests/runtime/test_compiled_kernels.py",
    ),
    # boxes of inputs
    Break(
        "search/input_splitting.py", "low[row, split] = high[row + len(row), split] = at", "low[row, split] = at", BOXES
    ),
    Break(
        "search/input_splitting.py",
        "low[row, split] = high[row + len(row), split] = at",
        "low[row, split] = at\n        high[row + len(row), split] = at - 0.1",
        COVER,
    ),
    Break(
        "search/input_splitting.py",
        "frozen = group == (member - 1)[:, None]",
        "frozen = group == member[:, None]",
        COVER,
    ),
    Break("search/input_splitting.py", "f.eps**p - ((near", "f.eps**p - 2 * ((near", BALLS),
    Break(
        "search/input_splitting.py",
        "down, up = add_rounded_down(low, -near), -add_rounded_down(-high, near)",
        "down, up = low - near, near - near",
        BALLS,
    ),
    Break("search/input_splitting.py", "return HalfSpace(-2 * s,", "return HalfSpace(-3 * s,", BALLS),
    Break(
        "inputs/membership.py",
        "torch.where(error < 0,",
        "torch.where(error > 0,",
        f"{BOXES}::test_ends_are_rounded_outward",
    ),
    Break(
        "search/input_splitting.py",
        "same[member[1:]] = False",
        "pass",
        f"{BOXES}::test_it_ends_at_the_truth_on_every_member",
    ),
    Break(
        "search/input_splitting.py",
        "wanted = (above > self.frontier.thresholds[member, None])",
        "wanted = (above > self.frontier.thresholds[member, None] + 0.1)",
        f"{BOXES}::test_what_is_enough_need_not_be_closer",
    ),
    Break("search/frontier.py", "left = (urgency > 0) & ~stuck", "left = (urgency > 0.1) & ~stuck", BOXES),
    Break("search/frontier.py", "self._popped_upper = value.amax(0)", "self._popped_upper = None", BROKEN),
    Break(
        "search/frontier.py", "self._closed_upper = torch.cat([self._closed_upper[None], value]).amax(0)", "pass", BOXES
    ),
    # claims for others
    Break("inputs/membership.py", "torch.where(error < 0,", "torch.where(error > 9,", HULL),
    Break(
        "claims/claim.py",
        "torch.where(delta == low - x, low, add_rounded_down(x, delta).maximum(low))",
        "add_rounded_down(x, delta)",
        HULL,
    ),
    Break("claims/claim.py", "if ball.norm != inf:", "if ball.norm == 5:", HULL),
    Break("claims/claim.py", "delta * _TWO_ROUNDINGS", "delta / _TWO_ROUNDINGS", HULL),
    Break("claims/claim.py", "return product if below else", "return product if product else", CLAIM),
    Break("claims/claim.py", "torch.where(frozen, x, end)", "end", CLAIM),
    Break("claims/claim.py", "self.full if group is None else float(self.frozen[group])", "self.full", CLAIM),
    Break("claims/run_claims.py", 'if self.results.guarantee != "certified":', "if not self.results:", CLAIMED_RUN),
    Break("claims/run_claims.py", 'float(held["eps"])', "0.0", CLAIMED_RUN),
    Break(
        "claims/run_claims.py",
        "if not abs(at_x - expected) <= _NOMINAL_TOLERANCE",
        "if abs(at_x - expected) < -_NOMINAL_TOLERANCE",
        CLAIMED_RUN,
    ),
    Break("claims/run_claims.py", "held[0].sha256 != files[row]", "held[0] is None", CLAIMED_RUN),
    Break("claims/run_claims.py", "    if different:", "    if not record:", CLAIMED_RUN),
    Break("claims/claim.py", 'if e.guarantee != "certified":', "if len(e) == 0:", CLAIM),
    Break("claims/claim.py", "unit[list(self.rivals)] - unit[self.target]", "unit[list(self.rivals)]", CLAIM),
    Break("graph/onnx/write.py", "values = rows.T.contiguous()", "values = -rows.T.contiguous()", WRITTEN),
    Break(
        "graph/onnx/write.py",
        "if node.bias is None:\n            self.emit",
        "if True:\n            self.emit",
        WRITTEN,
    ),
    # tables
    Break("benchmarks/trials/truth_metrics.py", "/ level.sum(1, keepdim=True)", "* 1.0", TRUTH),
    Break(
        "benchmarks/trials/truth_metrics.py", "+ 0.5 * (one[:, None] == one)", "+ 0.0 * (one[:, None] == one)", TRUTH
    ),
    # roundings
    Break(
        "runtime/block_sums.py",
        "return blocks if whole == count else blocks",
        "return blocks if whole else blocks",
        SUMS,
    ),
    Break("runtime/block_sums.py", "_BLOCK + count // _BLOCK + 1", "_BLOCK", SUMS),
    Break("rounding/float32_sums.py", "gammas(count + _PRODUCT_ERRORS, FLOAT32_UNIT).view(each)", "0.0", SINGLE),
    Break(
        "rounding/float32_sums.py",
        "up((size + apart) / 2, _PRODUCT_ERRORS)",
        "up((size + apart) / 3, _PRODUCT_ERRORS)",
        SINGLE,
    ),
    Break(
        "rounding/float32_sums.py",
        "(inputs[0].lower >= 0).flatten(1)",
        "(inputs[0].lower == inputs[0].lower).flatten(1)",
        SINGLE,
    ),
    Break("rounding/float32_sums.py", 'node.op in ("add", "affine") and signs', 'node.op in ("add", "affine")', SINGLE),
    Break("rounding/float32_sums.py", "if folded:  # a constant", "if False:  # a constant", SINGLE),
    Break("rounding/float32_sums.py", " + _denormal_weight_error(node, inputs))", ")", SINGLE),
    Break("rounding/float32_sums.py", "torch.where(inside, value_error, torch.inf)", "run", SINGLE),
    Break("rounding/magnitudes.py", "used = (magnitude(inputs[0]) > 0)", "used = (inputs[0].lower > 0)", SINGLE),
    Break("rounding/bound_errors.py", "torch.addcmul(radius, slope, passed).mul_(more)", "radius", LINES),
    Break(
        "rounding/bound_errors.py", "upper_slope, lines.upper_bias + above)", "upper_slope, lines.upper_bias)", LINES
    ),
    Break(
        "rounding/bound_errors.py",
        "return cost if paid_products >= products or",
        "return cost if paid_products >= 0 or",
        DOUBLE,
    ),
    Break("rounding/bound_errors.py", "weight=node.weight.double())", "weight=node.weight)", DOUBLE),
    Break(
        "rounding/bound_errors.py",
        "ends.append(end + sign * self._nodes.round_up(radius, VALUE_ERRORS))",
        "ends.append(end)",
        SUM,
    ),
    Break(
        "rounding/bound_errors.py",
        "return Interval(value.lower - radius, value.upper + radius)",
        "return value",
        HOSTILE,
    ),
    Break("rounding/bound_errors.py", "return dot(values.abs(), at_rows(", "return dot(values, at_rows(", HOSTILE),
    Break(
        "rounding/float32_sums.py",
        "if count * unit > 0.25:",
        "if False:",
        ROUNDED + "::test_where_rounding_has_no_bound_nothing_is_proven",
    ),
    Break(
        "bounds/backsubstitution.py",
        "first=node.name == start, paid_products=paid.get(node.name, -1)",
        "first=True, paid_products=0",
        HOSTILE,
    ),
    Break(
        "bounds/backsubstitution.py",
        "error = error + rounding.concretisation_error(final_forms[graph.input.name], owner)",
        "pass",
        ARRIVED,
    ),
    Break("bounds/forward.py", "            self._add_rounding(node, inputs)\n", "", HOSTILE),
    Break("graph/walk.py", "joined(name, pending[name])", "pass", "tests/graph/test_walk.py"),
    Break("graph/builder/weighted_layers.py", "size + bias.double().abs()", "shift.abs()", FOLDED),
    Break("graph/rewrite/fold.py", "if node.folded is None else node.folded.constants", "", FOLDED),
    Break(
        "verify/overlap.py",
        "least = _rigorous_value_at(graph, family.x, forms, how).minimum(at_x)",
        "least = at_x",
        NORMS,
    ),
    Break(
        "verify/family_bounds.py", "        rigorous=how.rigorous,\n        keep_hidden", "        keep_hidden", NORMS
    ),
    Break(
        "verify/searched_overlap.py",
        "searched.left, how.available, searched.hidden, until",
        "searched.left, how.available, None, until",
        f"{OVERLAPS}::test_a_search_bounds_the_hidden_layers_of_the_balls_once",
    ),
    Break(
        "cli/commands/verify_decisions.py",
        "**asked, rigorous=covered)",
        "**asked, rigorous=False)",
        "tests/cli/test_rigorous.py",
    ),
    Break(
        "bounds/state.py",
        "and node_facts.sums(self.balls.graph[name]):",
        "and False:",
        f"{ROUNDED}::test_radii_of_a_ball_serve_members_whose_intervals_are_parts_of_its_own",
    ),
    Break(
        "rounding/node_errors.py",
        "return self._of.interval_error(node)[self._case]",
        "return 0 * self._of.interval_error(node)[self._case]",
        f"{ROUNDED}::test_radii_of_a_ball_serve_members_whose_intervals_are_parts_of_its_own",
    ),
    # products, softmax and norms
    Break("rounding/magnitudes.py", "size, extra=_UNDERFLOWS * reach)", "size)", OF_PRODUCTS),
    Break(
        "rounding/magnitudes.py",
        "return Magnitudes(size, 2 * size, 2 * size, size, extra=",
        "return Magnitudes(size, 2 * size, 2 * size, 0 * size, extra=",
        OF_PRODUCTS,
    ),
    Break("rounding/magnitudes.py", "errors = count + count // 8 + _FUSED_ERRORS", "errors = 1", OF_PRODUCTS),
    Break("rounding/magnitudes.py", "extra = _UNDERFLOWS * (count + 1)", "extra = 0 * (count + 1)", OF_PRODUCTS),
    Break("rounding/magnitudes.py", "_SOFTMAX_EXP_ERRORS + 16 * largest))", "_SOFTMAX_EXP_ERRORS))", OF_PRODUCTS),
    Break("rounding/magnitudes.py", "(part / (1 - part) * high).clamp(max=_SOFTMAX_MOST)", "0 * high", OF_PRODUCTS),
    Break(
        "rounding/norm_errors.py",
        "error = (distance * (size.sqrt() + distance)",
        "error = (0 * distance * (size.sqrt() + distance)",
        OF_NORMS,
    ),
    Break(
        "rounding/norm_errors.py",
        "for one, other in (node.inputs, node.inputs[::-1]):",
        "for one, other in ():",
        OF_NORMS,
    ),
    Break("rounding/norm_errors.py", 'UNDERFLOW / node.attributes.get("least_factor", 1.0)', "UNDERFLOW", OF_NORMS),
    Break(
        "rounding/norm_errors.py",
        "return torch.where(eps > 1.82 * square, late, 2.7 * square / eps if eps > 0 else torch.inf)",
        "return torch.ones_like(square)",
        OF_NORMS,
    ),
    Break(
        "rounding/norm_errors.py",
        '    if product.op != "product":\n        return far\n',
        '    if product.op != "product":\n        return 0 * far\n',
        OF_NORMS,
    ),
    Break(
        "rounding/rigorous_support.py",
        "return node.op in MIXING or (",
        "return (",
        OF_NORMS,
    ),
    # properties in certificates
    Break(
        "proof/check.py",
        'weights.dtype.kind == "u" and weights.ndim == 2',
        "weights.ndim == 2",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "require(any(line) and not any(line[len(case) :]),",
        "require(True,",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "require(len(weights) == len(cases),",
        "require(True,",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "factors = [-weight for weight in line[: len(case)]]",
        "factors = [-min(1, weight) for weight in line[: len(case)]]",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "constant += factor * row.constant",
        "constant += row.constant",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "return cls(near, rounded_up(np.array(lost)),",
        "return cls(near, 0 * np.array(lost),",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "np.maximum(forms.a * low, forms.a * high).sum(0)",
        "np.minimum(forms.a * low, forms.a * high).sum(0)",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "require(at == len(tree),",
        "require(True,",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "require(-1 <= axis < len(low),",
        "require(axis < len(low),",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "below[axis] = above[axis] = (low[axis] + high[axis]) / 2",
        "below[axis], above[axis] = (2 * low[axis] + high[axis]) / 3, (low[axis] + 2 * high[axis]) / 3",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "waiting += [(above, high), (low, below)]",
        "waiting += [(low, below)]",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "return float(near if Fraction(float(near)) <= value else np.nextafter(near, np.float32(-np.inf)))",
        "return float(near)",
        PROPERTY_FILE,
    ),
    Break(
        "proof/check.py",
        "require(sha256 == statement.sha256, other)",
        "require(True, other)",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "require(_same_model(weights, file, 4) is None,",
        "require(_same_model(weights, file, 4) != 1,",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        'require(fits, f"the network has',
        'require(True, f"the network has',
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        'so its outputs have no bounds")\n        require(fits',
        'so its outputs have no bounds") if 0 else 0\n        require(fits',
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "missing = int((~(most[1] < 0)).sum())",
        "missing = int((most[1] > 1).sum())",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "return bool((most[0] < 0).all())",
        "return True",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "fits = slopes.shape == multipliers.shape == (len(trees), len(units))",
        "fits = True",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "require(low <= exact[-1] <= high,",
        "require(True,",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "only = low == high and float(low) == at",
        "only = low == high",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "kinds.append(bool((ends < 0).all()))",
        "kinds.append(bool((ends < 0).any()))",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "return self.holds and self.both",
        "return self.both",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "require(not self.arrays,",
        "require(True,",
        FORGED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "np.tile(np.repeat([1.0, -1.0], columns), len(few))",
        "np.repeat([1.0, -1.0], columns * len(few))",
        STATED_PROPERTY,
    ),
    Break(
        "proof/check.py",
        "low.get(name, Fraction(0)) - high.get(name, Fraction(0))",
        "low.get(name, Fraction(0)) + high.get(name, Fraction(0))",
        PROPERTY_FILE,
    ),
    Break(
        "proof/check.py",
        'expression[1:][:: 1 if expression[0][0] == "<" else -1]',
        "expression[1:]",
        PROPERTY_FILE,
    ),
    Break(
        "proof/check.py",
        'sign = 1 if term[0] == "+" else -1',
        "sign = 1",
        PROPERTY_FILE,
    ),
    Break(
        "proof/check.py",
        "side[end.number] = tighter(",
        "side[end.number] = max(",
        PROPERTY_FILE,
    ),
    Break(
        "proof/check.py",
        "require(len(form) == 1 and not strict,",
        "require(len(form) == 1,",
        PROPERTY_FILE,
    ),
    Break(
        "proof/check.py",
        'require(re.fullmatch(r"[\\t\\n -~]*", text),',
        "require(True,",
        PROPERTY_FILE,
    ),
    Break(
        "proof/check.py",
        "if all(low <= high for low, high in zip(lower, upper, strict=True)):",
        "if True:",
        PROPERTY_FILE,
    ),
    Break(
        "proof/check.py",
        "return [one + other for one in some for other in others]",
        "return [*some, *others]",
        PROPERTY_FILE,
    ),
    # sufficient sets in certificates
    Break(
        "proof/check.py", "np.maximum(question.members, own)", "np.maximum(question.members, own | True)", FORGED_REASON
    ),
    Break("proof/check.py", "require(not away,", "require(True,", FORGED_REASON),
    Break("proof/check.py", "require(not open_,", "require(True,", FORGED_REASON),
    Break("proof/check.py", "require(claim.decided(len(claim.ends) - 1),", "require(True,", FORGED_REASON),
    Break("proof/check.py", "require(len({*both}) == len(both),", "require(True,", FORGED_REASON),
    Break("proof/check.py", "require(not resting,", "require(True,", FORGED_REASON),
    Break("proof/check.py", "Fraction(low) > self.most +", "Fraction(low) >= self.most +", FORGED_REASON),
    Break("proof/check.py", "size <= (self.eps * unit) ** int(self.norm)", "size <= unit**9", FORGED_REASON),
    Break("proof/check.py", "require(every, ", "require(True, ", FORGED_REASON),
    Break("proof/check.py", "require(np.isfinite(points).all(),", "require(True,", FORGED_REASON),
    Break("proof/check.py", "points.dtype == np.float32 and points.shape == right", "True", FORGED_REASON),
    Break("proof/check.py", "        if kept == shown:", "        if shown:", FORGED_REASON),
    Break("proof/check.py", "if runs == shown and claim.decided(0)", "if claim.decided(0)", FORGED_REASON),
    Break("proof/check.py", "math.isfinite(most) and Fraction(most) <= self.most", "True", STATED_REASON),
    Break("proof/sufficient_statement.py", "inner = self.pick(inside)", "inner = self", STATED_REASON),
    Break(
        "proof/sufficient_statement.py",
        "return inner.pick(held.breaks(held.reached(network, question, inner.points, reals=True)))",
        "return inner",
        STATED_REASON,
    ),
    Break(
        "explainers/certified_explanation.py", "above = reason.values >", "above = 9 + reason.values >", STATED_REASON
    ),
    Break(
        "proof/check.py", "curve(np.where(rises, far, -far),", "curve(np.where(rises, far - 1, 1 - far),", STATED_REASON
    ),
    Break("proof/make_certificate.py", "    if not statement.holds(bound):", "    if False:", STATED_REASON),
    # contrastive sets in certificates
    Break("proof/check.py", "len(sizes) - count :]", "len(sizes) - count + 1 :]", FORGED_CONTRAST),
    Break("proof/check.py", "few=self.least - 1", "few=self.least - 2", FORGED_CONTRAST),
    Break("proof/check.py", "np.zeros((1, n))", "np.ones((1, n))", FORGED_CONTRAST),
    Break("proof/check.py", "require(not len(away),", "require(True,", FORGED_CONTRAST),
    Break("proof/check.py", "require(not len(open_),", "require(True,", FORGED_CONTRAST),
    Break("proof/check.py", "all(len({*some}) == len(some) for some in self.sets)", "True", FORGED_CONTRAST),
    Break("proof/check.py", "1 <= self.least <= count + 1", "1 <= self.least", FORGED_CONTRAST),
    Break("proof/check.py", "return found & (np.array(rows).max(1) < -margin)", "return found", FORGED_CONTRAST),
    Break("proof/check.py", "require(one, ", "require(True, ", FORGED_CONTRAST),
    Break("proof/check.py", "elif size == self.least:", "elif self.sets:", FORGED_CONTRAST),
    Break("proof/check.py", "if claim.decided(0) and claim.shown[1].all()", "if claim.shown[1].all()", FORGED_CONTRAST),
    Break(
        "proof/contrastive_statement.py",
        "inner = self.pick(question.inside(self.points, own)) if len(self.sets) else self",
        "inner = self",
        STATED_CONTRAST,
    ),
    Break(
        "proof/contrastive_statement.py",
        "return inner.pick(stated.broken(network, question, inner.points, reals=True))",
        "return inner",
        STATED_CONTRAST,
    ),
    Break("proof/never_weaker.py", "if self.stated >= self.least:", "if True:", STATED_CONTRAST),
    Break(
        "explainers/certified_explanation.py",
        "None if aim == int(e.overlap.target) else aim",
        "None",
        f"{STATED_CONTRAST}::test_a_chosen_class_is_reached",
    ),
    # contrastive sets
    Break(
        "text/contrast_wording.py", "return self.found and self.least >= self.size", "return self.found", CONTRAST_WORDS
    ),
    Break("text/contrast_wording.py", "return self.least > self.groups", "return not self.found", CONTRAST_WORDS),
    Break("text/contrast_wording.py", "if facts.counted and facts.least > 1", "if False", CONTRAST_WORDS),
    Break(
        "explainers/statements/explained_contrast.py",
        "counted=bool(contrast.counted[k])",
        "counted=False",
        CONTRAST_FIGURES,
    ),
    Break("plots/reasons/contrast_drawing.py", "_STATES[min(own[0], 1)]", "_STATES[0]", CONTRAST_FIGURES),
    Break("report/contrast_page.py", "(*left, _WHOLE", "(_WHOLE", CONTRAST_PAGES),
    Break("runs/sets/contrast_results.py", "if (first != changed).any()", "if False", CONTRAST_RUNS),
    Break("runs/sets/contrast_results.py", "if not (values > ", "if not (9 + values > ", CONTRAST_RUNS),
    Break(
        "runs/sets/contrast_results.py",
        'np.asarray(rows, dtype=np.int64)[held["contrast_owner"]]',
        'held["contrast_owner"]',
        f"{CONTRAST_RUNS}::test_parts_are_joined_in_the_order_of_their_rows",
    ),
    Break("metrics/reason_metrics.py", "contrast.smallest | contrast.impossible", "contrast.found", CONTRAST_METRICS),
    Break("reasons/contrasts/contrast_search.py", "self.counted |= answer.least > self.least", "pass", SMALLEST_CHANGE),
    Break(
        "reasons/contrasts/contrast_search.py",
        "self.problem.precise(found.point.double())",
        "self.problem.precise(self.problem.family.x.double())",
        SMALLEST_CHANGE,
    ),
    # curves in certificates
    Break("proof/check.py", "for k in range(15, 0, -1):", "for k in range(4, 0, -1):", CURVES_CHECKED),
    Break("proof/check.py", "np.where(t < 64, q * (1 - 2.0**-36), 0.0)", "q * (1 - 2.0**-36)", CURVES_CHECKED),
    Break(
        "proof/check.py",
        "convex, at_most = rounded_up(first + rounded_up(-slope * least))",
        "convex, at_most = rounded_up(first + rounded_up(-slope * most))",
        CURVES_CHECKED,
    ),
    Break(
        "proof/check.py",
        "concave = total(value, rounded_up(-slope * d), np.maximum(rise, 0))",
        "concave = total(value, rounded_up(-slope * d))",
        CURVES_CHECKED,
    ),
    Break("proof/check.py", "rounded_up(offset - (0.0 if odd else 1.0))", "rounded_up(offset - 1.0)", CURVES_CHECKED),
    Break(
        "proof/check.py",
        "parts = [Forms(forms.at, most.a * slope + least.a * below)]",
        "parts = [Forms(forms.at, most.a * below + least.a * slope)]",
        CURVES_CHECKED,
    ),
    Break("proof/check.py", "CURVED = 2.0**-20", "CURVED = 2.0**-22", CURVES_CHECKED),
    # searches with all roundings
    Break(
        "search/unstable_units.py",
        "None if rounding is None else error)",
        "None if rounding is None else 0 * error)",
        f"{WITH_RADII}::test_rows_of_units_are_off_by_no_more_than_their_radii",
    ),
    Break(
        "rounding/search_errors.py",
        "lower, upper = lower - more, upper + more",
        "pass",
        f"{WITH_RADII}::test_balls_are_no_smaller_than_they_were_stated",
    ),
    Break(
        "rounding/search_errors.py",
        "eps = eps * (1 + gamma(_ENDPOINT_ERRORS, unit)) + FLOAT64_UNDERFLOW",
        "pass",
        f"{WITH_RADII}::test_balls_are_no_smaller_than_they_were_stated",
    ),
    Break(
        "rounding/search_errors.py",
        "rows.radius + part * summed + tiny",
        "rows.radius + tiny",
        f"{WITH_RADII}::test_bounds_pay_for_being_computed",
    ),
    Break(
        "rounding/search_errors.py",
        "+ total.abs() @ radius[:width]",
        "+ total @ radius[:width]",
        f"{WITH_RADII}::test_bounds_on_parts_hold_for_every_run",
    ),
    Break(
        "rounding/search_errors.py",
        "cost = cost + part * (multipliers",
        "cost = cost + 0 * (multipliers",
        f"{WITH_RADII}::test_multipliers_pay_for_what_they_are_multiplied_with",
    ),
    Break(
        "rounding/search_errors.py",
        "off = radius + missed(known, found, most)",
        "off = radius",
        f"{WITH_RADII}::test_a_solution_is_not_trusted",
    ),
    Break(
        "rounding/search_errors.py",
        "if not bool(missed(one, inverse, torch.ones_like(off)).max() <= 0.5):",
        "if False:",
        f"{WITH_RADII}::test_a_solution_is_not_trusted",
    ),
    Break(
        "search/unstable_units.py",
        "radius=r.radius + mix.abs() @ every.radius",
        "radius=r.radius",
        f"{WITH_RADII}::test_what_a_unit_is_off_by_is_kept_when_it_is_gone",
    ),
    Break(
        "search/unstable_units.py",
        "every = add_evaluation_error(replace(every, radius=off),",
        "every = add_evaluation_error(replace(every, radius=0 * off),",
        f"{WITH_RADII}::test_radii_hold_where_units_of_one_sign_are_gone",
    ),
    Break(
        "search/unstable_units.py",
        "Interval(_ENLARGEMENT * z.lower, _ENLARGEMENT * z.upper)",
        "z",
        f"{WITH_RADII}::test_intervals_of_units_are_moved_outward",
    ),
    Break(
        "search/beta_crown.py",
        "bias = bias + row_bound_error(units, rows, total, multipliers)",
        "pass",
        f"{WITH_RADII}::test_bounds_on_parts_hold_for_every_run",
    ),
    Break(
        "rounding/point_bounds.py",
        "rigorous=True, until=until",
        "rigorous=False, until=until",
        f"{WITH_RADII}::test_lower_bounds_at_points_hold_for_every_run",
    ),
    Break(
        "rounding/point_bounds.py",
        "Interval(z - error, z + error)",
        "Interval(z, z)",
        f"{WITH_RADII}::test_a_unit_may_have_either_sign_at_a_point",
    ),
    Break(
        "bounds/engine.py",
        "suppress(TimeoutError), time_limit(until):",
        "suppress(TimeoutError), time_limit(inf):",
        "tests/bounds/test_time_limit.py",
    ),
    Break(
        "search/exact.py",
        "enlarge_balls(stated, unit_roundoff(family.x.dtype)) if rigorous else stated",
        "stated",
        f"{WITH_RADII}::test_a_search_is_on_balls_and_units_with_roundings",
    ),
    Break(
        "search/exact.py",
        "state.rounding if isinstance(state.rounding, RoundingErrors) else None",
        "None",
        f"{WITH_RADII}::test_a_search_is_on_balls_and_units_with_roundings",
    ),
    Break(
        "search/input_splitting.py",
        "final=(self.final,), rigorous=self.rigorous)",
        "final=(self.final,))",
        f"{WITH_RADII}::test_boxes_of_a_backdoor_prove_nothing_wrong",
    ),
    Break(
        "search/input_splitting.py",
        "(f.lower, down), (f.upper, up)",
        "(0 * f.lower, down), (0 * f.upper, up)",
        f"{WITH_RADII}::test_balls_of_parts_keep_what_does_not_move",
    ),
    Break(
        "verify/searched_overlap.py",
        "lower = met.value if found.lower is None else found.lower",
        "lower = met.value",
        f"{WITH_RADII}::test_lower_sides_are_lowered_and_scores_lie_in_their_intervals",
    ),
    Break(
        "verify/searched_overlap.py",
        "exact, how.available, enough, rigorous=how.rigorous)",
        "exact, how.available, enough)",
        f"{WITH_RADII}::test_a_search_is_on_balls_and_units_with_roundings",
    ),
    Break(
        "verify/property_search.py",
        "self.available, self.rigorous, reach)",
        "self.available, False, reach)",
        "tests/verify/test_property.py::test_a_search_holds_with_all_roundings_where_that_is_asked",
    ),
    Break("verify/searched_overlap.py", "largest_below(enough, family.x.dtype)", "enough", TIED),
    Break("verify/onehot_overlap.py", "largest_below(enough, boxes.x.dtype), 0.0", "enough, gap", TIED),
    Break("verify/radius_search.py", "return over.full < 0, ", "return over.full <= 0, ", TIED),
    Break("explainers/explanation.py", "(self.overlap.full < 0)", "(self.overlap.full <= 0)", TIED),
    Break("explainers/explanation.py", "self.opposite.full) < 0", "self.opposite.full) <= 0", TIED),
    Break("cli/commands/verify_decisions.py", '"proven" if upper < 0', '"proven" if upper <= 0', TIED),
    Break(
        "rounding/rigorous_support.py", "return has_error_bounds(graph) and not (", "return False and not (", DEFAULT
    ),
    Break("rounding/rigorous_support.py", "not (searched and any(", "not (False and any(", DEFAULT),
    Break(
        "explainers/explanation_file.py",
        'isinstance(settings, dict) and bool(settings.get("rigorous"))',
        "True",
        DEFAULT,
    ),
    Break("explainers/explainer.py", 'settings["rigorous"] = rigorous', "pass", DEFAULT),
    Break(
        "runs/run_job.py",
        'decide_rigorous(self.graph, self.job.settings.get("rigorous"), self.job.settings.get("bounds"))',
        'bool(self.job.settings.get("rigorous"))',
        DEFAULT,
    ),
    Break("verify/searched_overlap.py", "return replace(found, rigorous=True)", "return found", DEFAULT),
    Break("verify/onehot_overlap.py", "at_least[:, 1:], rigorous=how.rigorous", "at_least[:, 1:]", DEFAULT),
    Break("verify/radius_search.py", "decide_rigorous(graph, rigorous, method)", "bool(rigorous)", DEFAULT),
    Break("verify/property.py", "rigorous = decide_rigorous(graph, rigorous)", "rigorous = bool(rigorous)", DEFAULT),
    Break("benchmarks/trials/truth_metrics.py", "positive = score.clamp(min=0)", "positive = score.abs()", TRUTH),
    Break("benchmarks/trials/truth_metrics.py", "score.abs() if self.absolute", "score if self.absolute", TRUTH),
    Break("benchmarks/trials/hand_set_networks.py", "[-1.25], [1.0], -0.375)", "[-0.25], [1.0], -0.375)", HAND),
    Break("benchmarks/trials/hand_set_networks.py", "(0, 1): (1,), (1, 0): (0,)", "(0, 1): (0, 1), (1, 0): (0,)", HAND),
    Break("benchmarks/trials/hand_set_networks.py", "if not found[", "if found.any() or not found[", HAND),
    Break("benchmarks/trials/tetrominoes.py", "turned = signs * (1 - 2 * labels)", "turned = signs", TETROMINOES),
    Break("benchmarks/trials/ranking.py", "stratified_p([one - other", "stratified_p([one + other", VERDICT),
    Break("bench/marks.py", "(len(of_stratum) - 1) for share", "len(of_stratum) for share", VERDICT),
    Break("bench/marks.py", "of_stratum.var(ddof=1) / len", "of_stratum.var(ddof=1) / len(differences) / len", VERDICT),
    Break("benchmarks/trials/picture_grids.py", "and bool(known[quarter, k])", "and bool(known[0, k])", GRIDS),
    Break("benchmarks/trials/picture_grids.py", "known &= classes !=", "known |= classes ==", GRIDS),
    Break("bench/significance.py", "good = (1 if column.higher else -1)", "good = 1", BENCH),
    Break("proof/make_certificate.py", "if not bends:", "if False:", TIED),
    Break("bench/marks.py", "<= rounding, 0.0, a - b)", "< 0, 0.0, a - b)", MARKS),
    Break("bench/marks.py", "if value <= _LEVEL", "if value <= 0.5", MARKS),
    Break("bench/marks.py", "np.arange(len(p), 0, -1)", "1.0", MARKS),
    Break("bench/marks.py", "np.maximum.accumulate(scaled)", "scaled", MARKS),
    Break("bench/marks.py", "return float(2 * stdtr", "return float(stdtr", MARKS),
    Break("bench/marks.py", "stdtr(freedom,", "stdtr(10 * freedom,", MARKS),
    Break("bench/marks.py", "values if higher else -values", "values", MARKS),
    Break("bench/marks.py", "found |= dict.fromkeys(level, ", "dict.fromkeys(level, ", MARKS),
    Break(
        "bench/marks.py", "if frozenset((second, method)) not in apart", "if frozenset((best, method)) in apart", MARKS
    ),
    Break("bench/marks.py", "(m for m in merits if counts[m] == most)", "merits", TABLE),
    Break("bench/statistics.py", "if column.ranked and method", "if method", MARKS),
    Break("scripts/stored_results.py", "if draws != usual]", "if draws is None]", STORED),
    Break("scripts/stored_results.py", "constant_values=np.nan", "constant_values=0.0", STORED),
    Break("scripts/stored_results.py", "all(other.get(name) == value for other in others)", "True", STORED),
    Break("bench/compare.py", "seeded: Any = replace(drawn, seed=seed)", "seeded: Any = drawn", COMPARED),
    Break("metrics/stability.py", "relative=True, domain=ball.domain", "domain=ball.domain", COMPARED),
    Break("metrics/stability.py", "return self.relative\n", "return True\n", COMPARED),
    Break("metrics/seeded_noise.py", "*([draw] if draw else [])", "*[]", DRAWN),
    Break("metrics/removal/deletion_insertion.py", "range(1, self.draws)", "range(1, 2)", DRAWN),
    Break("metrics/removal/deletion_insertion.py", "total / self.draws", "total", DRAWN),
    Break(
        "metrics/removal/deletion_insertion.py", 'Stream(self.seed, "ties", draw)', 'Stream(self.seed, "ties")', DRAWN
    ),
    # claims and certificates for others
    Break("rounding/node_errors.py", "total = total + self.float32_error(part)[0]", "total = total", MODEL_PAIRS),
    Break("graph/rewrite/model_pair.py", "return {ROUNDED: (", "return {} and {ROUNDED: (", MODEL_PAIRS),
    Break("proof/check.py", 'kind_of(claim) == kind, f"it is', 'True, f"it is', DOSSIER_OF_OUTPUTS),
    Break("proof/check.py", 'one["predicted"] is one["label"] is None', "True", DOSSIER_OF_OUTPUTS),
    Break("proof/check.py", 'else claim.ball["half"] is None and claim.decided(0)', "else True", DOSSIER_OF_OUTPUTS),
    Break(
        "runs/run_certificates.py",
        "with_objective(subject, self.setup.objective)",
        "subject",
        OUTPUT_RUNS,
    ),
    Break("cli/options/named_inputs.py", "None if radii.get(part.name, _FIXED) == _FIXED else", "", NAMED_INPUTS),
    Break("sources/several_files.py", "if len(set(counts.values())) > 1", "if not counts", SEVERAL_FILES),
    Break("sources/several_files.py", "not bool((rows == rows[:1]).all())", "False", SEVERAL_FILES),
    Break("dossier/dossier_certificates.py", "!= [*range(rows)]", "!= [*range(rows)] and False", DOSSIER),
    Break("dossier/dossier_certificates.py", "hash_file(path) != expected", "hash_file(path) == ''", DOSSIER),
    Break(
        "dossier/dossier_certificates.py", "if hash_file(path) != results.manifest.certificates", "if not path", DOSSIER
    ),
    Break("proof/check.py", 'of_all and self.ball["half"] is None and', "", EVIDENCE),
    Break("proof/check.py", "and FORMULA.match(value)", "and False", DOSSIER),
    Break("proof/check.py", 'require(first == one["certificate"],', "require(True,", CHECKED_DOSSIER),
    Break("proof/check.py", 'require(first == one["input"],', "require(True,", CHECKED_DOSSIER),
    Break("proof/check.py", "require(hash_of(data) == files[name],", "require(True,", CHECKED_DOSSIER),
    Break("proof/check.py", '< 2, f"{name} is listed twice"', '< 9, f"{name} is listed twice"', CHECKED_DOSSIER),
    Break("proof/check.py", "require(MEMBER.fullmatch(name),", "require(True,", CHECKED_DOSSIER),
    Break("proof/check.py", "require(entry.header_offset == at,", "require(True,", CHECKED_DOSSIER),
    Break("proof/check.py", "require(not flags & 9 and packed ==", "require(packed ==", CHECKED_DOSSIER),
    Break("proof/check.py", "require(directory == ", "require(directory or ", CHECKED_DOSSIER),
    Break("proof/check.py", "require(name in named,", "require(True,", CHECKED_DOSSIER),
    Break("proof/check.py", "require(name in listed_names,", "require(True,", CHECKED_DOSSIER),
    Break("proof/check.py", "require(data == members[name],", "require(True,", CHECKED_DOSSIER),
    Break("proof/check.py", "require(stated[name] == value,", "require(True,", CHECKED_DOSSIER),
    Break("proof/check.py", "require(many == (len(samples),) * 2,", "require(True,", CHECKED_DOSSIER),
    Break("proof/check.py", "require(known and same,", "require(True,", CHECKED_DOSSIER),
    Break(
        "proof/check.py",
        'require(hash_of(members[name]) == sha256, f"{name} is not a text',
        'require(True, f"{name} is not a text',
        CHECKED_DOSSIER,
    ),
    Break("proof/check.py", "require(plain and", "require(", CHECKED_DOSSIER),
    Break("proof/check.py", "html.escape(str(value)) for", "str(value) for", CHECKED_DOSSIER),
    Break("proof/check.py", "require(not other,", "require(True,", CHECKED_DOSSIER),
    Break("dossier/assemble.py", "if not results.complete", "if not results", DOSSIER),
    Break("dossier/assemble.py", "certificates.sha256 not in hashes", "not certificates.sha256", DOSSIER),
    Break("dossier/assemble.py", "(now := hash_file(Path(file.path))) != file.sha256", "(now := '')", DOSSIER),
    Break("dossier/assemble.py", '" proven, " not in last:', "False:", DOSSIER),
    Break("dossier/dossier_certificates.py", "if first is not one:", "if first is None:", DOSSIER),
    Break("dossier/page_texts.py", "one_line(escape_surrogates(certificates", "one_line(str(certificates", DOSSIER),
    Break("dossier/assemble.py", "if claimed != found", "if claimed is None", DOSSIER),
    Break("dossier/page_texts.py", "[escape(part) for", "[Markup(part) for", EVIDENCE),
    # the checker of certificates
    Break(
        "proof/check.py", "lambda value, term: rounded_up(value + term)", "lambda value, term: value + term", CHECKED
    ),
    Break("proof/check.py", "return value + (np.abs(value) * 2.0**-50 + TINY)", "return value", CHECKED),
    Break("proof/check.py", "list[Array](), 53 - BITS -", "list[Array](), 73 - BITS -", CHECKED),
    Break("proof/check.py", "sum_rounded_up(np.abs(self.a).sum(0) * lost)", "0.0", CHECKED),
    Break("proof/check.py", "sum_rounded_up(np.sum(lost, axis=0) * step)", "0 * step", CHECKED),
    Break("proof/check.py", "BITS - len(parts) + 1", "BITS - len(parts) + 9", CHECKED),
    Break(
        "proof/check.py",
        "late = gamma(products + chain.summands) * (np.maximum(plus, minus) + early)",
        "late = 0 * early",
        CHECKED_HOSTILE,
    ),
    Break("proof/check.py", "np.maximum(plus, minus) + early", "np.minimum(plus, minus) + early", CHECKED_HOSTILE),
    Break("proof/check.py", "(reach > 0).astype(float))", "(reach > 9).astype(float))", CHECKED_HOSTILE),
    Break(
        "proof/check.py",
        "early = sum_rounded_up(gamma(1 + chain.rounds) * size + left_out + flushed)",
        "early = 0 * size",
        CHECKED_HOSTILE,
    ),
    Break(
        "proof/check.py", '"used": w != 0', '"used": np.sum(weights, axis=0) != 0', "tests/proof/test_worst_order.py"
    ),
    Break("proof/check.py", "if node.inputs[0] != chain.reads:", "if False:", "tests/proof/test_merged.py"),
    Break("proof/check.py", "flushed = FLUSHED * chain.gain", "flushed = 0 * chain.gain", CHECKED_HOSTILE),
    Break("proof/check.py", "left_out = node.terms * far * node.lost", "left_out = 0 * far", CHECKED_HOSTILE),
    Break("proof/check.py", "require(max(size.max(), chain.gain) < LARGEST,", "require(True,", CHECKED_HOSTILE),
    Break(
        "proof/check.py",
        "np.stack([sum_rounded_up(size + FLUSHED), np.zeros_like(reach[0])])",
        "np.zeros((2, *reach[0].shape))",
        CHECKED_MODELS,
    ),
    Break("proof/check.py", "forms.of(node.bias[forms.at, None])", "np.zeros(1)", CHECKED),
    Break(
        "proof/check.py",
        "sum_rounded_up((self.radius[number][:, forms.at] * np.abs(forms.a)).sum(1))",
        "np.zeros((2, 1))",
        CHECKED_HOSTILE,
    ),
    Break(
        "proof/check.py",
        "Forms(forms.at, -forms.a))[self.reals",
        "Forms(forms.at, -forms.a))[1",
        CHECKED,
    ),
    Break(
        "proof/check.py",
        "np.where(least >= 0, 1, np.where(most <= 0, -1, sides))",
        "np.where(most >= 0, 1, -1)",
        CHECKED,
    ),
    Break("proof/check.py", "rounded_up(np.maximum(upper - middle, middle - lower))", "upper - middle", CHECKED_MODELS),
    Break("proof/check.py", "rounded_up(most + rounded_up(-line * most))", "0 * most", CHECKED),
    Break("proof/check.py", "np.maximum(a, 0) * (sides == 0) * offset", "0 * a * offset", CHECKED),
    Break("proof/check.py", "np.where(a > 0, line, below)", "np.where(a < 0, line, below)", CHECKED),
    Break(
        "proof/check.py",
        "np.maximum(multipliers, 0) * (sides <= 0)",
        "np.maximum(multipliers, 0) * (sides < 0)",
        CHECKED_TREE,
    ),
    Break(
        "proof/check.py",
        "np.maximum(-multipliers, 0) * (sides >= 0)",
        "np.maximum(-multipliers, 0) * (sides > 0)",
        CHECKED_TREE,
    ),
    Break(
        "proof/check.py", "sum_rounded_up((positive * -least + negative * most).sum(0))", "np.zeros(1)", CHECKED_TREE
    ),
    Break("proof/check.py", "np.where(sides > 0, 1.0,", "np.where(sides > 0, 0.5,", CHECKED_TREE),
    Break("proof/check.py", "np.where(sides < 0, slope,", "np.where(sides < 0, 1.0,", CHECKED_TREE),
    Break("proof/check.py", "below / 256), slope, 1.0)", "below / 256), slope, 9.0)", CHECKED_TREE),
    Break("proof/check.py", "(leaf.units[mine] == units).all()", "True", CHECKED_TREE),
    Break("proof/check.py", "sides) for side in (-1, 1)]", "sides) for side in (1, 1)]", CHECKED_TREE),
    Break("proof/check.py", "number == count - 1 and not waiting", "number == count - 1", CHECKED_TREE),
    Break("proof/check.py", "{*roots.tolist()} <= {*self.question.statement.rows}", "True", CHECKED_TREE),
    Break("proof/check.py", "len(tree) * units <= 2**27", "True", SWOLLEN),
    Break("proof/check.py", "np.maximum.at(bounds,", "np.minimum.at(bounds,", CHECKED_TREE),
    Break(
        "proof/check.py",
        "wrong = entry[~(self.hidden(at, entry, sign) <=",
        "wrong = entry[~(self.hidden(at, entry, sign) - 1e-4 <=",
        CHECKED,
    ),
    Break("proof/check.py", "low <= self.lower[at][:, 0])", "low == low)", CHECKED),
    Break("proof/check.py", "(found <= most).all()", "True", CHECKED_FILE),
    Break("proof/check.py", "found, which = derived[kind],", "found, which = derived[1],", CHECKED_FILE),
    Break("proof/check.py", 'most[1:], side="right")', 'most[1:] + 1, side="right")', CHECKED_FILE),
    Break("proof/check.py", "bool(most < -self.margin)", "bool(most <= -self.margin)", CHECKED_VERDICT),
    Break(
        "proof/check.py",
        '{number(most, decimal.ROUND_CEILING)}"\n        if most',
        '{number(most, decimal.ROUND_FLOOR)}"\n        if most',
        CHECKED_VERDICT,
    ),
    Break("proof/check.py", "0 if claim.decided(0) else 1", "0", CHECKED_VERDICT),
    Break(
        "proof/check.py",
        "number(end, decimal.ROUND_FLOOR, 6)",
        "number(end, decimal.ROUND_CEILING, 6)",
        CHECKED_VERDICT,
    ),
    Break(
        "proof/check.py",
        "number(low, decimal.ROUND_CEILING, 6)",
        "number(low, decimal.ROUND_FLOOR, 6)",
        CHECKED_VERDICT,
    ),
    Break("proof/check.py", "require((least <= reached).all(),", "require(True,", CHECKED_FILE),
    Break("proof/check.py", "self.question.hold(self.points)", "pass", CHECKED_FILE),
    Break("proof/check.py", "require(found == sha256,", "require(True,", CHECKED_FILE),
    Break("proof/check.py", "in (shape, [1, *shape]) and found == sha256", "in (shape, [1, *shape])", CHECKED_FILE),
    Break("proof/check.py", "np.nextafter(side.astype(float), np.inf)", "side.astype(float)", CHECKED_HOSTILE),
    Break("proof/check.py", "self.lower: Array = -down", "self.lower: Array = 0 * down", CHECKED),
    Break("proof/check.py", "self.upper: Array = up_", "self.upper: Array = 0 * up_", CHECKED),
    Break(
        "proof/check.py",
        "super().__init__(nodes=network.nodes, units=network.units, whole=points is None",
        "super().__init__(nodes=network.nodes, units=network.units, whole=False",
        CHECKED,
    ),
    Break("proof/check.py", "self.members[1 + mask.reshape(-1), np.arange(n)] = 0", "pass", CHECKED_FILE),
    Break(
        "proof/check.py",
        'np.maximum(down, 0) * (half != "+")',
        'np.maximum(down, 0) * (half != "-")',
        CHECKED_HOSTILE,
    ),
    Break("proof/check.py", 'eps * side if ball["relative"] else', 'eps if ball["relative"] else', CHECKED_HOSTILE),
    Break(
        "proof/check.py",
        "sum_rounded_up(np.sqrt(squares) * eps)",
        "0.9 * best",
        CHECKED_HOSTILE,
    ),
    Break("proof/check.py", " + price * eps * eps ** (p - 1))", ")", CHECKED_HOSTILE),
    Break(
        "proof/check.py", "t * (size - price * t ** (p - 1))", "t * (size - price * eps ** (p - 1))", CHECKED_HOSTILE
    ),
    Break(
        "proof/check.py",
        "best = np.minimum(best, self._priced(",
        "best = np.maximum(best, self._priced(",
        CHECKED_HOSTILE,
    ),
    Break("proof/check.py", "(step <= up_) & ((members > 0) | (step == 0))", "(step <= up_)", CHECKED_FILE),
    Break(
        "proof/check.py",
        "(np.take_along_axis(low, place[:, None], 1)[:, 0] >= others) | (a < 0)",
        "(np.take_along_axis(low, place[:, None], 1)[:, 0] >= others) | (a != 0)",
        CHECKED_MODELS,
    ),
    Break("proof/check.py", "Forms(forms.at, a - kept).of(high.max(1))", "np.zeros(1)", CHECKED_MODELS),
    Break("proof/check.py", "Forms(at[i:j] - start, moved[i:j])", "Forms(at[i:j], moved[i:j])", CHECKED_MODELS),
    Break("proof/check.py", "forms.of(node.value[forms.at, None])", "np.zeros(1)", CHECKED_MODELS),
    Break(
        "proof/check.py",
        "x, 1.0, -bound, exact=True)), 1.0, bound",
        "x, 1.0, -bound, exact=True)), 1.0, 0",
        CHECKED_MODELS,
    ),
    Break("proof/check.py", "(1 / (~padding).sum(0))", "1 / kernel + 0 * padding.sum(0)", CHECKED_MODELS),
    Break(
        "proof/check.py",
        "np.where(read == x.count, read.min(0), read)",
        "np.minimum(read, x.count - 1)",
        CHECKED_MODELS,
    ),
    Break(
        "proof/check.py", "[m // 2 for m in more] + [m - m // 2", "[m - m // 2 for m in more] + [m // 2", CHECKED_MODELS
    ),
    Break("proof/check.py", "key & 7 == WIRE.get(field.kind, 2)", "True", PARSED),
    Break("proof/check.py", 'field.times == "*" or count <= 1', "True", PARSED),
    Break("proof/check.py", "        if field is None:\n", "        if field is None and at < 0:\n", PARSED),
    Break("proof/check.py", '== a.x.shape, "its slopes', '!= 0, "its slopes', PARSED),
    Break("proof/check.py", "a.last and len(x.shape) == 2", "len(x.shape) == 2", PARSED),
    Break("proof/check.py", "and _axes(a, [a.axis], 2) == [1]", "", PARSED),
    Break("proof/check.py", "network.decision_margin = 2.0**-16", "pass", PARSED),
    Break("proof/check.py", "value < 2**64 and (data[end - 1] or end == at + 1)", "True", FORGED),
    Break("proof/check.py", "require(opset in OPSETS,", "require(opset,", FORGED),
    Break("proof/check.py", "require(node.output not in values,", "require(True,", FORGED),
    Break("proof/check.py", "one.type == ATTRIBUTE_TYPES[field] and", "", FORGED),
    Break("proof/check.py", "a.kernel_shape in (None, kernel)", "True", FORGED),
    Break("proof/check.py", "(not supported or value in supported[0]) and", "", FORGED),
    Break("proof/check.py", "read = np.unique(table[table < self.area])", "read = np.unique(table)", CHECKED_MODELS),
    Break("proof/check.py", "require(not arrays,", "require(True,", CHECKED_FILE),
    Break("proof/check.py", 'all(name.endswith(".npy") for name in members)', "True", FORGED),
    Break("proof/check.py", "len(dict(pairs)) == len(pairs)", "True", FORGED),
    Break("proof/check.py", "and min(sides, default=1) > 0", "", FORGED),
    Break("proof/check.py", "and all(map(str.isprintable, names))", "", FORGED),
    Break(
        "proof/check.py",
        '_fields({"layout": "NCHW", **prepare}, "mean std layout")',
        '(prepare["mean"], prepare["std"], "NCHW")',
        FORGED,
    ),
    Break("proof/check.py", "source = file.read(LIMIT + 1)", "source = file.read()", SWOLLEN),
    Break("proof/check.py", r"p[-+]\d{1,3}|0x0", r"p[-+]\d{1,4}|0x0", SWOLLEN),
    Break("proof/check.py", "len({*classes}) == len(classes) > 1", "len(classes) > 1", CHECKED_FILE),
    Break("proof/make_certificate.py", "np.floor(values / grid - 1)", "np.rint(values / grid)", CERTIFIED),
    Break(
        "proof/make_certificate.py",
        "round_into_ball(points.to(family.x), every, torch.float32)",
        "points.to(family.x)",
        CERTIFIED,
    ),
    Break("proof/make_certificate.py", "((low <= logits) & (logits <= high)).all()", "True", CERTIFIED),
    Break(
        "proof/certificate.py", "upper[1:, None] < lower[None, 1:]", "upper[1:, None] < lower[None, 1:] + 9", CERTIFIED
    ),
    Break("proof/make_certificate.py", "if self.rival is None else [self.rival]", "", CERTIFIED),
    Break("explainers/certified_explanation.py", "else replace(ball, half=half)", "else ball", CERTIFIED),
    Break("explainers/certified_explanation.py", 'e.overlap if half == "+" else e.opposite', "e.overlap", CERTIFIED),
    Break("proof/proof_tree.py", "lower = works & (found < best)", "lower = works", GROWN),
    Break(
        "proof/stored_intervals.py",
        "np.ceil(np.ldexp(mantissa, 24 - _ZERO_BITS))",
        "np.floor(np.ldexp(mantissa, 24 - _ZERO_BITS))",
        CERTIFIED,
    ),
    Break("proof/network_export.py", "if node.op not in _COVERED", 'if node.op == "exp"', CERTIFIED),
    Break("proof/network_export.py", "if low != high or not 0 <= low <= 1", "if False", CERTIFIED),
    Break("proof/statement.py", '"half": ball.half', '"half": None', CERTIFIED),
    Break("proof/statement.py", '"relative": ball.relative', '"relative": False', CERTIFIED),
    Break("proof/proof_tree.py", "share = self.leaks + (1 - self.leaks) * slopes", "share = slopes", GROWN),
    Break("proof/proof_tree.py", "waiting += part.halves[::-1]", "waiting += part.halves", GROWN),
    Break("proof/statement.py", "np.clip(values, -_UNBOUNDED, _UNBOUNDED)", "values", CERTIFIED),
    Break("proof/network_export.py", 'node.op == "avg_pool" and not a["mean"]', "False", CERTIFIED),
    Break("inputs/onehot_boxes.py", "value.masked_fill(~self.inside, -inf)", "value", CATEGORIES),
    Break(
        "inputs/onehot_boxes.py",
        "for k, choice in enumerate(product(*orders)):",
        "for k, choice in enumerate(zip(*orders)):",
        CATEGORIES,
    ),
    Break("inputs/onehot_boxes.py", "self.first[:, None]", "0", CATEGORIES),
    Break("inputs/onehot_boxes.py", "_check_onehot(ball, x)", "pass", CATEGORIES),
    Break("inputs/onehot_boxes.py", "if count > _MAX_CHOICES:", "if False:", CATEGORIES),
    Break("verify/onehot_overlap.py", "self.classes[owner], how, rival", "None, how, rival", CATEGORIES),
    Break(
        "verify/onehot_overlap.py",
        "= boxes.largest(upper), boxes.largest(lower)",
        "= boxes.largest(lower), boxes.largest(lower)",
        CATEGORIES,
    ),
    Break("verify/onehot_overlap.py", "above, _ = boxes.largest(upper)", "above, _ = boxes.largest(lower)", CATEGORIES),
    Break("verify/onehot_overlap.py", "at_least = lower[boxes.first]", "at_least = upper[boxes.first]", CATEGORIES),
    Break(
        "verify/onehot_overlap.py",
        'found, "_lower").masked_fill(~boxes.inside[rows], -inf)',
        'found, "_lower")',
        CATEGORIES,
    ),
    Break(
        "verify/onehot_overlap.py",
        "points[owner[n], m], reached[owner[n], m] = found.points[n, m], met[n, m]",
        "reached[owner[n], m] = met[n, m]",
        CATEGORIES,
    ),
    Break("inputs/ball.py", "if any(bool(moves.any()) for moves in self._moving(x)):", "if False:", CATEGORIES),
    Break("proof/statement.py", "ball.at(x)  # refuses", "pass  # refuses", CATEGORIES),
    Break("inputs/domain.py", "total.min() == 1:", "True:", DOMAINS),
    Break("inputs/domain.py", "radii.floor()", "radii.ceil()", DOMAINS),
    Break("inputs/domain.py", "least[k], most[k] = np.floor(least[k]), np.ceil(most[k])", "pass", DOMAINS),
    Break(
        "graph/estimators.py",
        "np.concatenate([np.zeros_like(weight), weight])",
        "np.concatenate([-weight, weight])",
        ESTIMATORS,
    ),
    Break(
        "graph/estimators.py",
        "return (x - self.centre) * self.factor",
        "return (x + self.centre) * self.factor",
        ESTIMATORS,
    ),
    Break("graph/estimators.py", "_check_close(values, expected, _TOLERANCES[dtype], estimator)", "pass", ESTIMATORS),
    Break(
        "graph/estimators.py",
        "_check_close(steps(torch.as_tensor(rows)), prepared, _TOLERANCES[torch.float64], estimator)",
        "pass",
        ESTIMATORS,
    ),
    Break("graph/estimators.py", "log(net.threshold / (1 - net.threshold))", "0.0", ESTIMATORS),
    Break(
        "runs/run_certificates.py",
        "if sha256(content).hexdigest() != self.recorded.get(row):",
        "if False:",
        RUN_CERTIFIED,
    ),
    Break(
        "verify/objective.py",
        "torch.stack([torch.ones_like(start), -start], dim=1)",
        "torch.stack([torch.ones_like(start), 0 * start], dim=1)",
        OUTPUTS,
    ),
    Break(
        "verify/objective.py",
        '"down": -rise, "both": torch.cat([rise, -rise], dim=1)',
        '"down": -rise, "both": rise',
        OUTPUTS,
    ),
    Break("verify/onehot_overlap.py", "None if self.start is None else self.start[owner]", "None", OUTPUTS),
    Break(
        "graph/rewrite/output_heads.py",
        'graph = _appended(graph, "output.largest", "max_pool"',
        'graph = _appended(graph, "output.largest", "avg_pool"',
        OUTPUTS,
    ),
    Break("graph/rewrite/output_heads.py", 'if last.op == "sigmoid":', "if False:", OUTPUTS),
    Break(
        "graph/rewrite/output_heads.py",
        'return replace(_appended(graph, "outputs.sigmoid", "sigmoid", (1,)), taken_off=None)',
        "return replace(graph, taken_off=None)",
        OUTPUTS,
    ),
    Break(
        "graph/rewrite/output_heads.py",
        "both = torch.tensor([[0.0], [1.0]])\n    named",
        "both = torch.tensor([[1.0], [0.0]])\n    named",
        ONE_LOGIT,
    ),
    Break(
        "graph/rewrite/probability_head.py",
        "return torch.cat([torch.zeros_like(outputs), outputs], 1)",
        "return torch.cat([outputs, torch.zeros_like(outputs)], 1)",
        VERIFIED_LOGIT,
    ),
    Break("proof/check.py", "np.array([[0], [1]]), (2,))", "np.array([[1], [0]]), (2,))", ONE_OUTPUT),
    Break(
        "proof/check.py",
        'require(classes == with_classes(network), "it',
        'require([with_classes(network)], "it',
        ONE_OUTPUT,
    ),
    Break(
        "proof/check.py",
        "float(-side * int(sign) * self.middle)",
        "float(side * int(sign) * self.middle)",
        STATED_OUTPUT,
    ),
    Break("proof/check.py", "rounded_up(ends / len(self.entries)) if", "ends / 9 if", STATED_OUTPUT),
    Break(
        "proof/check.py",
        '{"up": [1], "down": [-1], "both": [1, -1]}',
        '{"up": [1], "down": [-1], "both": [1]}',
        STATED_OUTPUT,
    ),
    Break(
        "proof/check.py",
        "np.array(self.signs, float)[rows]",
        "np.abs(np.array(self.signs, float)[rows])",
        STATED_OUTPUT,
    ),
    Break("proof/check.py", "statement.measured(ends, best, -1)", "statement.measured(ends, best, 1)", STATED_OUTPUT),
    Break("proof/check.py", "total(np.array(most), -prover.overlaps()[:1])", "np.array([0.0])", STATED_OUTPUT),
    Break(
        "proof/check.py", "np.maximum(0, prover.rows_at_point().max(0, keepdims=True))", "np.zeros(1)", STATED_OUTPUT
    ),
    Break(
        "proof/check.py",
        "self.at(most, decimal.ROUND_CEILING)\n",
        "self.at(most, decimal.ROUND_FLOOR)\n",
        STATED_OUTPUT,
    ),
    Break("proof/check.py", '"0.5" if last.op == "curve" and not last.odd else "0"', '"0"', FORGED_OUTPUT),
    Break("proof/check.py", '"down" if on else "up", threshold', '"up" if on else "down", threshold', STATED_OUTPUT),
    Break("proof/check.py", 'and (self.reduce != "maximum" or self.direction == "up")', "and True", FORGED_OUTPUT),
    Break("proof/check.py", "len({*each}) == len(each) > 0", "len(each) > 0", FORGED_OUTPUT),
    Break(
        "proof/check.py",
        "type(k) is int and 0 <= k < last.count for k in each",
        "0 <= k < last.count for k in each",
        FORGED_OUTPUT,
    ),
    Break("proof/output_statement.py", "bias = -signs", "bias = signs", STATED_OUTPUT),
    Break("rules/rounding_steps.py", "2.0**-17, 2.0**-17, 2.0**-118", "2.0**-17, 0.0, 2.0**-118", STAIRCASE),
    Break("rules/rounding_steps.py", "2.0**-17, 2.0**-17, 2.0**-118", "0.0, 2.0**-26, 2.0**-118", STAIRCASE),
    Break("rules/rounding_steps.py", "_bias_below(u, y, below) - below * room", "_bias_below(u, y, below)", STAIRCASE),
    Break("rules/rounding_steps.py", "_bias_above(u, y, above) + above * room", "_bias_above(u, y, above)", STAIRCASE),
    Break("rules/rounding_steps.py", "*kinks]).clamp(max=STEEPEST)", "*kinks])", STAIRCASE),
    Break("rounding/magnitudes.py", "size = STEEPEST * reach + magnitude(y) + 1", "size = reach", STAIRCASE),
    Break(
        "cli/commands/verify_outputs.py",
        "Fraction(upper) + apart <= query.limit",
        "Fraction(upper) + apart <= 1.1 * query.limit",
        WITHIN,
    ),
    Break(
        "cli/commands/verify_outputs.py", "not proven and reached > query.limit", "not proven and reached >= 0", WITHIN
    ),
    Break(
        "text/output_wording.py",
        'format_overlap(math.nextafter(value + upper, math.inf), "certified")',
        'format_overlap(value + upper, "sampled")',
        OUTPUT_WORDS,
    ),
    Break("inputs/several_inputs.py", "else ball._radii(value))", "else ball._radii(value) / 2)", SEVERAL),
    Break("inputs/several_inputs.py", "tuple(start + column for column", "tuple(column for column", SEVERAL),
    Break("inputs/several_inputs.py", "append(mask.flatten(1) + first)", "append(mask.flatten(1))", SEVERAL),
    Break("inputs/several_inputs.py", "(value, value) if pinned else", "(-free, free) if pinned else", SEVERAL),
    Break(
        "inputs/several_inputs.py", "iter(None if _is_fixed(entry) else", "iter(None if not entry else", JOINED_CALLS
    ),
    Break("inputs/several_inputs.py", "eps=1.0, norm=norm)", "eps=1.0)", JOINED_CALLS),
    Break(
        "graph/torch/trace.py",
        '"_modules", *hooks)',
        '"_modules")',
        f"{MODULES_READ}::test_hooks_of_the_first_call_are_taken_back",
    ),
    Break(
        "graph/torch/read.py",
        "return bool(args[place] if place < len(args) else kwargs.get(switch, default))",
        "return True",
        f"{MODULES_READ}::test_an_attention_of_constants_is_one_unless_it_draws",
    ),
    Break(
        "bounds/engine.py",
        "        check_time()\n        with layers",
        "        with layers",
        "tests/explainers/test_auto.py::test_bounds_that_do_not_end_are_given_up",
    ),
    Break(
        "verify/radius_search.py",
        "outputs = scores(self.outputs(stored), self.graph.taken_off)",
        "outputs = scores(-self.outputs(stored), self.graph.taken_off)",
        "tests/verify/test_radius_of_any_model.py",
    ),
    Break("inputs/several_inputs.py", 'if len(moving) > 1 and set(norms) != {"inf"}:', "if False:", SEVERAL),
    Break("graph/torch/module_call.py", "else part.constant.to(x.device)", "else (0 * part.constant)", SEVERAL),
    Break("graph/joined_inputs.py", "not torch.equal(part.constant, known.constant)", "False", SEVERAL),
    Break("graph/joined_inputs.py", "if not bool((value == value[:1]).all()):", "if False:", SEVERAL),
    Break("explainers/statements/explained_inputs.py", "flat - first).unflatten", "flat * 0).unflatten", SEVERAL),
    Break("graph/onnx/single_input.py", "start += part.size", "start += 1", ONNX_INPUTS),
    Break("graph/torch/module_call.py", "if _LOGITS in tensors:", "if False:", MODULE_CALL),
    Break("graph/torch/module_call.py", "if len(tensors) == 1 and not others:", "if tensors:", MODULE_CALL),
    Break("graph/builder/slicing.py", "or tuple(x.shape) != (0,)]", "or True]", MODULE_CALL),
    Break("graph/torch/batch_axis_tracking.py", "source, along + 1, own", "source, along, own", FOLLOWED),
    Break("graph/torch/batch_axis_tracking.py", "if x.axis != 0 or len(shape) < 3", "if len(shape) < 3", FOLLOWED),
    Break("graph/torch/batch_axis_tracking.py", "turn = (0, 2, 1,", "turn = (0, 1, 2,", FOLLOWED),
    Break("explainers/samples/concatenation.py", "return torch.cat(list(values))", "return values[0]", JOINED),
    Break("explainers/samples/concatenation.py", "if any(own and n > 1 for", "if any(own and n < 0 for", JOINED),
    Break(
        "explainers/samples/concatenation.py",
        "len(part.mask) == 1 and torch.equal(part.mask, first)",
        "len(part.mask) == 1",
        JOINED,
    ),
    Break(
        "explainers/samples/concatenation.py",
        '"the model with the hash": lambda e: e.model_hash',
        '"": lambda e: ""',
        JOINED,
    ),
    Break("explainers/samples/concatenation.py", "(o.certified, o.rigorous, ", "(o.certified, ", JOINED),
    Break(
        "explainers/samples/sample_choice.py", "(which.ndim or which.dtype == torch.bool)", "which.ndim > 1", INDEXED
    ),
    Break("explainers/samples/sample_choice.py", "if len(entries) != count:", "if len(entries) < 0:", INDEXED),
    Break(
        "explainers/explanation.py", "ball_of_samples(self.made_from[1], which, self.x)", "self.made_from[1]", INDEXED
    ),
    Break(
        "explainers/samples/explanation_frame.py",
        "sizes = scores.double().abs() if signed",
        "sizes = scores.double() if signed",
        FRAME,
    ),
    Break("explainers/samples/explanation_frame.py", "in enumerate(counts) if count}", "in enumerate(counts)}", FRAME),
    Break(
        "explainers/batching.py",
        "torch.Generator(self.x.device).manual_seed(self.generator.initial_seed())",
        "self.generator",
        DRAWS,
    ),
    Break(
        "explainers/methods/empirical.py",
        "task.sample(self.samples)",
        "family.sample(self.samples, task.generator)",
        DRAWS,
    ),
    Break("explainers/methods/greedy.py", "0, -1), task.seeded()", "0, -1), task.generator", DRAWS),
    Break("explainers/attribution/clamped_inputs.py", "x.clamp(*ball.limits(x))", "x.clamp(0.0, 1.0)", CAPTUM),
    Break("bench/compare.py", "if not any(_applies(metric, attributor)", "if not any(True", COMPARED),
    Break("bench/table_text.py", 'r"(?<![\\de])-(?=\\d)"', 'r"-(?=\\d)"', LATEX),
    Break("storage/exported_tables.py", 'safe.startswith(("[", "*"))', "False", LATEX),
    Break("inputs/loader_samples.py", "if isinstance(loader.sampler, RandomSampler):", "if False:", LOADERS),
    Break("inputs/loader_samples.py", "len(batch) in (1, 2)", "len(batch) > 0", LOADERS),
    Break("metrics/function_metric.py", "if values.shape != case.target.shape:", "if False:", FUNCTION),
    Break("metrics/function_metric.py", '"higher_is_better", self.higher)', '"higher_is_better", True)', FUNCTION),
    Break("reasons/free_balls.py", "return self.by_group(top)", "return 0.5 * self.by_group(top)", HUNT_OF_SETS),
    Break("reasons/leaf_tree.py", "(total >= self.limit - slack[:", "(total >= self.limit + 1 + slack[:", HUNT_OF_SETS),
    Break("reasons/sizes/size_program.py", "n + dual - _COUNT_SLACK", "n + dual + 1", LEAST_SIZE),
    Break("reasons/sizes/size_program.py", "cover.sum() - 1.0 for", "cover.sum() - 2.0 for", LEAST_SIZE),
    Break("reasons/sizes/direction_model.py", "z.bias[bent] - low[bent])", "z.bias[bent])", LEAST_SIZE),
    Break("reasons/sizes/least_size.py", "self.found = again", "pass", LEAST_SIZE),
    Break("reasons/contrasts/few_groups.py", "return 1 + (", "return 2 + (", FEW_GROUPS),
    Break("search/group_unions.py", "corner * moved[:, self.mask]", "corner", UNIONS),
    Break("search/group_unions.py", "min(most, groups)", "min(most + 1, groups)", UNIONS),
    Break("reasons/contrasts/contrast_search.py", "& ~self._grown(", "& self._grown(", SMALLEST_CHANGE),
    Break(
        "reasons/contrasts/contrast_search.py",
        "if not value > self.problem.limit + _TOLERANCE:",
        "if False:",
        CONTRASTIVE,
    ),
    Break("reasons/contrasts/contrast.py", "return self.least > self.groups", "return ~self.found", CONTRAST),
    Break(
        "reasons/contrasts/goal_network.py", ".amin(1)", ".amax(1)", f"{CONTRASTIVE}::test_a_chosen_class_is_reached"
    ),
    Break("text/reason_wording.py", "return self.least >= self.kept", "return self.least > 0", REASON_WORDS),
    Break(
        "text/reason_wording.py", 'f"Proven{note}: no change of {other}', 'f"Proven: no change of {other}', REASON_WORDS
    ),
    Break("text/reason_wording.py", "    if facts.least:", "    if False:", REASON_WORDS),
    Break("text/reason_wording.py", "if facts.minimal:", "if facts.necessary:", REASON_WORDS),
    Break(
        "text/reason_wording.py",
        "sure, close = facts.necessary - facts.within_rounding, facts.within_rounding",
        "sure, close = facts.necessary, 0",
        REASON_WORDS,
    ),
    Break(
        "explainers/statements/explained_reason.py",
        "int((necessary & ~reason.adversarial[k]).sum())",
        "0",
        REASON_FIGURES,
    ),
    Break("explainers/statements/explained_reason.py", "reason.values[own].argmax()", "0", REASON_FIGURES),
    Break("plots/reasons/reason_picture.py", "_pixels(undecided[mask])", "_pixels(~free[mask])", REASON_FIGURES),
    Break(
        "explainers/statements/explained_verdict.py",
        "upper=float(e.reason.bound[k])",
        "upper=float(e.overlap.full[k])",
        REASON_PAGES,
    ),
    Break("report/reason_page.py", "*open_sentences(facts), *whole", "*whole", REASON_PAGES),
    Break("runs/sets/reason_results.py", "np.asarray(rows, dtype=np.int64)[own[:, 0]]", "own[:, 0]", REASON_RUNS),
    Break("runs/sets/reason_results.py", "if (necessary & ~kept).any():", "if False:", REASON_RUNS),
    Break("runs/sets/reason_results.py", "(least > size)", "(least > size + 9)", REASON_RUNS),
    Break("runs/sets/reason_results.py", "kept[row][own] & (own != group)", "kept[row][own] & (own < 0)", REASON_RUNS),
    Break("metrics/sufficient_size.py", "order = group_means(", "order = -group_means(", REASON_METRICS),
    Break("explainers/upsampling.py", "return sums / sizes.clamp(min=1)", "return sums", REASON_METRICS),
    Break("explainers/methods/sufficient.py", "_check_moves(problem, task.first + n)", "pass", REASON_INPUT),
    Break(
        "explainers/methods/set_explainer.py",
        "bounds=without_search(self.bounds))",
        "bounds=self.bounds)",
        REASON_INPUT,
    ),
    # sufficient sets
    Break(
        "reasons/free_balls.py", "torch.maximum(form * self.lower, form * self.upper)", "form * self.upper", FREE_BALLS
    ),
    Break(
        "reasons/free_balls.py",
        "lower, upper = self.family.lower * moves, ",
        "lower, upper = self.family.lower, ",
        FREE_BALLS,
    ),
    Break(
        "reasons/leaf_tree.py",
        "over = (total >= self.limit - slack[:, None]).any(0)",
        "over = (total >= self.limit - slack[:, None]).all(0)",
        LEAF_TREE,
    ),
    Break(
        "reasons/leaf_tree.py",
        "torch.maximum(lower[each, unit], at)",
        "torch.maximum(lower[each, unit], at + 0.3)",
        LEAF_TREE,
    ),
    Break(
        "reasons/leaf_tree.py",
        "below = self._values(open_, free) < self.limit",
        "below = self._values(open_, free) < self.limit + 0.3",
        LEAF_TREE,
    ),
    Break("reasons/leaf_tree.py", "assert not bool((free & ~self.possible).any()),", "assert True,", LEAF_TREE),
    Break("reasons/unit_network.py", "c[:, k] *= slopes[:, k]", "pass", UNIT_NETWORK),
    Break("reasons/stages.py", "if easy and tree", "if len(units) <= EASY_UNITS and tree", BOUND_ORDERS),
    Break("reasons/bound_orders.py", "return bounds[0] - bounds[1:]", "return bounds[1:]", BOUND_ORDERS),
    Break("reasons/bound_orders.py", "len(units) <= most_units", "len(units) > 0", BOUND_ORDERS),
    Break("reasons/deletion.py", "refused, size = size, size // (", "size = size // (", BOUND_ORDERS),
    Break("reasons/witnesses.py", " | (family.mask == groups.view(-1, *[1] * len(family.shape)))", "", SUFFICIENT),
    Break("reasons/witnesses.py", "blocks = (flat != flat[0]).any(0)", "blocks = (flat == flat[0]).any(0)", WITNESSES),
    Break(
        "reasons/problem.py",
        "allowed = ~((~self.boxes.inside[:, 1:]) & ~free).any(1)",
        "allowed = self.boxes.inside[:, 1:].all(1)",
        SUFFICIENT,
    ),
    Break(
        "reasons/overlap_prover.py",
        "open_ = (upper >= self.limit).nonzero().flatten()",
        "open_ = (upper >= self.limit + 1).nonzero().flatten()",
        SUFFICIENT,
    ),
    Break(
        "explainers/methods/set_explainer.py",
        "if within is None else within",
        "if within is None else 2 * within",
        SUFFICIENT,
    ),
]


def seen(entry: Break, folder: Path) -> bool:
    """Return whether the tests fail in a copy of the tree with this one change."""
    tree = folder / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".*", "__pycache__", "out"))
    file = entry.path(tree)
    text = file.read_text(encoding="utf-8")
    if entry.old not in text:
        sys.exit(f"{entry.file} has no line with {entry.old!r} any more: write the entry anew")
    file.write_text(text.replace(entry.old, entry.new), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", entry.tests]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    shutil.rmtree(tree)
    return done.returncode == 1


def main() -> None:
    """Try every entry, or those that contain a word."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="entries whose file or line contains this")
    args = parser.parse_args()
    chosen = [entry for entry in BREAKS if args.only in f"{entry.file} {entry.old}"]
    missed = 0
    with tempfile.TemporaryDirectory() as folder:
        for entry in chosen:
            red = seen(entry, Path(folder))
            missed += not red
            print(
                f"{'red  ' if red else 'GREEN'}  {entry.file}: {entry.old.strip()} -> {entry.new.strip()}", flush=True
            )
    print(f"{len(chosen) - missed} of {len(chosen)} seen")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
