#include "tests/codegen/ptx_kernel.h"

#include <set>

#include "mantissa/base/error.h"
#include "mantissa/device/cpu/kernels/fused_stores.h"
#include "mantissa/graph/graph.h"

namespace mantissa::testing {

using cuda::DevicePtr;
using cuda::Driver;
using cuda::require;

namespace {

/// FP32 scratch rows of a block in global memory: the header of the listing says how many numbers.
std::int64_t scratch_of_block(const std::string& text) {
    const std::size_t at = text.find(" of partial sums, which start at zero; ");
    check(at != std::string::npos, "the listing says what a launch needs");
    return std::stoll(text.substr(text.find(';', at) + 1));
}

/// Memory of one launch.
class Buffers {
  public:
    Buffers(const Driver& driver, cuda::Stream stream) : driver_(driver), stream_(stream) {}
    ~Buffers() {
        for (const DevicePtr one : all_) driver_.mem_free(one);
    }
    Buffers(const Buffers&) = delete;
    Buffers& operator=(const Buffers&) = delete;

    DevicePtr allocate(std::size_t bytes) {
        DevicePtr address = 0;
        require(driver_, driver_.mem_alloc(&address, std::max<std::size_t>(bytes, 1)), "memory");
        all_.push_back(address);
        return address;
    }
    DevicePtr upload(std::span<const std::byte> from) {
        const DevicePtr to = allocate(from.size());
        require(driver_, driver_.memcpy_htod_async(to, from.data(), from.size(), stream_), "a copy");
        return to;
    }
    void download(std::span<std::byte> to, DevicePtr from) {
        require(driver_, driver_.memcpy_dtoh_async(to.data(), from, to.size(), stream_), "a copy back");
    }

  private:
    const Driver& driver_;
    cuda::Stream stream_;
    std::vector<DevicePtr> all_;
};

}  // namespace

struct PtxKernel::State {
    explicit State(const codegen::NvptxTarget& asked)
        : target(asked), gpu({.architecture = asked.architecture}), driver(gpu.driver()) {
        gpu.count(true);
    }
    ~State() { driver.stream_destroy(stream); }

    codegen::NvptxTarget target;
    cuda::EmulatedGpu gpu;
    std::shared_ptr<const codegen::FusedKernel> kernel;
    std::int64_t scratch = 0;  // FP32 numbers of a block
    Driver driver;
    cuda::Stream stream = nullptr;
    cuda::Function function = nullptr;
};

PtxKernel::PtxKernel(const Graph& body, const codegen::NvptxTarget& target,
                     const std::function<void(std::string& text)>& change)
    : state_(std::make_unique<State>(target)) {
    codegen::Compiler compiler(target);
    state_->kernel = compiler.add(body);
    std::string text = compiler.list(*state_->kernel).assembly;
    change(text);
    state_->scratch = scratch_of_block(text);
    const Driver& driver = state_->driver;
    require(driver, driver.stream_create(&state_->stream, 0), "a stream");
    cuda::Module module = nullptr;
    require(driver, driver.module_load_data_ex(&module, text.c_str(), 0, nullptr, nullptr), "the module");
    require(driver, driver.module_get_function(&state_->function, module, state_->kernel->name.c_str()),
            "the kernel");
}

PtxKernel::~PtxKernel() = default;

std::vector<cuda::LaunchCount> PtxKernel::take_counts() { return state_->gpu.take_counts(); }

const codegen::LoopNest& PtxKernel::nest() const { return state_->kernel->nest; }

std::vector<float> PtxKernel::launch(std::span<const std::span<const std::byte>> inputs,
                                     std::span<const std::span<std::byte>> outputs, const Rows& rows) const {
    const Driver& driver = state_->driver;
    Buffers buffers(driver, state_->stream);
    std::set<std::size_t> sums;
    for (const codegen::RowSum& sum : on_cpu::sums_of(nest()))
        sums.insert(static_cast<std::size_t>(sum.output));
    std::vector<std::uint64_t> values;
    for (const auto& input : inputs) values.push_back(buffers.upload(input));
    for (const auto& output : outputs) values.push_back(buffers.allocate(output.size()));
    std::vector<float> partial_sums(static_cast<std::size_t>(rows.blocks() * nest().partial_sums));
    values.push_back(static_cast<std::uint64_t>(rows.count));
    values.push_back(static_cast<std::uint64_t>(rows.per_block));
    const DevicePtr partials = buffers.upload(std::as_bytes(std::span(partial_sums)));
    values.push_back(partials);
    values.push_back(
        buffers.allocate(static_cast<std::size_t>(rows.blocks() * state_->scratch) * sizeof(float)));
    std::vector<void*> parameters;
    for (std::uint64_t& value : values) parameters.push_back(&value);
    require(driver,
            driver.launch_kernel(state_->function, static_cast<unsigned>(rows.blocks()), 1, 1,
                                 static_cast<unsigned>(state_->target.threads), 1, 1, 0, state_->stream,
                                 parameters.data(), nullptr),
            "the launch");
    for (std::size_t i = 0; i < outputs.size(); ++i)
        if (!sums.contains(i)) buffers.download(outputs[i], values[inputs.size() + i]);
    if (!partial_sums.empty()) buffers.download(std::as_writable_bytes(std::span(partial_sums)), partials);
    require(driver, driver.stream_synchronize(state_->stream), "the launch");
    return partial_sums;
}

}  // namespace mantissa::testing
