#include "mantissa/data/text_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "mantissa/base/error.h"
#include "mantissa/base/file.h"
#include "mantissa/base/printable.h"

namespace mantissa::inline v0 {

namespace {

namespace fs = std::filesystem;

bool has_no_bytes(const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && fs::file_size(path, error) == 0;
}

/// The reason why a file of a folder is not text; empty: it is text.
std::string why_no_text(const fs::path& file) {
    if (has_no_bytes(file)) return "empty";
    try {
        return fault_of_text(MappedFile(file).text());
    } catch (const UserError&) {
        return "cannot be read";
    }
}

class TextSearch {
  public:
    void take_file(const fs::path& file) {
        if (has_no_bytes(file))
            left_out_.push_back(fmt::format("{} (empty)", file.string()));
        else
            take(file, file.filename().string());
    }

    void take_folder(const fs::path& folder) {
        const FolderFiles inside = files_below(folder);
        for (const fs::path& file : inside.files) {
            const std::string why = why_no_text(file);
            const std::string name = file.lexically_relative(folder).string();
            if (why.empty()) {
                take(file, name);
                of_folders_.push_back(name);
            } else {
                left_out_.push_back(fmt::format("{} ({})", name, why));
            }
        }
        for (const fs::path& link : inside.unfollowed)
            left_out_.push_back(fmt::format("{} (a link to nothing or to a folder that was read already)",
                                            link.lexically_relative(folder).string()));
        if (inside.hidden > 0)
            left_out_.push_back(fmt::format("{} hidden in {}", inside.hidden, folder.string()));
    }

    TextFiles finish(const std::vector<fs::path>& given) {
        if (found_.taken.empty() && given.size() == 1 && !fs::is_directory(given[0]))
            throw UserError(fmt::format("{}: is empty; expected text", given[0].string()));
        if (found_.taken.empty())
            throw UserError(fmt::format("{}: no file of text is there{}{}; expected one that is not empty",
                                        given[0].string(), left_out_.empty() ? "" : ", only ",
                                        names_text(left_out_)));
        std::vector<std::string> parts;
        if (!of_folders_.empty()) parts.push_back("taken: " + names_text(of_folders_));
        if (!left_out_.empty()) parts.push_back("left out: " + names_text(left_out_));
        if (const std::vector<std::string> again = read_again(); !again.empty())
            parts.push_back("read more than once, as given: " + names_text(again));
        found_.account = fmt::format("{}", fmt::join(parts, "; "));
        return std::move(found_);
    }

  private:
    void take(const fs::path& file, const std::string& name) {
        found_.taken.push_back(file);
        found_.names.push_back(name);
    }

    /// Files given more than once, under any names.
    std::vector<std::string> read_again() const {
        std::map<fs::path, int> times;
        std::vector<std::string> again;
        std::error_code error;
        for (const fs::path& file : found_.taken)
            if (fs::is_regular_file(file, error) && ++times[fs::weakly_canonical(file, error)] == 2)
                again.push_back(file.string());
        return again;
    }

    TextFiles found_;
    std::vector<std::string> of_folders_, left_out_;
};

}  // namespace

TextFiles find_texts(const std::vector<fs::path>& given) {
    TextSearch search;
    std::error_code error;
    for (const fs::path& path : given)
        fs::is_directory(path, error) ? search.take_folder(path) : search.take_file(path);
    return search.finish(given);
}

std::uint64_t bytes_of_texts(const std::vector<TextFile>& texts, TextsAre are) {
    std::uint64_t bytes = are == TextsAre::joined ? texts.size() - 1 : 0;
    for (const TextFile& text : texts) bytes += text.text().size();
    return bytes;
}

std::string joined_texts(const std::vector<TextFile>& texts) {
    std::string all;
    all.reserve(bytes_of_texts(texts, TextsAre::joined));
    for (const TextFile& text : texts) {
        if (!all.empty()) all += '\n';
        all += text.text();
    }
    return all;
}

TextsAre joined_or_begun(const Tokenizer& tokenizer, const TextReading& reading) {
    const bool framed = !tokenizer.first_tokens(reading).empty() || !tokenizer.last_tokens(reading).empty();
    return framed ? TextsAre::begun : TextsAre::joined;
}

std::vector<std::uint64_t> encode_texts(const Tokenizer& tokenizer, const std::vector<TextFile>& texts,
                                        TextsAre are, const TextReading& reading, ThreadPool& pool,
                                        TokenSink sink) {
    std::vector<std::uint64_t> starts = {0};
    std::uint64_t tokens = 0, bytes = 0;
    if (are != TextsAre::joined) {
        for (const TextFile& text : texts) {
            if (&text != texts.data()) starts.push_back(tokens);
            const auto take = [&](std::span<const TokenId> ids, std::size_t done) {
                tokens += ids.size();
                sink(ids, bytes + done);
            };
            if (are == TextsAre::begun) {
                take(tokenizer.first_tokens(reading), 0);
                encode_text(tokenizer, text.text(), pool, take, {.specials = reading.specials});
                take(tokenizer.last_tokens(reading), text.text().size());
            } else {
                encode_documents(tokenizer, text.text(), pool, take, reading);
            }
            bytes += text.text().size();
        }
        return starts;
    }
    std::vector<std::size_t> ends;  // of all texts but the last
    for (const TextFile& text : texts) ends.push_back(bytes += text.text().size() + (ends.empty() ? 0 : 1));
    ends.pop_back();
    const std::string joined = texts.size() > 1 ? joined_texts(texts) : std::string();
    const auto take = [&](std::span<const TokenId> ids, std::size_t done) {
        tokens += ids.size();
        while (starts.size() <= ends.size() && done >= ends[starts.size() - 1]) starts.push_back(tokens);
        sink(ids, done);
    };
    encode_text(tokenizer, texts.size() > 1 ? joined : texts[0].text(), pool, take,
                {.specials = reading.specials}, ends);
    return starts;
}

namespace {

namespace fs = std::filesystem;

/// The deepest folder that contains both.
fs::path common_folder(const fs::path& a, const fs::path& b) {
    fs::path common;
    const auto ends = std::ranges::mismatch(a, b);
    for (auto part = a.begin(); part != ends.in1; ++part) common /= *part;
    return common;
}

bool lies_in(const fs::path& path, const fs::path& folder) {
    return path.is_absolute() == folder.is_absolute() &&
           std::ranges::mismatch(folder, path).in1 == folder.end();
}

/// The places of several files: folders, and files that are alone in their folder.
std::vector<fs::path> places_of(const std::vector<fs::path>& files) {
    std::vector<fs::path> places;
    for (const fs::path& file : files) {
        const fs::path folder = file.parent_path();
        if (std::ranges::any_of(places, [&](const fs::path& place) { return lies_in(folder, place); }))
            continue;
        const auto beside =
            std::ranges::count(files, folder, [](const fs::path& one) { return one.parent_path(); });
        if (beside > 1) std::erase_if(places, [&](const fs::path& place) { return lies_in(place, folder); });
        places.push_back(beside > 1 ? folder : file);
    }
    return places;
}

}  // namespace

std::string name_of(const std::vector<fs::path>& files) {
    std::vector<std::string> names;
    if (files.size() <= 3) {
        for (const fs::path& file : files) names.push_back(file.string());
        return fmt::format("{}", fmt::join(names, ", "));
    }
    std::vector<fs::path> places = places_of(files);
    if (places.size() > 3) {
        fs::path common = places[0];
        for (const fs::path& place : places) common = common_folder(common, place);
        if (common.has_relative_path()) places = {common};
    }
    for (const fs::path& place : places) names.push_back(place.empty() ? "." : place.string());
    if (names.size() == 1) return fmt::format("{} ({})", names[0], count_text(files.size(), "file"));
    std::string last = names.size() > 3 ? fmt::format("{} other places", names.size() - 2) : names.back();
    names.resize(names.size() > 3 ? 2 : names.size() - 1);
    return fmt::format("{} files of {} and {}", files.size(), fmt::join(names, ", "), last);
}

}  // namespace mantissa
