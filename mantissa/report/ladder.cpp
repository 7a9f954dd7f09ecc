#include "mantissa/report/ladder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "mantissa/base/error.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/passes/plan_memory.h"

namespace mantissa {

namespace {

/// Rungs that exist, in the order of the ladder.
struct Rung {
    std::string_view name;
    double loss_tolerance;  ///< how far its losses may lie from the first rung's
    std::string_view
        matmul_kernel;  ///< what its matrix multiplies must run as: the start of the kernel's name
};
constexpr Rung known_rungs[] = {{"fp32", 0.0, "gemm f32*f32+f32"}};

const Rung& find_rung(const std::string& name) {
    for (const Rung& rung : known_rungs)
        if (rung.name == name) return rung;
    std::vector<std::string_view> names;
    for (const Rung& rung : known_rungs) names.push_back(rung.name);
    throw UserError(fmt::format("there is no rung '{}'; there are: {}", name, fmt::join(names, ", ")));
}

double median(std::vector<double> values) {
    check(!values.empty(), "a median is of one value or more");
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    if (values.size() % 2 == 1) return *middle;
    return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double median_deviation(std::vector<double> values) {
    const double center = median(values);
    for (double& value : values) value = std::abs(value - center);
    return median(values);
}

/// Memory in which the copy bandwidth is measured: well beyond any cache.
std::int64_t scratch_bytes_for(const Target& target) {
    return std::max<std::int64_t>(std::int64_t{64} << 20, 4 * target.l3_bytes);
}

/// A rung that ran on other kernels than its own is no measurement of it.
void require_own_kernels(const Rung& rung, const std::vector<std::string>& kernels) {
    for (const std::string& kernel : kernels)
        if (!kernel.starts_with(rung.matmul_kernel))
            throw UserError(fmt::format("rung {} multiplies matrices with '{}...', but '{}' would run",
                                        rung.name, rung.matmul_kernel, kernel));
}

class LadderRun {
  public:
    LadderRun(Device& device, const TokenStream& tokens, const LadderOptions& options)
        : device_(device),
          options_(options),
          batches_(tokens, tokens.all(),
                   {.batch = options.trainer.batch, .sequence = options.trainer.sequence}),
          inputs_(static_cast<std::size_t>(options.trainer.batch * options.trainer.sequence)),
          targets_(inputs_.size()) {}

    LadderReport run() {
        if (options_.steps < 1 || options_.repeats < 1)
            throw UserError(fmt::format("steps and repeats must be 1 or more, got {} and {}", options_.steps,
                                        options_.repeats));
        for (const std::string& name : options_.rungs) find_rung(name);
        report_.target = device_.target();
        report_.model = options_.trainer.model.name;
        report_.parameters = options_.trainer.model.parameters();
        report_.batch = options_.trainer.batch;
        report_.sequence = options_.trainer.sequence;
        for (const std::string& name : options_.rungs) run_rung(name);
        compare_losses();
        return std::move(report_);
    }

  private:
    void say(const std::string& what) const {
        if (options_.progress) options_.progress(what);
    }

    double step(Trainer& trainer, std::int64_t index, double* loss = nullptr) {
        batches_.fill(static_cast<std::uint64_t>(index), 0, inputs_, targets_);
        const StepResult result = trainer.step(inputs_, targets_, options_.learning_rate);
        if (!result.applied) throw UserError(fmt::format("the loss of step {} is not finite", index));
        if (loss) *loss = static_cast<double>(result.loss);
        return result.seconds;
    }

    void run_rung(const std::string& name) {
        say(name + ": building");
        Trainer trainer(device_, options_.trainer);
        RungReport rung;
        rung.name = name;
        rung.build_milliseconds = trainer.build_milliseconds();
        rung.peak_bytes = trainer.memory().total();
        rung.matmul_kernels = trainer.plan().kernels_of("matmul");
        require_own_kernels(find_rung(name), rung.matmul_kernels);
        report_.memory = trainer.memory();
        report_.scratch_bytes = scratch_bytes_for(device_.target());
        report_.process_bytes = resident_memory();
        trainer.allocate();
        const auto scratch =
            device_.allocate(static_cast<std::size_t>(report_.scratch_bytes), "bandwidth measurement");
        for (std::int64_t i = 0; i < options_.steps; ++i) {
            say(fmt::format("{}: training, step {} of {}", name, i + 1, options_.steps));
            double loss = 0;
            step(trainer, i, &loss);
            rung.losses.push_back(loss);
        }
        time_steps(trainer, *scratch, rung);
        report_.rungs.push_back(std::move(rung));
    }

    void time_steps(Trainer& trainer, DeviceMemory& scratch, RungReport& rung) {
        std::vector<double> seconds;
        for (std::int64_t i = 0; i < options_.repeats; ++i) {
            say(fmt::format("{}: timing, step {} of {}", rung.name, i + 1, options_.repeats));
            measure_peaks(scratch);
            seconds.push_back(step(trainer, options_.steps + i));
        }
        measure_peaks(scratch);
        const double typical = median(seconds);
        const auto tokens = static_cast<double>(trainer.tokens_per_step());
        const double flops = options_.trainer.model.flops_per_token(options_.trainer.sequence) * tokens;
        rung.milliseconds = typical * 1e3;
        rung.deviation = median_deviation(seconds) * 1e3;
        rung.tokens_per_second = tokens / typical;
        rung.mfu = flops / typical / report_.peaks.fastest();
        rung.share_of_unit_peak = flops / typical / report_.peaks.f32_fma;
        if (!report_.rungs.empty()) {
            rung.speedup = report_.rungs.front().milliseconds / rung.milliseconds;
            rung.step_speedup = report_.rungs.back().milliseconds / rung.milliseconds;
        }
    }

    void measure_peaks(DeviceMemory& scratch) {
        const Peaks now = device_.measure_peaks(scratch);
        report_.peaks.f32_fma = std::max(report_.peaks.f32_fma, now.f32_fma);
        report_.peaks.bf16_matrix = std::max(report_.peaks.bf16_matrix, now.bf16_matrix);
        report_.peaks.copy = std::max(report_.peaks.copy, now.copy);
    }

    void compare_losses() const {
        const RungReport& first = report_.rungs.front();
        for (const RungReport& rung : report_.rungs)
            for (std::size_t i = 0; i < rung.losses.size(); ++i)
                if (!(std::abs(rung.losses[i] - first.losses[i]) <= find_rung(rung.name).loss_tolerance))
                    throw UserError(fmt::format(
                        "the loss of {} at step {} is {}, that of {} is {}: further apart than {}", rung.name,
                        i, rung.losses[i], first.name, first.losses[i], find_rung(rung.name).loss_tolerance));
    }

    Device& device_;
    const LadderOptions& options_;
    BatchSource batches_;
    std::vector<std::int32_t> inputs_, targets_;
    LadderReport report_;
};

}  // namespace

LadderReport run_ladder(Device& device, const TokenStream& tokens, const LadderOptions& options) {
    if (options.rungs.empty()) throw UserError("no rung was asked for");
    return LadderRun(device, tokens, options).run();
}

}  // namespace mantissa
