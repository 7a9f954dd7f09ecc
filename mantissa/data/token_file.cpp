#include "mantissa/data/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "mantissa/base/error.h"
#include "mantissa/data/text_file.h"
#include "mantissa/formats/npy.h"

namespace mantissa::inline v0 {

namespace {

template <class T>
T load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& reason) {
    throw UserError(path.string() + ": " + reason);
}

/// The kind of llm.c's other files, by magic number, for an error about the wrong file.
const char* other_llmc_file(std::int32_t magic) {
    switch (magic) {
        case 20240326:
            return "model weights";
        case 20240327:
            return "a debug state";
        case 20240328:
            return "a tokenizer";
        case 20240522:
            return "an evaluation set";
        case 20240527:
            return "an optimizer state";
        default:
            return nullptr;
    }
}

/// A header of llm.c is zero after its third number; text never has 506 zero tokens in a row.
bool has_blank_header(std::span<const std::byte> file) {
    return file.size() >= llmc::header_bytes &&
           std::all_of(file.begin() + 12, file.begin() + llmc::header_bytes,
                       [](std::byte b) { return b == std::byte{0}; });
}

TokenFormat detect(std::span<const std::byte> file) {
    if (is_npy(file)) return TokenFormat::npy;
    const std::int32_t first = file.size() >= 4 ? load<std::int32_t>(file.data()) : 0;
    const bool magic = first == llmc::magic || first == llmc::magic_uint32 || other_llmc_file(first);
    return magic || has_blank_header(file) ? TokenFormat::llmc : TokenFormat::raw;
}

constexpr std::array<std::string_view, 4> format_names = {"detect", "llmc", "raw", "npy"};

}  // namespace

std::string_view name_of(TokenFormat format) { return format_names.at(static_cast<std::size_t>(format)); }

TokenFormat token_format(std::string_view name) {
    const auto* const found = std::ranges::find(format_names, name);
    if (found != format_names.end()) return static_cast<TokenFormat>(found - format_names.begin());
    throw UserError(fmt::format("there is no format of tokens '{}'; there are detect, llmc, raw, npy", name));
}

TokenFile::TokenFile(const std::filesystem::path& path, TokenFormat format)
    : path_(path), file_(path), format_(format) {
    if (file_.size() == 0) refuse(path_, "is empty; expected tokens");
    if (format_ == TokenFormat::detect) {
        format_ = detect(head(llmc::header_bytes));
        if (format_ == TokenFormat::raw) require_no_text();
    }
    if (format_ == TokenFormat::llmc) open_llmc();
    if (format_ == TokenFormat::raw) open_raw();
    if (format_ == TokenFormat::npy) open_npy();
    if (size_ == 0) refuse(path_, "holds no tokens");
    // Only these types can hold invalid numbers; 16-bit tokens need no check.
    if (element_ == Element::u32 || element_ == Element::i32 || element_ == Element::i64)
        check_vocabulary(std::int64_t{1} << 31);
}

std::vector<std::byte> TokenFile::head(std::size_t bytes) const {
    std::vector<std::byte> head(std::min<std::uint64_t>(bytes, file_.size()));
    file_.read(0, head);
    return head;
}

/// Throws UsageError for 16-bit numbers that are all printable characters: it is text.
void TokenFile::require_no_text() const {
    const std::vector<std::byte> bytes = head(std::size_t{1} << 16);
    if (is_plain_text({reinterpret_cast<const char*>(bytes.data()), bytes.size()}))
        throw UsageError(
            path_.string() +
            ": is text, expected token numbers; give it as `texts`, or make tokens of it by "
            "`encode_text`; if its bytes are meant as raw 16-bit tokens, say `tokens_format` raw");
}

void TokenFile::open_llmc() {
    const std::vector<std::byte> header_bytes = head(llmc::header_bytes);
    const std::byte* header = header_bytes.data();
    if (file_.size() < llmc::header_bytes)
        refuse(path_, fmt::format("shard cut short: {} bytes, the header alone has {}", file_.size(),
                                  llmc::header_bytes));
    const auto magic = load<std::int32_t>(header), version = load<std::int32_t>(header + 4);
    const bool wide = magic == llmc::magic_uint32;
    if (const char* what = other_llmc_file(magic))
        refuse(path_, fmt::format("magic number {}: {} of llm.c, expected token shards", magic, what));
    if (magic != llmc::magic && !wide)
        refuse(path_, fmt::format("wrong magic number {}, expected {} (or {} for uint32 tokens)", magic,
                                  llmc::magic, llmc::magic_uint32));
    const std::int32_t expected = wide ? llmc::version_uint32 : llmc::version;
    if (version != expected) refuse(path_, fmt::format("shard version {}, expected {}", version, expected));
    const auto count = load<std::int32_t>(header + 8);
    if (count < 0) refuse(path_, fmt::format("shard with {} tokens in its header", count));
    const std::uint64_t bytes = llmc::header_bytes + static_cast<std::uint64_t>(count) * (wide ? 4 : 2);
    if (file_.size() != bytes)
        refuse(path_, fmt::format("shard {}: {} tokens in its header need {} bytes, the file has {}",
                                  file_.size() < bytes ? "cut short" : "with extra bytes", count, bytes,
                                  file_.size()));
    element_ = wide ? Element::u32 : Element::u16;
    data_ = llmc::header_bytes;
    size_ = static_cast<std::uint64_t>(count);
}

void TokenFile::open_raw() {
    if (file_.size() % 2 != 0)
        refuse(path_, fmt::format("{} bytes, expected an even number for raw 16-bit tokens", file_.size()));
    size_ = file_.size() / 2;
}

void TokenFile::open_npy() {
    const MappedFile whole(path_);
    const NpyArray array = parse_npy(whole.bytes(), path_.string());
    if (array.shape.size() != 1)
        refuse(path_,
               fmt::format("array of {} dimensions, expected one dimension of tokens", array.shape.size()));
    const std::string type = fmt::format("{}{}", array.kind, array.item_size);
    constexpr std::pair<std::string_view, Element> elements[] = {{"u1", Element::u8},
                                                                 {"u2", Element::u16},
                                                                 {"u4", Element::u32},
                                                                 {"i4", Element::i32},
                                                                 {"i8", Element::i64}};
    const auto* found = std::find_if(std::begin(elements), std::end(elements),
                                     [&](const auto& row) { return row.first == type; });
    if (found == std::end(elements))
        refuse(path_, fmt::format("elements of type {}, expected tokens as u1, u2, u4, i4 or i8", type));
    element_ = found->second;
    data_ = static_cast<std::uint64_t>(array.data.data() - whole.bytes().data());
    size_ = array.count;
}

namespace {

/// Visits each number of the bytes.
template <class Element, class Visit>
void visit_elements(std::span<const std::byte> bytes, std::uint64_t position, Visit& visit) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(Element))
        visit(position++, load<Element>(bytes.data() + at));
}

}  // namespace

template <class Visit>
void TokenFile::visit(std::uint64_t begin, std::uint64_t count, Visit visit) const {
    constexpr std::uint64_t at_once = 1 << 16;
    const std::size_t width = element_ == Element::u8    ? 1
                              : element_ == Element::u16 ? 2
                              : element_ == Element::i64 ? 8
                                                         : 4;
    std::vector<std::byte> bytes;
    for (const std::uint64_t end = begin + count; begin < end; begin += bytes.size() / width) {
        bytes.resize(std::min(at_once, end - begin) * width);
        file_.read(data_ + begin * width, bytes);
        switch (element_) {
            case Element::u8:
                visit_elements<std::uint8_t>(bytes, begin, visit);
                break;
            case Element::u16:
                visit_elements<std::uint16_t>(bytes, begin, visit);
                break;
            case Element::u32:
                visit_elements<std::uint32_t>(bytes, begin, visit);
                break;
            case Element::i32:
                visit_elements<std::int32_t>(bytes, begin, visit);
                break;
            case Element::i64:
                visit_elements<std::int64_t>(bytes, begin, visit);
                break;
        }
    }
}

void TokenFile::copy(std::uint64_t begin, std::span<std::int32_t> out) const {
    check(begin <= size_ && out.size() <= size_ - begin, "tokens are read within their file");
    visit(begin, out.size(), [&](std::uint64_t position, std::int64_t token) {
        out[position - begin] = static_cast<std::int32_t>(token);
    });
}

void TokenFile::check_vocabulary(std::int64_t vocabulary) const {
    visit(0, size_, [&](std::uint64_t position, std::int64_t token) {
        if (token < 0) [[unlikely]]
            refuse(path_,
                   fmt::format("token {} at position {} is negative; expected 0 or more", token, position));
        if (token >= vocabulary) [[unlikely]]
            refuse(path_,
                   fmt::format(
                       "token {} at position {} is outside the vocabulary of {}; was it made with another "
                       "tokenizer?",
                       token, position, vocabulary));
    });
}

namespace {

void write_header(AtomicFile& file, std::uint64_t count) {
    std::array<std::int32_t, llmc::header_bytes / 4> header{};
    header[0] = llmc::magic;
    header[1] = llmc::version;
    header[2] = static_cast<std::int32_t>(count);
    const auto bytes = std::as_bytes(std::span(header));
    file.written() == 0 ? file.write(bytes) : file.overwrite(0, bytes);
}

void write_tokens(AtomicFile& file, std::span<const std::int32_t> tokens, const std::filesystem::path& path) {
    std::vector<std::uint16_t> narrow(std::min<std::size_t>(tokens.size(), 1 << 20));
    while (!tokens.empty()) {
        const std::size_t count = std::min(tokens.size(), narrow.size());
        for (std::size_t i = 0; i < count; ++i) {
            if (tokens[i] < 0 || tokens[i] > 65'535)
                throw UserError(fmt::format("{}: token {} does not fit in the 16 bits of this format",
                                            path.string(), tokens[i]));
            narrow[i] = static_cast<std::uint16_t>(tokens[i]);
        }
        file.write(std::as_bytes(std::span(narrow).first(count)));
        tokens = tokens.subspan(count);
    }
}

}  // namespace

TokenShardWriter::TokenShardWriter(std::filesystem::path stem, const Options& options)
    : stem_(std::move(stem)), options_(options) {
    check(options.tokens_per_shard > 0 && options.tokens_per_shard < std::uint64_t{1} << 31,
          "a shard's count fits its header");
}

void TokenShardWriter::append(std::span<const std::int32_t> tokens) {
    while (!tokens.empty()) {
        if (!file_) open_shard();
        const std::size_t count =
            std::min<std::uint64_t>(tokens.size(), options_.tokens_per_shard - in_shard_);
        write_tokens(*file_, tokens.first(count), shards_.back());
        in_shard_ += count;
        tokens = tokens.subspan(count);
        if (in_shard_ == options_.tokens_per_shard) close_shard();
    }
}

std::vector<std::filesystem::path> TokenShardWriter::finish() {
    if (file_) close_shard();
    return std::exchange(shards_, {});
}

void TokenShardWriter::open_shard() {
    shards_.emplace_back(fmt::format("{}_{:06}.bin", stem_.string(), shards_.size()));
    file_.emplace(shards_.back());
    in_shard_ = 0;
    write_header(*file_, 0);
}

void TokenShardWriter::close_shard() {
    write_header(*file_, in_shard_);
    file_->commit();
    file_.reset();
}

void write_token_shard(const std::filesystem::path& path, std::span<const std::int32_t> tokens) {
    check(tokens.size() < std::size_t{1} << 31, "a shard's count fits its header");
    AtomicFile file(path, llmc::header_bytes + 2 * tokens.size());
    write_header(file, tokens.size());
    write_tokens(file, tokens, path);
    file.commit();
}

}  // namespace mantissa
