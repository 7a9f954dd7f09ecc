// Speed of the emulated GPU: lane instructions a second, one thread, with and without a search for races.
//
//   bench_emulated_gpu [--benchmark_filter=...]     names are KERNEL/RACES
//
// arithmetic: sixteen multiply-adds in a loop, all lanes together. memory: a load, an addition and a store
// for each element. shared: a reduction of a block through shared memory and barriers.
#include <benchmark/benchmark.h>

#include <string>

#include "mantissa/base/error.h"
#include "tests/emulated_gpu/emulated_gpu.h"

namespace {

using namespace mantissa;

constexpr unsigned blocks = 16, threads = 256;

const std::string head =
    ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
    ".reg .b64 %x, %y;\n.reg .b32 %t, %i, %n, %s, %o;\n.reg .f32 %f, %g;\n.reg .pred %p;\n"
    ".shared .align 4 .b8 s[1024];\nmov.u32 %t, %tid.x;\nmov.u32 %i, %ctaid.x;\nmad.lo.u32 %i, %i, 256, %t;\n"
    "ld.param.u64 %x, [in];\nld.param.u64 %y, [out];\nmad.wide.u32 %x, %i, 4, %x;\nmad.wide.u32 %y, %i, 4, "
    "%y;\n"
    "ld.global.f32 %f, [%x];\nmov.u32 %n, 0;\n$loop:\n";
const std::string tail =
    "add.u32 %n, %n, 1;\nsetp.lt.u32 %p, %n, 64;\n@%p bra $loop;\nst.global.f32 [%y], %f;\nret;\n}\n";

std::string arithmetic() {
    std::string body;
    for (int i = 0; i < 16; ++i) body += "fma.rn.ftz.f32 %f, %f, 0f3F7FFFFF, 0f3F000000;\n";
    return head + body + tail;
}

std::string memory() {
    return head + "ld.global.f32 %g, [%x];\nadd.f32 %f, %f, %g;\nst.global.f32 [%y], %f;\n" + tail;
}

std::string shared() {
    return head +
           "shl.b32 %o, %t, 2;\nmov.u32 %s, s;\nadd.u32 %o, %o, %s;\nst.shared.f32 [%o], %f;\nbar.sync 0;\n"
           "xor.b32 %o, %o, 128;\nld.shared.f32 %g, [%o];\nadd.f32 %f, %f, %g;\nbar.sync 0;\n" +
           tail;
}

void run(benchmark::State& state, const std::string& text) {
    cuda::EmulatedGpu gpu({.architecture = "sm_80", .races = state.range(0) == 1, .threads = 1});
    const cuda::Driver driver = gpu.driver();
    const auto require = [&](cuda::Result result) { cuda::require(driver, result, "the benchmark"); };
    cuda::Stream stream = nullptr;
    cuda::Module module = nullptr;
    cuda::Function function = nullptr;
    cuda::DevicePtr in = 0, out = 0;
    require(driver.stream_create(&stream, 0));
    require(driver.module_load_data_ex(&module, text.c_str(), 0, nullptr, nullptr));
    require(driver.module_get_function(&function, module, "k"));
    require(driver.mem_alloc(&in, blocks * threads * 4));
    require(driver.mem_alloc(&out, blocks * threads * 4));
    require(driver.memset_d8_async(in, 0, blocks * threads * 4, stream));
    gpu.count(true);
    void* parameters[] = {&in, &out};
    for (auto unused : state) {
        require(driver.launch_kernel(function, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr));
        require(driver.stream_synchronize(stream));
    }
    std::uint64_t instructions = 0;
    for (const cuda::LaunchCount& one : gpu.take_counts()) instructions += one.lane_instructions;
    state.SetItemsProcessed(static_cast<std::int64_t>(instructions));
}

BENCHMARK_CAPTURE(run, arithmetic, arithmetic())->ArgName("races")->Arg(0)->Arg(1);
BENCHMARK_CAPTURE(run, memory, memory())->ArgName("races")->Arg(0)->Arg(1);
BENCHMARK_CAPTURE(run, shared, shared())->ArgName("races")->Arg(0)->Arg(1);

}  // namespace

BENCHMARK_MAIN();
