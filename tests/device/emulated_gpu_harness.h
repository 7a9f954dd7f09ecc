// Runs kernels of PTX on the emulated GPU, for its tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <ostream>
#include <string>
#include <vector>

#include "tests/emulated_gpu/emulated_gpu.h"

namespace mantissa::inline v0::cuda {

inline void PrintTo(Result result, std::ostream* to) { *to << static_cast<int>(result); }

}  // namespace mantissa::cuda

namespace mantissa::testing {

class GpuUnderTest {
  public:
    explicit GpuUnderTest(const cuda::EmulatedGpuOptions& options = {.architecture = "sm_80", .threads = 1});
    ~GpuUnderTest();
    GpuUnderTest(const GpuUnderTest&) = delete;
    GpuUnderTest& operator=(const GpuUnderTest&) = delete;

    const cuda::Driver& driver() const { return driver_; }
    cuda::EmulatedGpu& gpu() { return gpu_; }
    cuda::Stream stream() const { return stream_; }
    std::string report() const { return gpu_.report(); }

    cuda::DevicePtr allocate(std::size_t bytes);
    template <class T>
    cuda::DevicePtr upload(const std::vector<T>& values) {
        return upload_bytes(values.data(), values.size() * sizeof(T));
    }
    template <class T>
    std::vector<T> download(cuda::DevicePtr from, std::size_t count) {
        std::vector<T> values(count);
        download_bytes(values.data(), from, count * sizeof(T));
        return values;
    }

    /// The result of loading the module; its function `name` then.
    cuda::Result load(const std::string& text, const std::string& name, cuda::Function& function);

    struct Launch {
        unsigned blocks = 1, threads = 32, shared = 0;
    };
    /// Loads, launches with parameters of 64 bits and waits: the first result that is no success.
    cuda::Result run(const std::string& text, const std::string& name, const Launch& launch,
                     const std::vector<std::uint64_t>& parameters);
    cuda::Result launch(cuda::Function function, const Launch& launch, std::vector<std::uint64_t> parameters);

  private:
    cuda::DevicePtr upload_bytes(const void* from, std::size_t bytes);
    void download_bytes(void* to, cuda::DevicePtr from, std::size_t bytes);

    cuda::EmulatedGpu gpu_;
    cuda::Driver driver_;
    cuda::Stream stream_ = nullptr;
};

/// A module with one kernel `k` of `parameters` 64-bit parameters, loaded into %p0, %p1, ... `body`:
/// statements, which may declare registers; %tid, %lane and %block are there.
std::string kernel_text(const std::string& body, int parameters, const std::string& target = "sm_80",
                        const std::string& version = "7.0");

/// The result of one instruction on operands, given and answered as bits. `types`: of %d, %a, %b, ... as "f32
/// f32".
std::uint64_t evaluate(GpuUnderTest& gpu, const std::string& instruction, const std::string& types,
                       const std::vector<std::uint64_t>& operands, const std::string& target = "sm_80",
                       const std::string& version = "7.0");

/// The same for many operands at once, a thread each; [operand][number].
std::vector<std::uint64_t> evaluate_all(GpuUnderTest& gpu, const std::string& instruction,
                                        const std::string& types,
                                        const std::vector<std::vector<std::uint64_t>>& operands,
                                        const std::string& target = "sm_80",
                                        const std::string& version = "7.0");

}  // namespace mantissa::testing
