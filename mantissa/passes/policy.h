// A precision policy: the formats that a model computes in, by one word.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0 {

struct OperandBlocks;  // passes/operand_blocks.h

struct Policy {
    Policy() = default;  ///< fp32
    /// As find_policy.
    Policy(const char* name);         // NOLINT(google-explicit-constructor): a policy is one word
    Policy(const std::string& name);  // NOLINT(google-explicit-constructor)

    std::string name = "fp32";
    std::optional<DType> low = {};  ///< the format of contractions' operands; none: as they are
    std::string multiply = {};      ///< how FP32 operands are multiplied: "tf32", or empty for FP32
    /// The format that contractions' FP32 operands are rounded to, to emulate a machine that multiplies it:
    /// tf32, bf16, f16, or empty.
    std::string emulate = {};
    /// The format that the weights of linear layers are quantised to: "s8" or "s4", for inference only; or
    /// empty. See quantize.h.
    std::string weights = {};
    const OperandBlocks* blocks = nullptr;  ///< of a table; null: operands have sixteen bits or more

    bool changes_nothing() const { return !low && multiply.empty(); }
    /// FP16's range is small; other formats have FP32's.
    bool needs_loss_scale() const { return low == DType::f16 || emulate == "f16"; }
};

/// One of policy_names() or inference_policy_names(). Throws UserError, naming these, for any other.
Policy find_policy(std::string_view name);
/// Policies that can train a model; the ones among them that keep sixteen bits or more, which reports compare
/// by default; and policies for inference, which can only run a model.
std::vector<std::string> policy_names();
std::vector<std::string> sixteen_bit_policy_names();
std::vector<std::string> inference_policy_names();

/// FP32 with contractions' operands rounded to a format first: tf32, bf16 or fp16, as policies are called.
/// Throws UserError, naming these, for any other.
Policy emulated(std::string_view format);

}  // namespace mantissa
