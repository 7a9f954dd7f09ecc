// Parameters of a language model by which its scores differ.
#pragma once

#include <memory>
#include <vector>

#include "mantissa/runtime/state_block.h"
#include "mantissa/train/generate.h"

namespace mantissa::testing {

/// Ten times those of a fresh model, so that the scores differ and attention has something to choose.
inline std::unique_ptr<StateBlock> tenfold_parameters(Device& device, const nn::LanguageModel& model) {
    auto parameters = std::make_unique<StateBlock>(device, TokenGenerator(device, model, 1).parameters());
    parameters->initialize(3);
    for (const State& state : parameters->states()) {
        if (state.initializer.kind != Initializer::Kind::normal) continue;
        std::vector<float> values = parameters->read_f32(state.name);
        for (float& x : values) x *= 10;
        parameters->write(state.name, std::as_bytes(std::span<const float>(values)));
    }
    return parameters;
}

}  // namespace mantissa::testing
