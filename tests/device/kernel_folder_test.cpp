// Compiled kernels that are kept from one run to the next: taken only where they are what would be made
// again.
#include "mantissa/codegen/kernel_folder.h"

#include <gtest/gtest.h>

#include "mantissa/base/file.h"
#include "mantissa/base/version.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cuda/kernel_modules.h"
#include "tests/emulated_gpu/emulated_gpu.h"
#include "tests/support/temporary_directory.h"

namespace mantissa {
namespace {

namespace fs = std::filesystem;
using codegen::KernelFolder;

const codegen::Listing listing{.ir = "the IR\n", .assembly = "the assembly\n"};

bool has(const KernelFolder& folder, const std::string& key) {
    const auto found = folder.find(key);
    if (found) {
        EXPECT_EQ(found->ir, listing.ir);
        EXPECT_EQ(found->assembly, listing.assembly);
    }
    return found.has_value();
}

TEST(KernelFolder, FindsWhatItKeptAndNothingElse) {
    const TemporaryDirectory directory;
    const fs::path place = directory.path() / "not there yet" / "kernels";
    const KernelFolder folder(place, "maker 1");
    EXPECT_FALSE(has(folder, "key"));
    folder.keep("key", listing);
    EXPECT_TRUE(has(folder, "key"));
    EXPECT_TRUE(has(KernelFolder(place, "maker 1"), "key"));
    EXPECT_FALSE(has(folder, "another key"));
    EXPECT_FALSE(has(KernelFolder(place, "maker 2"), "key"));
    // A file under another's name, as where two keys had one checksum.
    fs::copy_file(folder.file_of("key"), folder.file_of("another key"));
    EXPECT_FALSE(has(folder, "another key"));
}

TEST(KernelFolder, DamageIsAsIfItWereNotThere) {
    const TemporaryDirectory directory;
    const KernelFolder folder(directory.path(), "maker");
    folder.keep("key", listing);
    const std::string whole = read_file(folder.file_of("key"));
    const auto put = [&](const std::string& text) {
        std::ofstream(folder.file_of("key"), std::ios::trunc) << text;
    };
    for (std::size_t i = 0; i < whole.size(); ++i) {
        std::string damaged = whole;
        damaged[i] = static_cast<char>(damaged[i] ^ 1);
        put(damaged);
        EXPECT_FALSE(has(folder, "key")) << "byte " << i;
        put(whole.substr(0, i));
        EXPECT_FALSE(has(folder, "key")) << "cut to " << i << " bytes";
    }
    put(whole + "x");
    EXPECT_FALSE(has(folder, "key"));
    folder.keep("key", listing);
    EXPECT_TRUE(has(folder, "key")) << "made again";
}

TEST(KernelFolder, WithoutAPlaceOrAMakerNothingIsKept) {
    const TemporaryDirectory directory;
    for (const KernelFolder& folder : {KernelFolder("", "maker"), KernelFolder(directory.path() / "k", ""),
                                       KernelFolder("/proc/k", "maker")}) {
        folder.keep("key", listing);
        EXPECT_FALSE(has(folder, "key"));
    }
    EXPECT_FALSE(fs::exists(directory.path() / "k"));
}

TEST(KernelFolder, FourMakersAreKept) {
    const TemporaryDirectory directory;
    const auto maker = [&](int i) { return KernelFolder(directory.path(), "maker " + std::to_string(i)); };
    for (int i = 0; i < 6; ++i) {
        maker(i).keep("key", listing);
        const fs::file_time_type old = fs::file_time_type::clock::now() - std::chrono::hours(10 - i);
        fs::last_write_time(maker(i).file_of("key").parent_path(), old);
    }
    for (int i = 0; i < 6; ++i) EXPECT_EQ(has(maker(i), "key"), i >= 2) << i;
}

TEST(KernelFolder, ABuildIsToldFromOthers) {
    EXPECT_GE(build_id().size(), 16U);
    EXPECT_EQ(build_id().find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_EQ(codegen::Compiler::version().starts_with("LLVM "), codegen::Compiler::refusal().empty());
}

TEST(KernelFolder, KernelsOfThisProgramAreKeptForItsBuildAndCompiler) {
    const TemporaryDirectory directory;
    const std::string maker = build_id() + " " + codegen::Compiler::version();
    EXPECT_EQ(KernelFolder(directory.path()).file_of("key"),
              KernelFolder(directory.path(), maker).file_of("key"));
    KernelFolder(directory.path()).keep("key", listing);
    EXPECT_TRUE(has(KernelFolder(directory.path(), maker), "key"));
    EXPECT_FALSE(has(KernelFolder(directory.path(), maker + ".1"), "key"));
}

/// Modules of the emulated GPU, and how often a kernel is compiled for them.
struct Modules {
    explicit Modules(const fs::path& folder, const std::string& architecture = "sm_80")
        : driver(gpu.driver()),
          modules((start(), driver), {.architecture = architecture}, KernelFolder(folder, "test")) {}

    void start() {
        cuda::Device device = 0;
        cuda::Context context = nullptr;
        ASSERT_EQ(driver.init(0), cuda::Result::success);
        ASSERT_EQ(driver.device_get(&device, 0), cuda::Result::success);
        ASSERT_EQ(driver.device_primary_ctx_retain(&context, device), cuda::Result::success);
        ASSERT_EQ(driver.ctx_set_current(context), cuda::Result::success);
    }

    void load(const std::string& text) {
        const auto kernel = modules.add("k", text, [this] {
            ++compiled;
            return codegen::Listing{.ir = "",
                                    .assembly =
                                        ".version 7.0\n.target sm_80\n.address_size 64\n"
                                        ".visible .entry k() {\nret;\n}\n"};
        });
        modules.finish();
        EXPECT_NE(kernel->function, nullptr);
    }

    cuda::EmulatedGpu gpu{{.architecture = "sm_90"}};
    cuda::Driver driver;
    on_cuda::KernelModules modules;
    int compiled = 0;
};

TEST(KernelFolder, ModulesAreCompiledOnce) {
    const TemporaryDirectory directory;
    const auto compiled = [&](const std::string& text, const std::string& architecture) {
        Modules modules(directory.path(), architecture);
        modules.load(text);
        EXPECT_EQ(modules.modules.found(), 1 - modules.compiled);
        EXPECT_EQ(modules.modules.listings().size(), 1U);
        return modules.compiled;
    };
    EXPECT_EQ(compiled("text", "sm_80"), 1);
    EXPECT_EQ(compiled("text", "sm_80"), 0);
    EXPECT_EQ(compiled("text", "sm_90"), 1) << "another architecture";
    EXPECT_EQ(compiled("other text", "sm_80"), 1);
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory.path()))
        if (entry.is_regular_file()) fs::resize_file(entry.path(), 10);
    EXPECT_EQ(compiled("text", "sm_80"), 1) << "damaged";
    EXPECT_EQ(compiled("text", "sm_80"), 0);
}

}  // namespace
}  // namespace mantissa
