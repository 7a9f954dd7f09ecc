#include "mantissa/train/weights.h"

#include "mantissa/formats/safetensors.h"
#include "mantissa/formats/weight_files.h"
#include "mantissa/graph/graph.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/state_tensors.h"

namespace mantissa::inline v0 {

UnfitWeights load_weights(const nn::Model& model, const std::filesystem::path& path, StateBlock& state,
                          Match match) {
    const SafetensorsModel file(path);
    const std::vector<TensorView> views = file.views();
    return read_weights(
        views, specs_of(state, is_own_weight), nn::files_of(model), file.source(),
        [&](const TensorSpec& spec, std::span<const std::byte> value) {
            state.write(spec.name, value);
            file.release();
        },
        match);
}

void save_weights(const nn::Model& model, const StateBlock& state, const std::filesystem::path& path) {
    const std::vector<TensorToWrite> stored =
        stored_weights(tensors_of(state, is_weight), nn::files_of(model));
    write_safetensors(path, std::span<const TensorToWrite>(stored), {{"format", "pt"}});
}

}  // namespace mantissa
