// A model in training: step after step on the given batches. Each step is applied whole or leaves no trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/data/batch.h"
#include "mantissa/formats/unfit_weights.h"
#include "mantissa/passes/policy.h"
#include "mantissa/ranks/sharing.h"
#include "mantissa/train/optimizer.h"

namespace mantissa::inline v0 {

class Device;
class Execution;
class Ranks;
class StateBlock;
class TrainingPlan;
struct NonFinite;
struct TrainingMemory;
struct Underflow;
enum class MakeKernels : std::uint8_t;
template <class Signature>
class FunctionRef;

struct LossScaleOptions {
    enum class Kind : std::uint8_t {
        by_policy,  ///< dynamic for FP16, none for other policies
        none,
        dynamic,
        fixed
    } kind = Kind::by_policy;
    double initial = 65536;
    double growth = 2;
    double backoff = 0.5;
    std::int64_t interval = 2000;  ///< good steps in a row before the scale grows
    double floor = 1;
};

/// Settings that the user left open; they may change if a step with adapters does not fit.
struct OpenSettings {
    bool trunk = false, batch = false, recompute = false;
};

struct TrainerOptions {
    Optimizer optimizer = adamw();
    std::int64_t batch = 4;  ///< B: examples of a micro-batch
    /// N: micro-batches of a step. Their gradients, each of loss / N, are added up before the update.
    std::int64_t accumulate = 1;
    /// Examples of the last micro-batch, if not B. Each micro-batch then counts by its share of the step's
    /// examples: loss and gradients are means over all examples.
    std::int64_t last_batch = 0;
    /// Batch shapes, the trainer's own included, that stay planned; the one unused for longest goes first.
    std::size_t plans = 32;
    std::uint64_t seed = 1337;
    Policy policy = {};  ///< one of policy_names()
    /// The optional passes (docs/training-step.md) to run, by name; none: all that the device can run.
    std::optional<std::vector<std::string>> passes = {};
    /// Operations with values that the backward pass computes again instead of keeping, by name: "gelu".
    std::set<std::string> recompute = {};
    /// Weights that are saved and never updated, by patterns of names (base/name_pattern.h): "layer1.*". A
    /// batch norm with frozen running statistics normalises by them, in training, too.
    std::vector<std::string> frozen = {};
    /// Adapters, trained in place of the weights; these are kept in the policy's format (nn/lora.h).
    std::optional<nn::LoraOptions> lora = {};
    OpenSettings open = {};
    /// Above 0: keeps an exponential moving average of parameters and running statistics (AveragedWeights).
    double ema_decay = 0;
    LossScaleOptions loss_scale = {};
    /// The ranks that train together, this trainer's included, each with N micro-batches of every step. The
    /// device must have been made with them, too. Null: this trainer is alone.
    Ranks* ranks = nullptr;
    /// Placement of the optimizer's states on the ranks, and format of gradients in transit.
    States states = States::sharded;
    Wire wire = Wire::fp32;
    /// Bytes of a message with gradients: large, so that a message's fixed cost does not count, and small, so
    /// that the first is full when most of the backward pass is left.
    std::int64_t bucket_bytes = std::int64_t{16} << 20;

    MakeKernels make_kernels = {};  ///< runtime/plan.h
    /// Called after every pass with its name and the graph.
    std::function<void(const std::string& pass, const Graph&)> dump = {};

    /// Options for sources of batches: how steps take examples.
    BatchOptions batches(BatchOrder order = BatchOrder::random) const;
    /// Micro-batches of a step, of all ranks.
    std::int64_t micro_batches() const;
    /// Index of this rank's first micro-batch.
    std::int64_t first_micro_batch() const;
};

/// Numbers named beside the loss in its trace (nn::metric).
struct Metrics {
    std::map<std::string, float, std::less<>> by_name = {};
    /// Throws UserError, naming the metrics that exist, for an unknown name.
    float operator[](std::string_view name) const;
};

/// Means over the evaluated rows.
struct Evaluation {
    float loss = 0;
    Metrics metrics = {};
};

struct StepResult {
    float loss = 0;           ///< before the update, the mean over the micro-batches
    float gradient_norm = 0;  ///< before clipping
    /// False: the loss of a micro-batch, or an element of the gradients, was not finite; nothing changed.
    bool applied = false;
    double seconds = 0;
    Metrics metrics = {};  ///< before the update, means over the rows of the step, of all ranks
};

/// The loss scale at the start of a step, and the number of steps that it made skip; 1 and 0 without one.
struct LossScaleState {
    double scale = 1;
    std::int64_t skipped = 0;
};

/// The gradients of a step that stopped before its update, in the trainer's memory, until the trainer runs
/// something else.
class Gradients {
  public:
    /// Runs the last micro-batch of a training step, and stops before its update. Throws UserError
    /// where states are sharded, since a rank then has parts of gradients.
    Gradients(Execution& last, float loss_scale);
    ~Gradients();
    Gradients(Gradients&&) noexcept;
    Gradients& operator=(Gradients&&) noexcept;

    /// The loss of the step: the mean over the micro-batches.
    float loss() const { return loss_; }
    /// Trained parameters, in order.
    const std::vector<std::string>& names() const { return names_; }

    /// A copy in host memory, without the loss scale. Throws UserError, naming the trained parameters, for
    /// another name.
    std::vector<float> read(const std::string& parameter) const;

    struct Place {
        Type type;               ///< the parameter's shape; mostly f32
        const std::byte* bytes;  ///< in the device's memory
        float loss_scale;        ///< still contained; 1 without one
    };
    Place place(const std::string& parameter) const;

    /// Norm of all gradients together.
    double norm() const;
    /// Runs the rest of the step.
    void update(float learning_rate);

  private:
    struct Places;
    std::unique_ptr<Places> places_;
    float loss_ = 0;
    std::vector<std::string> names_;
};

class Trainer {
  public:
    /// Plans the step, takes its memory and draws the initial parameters. Open settings may change
    /// (train/memory_fit.h); plan().options() has the final ones. Throws UserError for an invalid model
    /// (nn/model.h), or if the model does not fit the memory, saying the bytes needed and available.
    Trainer(Device& device, nn::Model model, TrainerOptions options = {});
    /// A trainer on a plan that was made before.
    explicit Trainer(TrainingPlan plan);
    /// A trainer in memory shared with others, with their parameters as they are.
    Trainer(TrainingPlan plan, std::shared_ptr<TrainingMemory> memory);
    ~Trainer();
    Trainer(Trainer&&) noexcept;
    Trainer& operator=(Trainer&&) noexcept;

    /// Copies examples [count, ...] of each input into a source of batches for its steps.
    Examples examples(const Batch& all, BatchOrder order = BatchOrder::random) const;

    /// Makes one step on the values [N, B, ...] of each input. With a profile, times each kernel of the last
    /// micro-batch and the update. Throws UserError, naming the input, if the batch does not fit.
    ///
    /// A batch may have fewer or more examples, as the last of an epoch, and other input shapes where the
    /// model's shapes vary (nn::Model). Its step is planned when such a batch first comes, on this trainer's
    /// states. With micro-batches, it is cut into as many of B as possible and one with the rest.
    StepResult step(const Batch& batch, double learning_rate, std::vector<double>* profile = nullptr);

    /// Makes the next step (steps_done()) on its batch of `batches`.
    StepResult step(const BatchSource& batches, double learning_rate);

    /// Makes one step in two parts: the host is free in between, while the device works.
    void start(const Batch& batch, double learning_rate);
    StepResult finish();
    /// Between the two: starts the transfer of the next step's inputs while this step works. The next step
    /// must use that batch, unless forget_brought() is called.
    void bring(const Batch& next);
    void forget_brought();

    /// Makes a step with each micro-batch run by `run`, which must run it to its end or start it, and may
    /// inspect it on the way. `last`: the micro-batch includes the update.
    StepResult step_run_by(const Batch& batch, double learning_rate,
                           FunctionRef<void(Execution& micro_batch, bool last)> run);

    /// Makes a step up to its gradients, which can then be read in place; nothing was updated. Then `update`
    /// makes the update with that rate; any other step drops the gradients. Throws UserError where states are
    /// sharded.
    const Gradients& gradients(const Batch& batch);
    StepResult update(double learning_rate);

    /// Continues with other options, planned anew: another policy, batch or optimizer. Parameters, running
    /// statistics and optimizer states that both plans have are kept; all other states begin as in a new
    /// trainer. Objects bound to `state()`, such as a Predictor, are to be made anew.
    void change(TrainerOptions options);

    /// Saves the run: weights, running statistics, optimizer states and the position. The old `directory` is
    /// kept as DIRECTORY.previous. Throws UserError, leaving everything as it was, if it cannot. All ranks
    /// call it. train/training_checkpoint.h saves more with it.
    void save(const std::filesystem::path& directory);
    /// Continues a saved run, to the same bits. Returns nothing, or a warning that the checkpoint was damaged
    /// and the one before it was read. Throws UserError, leaving the trainer untouched, if there is no
    /// checkpoint, or if it is of another configuration, naming every difference.
    std::string resume(const std::filesystem::path& directory);

    /// Copies weights from a safetensors file (or an index, or a directory with one), converting F16 and
    /// BF16. Throws UserError, before any copy, naming the file and every tensor that is missing, unknown or
    /// of another shape or type. By name, copies the tensors that fit and returns the rest.
    UnfitWeights load_weights(const std::filesystem::path& file, Match match = Match::strict);
    /// Writes the weights as one safetensors file, whole or not at all, with adapters added. While
    /// AveragedWeights live, writes the averages.
    void save_weights(const std::filesystem::path& file) const;

    /// Loss and metrics on the values [n, ...] of each input, without randomness, for any n with activations
    /// that fit the memory. Changes nothing. Each shape is planned when it first comes, as for steps.
    Evaluation evaluate(const Batch& batch);

    /// The loss scale of the next step, and the number of steps that it made skip; 1 and 0 without one.
    LossScaleState loss_scale() const;

    /// Names the first number that was not finite: runs the last step, which was not applied, once more with
    /// the same arguments, operation by operation. Changes nothing. Each rank inspects its own micro-batches.
    std::optional<NonFinite> first_non_finite(const Batch& batch, double learning_rate);

    /// The share of the gradients that a 16-bit policy loses at the loss scale of the next step, measured in
    /// this step at a larger scale. Changes no state.
    Underflow underflow(const Batch& batch);

    /// Gives the inputs of a step and hands its last micro-batch to `look`, which runs any part of it,
    /// without the update.
    void look_into(const Batch& batch, FunctionRef<void(Execution&)> look);

    /// Steps since the very first, steps before a resume included.
    std::int64_t steps_done() const;
    /// Sets the count of steps, as after a resume: random numbers follow it.
    void continue_after(std::int64_t steps);

    /// Shapes of batches with planned steps, its own included.
    std::size_t planned_shapes() const;

    const nn::Model& model() const;
    const TrainingPlan& plan() const;
    StateBlock& state() const;

  private:
    void start_by(const Batch& batch, double learning_rate,
                  FunctionRef<void(Execution& micro_batch, bool last)> run);

    struct Run;
    std::unique_ptr<Run> run_;
};

/// While it lives, the weights and running statistics are their averages, for evaluation, prediction and
/// saving. A step, a resume and other weights throw UserError. Nothing changes if no averages are kept, or
/// another AveragedWeights lives.
class AveragedWeights {
  public:
    explicit AveragedWeights(const Trainer& trainer);
    explicit AveragedWeights(StateBlock& state);
    ~AveragedWeights();
    AveragedWeights(const AveragedWeights&) = delete;
    AveragedWeights& operator=(const AveragedWeights&) = delete;

  private:
    StateBlock& state_;
    bool swapped_;
};

}  // namespace mantissa
