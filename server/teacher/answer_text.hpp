#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipeline/data/tokenizer/tokenizer.hpp"

namespace distilld::teacher {

/// The text of an answer, token by token, up to the first of its stop texts. Always UTF-8. Any thread.
class AnswerText {
  public:
    /// `prompt`: its end tells whether the answer begins inside a word. `tokenizer` must outlive this.
    AnswerText(const Tokenizer& tokenizer, std::span<const std::int32_t> prompt, std::vector<std::string> stops,
               bool skip_special);

    /// The text that is certain now: without the beginning of a character, and without what may begin a stop text.
    std::string add(std::int32_t id);
    /// The rest, after the last token.
    std::string finish();
    /// The stop text that ended the answer.
    [[nodiscard]] const std::optional<std::string>& stopped_by() const { return stopped_by_; }

  private:
    /// The text of ids_ from read_ on, up to the last whole character unless `all` is set.
    std::string take_text(bool all);
    std::string up_to_stop(std::string text, bool all);

    const Tokenizer& tokenizer_;
    std::vector<std::string> stops_;
    bool skip_special_;
    std::vector<std::int32_t> ids_;  ///< those that the next text depends on
    std::size_t read_;               ///< ids whose text was taken
    std::string bytes_;              ///< begin a character
    std::string held_;               ///< taken, may begin a stop text
    std::optional<std::string> stopped_by_;
};

/// The text of one token by itself, as UTF-8.
[[nodiscard]] std::string token_text(const Tokenizer& tokenizer, std::int32_t id);

}  // namespace distilld::teacher
