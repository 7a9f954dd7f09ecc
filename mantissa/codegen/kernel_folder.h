// Compiled kernels in a folder, from one run to the next: each a file, found by the kernel's text, processor
// and compiler. A file that cannot be read, is damaged or is of another kernel is as if it were not there,
// and made again.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace mantissa::inline v0::codegen {

/// A compiled kernel, for people. For a GPU the assembly is PTX, under a header that says how to launch it.
struct Listing {
    std::string ir;
    std::string assembly;
};

class KernelFolder {
  public:
    /// Keeps nothing.
    KernelFolder() = default;
    /// `maker`: the program that makes kernels; another maker's are never taken. Kernels of the four makers
    /// that last added one are kept. Nothing is kept where the folder or the maker is empty.
    KernelFolder(std::filesystem::path folder, std::string maker);
    /// The folder of this program: its build, its compiler.
    explicit KernelFolder(std::filesystem::path folder);

    /// The kernel of that key, if it was kept. The host's have an object file as their assembly.
    std::optional<Listing> find(const std::string& key) const;
    /// Keeps the kernel, unless the folder cannot be written.
    void keep(const std::string& key, const Listing& kernel) const;

    std::filesystem::path file_of(const std::string& key) const;

  private:
    bool is_off() const { return folder_.empty(); }
    void drop_other_makers() const;

    std::filesystem::path folder_;
    std::string maker_;
};

/// The folder kernels of `cache_folder()`; empty where there is none.
std::filesystem::path folder_of_kernels();

}  // namespace mantissa::codegen
