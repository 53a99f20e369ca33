#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace distilld {

/// What the ids of a tokenizer stand for.
struct TokenTable {
    std::vector<std::string> bytes;           ///< [id] inside a text, special tokens as they are written; empty: none
    std::optional<std::int32_t> end_of_text;  ///< ends a document
    std::vector<std::int32_t> frame;          ///< ids of the empty text: those that are put around each text
    bool adds_space = false;                  ///< before the first word
};

inline constexpr std::int32_t kNoPartner = -1;

/// Relates the tokens of two tokenizers. Immutable, any thread.
class TokenAlignment {
  public:
    TokenAlignment(TokenTable student, TokenTable teacher);

    /// For each position of the student in a document, the position of the teacher that has read the same bytes of it;
    /// kNoPartner if there is none. Both are input ids of one document from its beginning.
    ///
    /// Ids that a tokenizer puts before each text, and the space that one adds to it, stand for nothing. Of several
    /// positions that have read the same bytes, the last one counts. Where the bytes differ (a tokenizer normalizes the
    /// text), the positions from there on have no partner.
    [[nodiscard]] std::vector<std::int32_t> partners(std::span<const std::int32_t> student,
                                                     std::span<const std::int32_t> teacher) const;

    /// The student's id that stands for the same bytes as the teacher's, the highest of several; the ends of text
    /// belong together. kNoPartner if there is none.
    [[nodiscard]] std::int32_t student_id(std::uint32_t teacher) const noexcept {
        return teacher < student_ids_.size() ? student_ids_[teacher] : kNoPartner;
    }
    [[nodiscard]] std::size_t teacher_ids() const noexcept { return student_ids_.size(); }

    /// The student's ids that student_id() returns, descending.
    [[nodiscard]] std::span<const std::int32_t> common_ids() const noexcept { return common_ids_; }

  private:
    TokenTable student_;
    TokenTable teacher_;
    std::vector<std::int32_t> student_ids_;  ///< [id of the teacher]
    std::vector<std::int32_t> common_ids_;
};

}  // namespace distilld
