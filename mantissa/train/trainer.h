// A model in training: step after step on batches that it is given, each of them whole or leaving no trace.
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
        by_policy,  ///< dynamic for FP16, none for all else
        none,
        dynamic,
        fixed
    } kind = Kind::by_policy;
    double initial = 65536;
    double growth = 2;
    double backoff = 0.5;
    std::int64_t interval = 2000;  ///< good steps in a row before it grows
    double floor = 1;
};

/// Settings that nobody gave, so that they may change where a step with adapters does not fit.
struct OpenSettings {
    bool trunk = false, batch = false, recompute = false;
};

struct TrainerOptions {
    Optimizer optimizer = adamw();
    std::int64_t batch = 4;  ///< B: examples of a micro-batch
    /// N: micro-batches of a step. Their gradients, each of loss / N, are added up before the update.
    std::int64_t accumulate = 1;
    /// Examples of the last micro-batch, if it has others than B. Each micro-batch then counts by its share
    /// of the examples of the step: loss and gradients are those of the mean over all of them.
    std::int64_t last_batch = 0;
    /// Shapes of batches, the trainer's own among them, for which steps stay planned: the one not used for
    /// longest goes first.
    std::size_t plans = 32;
    std::uint64_t seed = 1337;
    Policy policy = {};  ///< one of policy_names()
    /// The optional passes (docs/training-step.md) that run, by name; none named: all that the device can
    /// run.
    std::optional<std::vector<std::string>> passes = {};
    /// Values that the backward pass computes again instead of keeping them, by name of the operation:
    /// "gelu".
    std::set<std::string> recompute = {};
    /// Weights that are saved and never updated, by patterns of names (base/name_pattern.h): "layer1.*".
    /// Batch norms whose running statistics are among them normalise by these, in training, too.
    std::vector<std::string> frozen = {};
    /// Adapters that are trained in place of the weights, which are kept in the policy's format (nn/lora.h).
    std::optional<nn::LoraOptions> lora = {};
    OpenSettings open = {};
    /// Above 0: an exponential moving average of parameters and running statistics is kept beside them
    /// (AveragedWeights).
    double ema_decay = 0;
    LossScaleOptions loss_scale = {};
    /// Those among which this trainer is one, each with N micro-batches of every step; its device must have
    /// been made with them, too. Null: it is the only one.
    Ranks* ranks = nullptr;
    /// Who of the ranks holds the optimizer's states, and how gradients travel.
    States states = States::sharded;
    Wire wire = Wire::fp32;
    /// Gradients travel in messages of about so many bytes: few enough that most of a backward pass is left
    /// when the first is full, and enough that what a message costs beside its bytes does not count.
    std::int64_t bucket_bytes = std::int64_t{16} << 20;

    MakeKernels make_kernels = {};  ///< runtime/plan.h
    /// Called after every pass with its name and the graph.
    std::function<void(const std::string& pass, const Graph&)> dump = {};

    /// How steps take examples: for sources of batches.
    BatchOptions batches(BatchOrder order = BatchOrder::random) const;
    /// Micro-batches of a step, of all ranks.
    std::int64_t micro_batches() const;
    /// The first of this rank's.
    std::int64_t first_micro_batch() const;
};

/// The numbers that the trace of a loss named beside it (nn::metric).
struct Metrics {
    std::map<std::string, float, std::less<>> by_name = {};
    /// Throws UserError, naming the metrics that there are, for a name that none of them has.
    float operator[](std::string_view name) const;
};

/// Means over the rows that were evaluated.
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

/// The loss scale that a step starts with, and how many steps it made skip; 1 and 0 without one.
struct LossScaleState {
    double scale = 1;
    std::int64_t skipped = 0;
};

/// The gradients of a step that stopped before its update, in the trainer's memory. They are there until the
/// trainer runs something else.
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
    /// Parameters that are trained, in their order.
    const std::vector<std::string>& names() const { return names_; }

    /// A copy in host memory, with no loss scale in it. Throws UserError, naming those there are, for a name
    /// that is no parameter's.
    std::vector<float> read(const std::string& parameter) const;

    struct Place {
        Type type;               ///< the parameter's shape; mostly f32
        const std::byte* bytes;  ///< in the device's memory
        float loss_scale;        ///< that is still in it; 1 without one
    };
    Place place(const std::string& parameter) const;

    /// Norm of all together.
    double norm() const;
    /// Goes on to the end of the step.
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
    /// (train/memory_fit.h), plan().options() are what came of it. Throws UserError for an invalid
    /// model (nn/model.h). Throws it, too, if the model does not fit the memory, and says what is needed and
    /// what there is.
    Trainer(Device& device, nn::Model model, TrainerOptions options = {});
    /// The same with a plan that was made before.
    explicit Trainer(TrainingPlan plan);
    /// In memory that it shares with others, whose parameters it takes as they are.
    Trainer(TrainingPlan plan, std::shared_ptr<TrainingMemory> memory);
    ~Trainer();
    Trainer(Trainer&&) noexcept;
    Trainer& operator=(Trainer&&) noexcept;

    /// Examples as its steps take them, [count, ...] of each input, which are copied.
    Examples examples(const Batch& all, BatchOrder order = BatchOrder::random) const;

    /// One step on the values [N, B, ...] of each input of the model. With a profile, times each kernel of
    /// the last micro-batch and the update. Throws UserError, naming the input, if the batch does not fit.
    ///
    /// A batch may have fewer examples or more, as the last of an epoch, and inputs of other shapes where the
    /// model's vary (nn::Model): its step is planned when such a batch first comes, on the states of this
    /// one. With micro-batches, it has as many of B as there are examples for, and one of what is left.
    StepResult step(const Batch& batch, double learning_rate, std::vector<double>* profile = nullptr);

    /// The same on the batch of `batches` for the step that comes next (steps_done()).
    StepResult step(const BatchSource& batches, double learning_rate);

    /// The same in two parts: what the host does in between, it does while the device works.
    void start(const Batch& batch, double learning_rate);
    StepResult finish();
    /// Between the two: gives the inputs of the next step, to be on their way while this one works. The next
    /// step must be one on that batch, or be told to forget what was brought.
    void bring(const Batch& next);
    void forget_brought();

    /// The same as `step` with each micro-batch run by `run`, which must run it to its end or start it, as to
    /// look at it on the way. `last`: the update is in it, too.
    StepResult step_run_by(const Batch& batch, double learning_rate,
                           FunctionRef<void(Execution& micro_batch, bool last)> run);

    /// A step that stops at its gradients, to be read where they lie; nothing was updated. Then `update`
    /// makes the update with that rate; any other step lets them go. Throws UserError where states are
    /// sharded.
    const Gradients& gradients(const Batch& batch);
    StepResult update(double learning_rate);

    /// Goes on with other options, planned anew: another policy, batch or optimizer. What both have of
    /// parameters, running statistics and the optimizer's states is kept, all else begins as it would in a
    /// new trainer. What was bound to `state()`, such as a Predictor, is to be made anew.
    void change(TrainerOptions options);

    /// Saves the run: what was learned, the optimizer's states and the position; what was in `directory` is
    /// kept as DIRECTORY.previous. Throws UserError, with everything left as it was, if it cannot. All ranks
    /// call it. More goes with it by train/training_checkpoint.h.
    void save(const std::filesystem::path& directory);
    /// Goes on where a run was saved, to the same bits. Returns nothing, or a warning: the checkpoint was
    /// damaged, and the one before it was taken. Throws UserError if there is no checkpoint, or if it is of
    /// another configuration, and names every difference. The trainer is then untouched.
    std::string resume(const std::filesystem::path& directory);

    /// Copies weights from a safetensors file (or an index, or a directory with one), converting F16 and
    /// BF16. Throws UserError that names the file, and every tensor that is missing, unknown or of another
    /// shape or type; nothing was copied then. By name, what fits is copied, and the rest returned.
    UnfitWeights load_weights(const std::filesystem::path& file, Match match = Match::strict);
    /// Writes them as one safetensors file, whole or not at all; adapters are added to them. While
    /// AveragedWeights live, it is of these.
    void save_weights(const std::filesystem::path& file) const;

    /// Loss and metrics of the values [n, ...] of each input, nothing random, for any n whose activations fit
    /// the memory; changes nothing. Each shape is planned when it first comes, as for steps.
    Evaluation evaluate(const Batch& batch);

    /// The loss scale of the next step, and how many steps it made skip; 1 and 0 without one.
    LossScaleState loss_scale() const;

    /// Runs the step just made once more, operation by operation, to name the first number that was not
    /// finite; for a step that was not applied, and with the same arguments. Changes nothing. Of ranks, each
    /// looks at its own micro-batches.
    std::optional<NonFinite> first_non_finite(const Batch& batch, double learning_rate);

    /// How much of the gradients a 16-bit policy loses at the loss scale of the next step, found by the same
    /// step at a greater one. Changes no state.
    Underflow underflow(const Batch& batch);

    /// Gives the inputs of a step and hands its last micro-batch to `look`, which runs as much of it as it
    /// wants to see, and no update.
    void look_into(const Batch& batch, FunctionRef<void(Execution&)> look);

    /// Steps since the first one ever, those before a resume included.
    std::int64_t steps_done() const;
    /// Goes on after so many steps, as after a resume: random numbers follow the count.
    void continue_after(std::int64_t steps);

    /// Shapes of batches for which steps are planned now, its own among them.
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

/// While it lives, the weights are their averages, running statistics too: whatever is evaluated, predicted
/// or saved meanwhile is of these. A step, a resume and other weights throw UserError. Where no averages are
/// kept, or others live, nothing changes.
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
