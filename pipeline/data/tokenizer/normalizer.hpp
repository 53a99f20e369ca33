#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <memory>
#include <string>

#include "base/error.hpp"

namespace distilld {

/// What happens to a text before it is cut up. Immutable, any thread.
class Normalizer {
  public:
    virtual ~Normalizer() = default;
    /// `text` is UTF-8, and stays it; it becomes no longer than `max_bytes`, see check_grown_bytes().
    [[nodiscard]] virtual std::string apply(std::string text, std::size_t max_bytes) const = 0;
};

/// "normalizer" of a tokenizer.json: Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, StripAccents.
/// Another one is refused by name.
Result<std::unique_ptr<Normalizer>> make_normalizer(const boost::json::value& component);

}  // namespace distilld
