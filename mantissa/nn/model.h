// A model as a value: what it takes, the trace of its loss, and what must be equal for a run to go on with
// it. Training, evaluation, checkpoints and reports take any.
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

/// A configuration as data: settings by name, in the order in which they are shown. What two runs must have
/// in common is compared and printed setting by setting.
struct Setting {
    std::string name;
    std::variant<bool, std::int64_t, double, std::string> value;

    friend bool operator==(const Setting&, const Setting&) = default;
};

using Configuration = std::vector<Setting>;

}  // namespace mantissa

namespace mantissa::inline v0::nn {

/// Whether an input has values of its own for every example.
enum class BatchAxis : std::uint8_t {
    leading,  ///< it has: traced as [B, ...]
    none      ///< one value is that of all examples, such as a graph's edges; given whole, traced as it is
};

/// An input of a model.
struct InputSpec {
    std::string name;
    DType dtype = DType::f32;
    Shape shape = {};  ///< without the batch
    BatchAxis batch_axis = BatchAxis::leading;

    /// The type for so many examples.
    Type type(std::int64_t examples) const;
};

/// Numbers in FP32; and ids in i32, which name classes or rows of tables.
InputSpec numbers(std::string name, Shape shape, BatchAxis batch_axis = BatchAxis::leading);
InputSpec ids(std::string name, Shape shape = {}, BatchAxis batch_axis = BatchAxis::leading);

/// The purpose of a trace: evaluation, where nothing is random, or training.
class Mode {
  public:
    Mode() = default;  ///< evaluation
    /// The mode of a training step that is traced in this graph.
    static Mode training(Graph& graph);
    /// Evaluation of batches that may not be full: a target below 0 is none, and a loss is the mean over all
    /// others.
    static Mode evaluation_of_targets();

    bool may_lack_targets() const { return may_lack_targets_; }

    bool is_training() const { return random_ != nullptr; }
    /// Seed and step of the training, as inputs `random_seed` and `random_step`, which the first call adds.
    /// Throws UserError but while training.
    const RandomState& random() const;
    /// 0, 1, 2, ...: tells each random operation of a trace from every other. Throws UserError but while
    /// training.
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

/// A function that records something of a model's inputs: of the first of them as tensors, of all of them as
/// std::span<const Tensor>, of these and the mode, or of the graph, these and the mode.
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
    /// The first so many inputs of the model are what it is made of; the others are targets.
    std::size_t inputs = 1;
    /// Records it on these inputs. A floating tensor [B, ...].
    Trace trace = {};
};

/// Adapters of low rank beside linear layers: y + s (x A^T) B^T, with A [rank, inputs] and B [outputs, rank].
/// Beside a convolution, A is one to `rank` channels, and B one of 1 x 1. They alone are trained. Hu et al.,
/// "LoRA", ICLR 2022.
struct LoraOptions {
    std::int64_t rank = 16;
    std::optional<double> alpha = {};  ///< s is alpha / rank; none: the rank
    double dropout = 0;                ///< of x, on its way to A
    bool rank_stabilized = false;      ///< s is alpha / sqrt(rank). Kalajdzievski 2023
    bool magnitudes = false;           ///< each output's weights get a norm that is trained: DoRA, Liu 2024
    /// Patterns of layers' names (base/name_pattern.h): "*.attn.*"; none: all layers but the last.
    std::vector<std::string> layers = {};
    /// Layers that a pattern names and that have sizes of their own: the first that names it.
    struct Layers {
        std::string pattern;
        std::int64_t rank;
        std::optional<double> alpha = {};
    };
    std::vector<Layers> others = {};
    Layout trunk = Layout::row_major;  ///< how frozen matrices of linear layers but the last are kept
    std::string source = "LoRA";       ///< that names the layers: a refusal of one begins with it
};
/// nf4, int4 or int8 by its name. Throws UserError, naming these, for any other.
Layout trunk_named(std::string_view name);

struct Model {
    std::string name;
    /// The unit that throughput counts: "tokens", "images"; and how many of them an example has.
    std::string unit = "examples";
    std::int64_t units_per_example = 1;
    std::vector<InputSpec> inputs = {};
    /// Whether a batch may have inputs of other shapes, of the same rank: what is recorded then follows the
    /// shapes of what it is given. Weights are the same in all of them.
    bool shapes_vary = false;
    /// Records the forward pass on all inputs, and returns the loss: one floating number, a mean over the
    /// batch.
    Trace loss = {};
    /// The output that the network is asked for once it is trained; without a trace it predicts nothing.
    Output output = {};
    /// Facts that must be equal for a checkpoint to be resumed or loaded.
    Configuration configuration = {};
    /// How its weights are called in files (formats/weight_files.h); null: by their own names.
    std::shared_ptr<const WeightFiles> files = {};
    /// FLOPs of a training step for each example by a published formula; none: those of its contractions.
    std::optional<double> flops_per_example = {};
    std::shared_ptr<const Model> own = {};  ///< of one with adapters (nn/lora.h), as it was without
};

/// Names a result beside the loss, in whose trace it is called: an accuracy, a part of the loss. A number of
/// each row, or more or bools, counts by its mean. The trainer gives it by that name (StepResult,
/// Evaluation). Throws UserError for a name that is empty or taken, and for whole numbers.
void metric(std::string_view name, Tensor value, Where at = Where::current());

/// Traces the loss of a model on a batch of so many examples: adds its inputs, then what it records. Throws
/// UserError, naming the model, if it has no loss, or if the loss is no single floating number. Throws it,
/// too, if two inputs have one name, or one has a name that the trainer uses itself.
Tensor trace_loss(const Model& model, Graph& graph, std::int64_t batch, const Mode& mode = {});

/// The same for what the model predicts, in evaluation. Throws UserError, naming the model, if it has no
/// output, or one that is no floating tensor with a row for each example.
Tensor trace_output(const Model& model, Graph& graph, std::int64_t batch);

/// Model::files, or the rules of none.
const WeightFiles& files_of(const Model& model);

/// Facts that the trace of a training step tells of a model.
struct ModelFacts {
    std::int64_t parameters = 0;  ///< elements of all parameters, each once
    std::int64_t frozen = 0;      ///< elements of those that are not trained
    /// Work of a training step, forward and backward, for each example: Model::flops_per_example if all is
    /// trained, else the contractions of the trace and its gradient as they are before any pass; where some
    /// are frozen, those that a gradient needs.
    double flops_per_example = 0;
};

/// Throws UserError as trace_loss does, and for a model without parameters to train. `batch`: the examples of
/// the trace, so that errors speak of the shapes that there will be. `frozen`: patterns of names
/// (base/name_pattern.h), each of which must match a weight.
ModelFacts facts_of(const Model& model, std::int64_t batch = 1, std::span<const std::string> frozen = {});
/// The same of a trace that was made already.
ModelFacts facts_of(const Model& model, std::int64_t batch, std::span<const std::string> frozen, Graph traced,
                    Value loss);

/// "4 x 256 tokens", "16 images": the examples of a batch.
std::string batch_text(const Model& model, std::int64_t batch);

}  // namespace mantissa::nn
