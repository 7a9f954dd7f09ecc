#include "mantissa/data/trained_on.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <limits>
#include <set>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/data/image_folders.h"
#include "mantissa/data/permutation.h"

namespace mantissa::inline v0 {

namespace {

using Marks = std::vector<std::uint64_t>;

/// Tokens of a run: long enough that runs rarely recur except in repeated text.
constexpr std::size_t run_tokens = 32;

/// Bits of an image's mark that hold its size, so that files of other sizes need not be read.
constexpr std::uint64_t size_bits = 0xffff;

void sort_apart(Marks& marks) {
    std::ranges::sort(marks);
    marks.erase(std::unique(marks.begin(), marks.end()), marks.end());
}

/// Spreads a number over all 64 bits. Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014.
std::uint64_t spread(std::uint64_t number) {
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9;
    number = (number ^ number >> 27) * 0x94d049bb133111eb;
    return number ^ number >> 31;
}

/// Calls `take` with the mark of each run in the range, from a rolling polynomial of its tokens.
template <class Take>
void for_each_run(const TokenStream& stream, TokenRange range, Take&& take) {
    constexpr std::uint64_t at_once = 1 << 16, base = 0x9e3779b97f4a7c15;
    std::uint64_t first_power = 1;  // base to the power of run_tokens
    for (std::size_t i = 0; i < run_tokens; ++i) first_power *= base;
    std::vector<std::int32_t> tokens;
    std::uint64_t polynomial = 0;
    for (std::uint64_t begin = range.begin; begin + run_tokens <= range.end;) {
        // Every part but the first begins with the previous part's last tokens.
        tokens.resize(std::min(at_once + run_tokens, range.end - begin));
        stream.copy(begin, tokens);
        if (begin == range.begin)
            for (std::size_t i = 0; i < run_tokens; ++i)
                polynomial = polynomial * base + static_cast<std::uint32_t>(tokens[i]);
        for (std::size_t i = 0;; ++i) {
            take(spread(polynomial));
            if (i + run_tokens == tokens.size()) break;
            polynomial = polynomial * base + static_cast<std::uint32_t>(tokens[i + run_tokens]) -
                         static_cast<std::uint32_t>(tokens[i]) * first_power;
            if (i + 1 == at_once) break;
        }
        begin += at_once;
    }
}

/// The marks that occur in the range.
Marks those_in(const Marks& marks, const TokenStream& stream, TokenRange range) {
    Marks found;
    if (marks.empty()) return found;
    for_each_run(stream, range, [&](std::uint64_t mark) {
        if (mark <= marks.back() && std::ranges::binary_search(marks, mark)) found.push_back(mark);
    });
    sort_apart(found);
    return found;
}

std::uint64_t size_of(const ImageSet& set, std::uint64_t index) {
    std::error_code unknown;
    return set.records ? cifar10_record_bytes
                       : std::filesystem::file_size(set.files[set.images[index].file], unknown);
}

/// Adds an image's mark. Training refuses or skips an unreadable image.
void add_mark(const ImageSet& set, std::uint64_t index, Marks& marks) {
    const ImageEntry& image = set.images[index];
    const auto add = [&](std::span<const std::byte> bytes) {
        marks.push_back((checksum_of(bytes) & ~size_bits) | (bytes.size() & size_bits));
    };
    if (set.records)
        return add((*set.records)[image.file].bytes().subspan(image.record * cifar10_record_bytes,
                                                              cifar10_record_bytes));
    try {
        add(MappedFile(set.files[image.file]).bytes());
    } catch (const UserError&) {
    }
}

Marks difference(const Marks& from, const Marks& less) {
    Marks left;
    std::ranges::set_difference(from, less, std::back_inserter(left));
    return left;
}

double share(std::size_t found, double items_of_a_mark, std::uint64_t held_out) {
    return std::min(1.0, static_cast<double>(found) * items_of_a_mark / static_cast<double>(held_out));
}

}  // namespace

void TrainedOn::keep(Marks marks) {
    sort_apart(marks);
    marks.resize(std::min(marks.size(), most_marks));
    marks_ = std::move(marks);
}

TrainedOn TrainedOn::images(const ImageSet& set) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> order;  // place by name, index
    for (std::uint64_t i = 0; i < set.count(); ++i)
        order.emplace_back(place_by_name(set.name_in_folder(i)), i);
    const std::size_t some = std::min(order.size(), most_marks);
    std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(some));
    Marks marks;
    for (std::size_t i = 0; i < some; ++i) add_mark(set, order[i].second, marks);
    TrainedOn trained;
    trained.items_ = set.count();
    trained.keep(std::move(marks));
    return trained;
}

TrainedOn TrainedOn::tokens(const TokenStream& stream, TokenRange range) {
    TrainedOn trained;
    trained.items_ = range.size();
    Marks lowest;
    std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    for_each_run(stream, range, [&](std::uint64_t mark) {
        if (mark > most) return;
        lowest.push_back(mark);
        if (lowest.size() < 8 * most_marks) return;
        sort_apart(lowest);
        if (lowest.size() < most_marks) return;
        lowest.resize(most_marks);
        most = lowest.back();
    });
    trained.keep(std::move(lowest));
    return trained;
}

void TrainedOn::add(const TrainedOn& other) {
    const bool has_others = !difference(other.marks_, marks_).empty();
    items_ = has_others ? items_ + other.items_ : std::max(items_, other.items_);
    Marks all = marks_;
    all.insert(all.end(), other.marks_.begin(), other.marks_.end());
    keep(std::move(all));
}

double TrainedOn::share_of(const ImageSet& held_out, const TrainedOn& now) const {
    const Marks before = difference(marks_, now.marks_);
    if (before.empty() || held_out.count() == 0) return 0;
    std::set<std::uint64_t> sizes;
    for (const std::uint64_t mark : before) sizes.insert(mark & size_bits);
    std::size_t found = 0;
    for (std::uint64_t i = 0; i < held_out.count(); ++i) {
        if (!sizes.contains(size_of(held_out, i) & size_bits)) continue;
        Marks mark;
        add_mark(held_out, i, mark);
        found += !mark.empty() && std::ranges::binary_search(before, mark[0]) ? 1 : 0;
    }
    return share(found, static_cast<double>(items_) / static_cast<double>(marks_.size()), held_out.count());
}

double TrainedOn::share_of(const TokenStream& stream, TokenRange held_out, const TokenStream& trained,
                           TokenRange now) const {
    const Marks in_both = those_in(marks_, stream, held_out);
    const Marks found = difference(in_both, those_in(in_both, trained, now));
    if (found.empty()) return 0;
    return share(found.size(), static_cast<double>(items_) / static_cast<double>(marks_.size()),
                 held_out.size());
}

std::string TrainedOn::text() const {
    std::string text = fmt::format("{} ", items_);
    for (const std::uint64_t mark : marks_) text += checksum_text(mark);
    return text;
}

TrainedOn TrainedOn::of_text(std::string_view text, const std::string& source) {
    constexpr std::size_t digits = 16;
    TrainedOn trained;
    const char* const end = text.data() + text.size();
    auto read = std::from_chars(text.data(), end, trained.items_);
    bool is_one = read.ec == std::errc{} && read.ptr != end && *read.ptr == ' ';
    std::string_view rest = is_one ? std::string_view(read.ptr + 1, end) : std::string_view();
    is_one = is_one && rest.size() % digits == 0 && rest.size() <= digits * most_marks;
    for (; is_one && !rest.empty(); rest.remove_prefix(digits)) {
        read = std::from_chars(rest.data(), rest.data() + digits, trained.marks_.emplace_back(), 16);
        is_one = read.ec == std::errc{} && read.ptr == rest.data() + digits;
    }
    if (!is_one || !std::ranges::is_sorted(trained.marks_))
        throw UserError(fmt::format(
            "{}: \"trained_on\" is damaged: expected a number and sixteen digits a mark", source));
    return trained;
}

}  // namespace mantissa
