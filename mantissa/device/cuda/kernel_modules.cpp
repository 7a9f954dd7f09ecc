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
    std::string text = codegen::text_of(kernel);
    std::string name = kernel.name;
    return add(std::move(name), std::move(text),
               [kernel = std::move(kernel), target = target_] { return codegen::compile(kernel, target); });
}

std::shared_ptr<const GpuKernel> KernelModules::add(std::string name, std::string text,
                                                    std::function<codegen::Listing()> compile) {
    std::weak_ptr<GpuKernel>& known = by_text_[text];
    if (std::shared_ptr<GpuKernel> held = known.lock()) return held;
    auto made = std::make_shared<GpuKernel>(
        GpuKernel{.name = std::move(name), .text = std::move(text), .compile = std::move(compile)});
    known = made;
    return made;
}

void KernelModules::finish() {
    for (auto entry = by_text_.begin(); entry != by_text_.end();) {
        const std::shared_ptr<GpuKernel> kernel = entry->second.lock();
        if (!kernel) {
            entry = by_text_.erase(entry);  // somebody asked whether it can be made, and went
            continue;
        }
        if (!kernel->function) load(*kernel);
        if (kernel->compile) {
            kernel->compile = nullptr;
            loaded_.push_back(kernel);
        }
        ++entry;
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
