// A small GPT-2's checkpoint whose every value says which step it is of.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "mantissa/formats/weight_files.h"
#include "mantissa/nn/decoder/family.h"
#include "mantissa/train/checkpoint.h"
#include "tests/support/gpt2_parameters.h"

namespace mantissa {

class ExampleCheckpoint {
  public:
    explicit ExampleCheckpoint(int step, std::int64_t channels = 4) : step_(step) {
        for (const testing::Gpt2Parameter& parameter :
             testing::gpt2_parameters({.layers = 1, .channels = channels, .vocabulary = 11, .context = 3})) {
            const auto count = static_cast<std::size_t>(element_count(parameter.shape));
            const auto& data = values_.emplace_back(count, static_cast<float>(step));
            const auto* bytes = reinterpret_cast<const std::byte*>(data.data());
            model_.push_back({{parameter.name, DType::f32, parameter.shape, bytes}});
            moments_.push_back({{"m." + parameter.name, DType::f32, parameter.shape, bytes}});
        }
        model_ = stored_weights(std::move(model_), nn::decoder_files(nn::decoder_config("gpt2-tiny")));
    }
    ExampleCheckpoint(const ExampleCheckpoint&) = delete;

    CheckpointToSave to_save() const {
        return {.model = model_,
                .optimizer = moments_,
                .texts = {{"state.json", fmt::format("{{\"step\": {}}}", step_)}, {"config.json", "{}"}}};
    }

  private:
    int step_;
    std::vector<std::vector<float>> values_;
    std::vector<TensorToWrite> model_, moments_;
};

/// The step that all of `loaded` is of: throws if its parts are of different ones.
inline int step_of(const LoadedCheckpoint& loaded) {
    const int step = std::stoi(loaded.texts.at("state.json").substr(std::strlen("{\"step\": ")));
    for (const SafetensorsFile* file : {&loaded.model, &*loaded.optimizer})
        for (const TensorView& tensor : file->views())
            for (std::int64_t i = 0; i < element_count(tensor.shape); ++i) {
                float value;
                std::memcpy(&value, tensor.data + 4 * i, 4);
                if (value != static_cast<float>(step))
                    throw std::runtime_error(tensor.name + " is of another step");
            }
    return step;
}

}  // namespace mantissa
