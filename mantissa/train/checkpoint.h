// A checkpoint: a directory that is written whole or not at all, and whose every byte is checked when it is
// read. docs/formats.md gives it to the byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/formats/safetensors.h"
#include "mantissa/formats/safetensors_write.h"
#include "mantissa/ranks/ranks.h"

namespace mantissa::inline v0 {

struct ManifestFile {
    std::uint64_t bytes = 0;
    std::uint64_t checksum = 0;  ///< of the whole file
    /// For safetensors files: bytes and checksum of the header, checksums of the tensors by name. Together
    /// they cover every byte, so that damage has a name.
    std::uint64_t header_bytes = 0, header_checksum = 0;
    std::map<std::string, std::uint64_t> tensors = {};

    bool is_safetensors() const { return header_bytes > 0; }
    bool operator==(const ManifestFile&) const = default;
};

using Manifest = std::map<std::string, ManifestFile>;

/// The text of manifest.json. Its length does not depend on the checksums' values.
std::string manifest_text(const Manifest& manifest);

/// Throws UserError that begins with `source` if any bit of the text is not as manifest_text wrote it, or the
/// version is not one that this program reads.
Manifest parse_manifest(std::string_view text, const std::string& source);

/// Throws UserError, saying what is there instead and what to do, unless `directory` has the files of a
/// checkpoint.
void require_checkpoint(const std::filesystem::path& directory);

struct CheckpointToSave {
    /// model.safetensors: names and shapes as in the file (for GPT-2, what stored_weights gives by
    /// nn::decoder_files). All ranks read all of it, in one order, and the first writes it.
    std::span<const TensorToWrite> model;
    /// optimizer.safetensors: moments and the like. Of rank R but the first, optimizer.R.safetensors, if it
    /// has any.
    std::span<const TensorToWrite> optimizer;
    /// Small text files by name. "state.json" must be among them: a JSON object with step, schedule, scaler,
    /// random state, data position and configuration, whose members are the training loop's. "config.json"
    /// lets others read the model.
    std::map<std::string, std::string> texts;
    /// Whether `model` is adapters alone: then the file is called adapter_model.safetensors.
    bool adapters = false;
};

/// Throws UserError if `directory` exists and holds anything that is not a checkpoint's, and so may not be
/// replaced. To be called before training begins; save_checkpoint calls it again.
void require_checkpoint_place(const std::filesystem::path& directory);

/// Puts a new checkpoint in the place of `directory`. What was there is kept as DIRECTORY.previous. The disk
/// needs room for the new one beside both: throws UserError, naming the bytes needed and free, with
/// everything left as it was.
///
/// Among ranks all call it, on a file system that they share. Each writes its file of the optimizer's, the
/// first everything else, and puts it all in place once all are done. What one of them cannot do is thrown on
/// all, with its name.
void save_checkpoint(const std::filesystem::path& directory, const CheckpointToSave& checkpoint,
                     Ranks* ranks = nullptr);

/// A checkpoint whose checksums all agreed. The tensors lie in mapped files: copy them out.
struct LoadedCheckpoint {
    std::filesystem::path directory;                  ///< the one that was read
    SafetensorsFile model;                            ///< or the adapters
    std::optional<SafetensorsFile> optimizer;         ///< none where only the model was asked for
    std::vector<SafetensorsFile> optimizer_of_ranks;  ///< but the first
    std::map<std::string, std::string> texts;         ///< "state.json" is among them, a JSON object
    /// Empty, or why `directory` is not the one that was asked for. Show it: steps were lost.
    std::string warning;
};

/// How much of a checkpoint is needed.
enum class CheckpointUse : std::uint8_t {
    to_go_on,  ///< all of it
    weights    ///< the model and the texts: whoever shares it may leave the optimizer's states out
};

/// Reads and checks `directory`, and DIRECTORY.previous if that fails. Throws UserError, naming file, tensor
/// and reason, if neither is whole.
LoadedCheckpoint load_checkpoint(const std::filesystem::path& directory,
                                 CheckpointUse use = CheckpointUse::to_go_on);

/// The version of Hugging Face's transformers that wrote a model over the checkpoint's own, as its
/// config.json says; empty if none did.
std::string saved_over_by_transformers(const std::filesystem::path& directory);

}  // namespace mantissa
