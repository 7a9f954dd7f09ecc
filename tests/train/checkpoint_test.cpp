// The promises of a checkpoint: all of it comes back, no damaged bit passes, a full disk changes nothing.
#include "mantissa/train/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <regex>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "tests/support/error_of.h"
#include "tests/support/temporary_directory.h"
#include "tests/train/checkpoint_example.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using testing::error_of;

std::string load_error(const fs::path& directory) {
    return error_of([&] { load_checkpoint(directory); });
}

std::string save_error(const fs::path& directory, const ExampleCheckpoint& example) {
    return error_of([&] { save_checkpoint(directory, example.to_save()); });
}

using Names = std::vector<std::string>;

TEST(Checkpoint, ComesBackWhole) {
    const TemporaryDirectory directory;
    const fs::path path = directory / "ckpt";
    save_checkpoint(path, ExampleCheckpoint(17).to_save());
    EXPECT_EQ(names_in(path), (Names{"config.json", "manifest.json", "model.safetensors",
                                     "optimizer.safetensors", "state.json"}));
    const LoadedCheckpoint loaded = load_checkpoint(path);
    EXPECT_EQ(loaded.warning, "");
    EXPECT_EQ(loaded.directory, path);
    EXPECT_EQ(loaded.texts.at("config.json"), "{}");
    EXPECT_EQ(step_of(loaded), 17);
    // GPT-2's weights are stored turned, as others expect them; moments are stored as they lie in memory.
    EXPECT_EQ(loaded.model.view("h.0.attn.c_attn.weight").shape, (std::vector<std::int64_t>{4, 12}));
    EXPECT_EQ(loaded.optimizer->view("m.h.0.attn.c_attn.weight").shape, (std::vector<std::int64_t>{12, 4}));
    EXPECT_EQ(loaded.model.metadata().at("format"), "pt");
}

TEST(Checkpoint, KeepsThePreviousOne) {
    const TemporaryDirectory directory;
    for (int step = 1; step <= 3; ++step)
        save_checkpoint(directory / "ckpt", ExampleCheckpoint(step).to_save());
    EXPECT_EQ(names_in(directory.path()), (Names{"ckpt", "ckpt.previous"}));
    EXPECT_EQ(step_of(load_checkpoint(directory / "ckpt")), 3);
    EXPECT_EQ(step_of(load_checkpoint(directory / "ckpt.previous")), 2);
}

TEST(Checkpoint, GoesBackToThePreviousOneAndSaysSo) {
    const TemporaryDirectory directory;
    const fs::path path = directory / "ckpt";
    for (int step = 1; step <= 2; ++step) save_checkpoint(path, ExampleCheckpoint(step).to_save());
    fs::resize_file(path / "model.safetensors", 100);
    LoadedCheckpoint loaded = load_checkpoint(path);
    EXPECT_EQ(step_of(loaded), 1);
    EXPECT_TRUE(std::regex_match(
        loaded.warning, std::regex(".*/ckpt/model.safetensors: damaged: 100 bytes, the manifest says [0-9]+; "
                                   "went back to the checkpoint before it, .*/ckpt.previous")))
        << loaded.warning;
    fs::remove_all(path);
    loaded = load_checkpoint(path);
    EXPECT_EQ(loaded.warning, path.string() + ": does not exist; went back to the checkpoint before it, " +
                                  path.string() + ".previous");
    fs::remove(directory / "ckpt.previous" / "state.json");
    EXPECT_EQ(
        load_error(path),
        path.string() + ": does not exist; nor is the checkpoint before it whole: " + path.string() +
            ".previous: state.json is missing: a checkpoint of which a part was removed, or not copied; copy "
            "all of it again");
}

TEST(Checkpoint, SavesOverADamagedOne) {
    const TemporaryDirectory directory;
    const fs::path path = directory / "ckpt";
    save_checkpoint(path, ExampleCheckpoint(1).to_save());
    fs::remove(path / "manifest.json");
    save_checkpoint(path, ExampleCheckpoint(2).to_save());
    EXPECT_EQ(step_of(load_checkpoint(path)), 2);
    // Checkpoints that others wrote have a config.json, too, and no state.json.
    for (const char* name : {"manifest.json", "state.json"}) fs::remove(path / name);
    EXPECT_NE(save_error(path, ExampleCheckpoint(3)).find("holds \"config.json\""), std::string::npos);
}

TEST(Checkpoint, DoesNotReplaceWhatIsNoCheckpoint) {
    const TemporaryDirectory directory;
    const fs::path path = directory / "home";
    fs::create_directories(path);
    EXPECT_EQ(save_error(path, ExampleCheckpoint(1)), "no error") << "an empty directory may be used";
    std::ofstream(path / "thesis.tex") << "years of work";
    EXPECT_EQ(save_error(path, ExampleCheckpoint(2)),
              path.string() +
                  ": holds \"thesis.tex\", which is no part of a checkpoint and would be replaced with it; "
                  "choose another directory or move that away");
    EXPECT_EQ(read_file(path / "thesis.tex"), "years of work");
    std::ofstream(directory / "file") << "x";
    EXPECT_EQ(save_error(directory / "file", ExampleCheckpoint(2)),
              (directory / "file").string() + ": is a file, expected a directory for a checkpoint");
}

TEST(Checkpoint, NamesWhatIsMissing) {
    const TemporaryDirectory directory;
    EXPECT_EQ(load_error(directory / "none"), (directory / "none").string() + ": does not exist");
    EXPECT_EQ(load_error(directory.path()), directory.path().string() + ": holds no checkpoint");
    const fs::path path = directory / "ckpt";
    save_checkpoint(path, ExampleCheckpoint(1).to_save());
    const std::string part =
        " is missing: a checkpoint of which a part was removed, or not copied; copy all of it again";
    fs::rename(path / "manifest.json", directory / "m");
    EXPECT_EQ(load_error(path), path.string() + ": manifest.json" + part);
    fs::rename(directory / "m", path / "manifest.json");
    fs::rename(path / "optimizer.safetensors", directory / "o");
    EXPECT_EQ(load_error(path), path.string() +
                                    ": optimizer.safetensors is missing, without which no run goes on; the "
                                    "weights are there: they can be used, and `load_weights` begins another "
                                    "run with them");
    EXPECT_FALSE(load_checkpoint(path, CheckpointUse::weights).optimizer.has_value());
    fs::rename(directory / "o", path / "optimizer.safetensors");
    fs::remove(path / "state.json");
    EXPECT_EQ(load_error(path), path.string() + ": state.json" + part);
    for (const char* name : {"manifest.json", "optimizer.safetensors"}) fs::remove(path / name);
    EXPECT_EQ(
        load_error(path),
        path.string() + ": holds weights, but no checkpoint to go on from; `load_weights` begins with them");
    CheckpointToSave without_state;
    EXPECT_THROW(save_checkpoint(directory / "c", without_state), InternalError);
}

/// Flips one bit of every `stride`-th byte of every file, the bit's place in the byte changing from flip to
/// flip, and counts what the errors name: "model.safetensors tensor "wpe.weight""...
std::map<std::string, int> parts_named_by_flips(std::size_t stride) {
    const TemporaryDirectory directory;
    const fs::path path = directory / "ckpt";
    save_checkpoint(path, ExampleCheckpoint(5).to_save());
    const std::regex part(": (tensor \"[^\"]+\"|header|file) damaged: ");
    std::map<std::string, int> named;
    for (const std::string& name : names_in(path)) {
        const fs::path file = path / name;
        const std::string good = read_file(file);
        for (std::size_t at = 0; at < good.size(); at += stride) {
            std::fstream stream(file, std::ios::binary | std::ios::in | std::ios::out);
            stream.seekp(static_cast<std::streamoff>(at));
            stream.put(static_cast<char>(good[at] ^ (1 << at % 8)));
            stream.close();
            const std::string message = load_error(path);
            EXPECT_EQ(message.rfind(file.string() + ": ", 0), 0u)
                << name << ", byte " << at << ": " << message;
            std::smatch what;
            const bool found = std::regex_search(message, what, part);
            ++named[name + (found ? " " + what[1].str() : "")];
            std::ofstream(file, std::ios::binary) << good;
        }
        named[name + " bytes"] = static_cast<int>(good.size());
    }
    EXPECT_EQ(load_error(path), "no error");
    return named;
}

TEST(Checkpoint, FlippedBitsAreFoundAndNamed) {
    std::map<std::string, int> named = parts_named_by_flips(23);
    for (const char* part :
         {"model.safetensors tensor \"h.0.attn.c_attn.weight\"", "model.safetensors header",
          "optimizer.safetensors tensor \"m.wte.weight\"", "optimizer.safetensors header", "state.json file",
          "config.json file", "manifest.json"})
        EXPECT_GT(named[part], 0) << part;
    EXPECT_EQ(named["model.safetensors"], 0) << "damage in it always has a tensor's or the header's name";
}

TEST(CheckpointSlow, EveryFlippedBitIsFoundAndNamed) {
    std::map<std::string, int> named = parts_named_by_flips(1);
    // Each tensor was named once for each of its bytes, and so were the other parts.
    EXPECT_EQ(named["model.safetensors tensor \"h.0.attn.c_attn.weight\""], 4 * 12 * 4);
    EXPECT_EQ(named["optimizer.safetensors tensor \"m.ln_f.bias\""], 4 * 4);
    EXPECT_EQ(named["model.safetensors"], 0);
    for (const char* whole : {"state.json", "config.json"})
        EXPECT_EQ(named[whole + std::string(" file")], named[whole + std::string(" bytes")]);
    EXPECT_EQ(named["manifest.json"], named["manifest.json bytes"]);
}

TEST(Checkpoint, EveryMissingByteIsFound) {
    const TemporaryDirectory directory;
    const fs::path path = directory / "ckpt";
    save_checkpoint(path, ExampleCheckpoint(5).to_save());
    for (const std::string& name : names_in(path)) {
        const std::string good = read_file(path / name);
        for (std::size_t size = 0; size < good.size(); size += 1 + good.size() / 97) {
            fs::resize_file(path / name, size);
            ASSERT_EQ(load_error(path).rfind((path / name).string() + ": ", 0), 0u) << load_error(path);
            std::ofstream(path / name, std::ios::binary) << good;
        }
        std::ofstream(path / name, std::ios::binary) << good << '\0';
        EXPECT_NE(load_error(path), "no error") << name << " with a byte more";
        std::ofstream(path / name, std::ios::binary) << good;
    }
    EXPECT_EQ(load_error(path), "no error");
}

TEST(Checkpoint, FullDiskChangesNothing) {
    const SmallDisk disk(2 << 20);
    if (!disk.mounted()) GTEST_SKIP() << "no right to mount";
    const fs::path path = disk.path() / "ckpt";
    for (int step = 1; step <= 2; ++step) save_checkpoint(path, ExampleCheckpoint(step, 64).to_save());
    const std::regex expected(
        ".*/ckpt.*: not enough disk space: ([0-9]+) bytes needed, ([0-9]+) free; free some or choose "
        "another place");
    int refused = 0;
    // Disks with no byte left up to one with room, block by block.
    for (std::uint64_t left = 0;; left += 4096) {
        fs::remove(disk.path() / "filler");
        const std::uint64_t fill = fs::space(disk.path()).available - left;
        std::ofstream(disk.path() / "filler", std::ios::binary) << std::string(fill, 'x');
        const std::string message = save_error(path, ExampleCheckpoint(3, 64));
        if (message == "no error") break;
        ++refused;
        std::smatch figures;
        ASSERT_TRUE(std::regex_match(message, figures, expected)) << message;
        EXPECT_EQ(std::stoull(figures[2]), left);
        EXPECT_GT(std::stoull(figures[1]), left);
        const LoadedCheckpoint kept = load_checkpoint(path);
        EXPECT_EQ(step_of(kept), 2);
        EXPECT_EQ(kept.warning, "");
        ASSERT_EQ(step_of(load_checkpoint(path.string() + ".previous")), 1);
        ASSERT_EQ(names_in(disk.path()), (Names{"ckpt", "ckpt.previous", "filler"}));
    }
    EXPECT_GT(refused, 20);
    EXPECT_EQ(step_of(load_checkpoint(path)), 3);
}

/// The disk as announced is large enough, and then a write fails all the same: here at a limit on the size of
/// files.
TEST(Checkpoint, WriteThatFailsMidwayChangesNothing) {
    const TemporaryDirectory directory;
    const fs::path path = directory / "ckpt";
    save_checkpoint(path, ExampleCheckpoint(1, 64).to_save());
    const std::uint64_t largest = fs::file_size(path / "optimizer.safetensors");
    for (std::uint64_t limit = 0; limit < largest; limit += 1 + largest / 40) {
        const pid_t child = ::fork();
        if (child == 0) {
            ::signal(SIGXFSZ, SIG_IGN);
            const rlimit files = {limit, limit};
            ::setrlimit(RLIMIT_FSIZE, &files);
            const std::string message = save_error(path, ExampleCheckpoint(2, 64));
            ::_exit(std::regex_match(message,
                                     std::regex(".*: cannot reserve space: File too large: [1-9][0-9]* bytes "
                                                "needed, but no file may be so large here; .*"))
                        ? 0
                        : 1);
        }
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        EXPECT_EQ(status, 0) << "another message at the limit of " << limit;
        ASSERT_EQ(step_of(load_checkpoint(path)), 1);
        ASSERT_EQ(names_in(directory.path()), Names{"ckpt"});
    }
}

}  // namespace
}  // namespace mantissa
