#include "mantissa/passes/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "mantissa/base/error.h"
#include "mantissa/numerics/short_formats.h"
#include "mantissa/passes/operand_blocks.h"

namespace mantissa::inline v0 {

namespace {

Policy make(const char* name, std::optional<DType> low, const char* multiply = "", const char* weights = "") {
    Policy policy;
    policy.name = name;
    policy.low = low;
    policy.multiply = multiply;
    policy.weights = weights;
    return policy;
}

Policy with(const char* name, const OperandBlocks& blocks) {
    Policy policy = make(name, DType::bf16);
    policy.blocks = &blocks;
    return policy;
}

/// Blocks of 32 of one format, with scales that are powers of two.
constexpr OperandBlocks in_blocks(ShortFormat element, ScaleRule rule) {
    return {.element = element, .gradient_element = element, .rule = rule};
}
constexpr OperandBlocks mxfp8 = in_blocks(ShortFormat::e4m3, ScaleRule::up),
                        mxfp6 = in_blocks(ShortFormat::e3m2, ScaleRule::up),
                        mxfp6_e2m3 = in_blocks(ShortFormat::e2m3, ScaleRule::up),
                        mxfp4 = in_blocks(ShortFormat::e2m1, ScaleRule::floor),
                        mxfp4_up = in_blocks(ShortFormat::e2m1, ScaleRule::up);

/// One scale a tensor, from its own largest number: NVIDIA's current scaling.
constexpr OperandBlocks current_scaling{
    .element = ShortFormat::e4m3, .gradient_element = ShortFormat::e5m2, .rule = ScaleRule::tensor};
/// One scale a tensor, from earlier steps: NVIDIA's delayed scaling, with its length of the histories.
constexpr OperandBlocks delayed_scaling{.element = ShortFormat::e4m3,
                                        .gradient_element = ShortFormat::e5m2,
                                        .rule = ScaleRule::tensor,
                                        .history = 1024};
/// As DeepSeek-V3 has it, with scales that are powers of two.
constexpr OperandBlocks blocks_of_128{.element = ShortFormat::e4m3,
                                      .gradient_element = ShortFormat::e4m3,
                                      .rule = ScaleRule::up,
                                      .size = 128,
                                      .square_weights = true};
/// arXiv 2509.25149: of 62 blocks of layers the first 2 and the last 8 stay in BF16.
constexpr OperandBlocks two_levels{.element = ShortFormat::e2m1,
                                   .gradient_element = ShortFormat::e2m1,
                                   .rule = ScaleRule::two_level,
                                   .size = 16,
                                   .square_weights = true,
                                   .stochastic_gradients = true,
                                   .hadamard = true,
                                   .kept_first = 2.0 / 62,
                                   .kept_last = 8.0 / 62};

const std::array<Policy, 15>& policies() {
    static const std::array<Policy, 15> all = {make("fp32", {}),
                                               make("tf32", {}, "tf32"),
                                               make("bf16", DType::bf16),
                                               make("fp16", DType::f16),
                                               with("fp8", current_scaling),
                                               with("fp8-delayed", delayed_scaling),
                                               with("fp8-block", blocks_of_128),
                                               with("mxfp8", mxfp8),
                                               with("mxfp6", mxfp6),
                                               with("mxfp6-e2m3", mxfp6_e2m3),
                                               with("mxfp4", mxfp4),
                                               with("mxfp4-up", mxfp4_up),
                                               with("nvfp4", two_levels),
                                               make("int8", DType::bf16, "", "s8"),
                                               make("int4", DType::bf16, "", "s4")};
    return all;
}

}  // namespace

std::string OperandBlocks::text() const {
    std::string text(limits_of(element).name);
    if (gradient_element != element) text += fmt::format(" (gradients {})", limits_of(gradient_element).name);
    if (history > 0)
        return text +
               fmt::format(", a scale a tensor, of the last {} micro-batches (weights: their own)", history);
    if (rule == ScaleRule::tensor) return text + ", a scale a tensor";
    text += fmt::format(" in blocks of {}", size);
    if (square_weights) text += fmt::format(" (weights {0} x {0})", size);
    text += rule == ScaleRule::two_level ? ", scales e4m3 and one a tensor"
            : rule == ScaleRule::up      ? ", scales rounded up"
                                         : ", scales rounded down";
    if (stochastic_gradients) text += ", gradients rounded at random";
    if (hadamard) text += ", Hadamard transforms for the filter gradient";
    return text;
}

Policy::Policy(const char* known) : Policy(find_policy(known)) {}
Policy::Policy(const std::string& known) : Policy(find_policy(known)) {}

Policy find_policy(std::string_view name) {
    for (const Policy& policy : policies())
        if (policy.name == name) return policy;
    throw UserError(fmt::format("there is no policy '{}'; there are {}, and for inference {}", name,
                                fmt::join(policy_names(), ", "), fmt::join(inference_policy_names(), ", ")));
}

std::vector<std::string> policy_names() {
    std::vector<std::string> names;
    for (const Policy& policy : policies())
        if (policy.weights.empty()) names.push_back(policy.name);
    return names;
}

std::vector<std::string> sixteen_bit_policy_names() {
    std::vector<std::string> names = policy_names();
    std::erase_if(names, [](const std::string& name) { return find_policy(name).blocks != nullptr; });
    return names;
}

std::vector<std::string> inference_policy_names() {
    std::vector<std::string> names;
    for (const Policy& policy : policies())
        if (!policy.weights.empty()) names.push_back(policy.name);
    return names;
}

Policy emulated(std::string_view format) {
    for (const Policy& policy : policies())
        if (policy.name == format && policy.weights.empty() && !policy.blocks && !policy.changes_nothing()) {
            Policy made;
            made.name = fmt::format("emulated {}", format);
            made.emulate = policy.low ? std::string(name_of(*policy.low)) : policy.multiply;
            return made;
        }
    if (std::ranges::any_of(policies(),
                            [&](const Policy& policy) { return policy.blocks && policy.name == format; }))
        throw UserError(
            fmt::format("{} is a policy of its own, seen on any machine: give it as the policy", format));
    throw UserError(fmt::format("there is no format '{}' to emulate; there are tf32, bf16, fp16", format));
}

}  // namespace mantissa
