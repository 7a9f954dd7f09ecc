// Autocast: rewrites a forward pass so that each operation runs in the formats that a policy gives its class.
//
//   %1: f32 = matmul(%x, %w), %2: f32 = softmax(%1)
// becomes, under bf16,
//   %1 = cast(%x) {bf16}, %2 = cast(%w) {bf16}, %3: bf16 = matmul(%1, %2), %4 = cast(%3) {f32}, %5: f32 =
//   softmax(%4)
//
// It runs before differentiation, so that the gradient of a BF16 multiply is a BF16 multiply by itself. The
// classes are columns of the op table and follow the lists that CUDA users know; docs/numerics.md has the
// table. FP64 and integers are never cast. Each node that a rule decided carries the rule's name in its
// origin.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

/// What a precision policy asks for.
struct Policy {
    std::string name = "fp32";
    std::optional<DType> low = {};  ///< the format of contractions' operands; none: as they are
    std::string multiply = {};      ///< how FP32 operands are multiplied: "tf32", or empty for FP32
    /// What contractions' FP32 operands are rounded to, to simulate a machine that multiplies it: tf32, bf16,
    /// f16, or empty.
    std::string simulate = {};
    /// What the weights of linear layers are quantised to: "s8" or "s4", for inference only; or empty. See
    /// quantize.h.
    std::string weights = {};

    bool changes_nothing() const { return !low && multiply.empty(); }
    /// FP16's range is small; all others have FP32's.
    bool needs_loss_scale() const { return low == DType::f16 || simulate == "f16"; }
};

/// fp32, tf32, bf16, fp16, int8 or int4. Throws UserError, naming those there are, for any other.
Policy find_policy(std::string_view name);
/// Those in which a model can be trained; and those for inference, with which it can only be run.
std::vector<std::string> policy_names();
std::vector<std::string> inference_policy_names();

/// FP32 with contractions' operands rounded to a format first: tf32, bf16 or fp16, as policies are called.
/// Throws UserError, naming those there are, for any other.
Policy simulated(std::string_view format);

/// `graph` holds a forward pass. `loss` is a value of it; its new place is returned in `loss`.
Graph autocast(const Graph& graph, const Policy& policy, Value& loss);

}  // namespace mantissa
