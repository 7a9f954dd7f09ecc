#include "mantissa/data/chat/chat_set.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"

namespace mantissa::inline v0 {

namespace {

bool has_target(const EncodedChat& chat) {
    return chat.trained.size() > 1 && std::ranges::count(chat.trained.begin() + 1, chat.trained.end(), 1) > 0;
}

/// Cuts a chat that is too long after an answer. Returns whether a learnt token remains.
bool cut(EncodedChat& chat, std::size_t longest) {
    const auto behind = std::ranges::upper_bound(chat.ends, longest);
    const std::size_t size = behind == chat.ends.begin() ? 0 : *std::prev(behind);
    chat.tokens.resize(size);
    chat.trained.resize(size);
    return has_target(chat);
}

/// A count of chats, and the place of the first.
struct Count {
    std::uint64_t chats = 0;
    std::string first = {};
    void add(const std::string& place) {
        if (chats++ == 0) first = place;
    }
};

class SetMaker {
  public:
    explicit SetMaker(std::int64_t longest) {
        set_.longest = longest;
        set_.starts = {0};
    }

    void add(const ChatRecord& record, EncodedChat chat) {
        ++read_;
        if (record.has_empty_answer) empty_.add(record.place);
        if (!has_target(chat)) return without_.add(record.place);
        const auto longest = static_cast<std::size_t>(set_.longest);
        if (chat.tokens.size() > longest) {
            if (!cut(chat, longest)) return too_long_.add(record.place);
            cut_.add(record.place);
        }
        set_.tokens.insert(set_.tokens.end(), chat.tokens.begin(), chat.tokens.end());
        set_.trained.insert(set_.trained.end(), chat.trained.begin(), chat.trained.end());
        set_.starts.push_back(set_.tokens.size());
        set_.names.push_back(checksum_of(std::as_bytes(std::span(chat.tokens))));
        targets_ += set_.targets_of(set_.chats() - 1);
    }

    ChatSet finish(const ChatSetOptions& options, const std::vector<std::string>& kinds,
                   const std::vector<std::string>& unread, const ChatEncoder& encoder) {
        const std::string longest = fmt::format("no answer of them ends within {} tokens", set_.longest);
        if (set_.chats() == 0)
            throw UsageError(fmt::format(
                "{}: nothing of {} would be learnt: {}", options.files[0].string(), count_text(read_, "chat"),
                too_long_.chats == 0 ? "none has an answer, a message of role assistant or model"
                                     : longest + "; give a larger `sequence`"));
        set_.account = fmt::format(
            "{}: {}; {} of {} are trained ({:.1f} %, {})", fmt::join(kinds, ", "),
            count_text(set_.chats(), "chat"), targets_, count_text(set_.tokens.size(), "token"),
            100 * static_cast<double>(targets_) / static_cast<double>(set_.tokens.size()),
            options.loss_on == LossOn::all ? "all of each chat" : "answers and the ends of their turns");
        const auto say = [&](const Count& count, const std::string& what) {
            if (count.chats > 0)
                set_.account += fmt::format("\n{}: {}, first {}", what, count.chats, count.first);
        };
        say(cut_, fmt::format("longer than {} tokens, cut behind an answer", set_.longest));
        say(too_long_, fmt::format("left out, too long ({})", longest));
        say(without_, "left out, without an answer to learn");
        say(empty_, "with an empty answer, of which the end of the turn alone is learnt");
        if (!unread.empty())
            set_.account += fmt::format("\nmembers that are not read: {}", fmt::join(unread, ", "));
        if (!encoder.ends_turns())
            set_.account +=
                "\nwarning: the template ends an answer by no special token, so none is learnt to end one";
        return std::move(set_);
    }

  private:
    ChatSet set_;
    std::uint64_t read_ = 0, targets_ = 0;
    Count cut_, too_long_, without_, empty_;
};

}  // namespace

std::uint64_t ChatSet::targets_of(std::uint64_t chat) const {
    const TokenRange range = range_of(chat);
    return static_cast<std::uint64_t>(
        std::count(trained.begin() + static_cast<std::ptrdiff_t>(range.begin) + 1,
                   trained.begin() + static_cast<std::ptrdiff_t>(range.end), 1));
}

void ChatSet::reorder(const std::vector<std::uint64_t>& order) {
    ChatSet next{.starts = {0}, .account = account, .longest = longest};
    for (const std::uint64_t chat : order) {
        const auto begin = static_cast<std::ptrdiff_t>(starts[chat]);
        const auto end = static_cast<std::ptrdiff_t>(starts[chat + 1]);
        next.tokens.insert(next.tokens.end(), tokens.begin() + begin, tokens.begin() + end);
        next.trained.insert(next.trained.end(), trained.begin() + begin, trained.begin() + end);
        next.starts.push_back(next.tokens.size());
        next.names.push_back(names[chat]);
    }
    check(next.tokens.size() == tokens.size(), "an order has each chat once");
    *this = std::move(next);
}

ChatSet read_chat_set(const ChatSetOptions& options, const Tokenizer& tokenizer, ThreadPool& pool) {
    const ChatEncoder encoder(tokenizer, options.loss_on);
    SetMaker maker(options.longest);
    std::vector<std::string> kinds, unread;
    for (const std::filesystem::path& path : options.files) {
        const ChatFile file = read_chats(path);
        kinds.push_back(fmt::format("{} ({})", path.filename().string(), name_of(file.kind)));
        for (const std::string& name : file.unread)
            if (std::ranges::find(unread, name) == unread.end()) unread.push_back(name);
        // In parts: a loop's first exception need not come from the first chat.
        constexpr std::size_t at_once = 1024;
        for (std::size_t first = 0; first < file.chats.size(); first += at_once) {
            const std::size_t count = std::min(at_once, file.chats.size() - first);
            std::vector<EncodedChat> encoded(count);
            std::vector<std::string> faults(count);
            pool.for_each_block(static_cast<std::int64_t>(count), [&](std::int64_t block, int) {
                const auto i = static_cast<std::size_t>(block);
                try {
                    encoded[i] = encoder.encode(file.chats[first + i]);
                } catch (const UserError& error) {
                    faults[i] = error.what();
                }
            });
            for (const std::string& fault : faults)
                if (!fault.empty()) throw UserError(fault);
            for (std::size_t i = 0; i < count; ++i) maker.add(file.chats[first + i], std::move(encoded[i]));
        }
    }
    return maker.finish(options, kinds, unread, encoder);
}

std::vector<ChatPart> parts_of(const Tokenizer& tokenizer, std::span<const TokenId> tokens,
                               std::span<const std::uint8_t> trained) {
    std::vector<ChatPart> parts;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        const bool learnt = trained[i] != 0 && i > 0;
        if (parts.empty() || parts.back().learnt != learnt) parts.push_back({.learnt = learnt});
        parts.back().tokens.push_back(tokens[i]);
        parts.back().text += tokenizer.token_bytes(tokens[i]);
    }
    return parts;
}

}  // namespace mantissa::inline v0
