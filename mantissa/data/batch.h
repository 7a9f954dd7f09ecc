// The values of each of a model's inputs for a step, from a source that makes them from the step's number and
// the place that a run went on from.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "mantissa/nn/model.h"

namespace mantissa::inline v0 {

struct BF16;
struct FP16;

/// The storage type of numbers of C++.
template <class T>
constexpr DType dtype_of() {
    if constexpr (std::same_as<T, float>)
        return DType::f32;
    else if constexpr (std::same_as<T, double>)
        return DType::f64;
    else if constexpr (std::same_as<T, std::int32_t>)
        return DType::i32;
    else if constexpr (std::same_as<T, std::int64_t>)
        return DType::i64;
    else if constexpr (std::same_as<T, std::uint8_t>)
        return DType::u8;
    else if constexpr (std::same_as<T, std::int8_t>)
        return DType::s8;
    else if constexpr (std::same_as<T, BF16>)
        return DType::bf16;
    else {
        static_assert(std::same_as<T, FP16>, "tensors are not stored in this type");
        return DType::f16;
    }
}

/// The values of one input, in the host's memory, which must outlive their use.
struct HostValues {
    DType dtype = DType::f32;
    std::span<const std::byte> bytes;
    /// The shape of all of them, the batch axis among it; none: that of the model's input.
    std::optional<Shape> shape = {};

    HostValues(DType type, std::span<const std::byte> values, std::optional<Shape> of = {})
        : dtype(type), bytes(values), shape(std::move(of)) {}
    /// The numbers of a vector, a span, an array.
    template <class Range>
    requires(!std::same_as<std::remove_cvref_t<Range>, HostValues>) && requires(const Range& range) {
        std::data(range);
        std::size(range);
    }
    HostValues(const Range& values)  // NOLINT: implicit, so that step({x, y}, rate) reads as it does
        : dtype(dtype_of<std::remove_cvref_t<decltype(*std::data(values))>>()),
          bytes(std::as_bytes(std::span(std::data(values), std::size(values)))) {}
};

/// The values of all inputs of a model in their order. Of a step: all of its micro-batches, one after
/// another, each input [N, B, ...]; one without a batch axis once, for all of them.
class Batch {
  public:
    Batch(std::initializer_list<HostValues> values) : values_(values) {}
    explicit Batch(std::vector<HostValues> values) : values_(std::move(values)) {}

    const std::vector<HostValues>& values() const { return values_; }

  private:
    std::vector<HostValues> values_;
};

/// Throws UserError, naming model and input, unless the batch has the values of `examples` examples for each
/// input of the model, in its type.
void require_fit(const Batch& batch, const nn::Model& model, std::int64_t examples);
/// How many whole examples of the model's first input with a batch axis a batch has; the others may have
/// another number.
std::int64_t examples_in(const Batch& batch, const nn::Model& model);

/// The shapes of a batch: of each input without its batch axis, and how many examples.
struct BatchShape {
    std::vector<Shape> inputs;
    std::int64_t examples = 0;
    bool operator==(const BatchShape&) const = default;
};

/// The shapes of a batch that a model may be given instead of its own (nn::Model::shapes_vary) with another
/// number of examples. Throws UserError, as require_fit does for so many `examples`, for one that it may not.
BatchShape shape_of(const Batch& batch, const nn::Model& model, std::int64_t examples);
/// The model for inputs of these shapes.
nn::Model in_shape(nn::Model model, const BatchShape& shape);

/// In which order a source takes its examples.
enum class BatchOrder : std::uint8_t {
    sequential,  ///< from the first on, and over again
    random       ///< each once an epoch, in an order that follows from seed and epoch
};

/// How many examples of a step come from where.
struct BatchOptions {
    std::int64_t batch = 1;       ///< B: examples of a micro-batch
    std::int64_t accumulate = 1;  ///< N: micro-batches of a step
    BatchOrder order = BatchOrder::sequential;
    std::uint64_t seed = 0;  ///< of the random order
    /// Sequential: an epoch has every example, also those that do not fill a step. What its last step lacks
    /// counts for nothing, where the source can say so (targets below 0).
    bool all = false;
};

/// How far a run has read its data: in examples and not in steps, so that it goes on there with steps of
/// another size.
struct DataPlace {
    std::uint64_t step = 0;       ///< that comes next
    std::uint64_t examples = 0;   ///< windows of a text, images: read before it, from the first epoch on
    std::uint64_t per_step = 0;   ///< examples of a step when the run began
    std::uint64_t per_epoch = 0;  ///< 0: not known
    /// The epoch in words that are equal where its examples and their order are; empty: not known.
    std::string epoch = {};

    bool operator==(const DataPlace&) const = default;
};

/// The examples of a source, numbered in the order in which a run reads them.
class ReadingOrder {
  public:
    struct Options {
        std::uint64_t examples = 1;  ///< that there are
        std::uint64_t per_step = 1;
        /// An epoch is as many whole steps, of the size that the run began with, as there are examples for.
        bool in_whole_steps = false;
        std::string epoch = {};  ///< as DataPlace::epoch
    };

    ReadingOrder() = default;
    explicit ReadingOrder(Options options);

    /// The number of example `within` of a step, counted on over all epochs.
    std::uint64_t number_of(std::uint64_t step, std::uint64_t within) const {
        return place_.examples + (step - place_.step) * options_.per_step + within;
    }
    std::uint64_t per_epoch() const;
    DataPlace place_at(std::uint64_t step) const;

    /// Steps from the place's on take what follows on it; where an epoch is another now, they begin the next
    /// one. Returns that in words; empty: they go on in the same.
    std::string go_on_from(const DataPlace& place);

  private:
    Options options_;
    DataPlace place_{.per_step = 1};
};

/// Where batches come from. What a step reads is a function of its number, and of the place from which a run
/// went on.
class BatchSource {
  public:
    virtual ~BatchSource() = default;

    /// Writes the values [B, ...] of each of the model's inputs for one micro-batch; those of an input
    /// without a batch axis whole, the same in every micro-batch.
    virtual void fill(std::uint64_t step, std::int64_t micro_batch,
                      std::span<const std::span<std::byte>> inputs) const = 0;
    /// Steps until every example was read once; rounded down.
    virtual std::uint64_t steps_per_epoch() const = 0;
    /// The origin of the values in words that are equal where the values are: two runs that are to be one
    /// must agree in it.
    virtual std::string description() const = 0;
    /// Over how much the loss of a step is a mean, so that losses of several steps make one mean: 1 where all
    /// steps weigh the same.
    virtual std::uint64_t counted(std::uint64_t step) const;

    /// How far the steps before this one read, for a checkpoint; and what puts a source there, before its
    /// next step is filled. See ReadingOrder. A source that is not read through has neither.
    virtual DataPlace place_at(std::uint64_t step) const;
    virtual std::string go_on_from(const DataPlace& place);
};

/// Examples that a caller has in memory, as a source of batches.
class Examples : public BatchSource {
  public:
    /// All examples: the values [count, ...] of each of the model's inputs (one without a batch axis: its
    /// whole value). They are copied. Throws UserError if an input is missing, of another type, or has no
    /// whole number of examples or another number than the first. Throws it, too, if there are fewer examples
    /// than a step takes (in random order: none).
    Examples(const nn::Model& model, const Batch& all, const BatchOptions& options);

    void fill(std::uint64_t step, std::int64_t micro_batch,
              std::span<const std::span<std::byte>> inputs) const override;
    std::uint64_t steps_per_epoch() const override;
    std::string description() const override;
    DataPlace place_at(std::uint64_t step) const override { return reading_.place_at(step); }
    std::string go_on_from(const DataPlace& place) override { return reading_.go_on_from(place); }

    std::uint64_t count() const { return count_; }

  private:
    std::uint64_t index_of(std::uint64_t step, std::uint64_t within) const;

    BatchOptions options_;
    std::vector<std::vector<std::byte>> inputs_;  // [count, ...], or whole
    std::vector<bool> is_whole_;
    std::uint64_t count_ = 0;
    ReadingOrder reading_;
    std::uint64_t per_step_ = 0;  // examples of a step: N B
};

/// Host memory for the batches of a model, taken when it is first filled.
class BatchBuffer {
  public:
    /// Holds `accumulate` micro-batches; a rank's first may be a later one of the step.
    BatchBuffer(const nn::Model& model, std::int64_t batch, std::int64_t accumulate = 1,
                std::int64_t first = 0);

    /// Bytes that it takes when it is first filled.
    std::int64_t bytes() const;
    /// These micro-batches of a step; the values are good until the next call.
    Batch fill(const BatchSource& source, std::uint64_t step);

  private:
    struct Input {
        DType dtype;
        std::int64_t size;             // bytes of a micro-batch
        bool is_whole;                 // once for all micro-batches
        std::vector<std::byte> bytes;  // [N, B, ...]
    };
    std::int64_t accumulate_, first_;
    std::vector<Input> inputs_;
};

}  // namespace mantissa
