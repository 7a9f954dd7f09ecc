#include "mantissa/data/batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/data/permutation.h"

namespace mantissa::inline v0 {

namespace {

bool is_whole(const nn::InputSpec& input) { return input.batch_axis == nn::BatchAxis::none; }

[[noreturn]] void refuse_size(const nn::Model& model, const nn::InputSpec& input, std::int64_t examples,
                              std::int64_t got) {
    const std::string type = Type{input.dtype, input.shape}.text();
    const std::int64_t numbers = input.type(examples).shape.elements();
    throw UserError(is_whole(input)
                        ? fmt::format("model {}: input '{}' has no batch axis, it is one {}, {}, got {}",
                                      model.name, input.name, type, count_text(numbers, "number"), got)
                        : fmt::format("model {}: input '{}' of a step has {} of {}, {}, got {}", model.name,
                                      input.name, count_text(examples, "example"), type,
                                      count_text(numbers, "number"), got));
}

}  // namespace

std::uint64_t BatchSource::counted(std::uint64_t) const { return 1; }

DataPlace BatchSource::place_at(std::uint64_t step) const { return {.step = step}; }

std::string BatchSource::go_on_from(const DataPlace&) { return ""; }

std::string order_text(const BatchOptions& options) {
    if (options.order == BatchOrder::sequential) return "in their order";
    return fmt::format("in the random order of seed {}", options.seed);
}

void require_fit(const Batch& batch, const nn::Model& model, std::int64_t examples) {
    const std::size_t given = batch.values().size();
    if (given != model.inputs.size())
        throw UserError(fmt::format(
            "model {} takes {} inputs, got {}{}", model.name, model.inputs.size(), given,
            given < model.inputs.size() ? fmt::format("; '{}' is missing", model.inputs[given].name) : ""));
    for (std::size_t i = 0; i < given; ++i) {
        const nn::InputSpec& input = model.inputs[i];
        const HostValues& values = batch.values()[i];
        if (values.dtype != input.dtype)
            throw UserError(fmt::format("model {}: input '{}' is {}, got {}", model.name, input.name,
                                        name_of(input.dtype), name_of(values.dtype)));
        const auto size = static_cast<std::int64_t>(size_of(input.dtype));
        const auto got = static_cast<std::int64_t>(values.bytes.size());
        if (got != input.type(examples).bytes()) refuse_size(model, input, examples, got / size);
    }
}

std::int64_t examples_in(const Batch& batch, const nn::Model& model) {
    const auto first = std::ranges::find_if_not(model.inputs, is_whole);
    const auto index = static_cast<std::size_t>(first - model.inputs.begin());
    if (first == model.inputs.end() || index >= batch.values().size()) return 0;
    const std::int64_t of_one = std::max<std::int64_t>(1, first->type(1).bytes());
    return static_cast<std::int64_t>(batch.values()[index].bytes.size()) / of_one;
}

namespace {

/// The shape of an input's values without the batch axis, if they have one of the model's rank.
std::optional<Shape> given_shape(const HostValues& values, const nn::InputSpec& input) {
    const std::size_t before = is_whole(input) ? 0 : 1;
    if (!values.shape || values.shape->extents().size() != input.shape.extents().size() + before) return {};
    const auto extents = std::span(values.shape->extents()).subspan(before);
    return Shape(std::vector<std::int64_t>(extents.begin(), extents.end()));
}

/// Number of examples of these shapes; none if inputs differ in it, or it is not whole.
std::optional<std::int64_t> examples_of(const Batch& batch, const nn::Model& model,
                                        const std::vector<Shape>& shapes) {
    if (batch.values().size() != model.inputs.size()) return {};
    std::optional<std::int64_t> examples;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
        const HostValues& values = batch.values()[i];
        const std::int64_t each = Type{model.inputs[i].dtype, shapes[i]}.bytes();
        const std::int64_t bytes = std::ssize(values.bytes);
        const std::int64_t count =
            is_whole(model.inputs[i]) ? 1 : examples.value_or(each > 0 ? bytes / each : 0);
        if (values.dtype != model.inputs[i].dtype || count < 1 || bytes != count * each) return {};
        if (!is_whole(model.inputs[i])) examples = count;
    }
    return examples;
}

}  // namespace

BatchShape shape_of(const Batch& batch, const nn::Model& model, std::int64_t examples) {
    BatchShape shape{.inputs = {}, .examples = examples};
    for (std::size_t i = 0; i < model.inputs.size(); ++i) {
        const nn::InputSpec& input = model.inputs[i];
        const bool may_vary = model.shapes_vary && i < batch.values().size();
        shape.inputs.push_back(
            (may_vary ? given_shape(batch.values()[i], input) : std::nullopt).value_or(input.shape));
    }
    if (const auto given = examples_of(batch, model, shape.inputs))
        shape.examples = *given;
    else
        require_fit(batch, in_shape(model, shape), examples);
    return shape;
}

nn::Model in_shape(nn::Model model, const BatchShape& shape) {
    for (std::size_t i = 0; i < model.inputs.size(); ++i) model.inputs[i].shape = shape.inputs[i];
    return model;
}

BatchBuffer::BatchBuffer(const nn::Model& model, std::int64_t batch, std::int64_t accumulate,
                         std::int64_t first)
    : accumulate_(accumulate), first_(first) {
    for (const nn::InputSpec& input : model.inputs)
        inputs_.push_back({input.dtype, input.type(batch).bytes(), is_whole(input), {}});
}

std::int64_t BatchBuffer::bytes() const {
    std::int64_t sum = 0;
    for (const Input& input : inputs_) sum += input.is_whole ? input.size : accumulate_ * input.size;
    return sum;
}

Batch BatchBuffer::fill(const BatchSource& source, std::uint64_t step) {
    for (Input& input : inputs_)
        input.bytes.resize(static_cast<std::size_t>(input.is_whole ? input.size : accumulate_ * input.size));
    for (std::int64_t micro_batch = 0; micro_batch < accumulate_; ++micro_batch) {
        std::vector<std::span<std::byte>> parts;
        for (Input& input : inputs_) {
            const auto part = static_cast<std::size_t>(input.size);
            const std::size_t first = input.is_whole ? 0 : static_cast<std::size_t>(micro_batch) * part;
            parts.push_back(std::span(input.bytes).subspan(first, part));
        }
        source.fill(step, first_ + micro_batch, parts);
    }
    std::vector<HostValues> values;
    for (const Input& input : inputs_) values.emplace_back(input.dtype, input.bytes);
    return Batch(std::move(values));
}

ReadingOrder::ReadingOrder(Options options)
    : options_(std::move(options)), place_{.per_step = options_.per_step} {}

std::uint64_t ReadingOrder::per_epoch() const {
    if (!options_.in_whole_steps) return options_.examples;
    return std::max<std::uint64_t>(1, options_.examples / place_.per_step) * place_.per_step;
}

DataPlace ReadingOrder::place_at(std::uint64_t step) const {
    return {.step = step,
            .examples = number_of(step, 0),
            .per_step = place_.per_step,
            .per_epoch = per_epoch(),
            .epoch = options_.epoch};
}

std::string ReadingOrder::go_on_from(const DataPlace& place) {
    place_ = {.step = place.step, .examples = place.examples, .per_step = place.per_step};
    if (place_.per_step == 0) place_.per_step = options_.per_step;
    if (place.epoch.empty() || place.epoch == options_.epoch) return "";
    place_.per_step = options_.per_step;
    const std::uint64_t before = place.per_epoch > 0 ? place.per_epoch : options_.examples;
    place_.examples = ceil_div(place.examples, before) * per_epoch();
    return fmt::format("an epoch was {} and is {} now, so a new one begins", place.epoch, options_.epoch);
}

}  // namespace mantissa
