#include "mantissa/device/cuda/kernels/product_algorithms.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/device/cuda/kernels/kernels.h"
#include "mantissa/device/cuda/kernels/product_sample.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0::on_cuda {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view words_of_algorithms = "mantissa algorithms 2 ";
constexpr std::size_t digits_of_word = 16;

/// The file's text. Its first line has the first words and the checksum of the other lines. Each of these has
/// the words of a product's algorithm in hexadecimal digits, and then the product.
std::string text_of(const TimedAlgorithms& all) {
    std::string lines;
    for (const auto& [product, algorithm] : all) {
        for (const std::uint64_t word : algorithm.data) lines += fmt::format("{:016x}", word);
        lines += " " + product + "\n";
    }
    return fmt::format("{}{}\n{}", words_of_algorithms,
                       checksum_text(checksum_of(std::as_bytes(std::span(lines)))), lines);
}

std::optional<cuda::MatmulAlgorithm> algorithm_of_digits(std::string_view digits) {
    cuda::MatmulAlgorithm algorithm;
    if (digits.size() != algorithm.data.size() * digits_of_word) return {};
    for (std::uint64_t& word : algorithm.data) {
        const char* const end = digits.data() + digits_of_word;
        const auto [stopped, error] = std::from_chars(digits.data(), end, word, 16);
        if (error != std::errc{} || stopped != end) return {};
        digits.remove_prefix(digits_of_word);
    }
    return algorithm;
}

/// The algorithms of a text; none if a byte of it was changed.
TimedAlgorithms algorithms_in(const std::string& text) {
    TimedAlgorithms all;
    std::string_view rest = text;
    rest.remove_prefix(std::min(rest.size(), rest.find('\n') + 1));
    while (!rest.empty()) {
        const std::string_view line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(rest.size(), line.size() + 1));
        const std::size_t blank = line.find(' ');
        const auto algorithm = algorithm_of_digits(line.substr(0, blank));
        if (blank == std::string_view::npos || !algorithm) return {};
        all.emplace(line.substr(blank + 1), *algorithm);
    }
    return text_of(all) == text ? all : TimedAlgorithms{};
}

TimedAlgorithms algorithms_in_file(const fs::path& file) {
    try {
        std::error_code ignored;
        if (!fs::is_regular_file(file, ignored)) return {};
        return algorithms_in(read_file(file));
    } catch (const UserError&) {
        return {};  // it is gone, or may not be read
    }
}

}  // namespace

AlgorithmFile::AlgorithmFile(fs::path file) : file_(std::move(file)), known_(algorithms_in_file(file_)) {}

std::optional<cuda::MatmulAlgorithm> AlgorithmFile::find(const std::string& product) const {
    const auto entry = known_.find(product);
    if (entry == known_.end()) return {};
    return entry->second;
}

void AlgorithmFile::keep(const TimedAlgorithms& timed) {
    if (file_.empty() || timed.empty()) return;
    TimedAlgorithms all = algorithms_in_file(file_);
    for (const auto& [product, algorithm] : timed) {
        const auto there = all.find(product);
        if (there == all.end() || find(product) == there->second) all[product] = algorithm;
    }
    try {
        std::error_code ignored;
        fs::create_directories(file_.parent_path(), ignored);
        AtomicFile file(file_);
        file.write(text_of(all));
        file.commit();
    } catch (const UserError&) {
        // The next run times again.
    }
}

namespace {

using cuda::MatmulHeuristic;

/// The rounds of timing: each algorithm one after the other again and again, so that a clock that changes
/// meanwhile changes all alike; an odd number has a median.
constexpr int timed_rounds = 5;
/// Between two events, which tell times apart by half a microsecond: a 400th.
constexpr double min_milliseconds = 0.2;
constexpr int max_launches = 100;

/// Memory of the GPU that is freed when timing ends.
class Scratch {
  public:
    explicit Scratch(const Context& context) : context_(context) {}
    ~Scratch() {
        for (const cuda::DevicePtr one : held_) context_.driver.mem_free(one);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    /// Null where there is not enough memory.
    std::byte* allocate(std::size_t bytes) {
        cuda::DevicePtr address = 0;
        const cuda::Result result = context_.driver.mem_alloc(&address, std::max<std::size_t>(bytes, 1));
        if (result == cuda::Result::out_of_memory) return nullptr;
        require(context_.driver, result, "memory to time products in");
        held_.push_back(address);
        return reinterpret_cast<std::byte*>(address);
    }

    std::byte* operand(const Type& type) {
        const auto bytes = static_cast<std::size_t>(type.bytes());
        std::byte* const memory = allocate(bytes);
        if (!memory) return nullptr;
        fill(memory, type);
        return memory;
    }

    void fill(std::byte* memory, const Type& type) {
        const auto bytes = static_cast<std::size_t>(type.bytes());
        const std::vector<std::byte> drawn = numbers_to_multiply(type.dtype, type.layout);
        std::size_t there = std::min(bytes, drawn.size());
        require(context_.driver,
                context_.driver.memcpy_htod_async(address_of(memory), drawn.data(), there, context_.work),
                "numbers to time products with");
        for (; there < bytes; there += std::min(there, bytes - there))
            queue_copy(context_, memory + there, memory, std::min(there, bytes - there));
        require(context_.driver, context_.driver.stream_synchronize(context_.work),
                "numbers to time products with");
    }

  private:
    const Context& context_;
    std::vector<cuda::DevicePtr> held_;
};

/// Times the work queued between two events.
class Timer {
  public:
    explicit Timer(const Context& context) : context_(context) {
        for (cuda::Event& event : events_) take(context_.driver.event_create(&event, 0));
    }
    ~Timer() {
        for (const cuda::Event event : events_) context_.driver.event_destroy(event);
    }
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;

    template <class Work>
    double milliseconds(const Work& queue) {
        take(context_.driver.event_record(events_[0], context_.work));
        queue();
        take(context_.driver.event_record(events_[1], context_.work));
        take(context_.driver.event_synchronize(events_[1]));
        float milliseconds = 0;
        take(context_.driver.event_elapsed_time(&milliseconds, events_[0], events_[1]));
        return static_cast<double>(milliseconds);
    }

  private:
    void take(cuda::Result result) const { require(context_.driver, result, "timing a product"); }

    const Context& context_;
    std::array<cuda::Event, 2> events_ = {};
};

std::string name_of(const MatmulHeuristic& algorithm) {
    return checksum_text(checksum_of(std::as_bytes(std::span(algorithm.algorithm.data))));
}

/// An offered algorithm as it is timed.
struct Candidate {
    const MatmulHeuristic* algorithm = nullptr;
    int launches = 1;
    std::vector<double> milliseconds = {};  ///< of a launch
};

double median_of(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

/// The worst error of `outputs`, in units of the allowed error: above 1 is wrong.
double worst_error(const Context& context, const ChosenAlgorithm& chosen,
                   const std::vector<ExpectedNumber>& expected, const std::vector<std::byte*>& outputs) {
    std::vector<std::array<std::byte, sizeof(double)>> stored(expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const std::size_t bytes = size_of(chosen.outputs[expected[i].output].dtype);
        const std::byte* const from =
            outputs[expected[i].output] + static_cast<std::size_t>(expected[i].element) * bytes;
        require(context.driver,
                context.driver.memcpy_dtoh_async(stored[i].data(), address_of(from), bytes, context.work),
                "results of a product");
    }
    require(context.driver, context.driver.stream_synchronize(context.work), "results of a product");
    double worst = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        const auto& [output, element, value, allowed] = expected[i];
        const double error = std::abs(load_as_f64(stored[i].data(), chosen.outputs[output].dtype, 0) - value);
        if (error == 0) continue;
        if (!(error <= worst * allowed)) worst = std::isnan(error) ? INFINITY : error / allowed;
    }
    return worst;
}

/// The quickest of the algorithms that run and store the right numbers; null where there is no memory to time
/// them in.
const MatmulHeuristic* quickest_of(const Context& context, ChosenAlgorithm& chosen) {
    Scratch scratch(context);
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    for (const Type& type : chosen.inputs) inputs.push_back(scratch.operand(type));
    for (const Type& type : chosen.outputs) outputs.push_back(scratch.operand(type));
    std::byte* const workspace = scratch.allocate(chosen.workspace());
    if (!workspace || std::ranges::count(inputs, nullptr) > 0 || std::ranges::count(outputs, nullptr) > 0)
        return nullptr;
    const Operands operands{inputs, outputs, workspace};
    const std::vector<ExpectedNumber> expected = chosen.expected();
    Timer timer(context);
    std::vector<Candidate> candidates;
    for (const MatmulHeuristic& algorithm : chosen.offered) {
        const auto run = [&] { return chosen.multiply(algorithm, operands); };
        for (std::size_t i = 0; i < outputs.size(); ++i) scratch.fill(outputs[i], chosen.outputs[i]);
        if (run() != cuda::BlasStatus::success) continue;  // it was offered, and does not run
        if (const double error = worst_error(context, chosen, expected, outputs); error > 1) {
            chosen.refused += fmt::format("{}algorithm {}, off by {:.2g} times what rounding allows",
                                          chosen.refused.empty() ? "" : "; ", name_of(algorithm), error);
            continue;
        }
        // Timed after a first launch, since the library loads its kernel then.
        const double once = timer.milliseconds(run);
        const double launches = std::ceil(min_milliseconds / std::max(once, 1e-6));
        candidates.push_back({.algorithm = &algorithm,
                              .launches = static_cast<int>(std::clamp(launches, 1.0, 1.0 * max_launches))});
    }
    if (candidates.empty())
        throw UserError(fmt::format("cuBLASLt offers {} algorithms for {}, of which none runs{}",
                                    chosen.offered.size(), chosen.product,
                                    chosen.refused.empty() ? "" : " as it should: " + chosen.refused));
    for (int round = 0; round < timed_rounds; ++round)
        for (Candidate& candidate : candidates) {
            const double all = timer.milliseconds([&] {
                for (int launch = 0; launch < candidate.launches; ++launch)
                    chosen.multiply(*candidate.algorithm, operands);
            });
            candidate.milliseconds.push_back(all / candidate.launches);
        }
    const auto time_of = [](const Candidate& candidate) { return median_of(candidate.milliseconds); };
    return std::ranges::min_element(candidates, {}, time_of)->algorithm;
}

}  // namespace

std::size_t ChosenAlgorithm::workspace() const {
    if (taken) return taken->workspace;
    return std::ranges::max_element(offered, {}, &MatmulHeuristic::workspace)->workspace;
}

std::string ChosenAlgorithm::text() const {
    if (!taken)
        return fmt::format("one of {} algorithms of cuBLASLt, yet to be timed, for {}", offered.size(),
                           product);
    return fmt::format("algorithm {} of cuBLASLt for {}{}{}", name_of(*taken), product,
                       without_memory ? ", not timed for want of memory" : "",
                       refused.empty() ? "" : ", refused: " + refused);
}

bool ProductAlgorithms::take_if_known(ChosenAlgorithm& chosen) const {
    const auto take = [&](const cuda::MatmulAlgorithm& known) {
        for (const MatmulHeuristic& one : chosen.offered)
            if (one.algorithm == known) chosen.taken = &one;
        return chosen.taken != nullptr;
    };
    if (choose_ == Choose::the_first || chosen.offered.size() == 1)
        return take(chosen.offered.front().algorithm);
    const auto before = taken_.find(chosen.product);
    if (before != taken_.end()) {
        chosen.without_memory = before->second.without_memory;
        return take(before->second.algorithm);
    }
    const auto kept = file_.find(where_ + chosen.product);
    return kept && take(*kept);
}

void ProductAlgorithms::add(const std::shared_ptr<ChosenAlgorithm>& chosen) {
    if (!take_if_known(*chosen)) open_.push_back(chosen);
}

void ProductAlgorithms::finish(const Context& context) {
    TimedAlgorithms timed;
    for (const std::weak_ptr<ChosenAlgorithm>& open : open_) {
        const std::shared_ptr<ChosenAlgorithm> chosen = open.lock();
        if (!chosen || take_if_known(*chosen)) continue;
        chosen->taken = quickest_of(context, *chosen);
        chosen->without_memory = !chosen->taken;
        if (chosen->without_memory)
            chosen->taken = &chosen->offered.front();
        else
            timed[where_ + chosen->product] = chosen->taken->algorithm;
        taken_[chosen->product] = {chosen->taken->algorithm, chosen->without_memory};
    }
    open_.clear();
    file_.keep(timed);
}

}  // namespace mantissa::on_cuda
