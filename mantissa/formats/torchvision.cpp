#include "mantissa/formats/torchvision.h"

namespace mantissa::inline v0 {

namespace {

StoredWeight stored_there(const TensorSpec& parameter) {
    if (parameter.shape.size() == 4) return {parameter.name, {.axes = {3, 2, 0, 1}}};
    if (parameter.name != "classifier.0.weight" || parameter.shape.size() != 2) return {parameter.name, {}};
    const std::int64_t channels = parameter.shape[1] / (vgg_pixels * vgg_pixels);
    return {parameter.name,
            {.axes = {0, 3, 1, 2}, .seen_as = {parameter.shape[0], vgg_pixels, vgg_pixels, channels}}};
}

bool is_count(std::string_view name) { return name.ends_with(".num_batches_tracked"); }

}  // namespace

WeightFiles torchvision_files(const std::string& network) {
    // ResNet50's convolutions have biases here, as in Keras; torchvision's have none.
    const std::string kind = network == "ResNet50"
                                 ? "a state dict of ResNet50 with biases in its convolutions; torchvision's "
                                   "resnet50 is ResNet50v1.5"
                                 : "a state dict of " + network + " under torchvision's names";
    return {.kind = kind, .stored = stored_there, .ignored = is_count};
}

}  // namespace mantissa
