// A language model on disk, saved by `train` or by other projects' tools: its kind and its weights. Also the
// weights of any model in files that other tools read and write.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "mantissa/data/tokenizer.h"
#include "mantissa/formats/unfit_weights.h"
#include "mantissa/nn/documents.h"
#include "mantissa/nn/language_model.h"
#include "mantissa/nn/model.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/adapter_files.h"
#include "mantissa/train/checkpoint.h"

namespace mantissa::inline v0 {

class ModelFile {
  public:
    /// A directory with a checkpoint, or with model.safetensors (or its index) and config.json. Compares a
    /// checkpoint's checksums. Throws UserError that names the file if it holds no known model, or if
    /// `dropout` is given for a family without dropout.
    explicit ModelFile(const std::filesystem::path& directory, double dropout = 0);

    const nn::LanguageModel& model() const { return model_; }
    /// The directory that was read: `directory`, or the checkpoint before it.
    const std::filesystem::path& directory() const { return directory_; }
    /// Empty, or a warning to show: the checkpoint was damaged, and the one before it was read, or another
    /// library has saved a model over it.
    std::string warning() const { return checkpoint_ ? checkpoint_->warning : saved_over_; }

    /// How its training texts became tokens: as the checkpoint says, otherwise as the tokenizers of other
    /// projects do it.
    const TextReading& reading() const { return reading_; }
    /// Whether it was trained on packed documents; not known of other projects' models.
    nn::Documents documents() const { return documents_; }

    /// Adds these adapters to the weights of load(), in FP32. Throws UserError, naming the file, unless
    /// `adapters` is a folder of adapters.
    void adapt(const std::filesystem::path& adapters);

    /// Copies the weights into the parameters of `state`, converting F16 and BF16.
    void load(StateBlock& state) const;

  private:
    std::vector<TensorView> views() const;
    std::string source() const;

    std::filesystem::path directory_;
    std::optional<LoadedCheckpoint> checkpoint_;
    std::optional<SafetensorsModel> file_;
    std::optional<AdapterFolder> adapters_;
    std::string saved_over_;
    TextReading reading_;
    nn::Documents documents_ = nn::Documents::joined;
    nn::LanguageModel model_;
};

/// Copies the weights in a safetensors file (or an index, or a directory with one) into the states,
/// converting F16 and BF16. Throws UserError, before any copy, naming the file and every tensor that is
/// missing, unknown or of another shape or type. By name, copies the tensors that fit and returns the rest.
UnfitWeights load_weights(const nn::Model& model, const std::filesystem::path& path, StateBlock& state,
                          Match match = Match::strict);
/// Writes the weights as one safetensors file, whole or not at all.
void save_weights(const nn::Model& model, const StateBlock& state, const std::filesystem::path& path);

}  // namespace mantissa
