// Words at which a text ends, found in it as it comes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa::inline v0 {

class StopSequences {
  public:
    /// Throws UserError for an empty word.
    explicit StopSequences(std::vector<std::string> words);

    /// The text that can be shown now that `part` has come: all before the first of the words, or before what
    /// may yet become one. Nothing more once a word was found.
    std::string push(std::string_view part);
    /// The text still held back, when the text has ended without a word.
    std::string finish();
    bool found() const { return found_; }

  private:
    std::vector<std::string> words_;
    std::string held_;
    bool found_ = false;
};

}  // namespace mantissa
