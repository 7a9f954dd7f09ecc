// A checkpoint: a directory that is written whole or not at all. Reading checks every byte. docs/formats.md
// gives its layout to the byte.
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

/// Throws UserError that begins with `source` if any bit of the text is not as manifest_text wrote it, or
/// this program cannot read the version.
Manifest parse_manifest(std::string_view text, const std::string& source);

/// Throws UserError, with the contents and advice, unless `directory` has the files of a checkpoint.
void require_checkpoint(const std::filesystem::path& directory);

struct CheckpointToSave {
    /// model.safetensors: names and shapes as in the file (for GPT-2, from stored_weights by
    /// nn::decoder_files). All ranks read all of it, in one order, and the first writes it.
    std::span<const TensorToWrite> model;
    /// optimizer.safetensors: moments and other optimizer states. Rank R > 0 writes its states, if it has
    /// any, to optimizer.R.safetensors.
    std::span<const TensorToWrite> optimizer;
    /// Small text files by name. One must be "state.json": a JSON object, filled by the training loop, with
    /// step, schedule, scaler, random state, data position and configuration. "config.json" lets others read
    /// the model.
    std::map<std::string, std::string> texts;
    /// Whether `model` holds adapters alone: then its file is called adapter_model.safetensors.
    bool adapters = false;
};

/// Throws UserError if `directory` holds a file that is not part of a checkpoint and may not be replaced. To
/// be called before training begins; save_checkpoint calls it again.
void require_checkpoint_place(const std::filesystem::path& directory);

/// Replaces `directory` with a new checkpoint, and keeps the old one as DIRECTORY.previous. The disk needs
/// room for the new one beside both. Otherwise throws UserError, naming the bytes needed and free, and leaves
/// everything as it was.
///
/// All ranks call it, on a shared file system. Each writes its file of optimizer states, the first everything
/// else; the first puts the directory in place once all are done. An error of one rank is thrown on all, with
/// that rank's name.
void save_checkpoint(const std::filesystem::path& directory, const CheckpointToSave& checkpoint,
                     Ranks* ranks = nullptr);

/// A checkpoint with matching checksums. The tensors lie in mapped files: copy them out.
struct LoadedCheckpoint {
    std::filesystem::path directory;                  ///< the directory that was read
    SafetensorsFile model;                            ///< model or adapters
    std::optional<SafetensorsFile> optimizer;         ///< none if only the model was asked for
    std::vector<SafetensorsFile> optimizer_of_ranks;  ///< of ranks 1, 2, ...
    std::map<std::string, std::string> texts;         ///< "state.json" is among them, a JSON object
    /// Empty, or the reason why `directory` itself was not read. Show it: steps were lost.
    std::string warning;
};

/// The part of a checkpoint that is needed.
enum class CheckpointUse : std::uint8_t {
    to_go_on,  ///< all of it
    weights    ///< the model and the texts; the optimizer's states may be absent
};

/// Reads and checks `directory`, or DIRECTORY.previous if that fails. Throws UserError, naming file, tensor
/// and reason, if both are damaged.
LoadedCheckpoint load_checkpoint(const std::filesystem::path& directory,
                                 CheckpointUse use = CheckpointUse::to_go_on);

/// The version of Hugging Face's transformers, from config.json, that wrote a model over the checkpoint's
/// own; empty: none did.
std::string saved_over_by_transformers(const std::filesystem::path& directory);

}  // namespace mantissa
