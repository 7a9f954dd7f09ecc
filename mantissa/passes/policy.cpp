#include "mantissa/passes/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

#include "mantissa/base/error.h"

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

const std::array<Policy, 6>& policies() {
    static const std::array<Policy, 6> all = {make("fp32", {}),
                                              make("tf32", {}, "tf32"),
                                              make("bf16", DType::bf16),
                                              make("fp16", DType::f16),
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

std::vector<std::string> inference_policy_names() {
    std::vector<std::string> names;
    for (const Policy& policy : policies())
        if (!policy.weights.empty()) names.push_back(policy.name);
    return names;
}

Policy emulated(std::string_view format) {
    for (const Policy& policy : policies())
        if (policy.name == format && policy.weights.empty() && !policy.changes_nothing()) {
            Policy made;
            made.name = fmt::format("emulated {}", format);
            made.emulate = policy.low ? std::string(name_of(*policy.low)) : policy.multiply;
            return made;
        }
    throw UserError(fmt::format("there is no format '{}' to emulate; there are tf32, bf16, fp16", format));
}

}  // namespace mantissa
