#include "mantissa/train/weights.h"

#include "mantissa/formats/safetensors.h"
#include "mantissa/train/state_tensors.h"

namespace mantissa::inline v0 {

void load_weights(const nn::Model& model, const std::filesystem::path& path, StateBlock& state) {
    const SafetensorsModel file(path);
    const std::vector<TensorView> views = file.views();
    read_weights(
        views, specs_of(state, is_weight), model.files, file.source(),
        [&](const TensorSpec& spec, std::span<const std::byte> value) { state.write(spec.name, value); });
}

void save_weights(const nn::Model& model, const StateBlock& state, const std::filesystem::path& path) {
    const std::vector<TensorToWrite> stored = stored_weights(tensors_of(state, is_weight), model.files);
    write_safetensors(path, std::span<const TensorToWrite>(stored), {{"format", "pt"}});
}

}  // namespace mantissa
