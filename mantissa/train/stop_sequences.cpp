#include "mantissa/train/stop_sequences.h"

#include <algorithm>
#include <utility>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

StopSequences::StopSequences(std::vector<std::string> words) : words_(std::move(words)) {
    for (const std::string& word : words_)
        if (word.empty()) throw UserError("a word at which the text ends must have a character or more");
}

std::string StopSequences::push(std::string_view part) {
    if (found_) return "";
    held_ += part;
    std::size_t end = held_.npos, held = 0;  // of the first word, and bytes at the end that may begin one
    for (const std::string& word : words_) {
        end = std::min(end, held_.find(word));
        for (std::size_t length = std::min(word.size() - 1, held_.size()); length > held; --length)
            if (held_.ends_with(std::string_view(word).substr(0, length))) held = length;
    }
    found_ = end != held_.npos;
    std::string shown = held_.substr(0, found_ ? end : held_.size() - held);
    held_ = found_ ? "" : held_.substr(shown.size());
    return shown;
}

std::string StopSequences::finish() { return std::exchange(held_, ""); }

}  // namespace mantissa
