#include "mantissa/nn/documents.h"

#include "mantissa/base/error.h"

namespace mantissa::inline v0::nn {

std::vector<InputSpec> text_inputs(std::int64_t sequence, Documents documents) {
    std::vector<InputSpec> inputs = {{"tokens", DType::i32, {sequence}}, {"targets", DType::i32, {sequence}}};
    if (documents == Documents::packed) {
        inputs.push_back({"documents", DType::i32, {sequence}});
        inputs.push_back({"positions", DType::i32, {sequence}});
        inputs.push_back({"counted", DType::f32, {}});
    }
    return inputs;
}

void add_to(Configuration& configuration, Documents documents) {
    if (documents == Documents::packed) configuration.push_back({"documents", std::string("packed")});
}

PackedInputs packed_inputs(std::span<const Tensor> inputs) {
    if (inputs.size() != 5)
        throw UserError("packed documents are five inputs, as text_inputs names them, got " +
                        std::to_string(inputs.size()));
    return {.tokens = inputs[0],
            .targets = inputs[1],
            .places = {.documents = inputs[2], .positions = inputs[3]},
            .counted = inputs[4]};
}

Tensor in_one_document(Tensor documents) {
    const std::int64_t B = documents.dim(0), T = documents.dim(1);
    return equal(reshape(documents, {B, 1, T, 1}), reshape(documents, {B, 1, 1, T}));
}

Tensor loss_of_text(Tensor logits, Tensor targets, const Mode& mode) {
    return mode.may_lack_targets() ? counted_cross_entropy(logits, targets) : cross_entropy(logits, targets);
}

Tensor loss_of_documents(Tensor logits, const PackedInputs& inputs) {
    const Tensor counted = reshape(slice(inputs.counted, 0, 0, 1), {});
    return counted_cross_entropy(logits, inputs.targets, counted);
}

}  // namespace mantissa::nn
