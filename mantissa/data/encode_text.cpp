#include "mantissa/data/encode_text.h"

#include <algorithm>
#include <vector>

#include "mantissa/data/text_file.h"

namespace mantissa::inline v0 {

namespace {

/// Long against the cache of pieces that each thread warms up, short against memory.
constexpr std::size_t part_bytes = std::size_t{1} << 20;
/// Parts a thread encodes between two calls of the sink.
constexpr std::size_t parts_per_thread = 4;

}  // namespace

void encode_text(const Tokenizer& tokenizer, std::string_view text, ThreadPool& pool, TokenSink sink) {
    const auto parts = cut_text(text, part_bytes, tokenizer.parts().split);
    std::vector<Encoder> encoders;
    for (int i = 0; i < pool.threads(); ++i) encoders.emplace_back(tokenizer);
    const std::size_t batch = parts_per_thread * static_cast<std::size_t>(pool.threads());
    std::vector<std::vector<TokenId>> ids(std::min(batch, parts.size()));
    std::size_t bytes_done = 0;
    for (std::size_t first = 0; first < parts.size(); first += batch) {
        const std::size_t count = std::min(batch, parts.size() - first);
        pool.for_each_block(static_cast<std::int64_t>(count), [&](std::int64_t block, int worker) {
            const std::size_t i = static_cast<std::size_t>(block);
            ids[i].clear();
            encoders[static_cast<std::size_t>(worker)].encode(parts[first + i], ids[i],
                                                              {.continues = first + i > 0});
        });
        for (std::size_t i = 0; i < count; ++i) {
            bytes_done += parts[first + i].size();
            sink(ids[i], bytes_done);
        }
    }
}

}  // namespace mantissa
