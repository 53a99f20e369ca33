#pragma once

#include <boost/json/value.hpp>
#include <cstddef>
#include <functional>
#include <string>

#include "base/error.hpp"

namespace distilld {

/// Changes a text before it is split into words. `text` and the result are UTF-8; the result is at most `max_bytes`
/// long, see check_grown_bytes(). Empty: the text is unchanged. Immutable, any thread.
using Normalizer = std::function<std::string(std::string text, std::size_t max_bytes)>;

/// "normalizer" of a tokenizer.json: Sequence, NFC, NFD, NFKC, NFKD, Lowercase, Prepend, Replace, Strip, StripAccents.
/// Others are refused by name.
Result<Normalizer> make_normalizer(const boost::json::value& component);

}  // namespace distilld
