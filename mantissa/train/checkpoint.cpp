#include "mantissa/train/checkpoint.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <sys/stat.h>
#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/formats/strict_json.h"

namespace mantissa::inline v0 {

namespace {

constexpr std::string_view format_name = "mantissa checkpoint";
constexpr std::uint64_t format_version = 1;

nlohmann::json json_of(const ManifestFile& file) {
    nlohmann::json json = {{"bytes", file.bytes}, {"xxh3", checksum_text(file.checksum)}};
    if (file.is_safetensors()) {
        json["header"] = {{"bytes", file.header_bytes}, {"xxh3", checksum_text(file.header_checksum)}};
        json["tensors"] = nlohmann::json::object();
        for (const auto& [name, checksum] : file.tensors) json["tensors"][name] = checksum_text(checksum);
    }
    return json;
}

ManifestFile file_of(const nlohmann::json& json, const std::string& source, const std::string& name) {
    const std::string what = "files, " + name;
    ManifestFile file;
    file.bytes = require_unsigned(require_member(json, "bytes", source, what), source, what + ", bytes");
    file.checksum = require_checksum(require_member(json, "xxh3", source, what), source, what + ", xxh3");
    if (!json.contains("header")) return file;
    const nlohmann::json& header = json["header"];
    file.header_bytes =
        require_unsigned(require_member(header, "bytes", source, what), source, what + ", header");
    file.header_checksum =
        require_checksum(require_member(header, "xxh3", source, what), source, what + ", header");
    const nlohmann::json& tensors = require_member(json, "tensors", source, what);
    if (!tensors.is_object())
        throw UserError(fmt::format("{}: {}: tensors: expected an object", source, what));
    for (const auto& [tensor, checksum] : tensors.items())
        file.tensors[tensor] = require_checksum(checksum, source, what + ", " + tensor);
    return file;
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
    nlohmann::json json = {
        {"format", format_name}, {"version", format_version}, {"files", nlohmann::json::object()}};
    for (const auto& [name, file] : manifest) json["files"][name] = json_of(file);
    return sealed_json_text(json);
}

Manifest parse_manifest(std::string_view text, const std::string& source) {
    const nlohmann::json json = parse_sealed_json(text, source, format_name, format_version);
    const nlohmann::json& files = require_member(json, "files", source, "manifest");
    if (!files.is_object()) throw UserError(source + ": files: expected an object");
    Manifest manifest;
    for (const auto& [name, file] : files.items()) {
        if (name.empty() || name.find('/') != name.npos || name == "." || name == "..")
            throw UserError(fmt::format("{}: \"{}\" is no name of a file", source, name));
        manifest[name] = file_of(file, source, name);
    }
    return manifest;
}

namespace {

namespace fs = std::filesystem;

constexpr const char* manifest_name = "manifest.json";
constexpr const char* model_name = "model.safetensors";
constexpr const char* adapters_name = "adapter_model.safetensors";
constexpr const char* optimizer_name = "optimizer.safetensors";
constexpr const char* state_name = "state.json";
constexpr const char* config_names[] = {"config.json", "generation_config.json"};

[[noreturn]] void refuse(const fs::path& path, const std::string& reason) {
    throw UserError(path.string() + ": " + reason);
}

/// File of a rank's optimizer states.
std::string optimizer_name_of(int rank) {
    return rank == 0 ? optimizer_name : fmt::format("optimizer.{}.safetensors", rank);
}

bool is_optimizer_of_a_rank(std::string_view name) {
    constexpr std::string_view first = "optimizer.", last = ".safetensors";
    if (!name.starts_with(first) || !name.ends_with(last) || name.size() <= first.size() + last.size())
        return false;
    name = name.substr(first.size(), name.size() - first.size() - last.size());
    return std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

/// A safetensors file of the checkpoint: laid out before anything is written, since the sizes must be known.
struct TensorsFile {
    std::string name;
    std::span<const TensorToWrite> tensors;
    SafetensorsLayout layout;
};

/// The manifest as it will be but for the checksums, which do not change its length.
Manifest expected_manifest(std::span<const TensorsFile> files, const CheckpointToSave& checkpoint) {
    Manifest manifest;
    for (const TensorsFile& file : files) {
        ManifestFile& entry = manifest[file.name];
        entry.bytes = file.layout.file_size;
        entry.header_bytes = file.layout.header.size();
        for (const TensorToWrite& item : file.tensors) entry.tensors[item.tensor.name] = 0;
    }
    for (const auto& [name, text] : checkpoint.texts) manifest[name].bytes = text.size();
    return manifest;
}

/// The room that the files will take on a disk that hands out blocks of 4 KiB, with two for the directory.
std::uint64_t disk_bytes(const Manifest& manifest) {
    constexpr std::int64_t block = 4096;
    std::uint64_t total = 2 * block + align_up(manifest_text(manifest).size(), block);
    for (const auto& [name, file] : manifest) total += align_up(file.bytes, block);
    return total;
}

/// Calls `write` with all of a file's bytes, in order. If it throws, reading goes on to the end, since other
/// ranks may read the file together with this one.
template <class Write>
void read_to_the_end(const TensorsFile& source, Write&& write) {
    std::exception_ptr failure;
    stream_safetensors(source.layout, source.tensors, [&](std::span<const std::byte> bytes) {
        if (failure) return;
        try {
            write(bytes);
        } catch (const UserError&) {
            failure = std::current_exception();
        }
    });
    if (failure) std::rethrow_exception(failure);
}

/// Writes the file and enters its checksums.
void write_tensors(const fs::path& directory, const TensorsFile& source, ManifestFile& entry) {
    const SafetensorsLayout& layout = source.layout;
    std::optional<AtomicFile> file;
    Checksum whole, part;  // part: of the header, then of one tensor after the other
    auto piece = layout.pieces.begin();
    const auto finish_parts = [&] {
        for (; piece != layout.pieces.end() && file->written() >= piece->end; ++piece) {
            entry.tensors[source.tensors[piece->tensor].tensor.name] = part.value();
            part = Checksum();
        }
    };
    read_to_the_end(source, [&](std::span<const std::byte> bytes) {
        const bool header = !file;
        if (header) file.emplace(directory / source.name, layout.file_size);
        file->write(bytes);
        whole.add(bytes);
        part.add(bytes);
        if (header) {
            entry.header_checksum = part.value();
            part = Checksum();
        }
        finish_parts();
    });
    entry.checksum = whole.value();
    file->commit();
}

void require_texts(const fs::path& directory, const CheckpointToSave& checkpoint) {
    check(checkpoint.texts.contains(state_name), "a checkpoint has a state.json");
    for (const auto& [name, text] : checkpoint.texts)
        check(!name.empty() && name.find('/') == name.npos && name != manifest_name && name != model_name &&
                  name != adapters_name && name != optimizer_name && !is_optimizer_of_a_rank(name) &&
                  !text.empty(),
              "a checkpoint's texts have names of their own and are not empty");
    const nlohmann::json state =
        parse_strict_json(checkpoint.texts.at(state_name), (directory / state_name).string());
    check(state.is_object(), "state.json is a JSON object");
}

void require_same_checksum(const fs::path& path, const std::string& what, std::span<const std::byte> bytes,
                           std::uint64_t expected) {
    const std::uint64_t found = checksum_of(bytes);
    if (found != expected)
        refuse(path, fmt::format("{} damaged: checksum {}, the manifest says {}", what, checksum_text(found),
                                 checksum_text(expected)));
}

const ManifestFile& entry_of(const Manifest& manifest, const std::string& name, const fs::path& directory) {
    const auto found = manifest.find(name);
    if (found == manifest.end()) refuse(directory / manifest_name, fmt::format("{} is not listed", name));
    return found->second;
}

void require_size(const fs::path& path, std::uint64_t size, const ManifestFile& entry) {
    if (size != entry.bytes)
        refuse(path, fmt::format("damaged: {} bytes, the manifest says {}", size, entry.bytes));
}

SafetensorsFile read_tensors(const fs::path& directory, const std::string& name, const Manifest& manifest) {
    const ManifestFile& entry = entry_of(manifest, name, directory);
    const fs::path path = directory / name;
    {
        // The header comes first, so that its damage is reported as such, and not as the parser's guess.
        const MappedFile file(path);
        require_size(path, file.size(), entry);
        require_same_checksum(path, "header",
                              file.bytes().first(std::min<std::uint64_t>(entry.header_bytes, file.size())),
                              entry.header_checksum);
    }
    SafetensorsFile file(path);
    if (file.tensors().size() != entry.tensors.size() || file.header_size() != entry.header_bytes)
        refuse(path, "holds other tensors than the manifest lists");
    for (const SafetensorsEntry& tensor : file.tensors()) {
        const auto listed = entry.tensors.find(tensor.name);
        if (listed == entry.tensors.end())
            refuse(path, fmt::format("tensor \"{}\" is not in the manifest", tensor.name));
        require_same_checksum(path, fmt::format("tensor \"{}\"", tensor.name), tensor.data, listed->second);
        file.release();  // else all of it stays resident, beside a model that fills the memory
    }
    return file;
}

std::string read_text(const fs::path& path, const ManifestFile& entry) {
    const MappedFile file(path);
    require_size(path, file.size(), entry);
    require_same_checksum(path, "file", file.bytes(), entry.checksum);
    return std::string(file.text());
}

LoadedCheckpoint read_checkpoint(const fs::path& directory, CheckpointUse use) {
    require_checkpoint(directory);
    if (use == CheckpointUse::to_go_on && !fs::exists(directory / optimizer_name))
        refuse(directory,
               fmt::format("{} is missing, without which no run goes on; the weights are there: they can be "
                           "used, and `load_weights` begins another run with them",
                           optimizer_name));
    if (const std::string version = saved_over_by_transformers(directory); !version.empty())
        refuse(directory,
               fmt::format("transformers {} has saved a model over it, to which the optimizer's states do "
                           "not belong; begin with its weights by `load_weights`",
                           version));
    const Manifest manifest =
        parse_manifest(MappedFile(directory / manifest_name).text(), (directory / manifest_name).string());
    LoadedCheckpoint loaded{
        .directory = directory,
        .model =
            read_tensors(directory, manifest.contains(adapters_name) ? adapters_name : model_name, manifest),
        .optimizer = {},
        .optimizer_of_ranks = {},
        .texts = {},
        .warning = {}};
    entry_of(manifest, state_name, directory);
    for (const auto& [name, entry] : manifest)
        if (!entry.is_safetensors()) loaded.texts[name] = read_text(directory / name, entry);
    if (use == CheckpointUse::weights) return loaded;
    loaded.optimizer = read_tensors(directory, optimizer_name, manifest);
    for (const auto& [name, entry] : manifest)
        if (is_optimizer_of_a_rank(name))
            loaded.optimizer_of_ranks.push_back(read_tensors(directory, name, manifest));
    return loaded;
}

/// Identity of the file or folder that a name denotes at this moment.
std::optional<std::pair<dev_t, ino_t>> identity_of(const fs::path& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) return {};
    return std::pair{status.st_dev, status.st_ino};
}

/// Reads a checkpoint, and reads again if a training run replaced it meanwhile.
LoadedCheckpoint read_settled_checkpoint(const fs::path& directory, CheckpointUse use) {
    for (int attempt = 0;; ++attempt) {
        const auto before = identity_of(directory);
        try {
            return read_checkpoint(directory, use);
        } catch (const UserError&) {
            if (attempt == 5 || identity_of(directory) == before) throw;
        }
    }
}

}  // namespace

std::string saved_over_by_transformers(const fs::path& directory) {
    constexpr const char* config_name = "config.json";
    if (!fs::exists(directory / manifest_name) || !fs::exists(directory / config_name)) return "";
    const MappedFile file(directory / config_name);
    const auto config = nlohmann::json::parse(file.text(), nullptr, false);
    if (!config.is_object() || !config.contains("transformers_version")) return "";
    const Manifest manifest =
        parse_manifest(MappedFile(directory / manifest_name).text(), (directory / manifest_name).string());
    const auto own = manifest.find(config_name);
    if (own == manifest.end() || own->second.checksum == checksum_of(file.bytes())) return "";
    const auto& version = config["transformers_version"];
    return version.is_string() ? version.get<std::string>() : version.dump();
}

void require_checkpoint(const fs::path& directory) {
    if (!fs::exists(directory)) refuse(directory, "does not exist");
    if (!fs::is_directory(directory)) refuse(directory, "is a file, expected the directory of a checkpoint");
    const auto has = [&](const char* name) { return fs::exists(directory / name); };
    const char* const missing = !has(manifest_name) ? manifest_name : !has(state_name) ? state_name : nullptr;
    if (!missing) return;
    if (has(manifest_name) || has(state_name) || has(optimizer_name))
        refuse(directory,
               fmt::format("{} is missing: a checkpoint of which a part was removed, or not copied; "
                           "copy all of it again",
                           missing));
    refuse(directory, has(model_name)
                          ? "holds weights, but no checkpoint to go on from; `load_weights` begins with them"
                          : "holds no checkpoint");
}

namespace {

/// Throws UserError if `directory` holds anything but a checkpoint.
void require_only_checkpoint(const fs::path& directory) {
    if (!fs::exists(directory)) return;
    if (!fs::is_directory(directory)) refuse(directory, "is a file, expected a directory for a checkpoint");
    Manifest listed;
    try {
        listed = parse_manifest(MappedFile(directory / manifest_name).text(), "");
    } catch (const UserError&) {
        // Missing or damaged: the fixed names below remain.
    }
    const bool ours =
        fs::exists(directory / state_name);  // other programs write no such file beside config.json
    const std::vector<std::string> tokenizers = tokenizer_file_names();  // perhaps put there by hand
    for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
        const std::string name = entry.path().filename().string();
        const bool known = name == manifest_name || name == model_name || name == adapters_name ||
                           name == optimizer_name || name == state_name || is_optimizer_of_a_rank(name) ||
                           (ours && std::ranges::find(config_names, name) != std::end(config_names)) ||
                           std::ranges::find(tokenizers, name) != tokenizers.end();
        if (!known && !listed.contains(name))
            refuse(
                directory,
                fmt::format("holds \"{}\", which is no part of a checkpoint and would be replaced with it; "
                            "choose another directory or move that away",
                            name));
    }
}

}  // namespace

void require_checkpoint_place(const fs::path& directory) {
    require_only_checkpoint(directory);
    require_only_checkpoint(AtomicDirectory::previous_of(directory));  // a save replaces it, too
}

namespace {

/// Work that ranks share: where one rank fails, all throw its error.
class Together {
  public:
    explicit Together(Ranks* ranks) : ranks_(ranks) {}
    int rank() const { return ranks_ ? ranks_->rank() : 0; }

    /// Runs this rank's share and returns the texts of all shares, by rank.
    template <class Share>
    std::vector<std::string> run(Share&& share) const {
        if (!ranks_) return {share()};
        // The first character marks a text (+) or an error (-).
        std::string mine;
        try {
            mine = "+" + share();
        } catch (const UserError& error) {
            mine = fmt::format("-{}", error.what());
        }
        std::vector<std::string> all = ranks_->gather(mine);
        for (std::size_t rank = 0; rank < all.size(); ++rank) {
            if (all[rank].starts_with('-'))
                throw UserError(
                    fmt::format("{}: {}", ranks_->name_of(static_cast<int>(rank)), all[rank].substr(1)));
            all[rank].erase(0, 1);
        }
        return all;
    }

  private:
    Ranks* ranks_;
};

/// The files of all ranks.
Manifest joined(const std::vector<std::string>& manifests) {
    Manifest all;
    for (const std::string& text : manifests) all.merge(parse_manifest(text, "the manifest of a rank"));
    return all;
}

}  // namespace

void save_checkpoint(const fs::path& directory, const CheckpointToSave& checkpoint, Ranks* ranks) {
    const Together together(ranks);
    const bool is_first = together.rank() == 0;
    std::vector<TensorsFile> files;
    Manifest mine;
    // "pt" makes Hugging Face's library read the file as PyTorch's; it says nothing of the layout.
    const std::map<std::string, std::string> metadata = {{"format", "pt"}};
    const auto lay_out = [&](const std::string& name, std::span<const TensorToWrite> tensors) {
        files.push_back({name, tensors, lay_out_safetensors(tensors, metadata, (directory / name).string())});
    };
    const Manifest expected = joined(together.run([&] {
        if (is_first) {
            require_texts(directory, checkpoint);
            require_checkpoint_place(directory);
        }
        lay_out(checkpoint.adapters ? adapters_name : model_name, checkpoint.model);
        if (is_first || !checkpoint.optimizer.empty())
            lay_out(optimizer_name_of(together.rank()), checkpoint.optimizer);
        mine = expected_manifest(std::span(files).subspan(is_first ? 0 : 1),
                                 is_first ? checkpoint : CheckpointToSave{});
        return manifest_text(mine);
    }));
    std::optional<AtomicDirectory> next;
    const std::string name = together.run([&] {
        if (!is_first) return std::string();
        return next.emplace(directory, disk_bytes(expected)).staging().filename().string();
    })[0];
    const fs::path staging =
        is_first ? next->staging() : AtomicDirectory::previous_of(directory).parent_path() / name;
    const Manifest manifest = joined(together.run([&] {
        for (const TensorsFile& file : files)
            if (mine.contains(file.name))
                write_tensors(staging, file, mine[file.name]);
            else  // read together with the first rank, which writes it
                read_to_the_end(file, [](std::span<const std::byte>) {});
        if (is_first)
            for (const auto& [text_name, text] : checkpoint.texts) {
                write_whole(staging / text_name, text);
                mine[text_name].checksum = checksum_of(std::as_bytes(std::span(text)));
            }
        return manifest_text(mine);
    }));
    together.run([&] {
        if (is_first) {
            write_whole(staging / manifest_name, manifest_text(manifest));
            next->commit();
        }
        return std::string();
    });
}

LoadedCheckpoint load_checkpoint(const fs::path& directory, CheckpointUse use) {
    std::string reason;
    try {
        return read_settled_checkpoint(directory, use);
    } catch (const UserError& error) {
        const fs::path previous = AtomicDirectory::previous_of(directory);
        if (!fs::exists(previous)) throw;
        reason = error.what();
    }
    const fs::path previous = AtomicDirectory::previous_of(directory);
    try {
        LoadedCheckpoint loaded = read_settled_checkpoint(previous, use);
        loaded.warning =
            fmt::format("{}; went back to the checkpoint before it, {}", reason, previous.string());
        return loaded;
    } catch (const UserError& error) {
        throw UserError(fmt::format("{}; nor is the checkpoint before it whole: {}", reason, error.what()));
    }
}

}  // namespace mantissa
