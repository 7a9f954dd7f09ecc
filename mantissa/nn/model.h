// A model as a value: its inputs, the trace of its loss, and the settings that must be equal to resume.
// Training, evaluation, checkpoints and reports take any model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "mantissa/graph/tensor.h"

namespace mantissa::inline v0 {

struct WeightFiles;

/// A configuration as data: settings by name, in display order. Two runs' settings are compared and printed
/// one by one.
struct Setting {
    std::string name;
    std::variant<bool, std::int64_t, double, std::string> value;

    friend bool operator==(const Setting&, const Setting&) = default;
};

using Configuration = std::vector<Setting>;

}  // namespace mantissa

namespace mantissa::inline v0::nn {

/// Whether an input has a value for every example.
enum class BatchAxis : std::uint8_t {
    leading,  ///< yes: traced as [B, ...]
    none      ///< one value for all examples, such as a graph's edges; given whole
};

/// An input of a model.
struct InputSpec {
    std::string name;
    DType dtype = DType::f32;
    Shape shape = {};  ///< without the batch axis
    BatchAxis batch_axis = BatchAxis::leading;

    /// The type for so many examples.
    Type type(std::int64_t examples) const;
};

/// Inputs of FP32 numbers, and of i32 ids, which name classes or rows of tables.
InputSpec numbers(std::string name, Shape shape, BatchAxis batch_axis = BatchAxis::leading);
InputSpec ids(std::string name, Shape shape = {}, BatchAxis batch_axis = BatchAxis::leading);

/// The purpose of a trace: evaluation, where nothing is random, or training.
class Mode {
  public:
    Mode() = default;  ///< evaluation
    /// The mode of a training step traced in this graph.
    static Mode training(Graph& graph);
    /// Evaluation of batches that may not be full: targets below 0 are not counted, and a loss is the mean
    /// over the others.
    static Mode evaluation_of_targets();

    bool may_lack_targets() const { return may_lack_targets_; }

    bool is_training() const { return random_ != nullptr; }
    /// Seed and step of the training, as inputs `random_seed` and `random_step`, which the first call adds.
    /// Throws UserError outside training.
    const RandomState& random() const;
    /// 0, 1, 2, ...: identifies each random operation of a trace. Throws UserError outside training.
    std::int64_t next_random_operation() const;

  private:
    struct Random {
        Graph* graph = nullptr;
        RandomState state = {};
        std::int64_t next = 0;
    };
    std::shared_ptr<Random> random_;
    bool may_lack_targets_ = false;
};

/// A function that records a computation on a model's inputs. It takes the first inputs as tensors; or all as
/// std::span<const Tensor>, optionally with the mode, or with the graph and the mode.
class Trace {
  public:
    Trace() = default;
    Trace(std::nullptr_t) {}
    template <class Record>
    requires(!std::is_same_v<std::remove_cvref_t<Record>, Trace>)
        Trace(Record record) {  // NOLINT(google-explicit-constructor): any such function is one
        using In = std::span<const Tensor>;
        if constexpr (std::is_invocable_r_v<Tensor, Record&, Graph&, In, const Mode&>)
            record_ = std::move(record);
        else if constexpr (std::is_invocable_r_v<Tensor, Record&, In, const Mode&>)
            record_ = [record](Graph&, In in, const Mode& mode) { return record(in, mode); };
        else if constexpr (std::is_invocable_r_v<Tensor, Record&, In>)
            record_ = [record](Graph&, In in, const Mode&) { return record(in); };
        else if constexpr (std::is_invocable_r_v<Tensor, Record&, Tensor>)
            record_ = [record](Graph&, In in, const Mode&) { return record(some<1>(in)[0]); };
        else if constexpr (std::is_invocable_r_v<Tensor, Record&, Tensor, Tensor>)
            record_ = [record](Graph&, In in, const Mode&) { return record(some<2>(in)[0], in[1]); };
        else {
            static_assert(std::is_invocable_r_v<Tensor, Record&, Tensor, Tensor, Tensor>,
                          "a trace takes (Tensor, ...), (inputs), (inputs, mode) or (graph, inputs, mode)");
            record_ = [record](Graph&, In in, const Mode&) { return record(some<3>(in)[0], in[1], in[2]); };
        }
    }

    explicit operator bool() const { return static_cast<bool>(record_); }
    Tensor operator()(Graph& graph, std::span<const Tensor> inputs, const Mode& mode) const {
        return record_(graph, inputs, mode);
    }

  private:
    template <std::size_t count>
    static std::span<const Tensor> some(std::span<const Tensor> inputs) {
        if (inputs.size() < count) refuse(count, inputs.size());
        return inputs;
    }
    [[noreturn]] static void refuse(std::size_t wanted, std::size_t given);

    std::function<Tensor(Graph&, std::span<const Tensor>, const Mode&)> record_;
};

/// The output of a network on its inputs: logits, a prediction.
struct Output {
    std::string name = "output";
    /// The number of the model's first inputs that the output reads; the others are targets.
    std::size_t inputs = 1;
    /// Records the output on these inputs: a floating tensor [B, ...].
    Trace trace = {};
};

/// Adapters of low rank beside linear layers: y + s (x A^T) B^T, with A [rank, inputs] and B [outputs, rank].
/// Beside a convolution, A is a convolution to `rank` channels, and B a 1 x 1 convolution. Only adapters are
/// trained. Hu et al., "LoRA", ICLR 2022.
struct LoraOptions {
    std::int64_t rank = 16;
    std::optional<double> alpha = {};  ///< s is alpha / rank; none: the rank
    double dropout = 0;                ///< of A's input x
    bool rank_stabilized = false;      ///< s is alpha / sqrt(rank). Kalajdzievski 2023
    bool magnitudes = false;           ///< trains a norm of each output's weights: DoRA, Liu 2024
    /// Patterns of layers' names (base/name_pattern.h): "*.attn.*"; none: all layers but the last.
    std::vector<std::string> layers = {};
    /// Layers with sizes of their own; a layer belongs to the first matching pattern.
    struct Layers {
        std::string pattern;
        std::int64_t rank;
        std::optional<double> alpha = {};
    };
    std::vector<Layers> others = {};
    Layout trunk = Layout::row_major;  ///< format of frozen matrices, except the last linear layer's
    std::string source = "LoRA";       ///< the layers' origin, with which an error begins
};
/// nf4, int4 or int8 by name. Throws UserError, naming these, for any other name.
Layout trunk_named(std::string_view name);

struct Model {
    std::string name;
    /// The unit of throughput, "tokens" or "images", and units per example.
    std::string unit = "examples";
    std::int64_t units_per_example = 1;
    std::vector<InputSpec> inputs = {};
    /// Whether inputs may have other shapes of equal rank: the trace follows the shapes of its inputs. The
    /// weights are the same for all shapes.
    bool shapes_vary = false;
    /// Records the forward pass on all inputs, and returns the loss: one floating number, a mean over the
    /// batch.
    Trace loss = {};
    /// The output of the trained network; without a trace it predicts nothing.
    Output output = {};
    /// Settings that must be equal for a checkpoint to be resumed or loaded.
    Configuration configuration = {};
    /// Names of its weights in files (formats/weight_files.h); null: their own names.
    std::shared_ptr<const WeightFiles> files = {};
    /// FLOPs of a training step per example, by a published formula; none: counted from its contractions.
    std::optional<double> flops_per_example = {};
    std::shared_ptr<const Model> own = {};  ///< the model without its adapters (nn/lora.h)
};

/// Names a result beside the loss, in the loss's trace: an accuracy, a part of the loss. A value per row, or
/// any tensor of numbers or bools, counts by its mean. The trainer returns it by name (StepResult,
/// Evaluation). Throws UserError for a name that is empty or taken, and for integers.
void metric(std::string_view name, Tensor value, Where at = Where::current());

/// Traces the loss on a batch of so many examples: adds the inputs, then the forward pass. Throws UserError,
/// naming the model, if it has no loss, if the loss is not one floating number, if two inputs have one name,
/// or if the trainer itself uses an input's name.
Tensor trace_loss(const Model& model, Graph& graph, std::int64_t batch, const Mode& mode = {});

/// Traces the model's output in evaluation. Throws UserError, naming the model, if it has no output, or the
/// output is not a floating tensor with a row for each example.
Tensor trace_output(const Model& model, Graph& graph, std::int64_t batch);

/// Model::files, or default rules.
const WeightFiles& files_of(const Model& model);

/// Facts of a model from the trace of a training step.
struct ModelFacts {
    std::int64_t parameters = 0;  ///< elements of all parameters, shared ones counted once
    std::int64_t frozen = 0;      ///< elements of untrained parameters
    /// Work of a training step, forward and backward, per example. If all weights are trained,
    /// Model::flops_per_example, or else the contractions of the trace and its gradient before any pass. If
    /// some are frozen, the contractions that gradients need.
    double flops_per_example = 0;
};

/// Throws UserError as trace_loss does, and for a model without parameters to train. `batch`: the examples of
/// the trace, for shapes in errors. `frozen`: patterns of names (base/name_pattern.h); each must match a
/// weight.
ModelFacts facts_of(const Model& model, std::int64_t batch = 1, std::span<const std::string> frozen = {});
/// The facts from an existing trace.
ModelFacts facts_of(const Model& model, std::int64_t batch, std::span<const std::string> frozen, Graph traced,
                    Value loss);

/// "4 x 256 tokens", "16 images": the examples of a batch.
std::string batch_text(const Model& model, std::int64_t batch);

}  // namespace mantissa::nn
