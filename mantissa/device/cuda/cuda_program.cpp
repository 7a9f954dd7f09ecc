#include "mantissa/device/cuda/cuda_program.h"

#include "mantissa/graph/graph.h"

namespace mantissa::inline v0::on_cuda {

CudaProgram::CudaProgram(const Context& context, std::span<const BoundStep> steps) : context_(context) {
    for (const BoundStep& step : steps)
        if (const auto* bound = std::get_if<BoundLaunch>(&step))
            steps_.emplace_back(LaunchAddresses(*bound));
        else
            steps_.emplace_back(std::get<BoundCopy>(step));
}

CudaProgram::~CudaProgram() {
    if (graph_) context_.driver.graph_exec_destroy(graph_);
}

void CudaProgram::run() {
    if (!graph_) capture();
    require(context_.driver, context_.driver.graph_launch(graph_, context_.work), "starting a program");
}

void CudaProgram::run_step(std::size_t step) {
    if (const auto* bound = std::get_if<LaunchAddresses>(&steps_[step])) return bound->run();
    const auto& copy = std::get<BoundCopy>(steps_[step]);
    queue_copy(context_, copy.to, copy.from.data(), copy.from.size());
}

void CudaProgram::capture() {
    const cuda::Driver& driver = context_.driver;
    require(driver, driver.stream_begin_capture(context_.work, cuda::CaptureMode::thread_local_),
            "recording a program");
    cuda::Graph graph = nullptr;
    try {
        for (std::size_t step = 0; step < steps_.size(); ++step) run_step(step);
    } catch (...) {
        driver.stream_end_capture(context_.work, &graph);
        if (graph) driver.graph_destroy(graph);
        throw;
    }
    require(driver, driver.stream_end_capture(context_.work, &graph), "recording a program");
    const cuda::Result result = driver.graph_instantiate(&graph_, graph, 0);
    driver.graph_destroy(graph);
    require(driver, result, "making a program's graph");
}

}  // namespace mantissa::on_cuda
