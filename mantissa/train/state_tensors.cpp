#include "mantissa/train/state_tensors.h"

namespace mantissa::inline v0 {

std::vector<TensorSpec> specs_of(const StateBlock& block, Chosen chosen) {
    std::vector<TensorSpec> specs;
    for (const State& state : block.states())
        if (chosen(state)) specs.push_back({state.name, state.type.dtype, state.type.shape.extents()});
    return specs;
}

std::vector<TensorToWrite> tensors_of(const StateBlock& block, Chosen chosen) {
    std::vector<TensorToWrite> tensors;
    for (const TensorSpec& spec : specs_of(block, chosen)) {
        TensorToWrite& tensor = tensors.emplace_back();
        tensor.tensor = {spec.name, spec.dtype, spec.shape};
        tensor.read = [&block, name = spec.name](std::uint64_t begin, std::span<std::byte> to) {
            block.read(name, static_cast<std::int64_t>(begin), to);
        };
    }
    return tensors;
}

}  // namespace mantissa
