#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// Byte-pair encoding (Sennrich et al. 2016, as `tokenizers` carries it out): a word's characters, or its bytes, are
/// joined two by two, the pair with the lowest rank first. Immutable, any thread.
class Bpe {
  public:
    virtual ~Bpe() = default;
    /// Appends the ids of one word (UTF-8, not empty).
    virtual void encode(std::string_view word, std::vector<std::int32_t>& ids) const = 0;
    /// The token as the vocabulary writes it; nothing when there is none of this id.
    [[nodiscard]] virtual std::optional<std::string_view> token(std::int32_t id) const = 0;
    [[nodiscard]] virtual std::optional<std::int32_t> id(std::string_view token) const = 0;
    /// One above the largest id.
    [[nodiscard]] virtual std::uint32_t end_id() const = 0;
    [[nodiscard]] virtual bool has_merges() const = 0;
};

/// "model" of a tokenizer.json, which must be of type BPE. `byte_level`: its vocabulary is written in the byte-level
/// alphabet, a character a byte.
Result<std::unique_ptr<Bpe>> make_bpe(const boost::json::value& model, bool byte_level);

/// U+0100 and the like back to bytes; nothing when a character is not in the byte-level alphabet.
[[nodiscard]] std::optional<std::string> bytes_of_byte_level(std::string_view token);

}  // namespace distilld
