#include "mantissa/device/cuda/algorithm_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>
#include <utility>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/file.h"

namespace mantissa::inline v0::on_cuda {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view words_of_algorithms = "mantissa algorithms 2 ";
constexpr std::size_t digits_of_word = 16;

/// The file's text. Its first line has the first words and the checksum of the other lines. Each of these has
/// the words of a product's algorithm in hexadecimal digits, and then what is multiplied.
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

/// None of a text that is not as it was written, to the byte.
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
        return {};  // it went, or may not be read
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

}  // namespace mantissa::on_cuda
