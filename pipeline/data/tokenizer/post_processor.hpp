#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <vector>

#include "base/error.hpp"

namespace distilld {

/// What stands around the ids of a text.
struct TokenFrame {
    std::vector<std::int32_t> before;
    std::vector<std::int32_t> behind;
};

/// "post_processor" of a tokenizer.json, for one text: Sequence, ByteLevel (which moves offsets only),
/// TemplateProcessing, RobertaProcessing, BertProcessing. Another one is refused by name.
Result<TokenFrame> read_post_processor(const boost::json::value& component);

}  // namespace distilld
