#include "mantissa/passes/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "mantissa/base/error.h"
#include "mantissa/numerics/short_formats.h"

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

Policy in_blocks(const char* name, ShortFormat element, ScaleRule rule) {
    Policy policy = make(name, DType::bf16);
    policy.blocks = OperandBlocks{.element = element, .rule = rule};
    return policy;
}

const std::array<Policy, 11>& policies() {
    static const std::array<Policy, 11> all = {make("fp32", {}),
                                               make("tf32", {}, "tf32"),
                                               make("bf16", DType::bf16),
                                               make("fp16", DType::f16),
                                               in_blocks("mxfp8", ShortFormat::e4m3, ScaleRule::up),
                                               in_blocks("mxfp6", ShortFormat::e3m2, ScaleRule::up),
                                               in_blocks("mxfp6-e2m3", ShortFormat::e2m3, ScaleRule::up),
                                               in_blocks("mxfp4", ShortFormat::e2m1, ScaleRule::floor),
                                               in_blocks("mxfp4-up", ShortFormat::e2m1, ScaleRule::up),
                                               make("int8", DType::bf16, "", "s8"),
                                               make("int4", DType::bf16, "", "s4")};
    return all;
}

}  // namespace

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
    std::erase_if(names, [](const std::string& name) { return find_policy(name).blocks.has_value(); });
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
