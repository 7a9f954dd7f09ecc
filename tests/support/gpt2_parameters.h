// The parameters in a GPT-2 checkpoint, listed for tests that write one.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/gpt2.h"

namespace mantissa::testing {

struct Gpt2Parameter {
    std::string name;  ///< "wte.weight", "h.0.ln_1.weight"...: without the prefix "transformer."
    std::vector<std::int64_t> shape;  ///< in memory: matrices of linear layers are [out, in]
};

/// All parameters of a model, each once (the head is `wte.weight`), in layer order.
inline std::vector<Gpt2Parameter> gpt2_parameters(const nn::Gpt2Config& sizes) {
    const std::int64_t C = sizes.channels;
    std::vector<Gpt2Parameter> list = {{"wte.weight", {sizes.vocabulary, C}},
                                       {"wpe.weight", {sizes.context, C}}};
    const auto add = [&](const std::string& name, std::vector<std::int64_t> weight) {
        const std::int64_t out = weight[0];
        list.push_back({name + ".weight", std::move(weight)});
        if (sizes.bias) list.push_back({name + ".bias", {out}});
    };
    for (std::int64_t i = 0; i < sizes.layers; ++i) {
        const std::string layer = fmt::format("h.{}.", i);
        add(layer + "ln_1", {C});
        add(layer + "attn.c_attn", {3 * C, C});
        add(layer + "attn.c_proj", {C, C});
        add(layer + "ln_2", {C});
        add(layer + "mlp.c_fc", {4 * C, C});
        add(layer + "mlp.c_proj", {C, 4 * C});
    }
    add("ln_f", {C});
    return list;
}

}  // namespace mantissa::testing
