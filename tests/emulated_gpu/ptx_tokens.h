// PTX cut into words: names, directives and opcodes with their dots, numbers, signs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa::inline v0::cuda::ptx {

class Tokens {
  public:
    /// Throws TextError for a character that no word of PTX has.
    explicit Tokens(std::string_view text);

    bool ended() const { return next_ == words_.size(); }
    /// The next word, or the one so many after it; empty at the end.
    std::string_view peek(std::size_t after = 0) const;
    /// The word, which is then behind.
    std::string take();
    bool accept(std::string_view word);
    /// Throws TextError unless it is the next.
    void expect(std::string_view word);
    void skip_line();
    /// Up to and with the next ';'.
    void skip_statement();
    /// The line of the next word.
    int line() const;

  private:
    struct Word {
        std::string_view text;
        int line = 0;
    };
    std::vector<Word> words_;
    std::size_t next_ = 0;
};

}  // namespace mantissa::cuda::ptx
