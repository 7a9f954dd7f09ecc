// SentencePiece's table of what characters and clusters of them become in a text (`precompiled_charsmap`), by
// which its models change texts, applied as Hugging Face's tokenizers does.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/base/expected.h"

namespace mantissa::inline v0 {

class CharacterMap {
  public:
    /// The bytes of the table: the size of a trie in bytes, the trie, texts with a zero byte behind each. The
    /// trie is a double array (darts-clone): units of 32 bits, which have an offset and a label.
    static Expected<CharacterMap> of_bytes(std::string_view bytes);

    /// Writes to `changed` what the text becomes; false, and it is not touched, if that is the text itself.
    bool apply(std::string_view text, std::string& changed) const;

    bool operator==(const CharacterMap& other) const;

  private:
    struct Table {
        std::vector<std::uint32_t> units;
        std::string texts;
        bool operator==(const Table&) const = default;
    };
    explicit CharacterMap(std::shared_ptr<const Table> table) : table_(std::move(table)) {}
    std::optional<std::string_view> find(std::string_view cluster) const;

    std::shared_ptr<const Table> table_;
};

}  // namespace mantissa
