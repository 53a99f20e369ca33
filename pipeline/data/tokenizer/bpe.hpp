#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/tokenizer/bpe_vocabulary.hpp"

namespace distilld {

/// Byte-pair encoding (Sennrich et al. 2016, as in `tokenizers`): joins a word's characters, or its bytes, in pairs,
/// the pair with the lowest rank first. Immutable, any thread.
class Bpe {
  public:
    /// "model" of a tokenizer.json, which must be of type BPE. `byte_level`: its vocabulary is written in the
    /// byte-level alphabet, one character per byte.
    static Result<Bpe> read(const boost::json::value& model, bool byte_level);

    /// Appends the ids of one word (UTF-8, not empty).
    void encode(std::string_view word, std::vector<std::int32_t>& ids) const;
    /// The token as the vocabulary has it; empty if no token has this id.
    [[nodiscard]] std::optional<std::string_view> token(std::int32_t id) const;
    /// The text that the token stands for: a space for U+2581, and a byte for its fallback; empty if no token has this
    /// id.
    [[nodiscard]] std::string text(std::int32_t id) const;
    [[nodiscard]] std::optional<std::int32_t> id(std::string_view token) const;
    /// One above the largest id.
    [[nodiscard]] std::uint32_t end_id() const { return static_cast<std::uint32_t>(parts_->tokens.size()); }
    [[nodiscard]] bool has_merges() const { return !parts_->merges.empty(); }

  private:
    explicit Bpe(std::unique_ptr<const BpeVocabulary> parts) : parts_(std::move(parts)) {}

    void begin_with_bytes(std::string_view word, std::vector<std::int32_t>& ids) const;
    void begin_with_characters(std::string_view word, std::vector<std::int32_t>& ids) const;
    [[nodiscard]] bool falls_back(std::string_view character) const;
    [[nodiscard]] BpeMerge merge_of(std::int32_t left, std::int32_t right) const;
    void join_by_scan(std::vector<std::int32_t>& ids, std::size_t first) const;
    void join_by_heap(std::vector<std::int32_t>& ids, std::size_t first) const;

    std::unique_ptr<const BpeVocabulary> parts_;
};

/// Maps the byte-level alphabet (U+0100 and others) back to bytes; empty if a character is not in it.
[[nodiscard]] std::optional<std::string> bytes_of_byte_level(std::string_view token);

}  // namespace distilld
