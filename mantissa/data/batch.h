// The values of a model's inputs for a step, from a source that makes them from the step's number and the
// place where the run continued.
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

/// The DType of a C++ number.
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

/// The values of one input, in the caller's host memory, which must outlive their use.
struct HostValues {
    DType dtype = DType::f32;
    std::span<const std::byte> bytes;
    /// Shape of all values, batch axis included; none: the shape of the model's input.
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

/// The values of all inputs of a model, in order. For a step: all of its micro-batches, one after another,
/// each input [N, B, ...]; an input without a batch axis once for all.
class Batch {
  public:
    Batch(std::initializer_list<HostValues> values) : values_(values) {}
    explicit Batch(std::vector<HostValues> values) : values_(std::move(values)) {}

    const std::vector<HostValues>& values() const { return values_; }

  private:
    std::vector<HostValues> values_;
};

/// Throws UserError, naming model and input, unless the batch has the values of `examples` examples for each
/// input of the model, in the input's type.
void require_fit(const Batch& batch, const nn::Model& model, std::int64_t examples);
/// Whole examples in a batch, by the model's first input with a batch axis; other inputs may have another
/// number.
std::int64_t examples_in(const Batch& batch, const nn::Model& model);

/// The shape of each input of a batch without its batch axis, and the number of examples.
struct BatchShape {
    std::vector<Shape> inputs;
    std::int64_t examples = 0;
    bool operator==(const BatchShape&) const = default;
};

/// The shapes of a batch; they may differ from the model's where nn::Model::shapes_vary. Throws UserError, as
/// require_fit for `examples`, for shapes that the model cannot take.
BatchShape shape_of(const Batch& batch, const nn::Model& model, std::int64_t examples);
/// The model for inputs of these shapes.
nn::Model in_shape(nn::Model model, const BatchShape& shape);

/// Order of a source's examples.
enum class BatchOrder : std::uint8_t {
    sequential,  ///< from the first on, and over again
    random       ///< each once an epoch, in an order given by seed and epoch
};

/// Number and order of the examples of a step.
struct BatchOptions {
    std::int64_t batch = 1;       ///< B: examples of a micro-batch
    std::int64_t accumulate = 1;  ///< N: micro-batches of a step
    BatchOrder order = BatchOrder::sequential;
    std::uint64_t seed = 0;  ///< of the random order
    /// Sequential: an epoch includes the examples that do not fill a step. The rest of its last step counts
    /// for nothing, if the source can mark it so (targets below 0).
    bool all = false;
};

/// A run's place in its data: in examples, not steps, so that it can continue with steps of another size.
struct DataPlace {
    std::uint64_t step = 0;       ///< the next step
    std::uint64_t examples = 0;   ///< windows or images read before it, since the first epoch
    std::uint64_t per_step = 0;   ///< examples of a step when the run began
    std::uint64_t per_epoch = 0;  ///< 0: not known
    /// Description of the epoch, equal where its examples and their order are equal; empty: not known.
    std::string epoch = {};

    bool operator==(const DataPlace&) const = default;
};

/// The examples of a source, numbered in the order of reading.
class ReadingOrder {
  public:
    struct Options {
        std::uint64_t examples = 1;  ///< of an epoch
        std::uint64_t per_step = 1;
        /// An epoch is a whole number of steps, of the size that the run began with, rounded down.
        bool in_whole_steps = false;
        std::string epoch = {};  ///< as DataPlace::epoch
    };

    ReadingOrder() = default;
    explicit ReadingOrder(Options options);

    /// The number of example `within` of a step, counted over all epochs.
    std::uint64_t number_of(std::uint64_t step, std::uint64_t within) const {
        return place_.examples + (step - place_.step) * options_.per_step + within;
    }
    std::uint64_t per_epoch() const;
    DataPlace place_at(std::uint64_t step) const;

    /// Continues after a place. If the epochs differ, starts the next epoch and says so; empty: continues in
    /// the same epoch.
    std::string go_on_from(const DataPlace& place);

  private:
    Options options_;
    DataPlace place_{.per_step = 1};
};

/// A source of batches. A step's values depend on its number and the place where the run continued.
class BatchSource {
  public:
    virtual ~BatchSource() = default;

    /// Writes the values [B, ...] of the model's inputs for one micro-batch; inputs without a batch axis
    /// whole, equal in every micro-batch.
    virtual void fill(std::uint64_t step, std::int64_t micro_batch,
                      std::span<const std::span<std::byte>> inputs) const = 0;
    /// Steps until every example was read once; rounded down.
    virtual std::uint64_t steps_per_epoch() const = 0;
    /// Origin of the values, in words that are equal where the values are: a run and its continuation must
    /// agree in them.
    virtual std::string description() const = 0;
    /// Weight of a step's loss in a mean over several steps: its number of counted targets, or 1 where all
    /// steps weigh equally.
    virtual std::uint64_t counted(std::uint64_t step) const;

    /// Place after the steps before this one, for a checkpoint; and restoring a source to a place before its
    /// next step is filled. See ReadingOrder. A source without an end has no place.
    virtual DataPlace place_at(std::uint64_t step) const;
    virtual std::string go_on_from(const DataPlace& place);
};

/// A caller's examples in memory, as a source of batches.
class Examples : public BatchSource {
  public:
    /// Copies all examples: the values [count, ...] of each input of the model, or the whole value of an
    /// input without a batch axis. Throws UserError if an input is missing, of another type, or has no whole
    /// number of examples or another number than the first. Throws it, too, for fewer examples than a step
    /// takes (random: for none).
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

/// Host memory for the batches of a model, taken at the first fill.
class BatchBuffer {
  public:
    /// Holds `accumulate` micro-batches, from the rank's `first` on.
    BatchBuffer(const nn::Model& model, std::int64_t batch, std::int64_t accumulate = 1,
                std::int64_t first = 0);

    /// Bytes taken at the first fill.
    std::int64_t bytes() const;
    /// Fills these micro-batches of a step; the values are valid until the next call.
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
