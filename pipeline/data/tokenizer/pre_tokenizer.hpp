#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "pipeline/data/tokenizer/pattern.hpp"

namespace distilld {

/// A text during pre-tokenization: a step may change it, or split it further.
struct Words {
    std::string text;                                                 ///< UTF-8
    std::vector<TextSpan> spans;                                      ///< of the words, in order, none empty
    bool at_start = false;                                            ///< the first word starts the document
    std::size_t max_bytes = std::numeric_limits<std::size_t>::max();  ///< of `text`, see check_grown_bytes()
};

/// Splits a text into the words that the model encodes one by one. Immutable, any thread.
class PreTokenizer {
  public:
    virtual ~PreTokenizer() = default;
    virtual void apply(Words& words) const = 0;
    /// Whether the model's vocabulary is written in the byte-level alphabet.
    [[nodiscard]] virtual bool is_byte_level() const { return false; }
};

/// "pre_tokenizer" of a tokenizer.json: Sequence, ByteLevel (only as the last), Split, Digits, Punctuation, Whitespace,
/// WhitespaceSplit, Metaspace. Others are refused by name.
Result<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(const boost::json::value& component);

}  // namespace distilld
