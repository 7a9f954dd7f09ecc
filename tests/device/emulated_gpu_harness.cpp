#include "tests/device/emulated_gpu_harness.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <sstream>

#include "mantissa/base/whole_units.h"
#include "tests/emulated_gpu/ptx_text.h"

namespace mantissa::testing {

using cuda::DevicePtr;
using cuda::Result;

GpuUnderTest::GpuUnderTest(const cuda::EmulatedGpuOptions& options) : gpu_(options), driver_(gpu_.driver()) {
    EXPECT_EQ(driver_.stream_create(&stream_, 0), Result::success);
}

GpuUnderTest::~GpuUnderTest() { driver_.stream_destroy(stream_); }

DevicePtr GpuUnderTest::allocate(std::size_t bytes) {
    DevicePtr address = 0;
    EXPECT_EQ(driver_.mem_alloc(&address, bytes), Result::success) << report();
    return address;
}

DevicePtr GpuUnderTest::upload_bytes(const void* from, std::size_t bytes) {
    const DevicePtr address = allocate(bytes);
    EXPECT_EQ(driver_.memcpy_htod_async(address, from, bytes, stream_), Result::success);
    return address;
}

void GpuUnderTest::download_bytes(void* to, DevicePtr from, std::size_t bytes) {
    EXPECT_EQ(driver_.memcpy_dtoh_async(to, from, bytes, stream_), Result::success) << report();
}

Result GpuUnderTest::load(const std::string& text, const std::string& name, cuda::Function& function) {
    cuda::Module module = nullptr;
    if (const Result result = driver_.module_load_data_ex(&module, text.c_str(), 0, nullptr, nullptr);
        result != Result::success)
        return result;
    return driver_.module_get_function(&function, module, name.c_str());
}

Result GpuUnderTest::launch(cuda::Function function, const Launch& launch,
                            std::vector<std::uint64_t> parameters) {
    std::vector<void*> places;
    for (std::uint64_t& one : parameters) places.push_back(&one);
    if (const Result result = driver_.launch_kernel(function, launch.blocks, 1, 1, launch.threads, 1, 1,
                                                    launch.shared, stream_, places.data(), nullptr);
        result != Result::success)
        return result;
    return driver_.stream_synchronize(stream_);
}

Result GpuUnderTest::run(const std::string& text, const std::string& name, const Launch& launched,
                         const std::vector<std::uint64_t>& parameters) {
    cuda::Function function = nullptr;
    if (const Result result = load(text, name, function); result != Result::success) return result;
    return launch(function, launched, parameters);
}

std::string kernel_text(const std::string& body, int parameters, const std::string& target,
                        const std::string& version) {
    std::string text =
        fmt::format(".version {}\n.target {}\n.address_size 64\n.visible .entry k(", version, target);
    for (int i = 0; i < parameters; ++i) text += fmt::format("{}.param .u64 k_{}", i ? ", " : "", i);
    text +=
        ")\n{\n.reg .b64 %p<8>;\n.reg .b32 %tid, %lane, %block;\nmov.u32 %tid, %tid.x;\nmov.u32 %lane, "
        "%laneid;\n"
        "mov.u32 %block, %ctaid.x;\n";
    for (int i = 0; i < parameters; ++i) text += fmt::format("ld.param.u64 %p{}, [k_{}];\n", i, i);
    return text + body + "\nret;\n}\n";
}

std::uint64_t evaluate(GpuUnderTest& gpu, const std::string& instruction, const std::string& types,
                       const std::vector<std::uint64_t>& operands, const std::string& target,
                       const std::string& version) {
    std::vector<std::vector<std::uint64_t>> each;
    for (const std::uint64_t one : operands) each.push_back({one});
    return evaluate_all(gpu, instruction, types, each, target, version)[0];
}

std::vector<std::uint64_t> evaluate_all(GpuUnderTest& gpu, const std::string& instruction,
                                        const std::string& types,
                                        const std::vector<std::vector<std::uint64_t>>& operands,
                                        const std::string& target, const std::string& version) {
    std::istringstream words(types);
    std::vector<std::string> each;
    for (std::string word; words >> word;) each.push_back(word);
    const std::size_t count = operands[0].size();
    const char* const names[] = {"%d", "%a", "%b", "%c", "%e"};
    std::string body =
        ".reg .b64 %at, %to;\nmad.lo.s32 %tid, %block, 256, %tid;\nmad.wide.u32 %at, %tid, 8, %p0;\n"
        "mad.wide.u32 %to, %tid, 8, %p1;\n";
    body += fmt::format(".reg .pred %out;\nsetp.ge.u32 %out, %tid, {};\n@%out bra $end;\n", count);
    const auto bits = [](const std::string& type) { return 8 * std::max(cuda::ptx::bytes_of_type(type), 2); };
    for (std::size_t i = 0; i < each.size(); ++i)
        body += fmt::format(".reg .b{} {};\n", bits(each[i]), names[i]);
    for (std::size_t i = 1; i < each.size(); ++i)
        body += fmt::format("ld.global.b{} {}, [%at+{}];\n", bits(each[i]), names[i], 8 * count * (i - 1));
    body += instruction + fmt::format("\nst.global.b{} [%to], %d;\n$end:", bits(each[0]));
    std::vector<std::uint64_t> all;
    for (const auto& one : operands) all.insert(all.end(), one.begin(), one.end());
    const DevicePtr in = gpu.upload(all), out = gpu.upload(std::vector<std::uint64_t>(count));
    const Result result =
        gpu.run(kernel_text(body, 2, target, version), "k",
                {.blocks = static_cast<unsigned>(ceil_div(count, 256)), .threads = 256}, {in, out});
    EXPECT_EQ(result, Result::success) << instruction << ": " << gpu.report();
    if (result != Result::success) return std::vector<std::uint64_t>(count, 0xdeaddeaddeaddead);
    auto results = gpu.download<std::uint64_t>(out, count);
    gpu.driver().mem_free(in);
    gpu.driver().mem_free(out);
    return results;
}

}  // namespace mantissa::testing
