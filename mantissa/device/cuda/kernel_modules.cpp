#include "mantissa/device/cuda/kernel_modules.h"

#include <fmt/format.h>

#include <array>

#include "mantissa/base/clock.h"
#include "mantissa/base/error.h"

namespace mantissa::inline v0::on_cuda {

KernelModules::~KernelModules() {
    for (const cuda::Module module : modules_) driver_.module_unload(module);
}

std::shared_ptr<const GpuKernel> KernelModules::add(codegen::GridKernel kernel) {
    const std::string text = codegen::text_of(kernel);
    std::string name = kernel.name;
    return add(std::move(name), text,
               [kernel = std::move(kernel), target = target_] { return codegen::compile(kernel, target); });
}

std::shared_ptr<const GpuKernel> KernelModules::add(std::string name, const std::string& text,
                                                    std::function<codegen::Listing()> compile) {
    return requests_.find(text, [&] {
        return GpuKernel{.name = std::move(name), .text = text, .compile = std::move(compile)};
    });
}

void KernelModules::finish() {
    for (const std::shared_ptr<GpuKernel>& kernel : requests_.take_pending()) {
        load(*kernel);
        kernel->compile = nullptr;
    }
}

codegen::Listing KernelModules::found_or_made(const GpuKernel& kernel) {
    const std::string key = fmt::format("{} {}\n{}", target_.architecture, kernel.name, kernel.text);
    if (std::optional<codegen::Listing> kept = folder_.find(key)) {
        ++found_;
        return std::move(*kept);
    }
    codegen::Listing made = kernel.compile();
    folder_.keep(key, made);
    return made;
}

void KernelModules::load(GpuKernel& kernel) {
    const Stopwatch watch;
    codegen::Listing code = found_or_made(kernel);
    std::array<char, 4096> log = {};
    cuda::JitOption names[] = {cuda::JitOption::error_log_buffer,
                               cuda::JitOption::error_log_buffer_size_bytes};
    void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
    cuda::Module module = nullptr;
    const cuda::Result result = driver_.module_load_data_ex(&module, code.assembly.c_str(), 2, names, values);
    if (result != cuda::Result::success)
        throw UserError(fmt::format("the driver does not take the kernel {}: {} {}", kernel.name,
                                    words_of(driver_, result), log.data()));
    modules_.push_back(module);
    require(driver_, driver_.module_get_function(&kernel.function, module, kernel.name.c_str()),
            "a kernel's function");
    kernel.milliseconds = watch.milliseconds();
    listings_.push_back({fmt::format("{}_{}", kernel.name, listings_.size()), kernel.milliseconds,
                         kernel.text, std::move(code.ir), std::move(code.assembly)});
}

}  // namespace mantissa::on_cuda
